"""Typical human mistakes, each with the tests that detect it.

A random mutant changes one operator; these are larger. Each consists of a module, a text that occurs in it once, its
replacement, and the tests of which at least one must fail.
"""

import ast
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.mutation.trial import is_noticed

ROOT = Path(__file__).parents[2]
SECONDS = 30.0
"""The approximate time of the tests of one mistake."""


@dataclass(frozen=True)
class Mistake:
    """A replaced text in a module."""

    what: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The file of the module."""
        package, *rest = self.module.split(".")
        folder = package.removeprefix("tpujob_")
        return ROOT.joinpath(folder, "src", package, *rest).with_suffix(".py")

    def source(self) -> str:
        """The source of the module with the mistake.

        Raises:
            ValueError: The text does not occur exactly once: the table must match the code.
        """
        text = self.path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.module}: {self.old!r} occurs {text.count(self.old)} times; see tools/mutation/named.py"
            )
        return text.replace(self.old, self.new)


def is_mistake_noticed(mistake: Mistake) -> bool:
    """Whether a test fails with this mistake, which also applies in processes that the tests start."""
    source = mistake.source()
    package, *rest = mistake.module.split(".")
    with tempfile.TemporaryDirectory() as folder:
        # `python -m` searches the working directory first, so processes that tests start also import the mistake.
        shutil.copytree(mistake.path.parents[len(rest) - 1], Path(folder) / package)
        Path(folder, package, *rest).with_suffix(".py").write_text(source)
        return is_noticed(
            mistake.module, ast.parse(source), mistake.path, mistake.tests, SECONDS, directory=Path(folder)
        )


_STEP = "tests/trainer/train/test_step_on_slices.py"
_LOOP = "tests/trainer/train/test_loop.py"
_DECIDE = "tests/operator/decide"
_UNUSABLE = "tests/trainer/checkpoint/test_unusable_steps.py"
_CHILD = "tests/launcher/test_child.py"

MISTAKES: tuple[Mistake, ...] = (
    Mistake(
        "flags of the first slice alone",
        "tpujob_trainer.train.step",
        "jnp.max(batch.signals, axis=0)",
        "jnp.max(batch.signals[: batch.signals.shape[0] // 2], axis=0)",
        (f"{_STEP}::test_flags_of_any_row_reach_everybody_and_the_rate_is_that_of_the_step",),
    ),
    Mistake(
        "the learning rate of the next step in the metrics",
        "tpujob_trainer.train.step",
        "schedule(state.step)",
        "schedule(state.step + 1)",
        (f"{_STEP}::test_flags_of_any_row_reach_everybody_and_the_rate_is_that_of_the_step",),
    ),
    Mistake(
        "Adam's betas exchanged",
        "tpujob_trainer.train.optimizer",
        'adam = {"b1": config.beta1, "b2": config.beta2',
        'adam = {"b1": config.beta2, "b2": config.beta1',
        ("tests/trainer/train/test_optimizer.py::test_moments_decay_with_their_own_betas",),
    ),
    Mistake(
        "no record of the last step before the save of a stop",
        "tpujob_trainer.train.loop",
        "            if flags.stop:\n                self._record(pending, state)\n",
        "            if flags.stop:\n",
        (f"{_LOOP}::test_state_that_became_poisoned_is_not_saved_when_asked_to_stop",),
    ),
    Mistake(
        "tokens per second over a pause",
        "tpujob_trainer.train.step_logger",
        "        self._window_began += spent\n",
        "",
        ("tests/trainer/train/test_step_logger.py::test_speed_leaves_out_a_pause",),
    ),
    Mistake(
        "attempts that are booked are charged again",
        "tpujob_operator.decide.causes.restart_accounting",
        "max(judged_before, jobset.restarts - MOST_JUDGED)",
        "max(0, jobset.restarts - MOST_JUDGED)",
        (f"{_DECIDE}/test_restart_accounting.py",),
    ),
    Mistake(
        "a newer checkpoint in the same look does not end a series of crashes",
        "tpujob_operator.decide.causes.restart_accounting",
        "observed.progress.committed_step if observed.progress else None",
        "None",
        (f"{_DECIDE}/test_restart_accounting.py", f"{_DECIDE}/test_restart_pause.py"),
    ),
    Mistake(
        "another owner's NetworkPolicy is written",
        "tpujob_operator.decide.chain",
        "observed.uid not in found.owner_uids or ",
        "",
        (f"{_DECIDE}/test_network_policy.py",),
    ),
    Mistake(
        "capacity before what keeps pods from starting",
        "tpujob_operator.decide.checks.running",
        "if obstacle is not None or without is None:",
        "if without is None:",
        (f"{_DECIDE}/test_phases.py::test_what_keeps_pods_from_starting_comes_before_capacity",),
    ),
    Mistake(
        "a process without a report stalls as early as one that makes steps",
        "tpujob_operator.decide.checks.stall",
        "if progress is None or progress.phase",
        "if progress is not None and progress.phase",
        (f"{_DECIDE}/test_phases.py::test_stall_is_told_from_slowness",),
    ),
    Mistake(
        "a recorded fatal end is forgotten",
        "tpujob_operator.decide.causes.attempt_cause",
        "(recorded_end(observed), recorded_asking(observed), recorded_disruption(observed))",
        "(None, recorded_asking(observed), recorded_disruption(observed))",
        (f"{_DECIDE}/test_chain.py::test_recorded_fatal_end_ends_a_jobset_that_goes_on",),
    ),
    Mistake(
        "the largest slice is refused",
        "tpujob_resource.topology.parse",
        "cubes <= generation.max_cubes",
        "cubes < generation.max_cubes",
        ("tests/resource/topology/test_parse.py::test_the_largest_slice_is_allowed",),
    ),
    Mistake(
        "the launcher's image is pulled by the default policy",
        "tpujob_resource.jobset.pod",
        '"command": list(commands.CARRY),\n        **policy,',
        '"command": list(commands.CARRY),',
        ("tests/resource/jobset/test_build.py::test_launcher_is_pulled_as_the_operator_says",),
    ),
    Mistake(
        "a second SIGTERM puts the kill off",
        "tpujob_launcher.supervise.ending",
        "if self.stop_signal is not None:\n            return False",
        "if self.is_killed:\n            return False",
        (f"{_CHILD}::test_second_stop_does_not_extend_the_grace_period",),
    ),
    Mistake(
        "leftovers outlive the grace period",
        "tpujob_launcher.supervise.ending",
        "min(LEFTOVER_SECONDS, self._patience, left)",
        "LEFTOVER_SECONDS",
        ("tests/launcher/test_ending.py::test_leftovers_have_what_the_grace_period_has",),
    ),
    Mistake(
        "every pass has the same order of rows",
        "tpujob_trainer.data.stream.loader",
        '"rows", self._plan.seed, epoch, unit',
        '"rows", self._plan.seed, unit',
        ("tests/trainer/data/stream/test_row_order.py",),
    ),
    Mistake(
        "the data ends with its shortest lane",
        "tpujob_trainer.data.stream.position",
        "(epoch >= plan.epochs).all()",
        "(epoch >= plan.epochs).any()",
        ("tests/trainer/data/stream/test_position.py",),
    ),
    Mistake(
        "an edit that keeps the size is not seen",
        "tpujob_trainer.data.manifest.scan",
        "    listing.format.open(listing.root, expected, manifest.digests[number], column)\n",
        "",
        ("tests/trainer/data/manifest/test_manifest.py::test_changed_data_is_refused_by_name",),
    ),
    Mistake(
        "a save starts before what lies in its place is deleted",
        "tpujob_trainer.checkpoint.save_decision",
        "if not deleter.wait(limit_seconds):",
        "if False:",
        ("tests/trainer/checkpoint/test_step_slots.py",),
    ),
    Mistake(
        "copies of an array that differ are restored",
        "tpujob_trainer.checkpoint.restore",
        " or found.differing_copies",
        "",
        (f"{_UNUSABLE}::test_copies_that_differ_after_a_restore_are_damage",),
    ),
    Mistake(
        "damage in one process hides that storage is out of reach for another",
        "tpujob_trainer.checkpoint.restore",
        "if any(vote.is_out_of_reach for _, vote in against):",
        "if against and all(vote.is_out_of_reach for _, vote in against):",
        (f"{_UNUSABLE}::test_one_process_out_of_reach_ends_the_restore_for_all",),
    ),
    Mistake(
        "another order of units for sizes just above a power of four",
        "tpujob_trainer.data.manifest.permutation",
        "(size - 1).bit_length()",
        "size.bit_length()",
        ("tests/trainer/data/manifest/test_permutation.py",),
    ),
    Mistake(
        "a job that never restarted shows 0 restarts",
        "tpujob_operator.decide.causes.restart_accounting",
        "if not total:",
        "if total is None:",
        (f"{_DECIDE}/test_restart_accounting.py::test_a_job_that_has_not_restarted_says_nothing_of_restarts",),
    ),
)
