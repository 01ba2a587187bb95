"""Messages of `tpujob run` besides the progress: the opening, and events of its processes."""

from collections.abc import Callable, Sequence

from tpujob.local.closing import short_path
from tpujob.local.placement import Placement
from tpujob.local.plan import LocalProcess
from tpujob.local.reports import message_of
from tpujob.local.supervisor import EARLY_FINISH_SECONDS, PEER_FAILED_GRACE_SECONDS, Exit
from tpujob.output.words import counted
from tpujob_contract import ExitCode
from tpujob_contract.exit_codes import describe
from tpujob_contract.reports.termination_message import named_in
from tpujob_resource.models.job import TpuTrainingJob


class Announcements:
    """Prints each event of a run as a line for people."""

    def __init__(
        self, job: TpuTrainingJob, placement: Placement, grace_seconds: int, say: Callable[[str], None]
    ) -> None:
        """Prepares the lines.

        Args:
            job: What runs.
            placement: Which of its processes run here, and on which devices.
            grace_seconds: From the request to stop to SIGKILL.
            say: Prints a line above the progress.
        """
        self._job = job
        self._placement = placement
        self._grace_seconds = grace_seconds
        self._say = say

    def opening(self, processes: Sequence[LocalProcess], checkpoint_dir: str, warnings: Sequence[str]) -> None:
        """Prints what runs, and where its files and its progress are."""
        spec = self._job.spec
        self._say(
            f"{spec.accelerator}: {self._what_runs(len(processes))}\n"
            f"checkpoints  {short_path(checkpoint_dir)}\n"
            f"logs         {short_path(str(processes[0].log.parent))}"
        )
        if self._job.accelerator.note is not None:
            self._say(f"note: {self._job.accelerator.note}")
        for warning in warnings:
            self._say(f"warning: {warning}")
        if spec.trainer is not None:
            self._say(f"progress     http://127.0.0.1:{processes[0].report_port}/ while it runs")

    def _what_runs(self, count: int) -> str:
        job, placement = self._job, self._placement
        devices = ", rehearsed on CPU devices" if job.accelerator.is_tpu else ""
        if placement.on_chips:
            devices = f", on its {counted(job.accelerator.chips_per_host, 'TPU chip')}"
        if not placement.is_distributed:
            return f"{counted(count, 'process', 'processes')} on this machine{devices}"
        where = f"; process 0 is at {placement.coordinator}" if placement.coordinator else ""
        return f"process {placement.host} of {job.hosts} on this machine{devices}{where}"

    def interrupt(self, count: int) -> None:
        """Prints that the first Ctrl-C asks all processes to stop, or that a second one kills them."""
        if count == 1:
            self._say(f"stopping: {self._stopping()}, at most {self._grace_seconds} s; Ctrl-C again to leave at once")
        else:
            self._say("leaving at once")

    def frozen(self, process: LocalProcess, pid: int) -> None:
        """Prints that a launcher is stopped (SIGSTOP)."""
        self._say(
            f"warning: process {process.index} ({process.name}) is frozen: somebody stopped its launcher, pid {pid}; "
            f"`kill -CONT {pid}` lets it go on"
        )

    def failure(self, end: Exit) -> None:
        """Prints the first failure, which ends the other processes."""
        process = end.process
        other = named_in("\n".join(message_of(process.termination_log)))
        because = "" if other in (None, process.index) else f" since process {other} failed"
        how = f"ended with exit code {describe(end.code)}{because}"
        if end.code == ExitCode.STOPPED:
            how = f"asks for another start (exit code {end.code})"
        self._say(
            f"process {process.index} ({process.name}) {how}; the others have {PEER_FAILED_GRACE_SECONDS} s to end"
        )

    def worker_failure(self, end: Exit, left: int) -> None:
        """Prints that an independent worker failed, and whether it starts again: at most `left` times after this."""
        next_ = f"it starts again, {left} more at most" if left >= 0 else "it does not start again (restarts.crashes)"
        name = f"process {end.process.index} ({end.process.name})"
        self._say(f"{name} ended with exit code {describe(end.code)}; {next_}; the others go on")

    def slow_stop(self, processes: Sequence[LocalProcess], seconds: float) -> None:
        """Prints that a requested stop takes long."""
        names = ", ".join(f"process {each.index} ({each.name})" for each in processes)
        self._say(
            f"still stopping: {names}; killed in {max(0.0, seconds):.0f} s, since a barrier or a save hears no signal: "
            "Ctrl-C again to leave at once"
        )

    def early_finish(self, end: Exit, failed: Exit | None) -> None:
        """Prints that a process finished some time ago while others still run, or before `failed` failed."""
        if failed is not None:
            seconds = failed.ended_at - end.ended_at
            self._say(
                f"warning: process {end.process.index} ({end.process.name}) had finished {seconds:.1f} s before "
                f"process {failed.process.index} failed, which may have needed it"
            )
            return
        self._say(
            f"warning: process {end.process.index} ({end.process.name}) finished {EARLY_FINISH_SECONDS} s ago, and "
            "others go on; if they wait for it, they wait forever: Ctrl-C ends all"
        )

    def _stopping(self) -> str:
        """What the processes do after Ctrl-C, in words."""
        if self._job.spec.trainer is None:
            return "the program may save and end"
        return "giving units back" if has_units(self._job) else "saving first"


def has_units(job: TpuTrainingJob) -> bool:
    """Whether the job's task works on units of a corpus, and has no step to save."""
    return bool((job.spec.trainer or {}).get("task", "pretrain") != "pretrain")
