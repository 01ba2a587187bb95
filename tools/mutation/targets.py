"""Which modules are mutated, by which tests they are judged, and which mutants mean the same."""

from __future__ import annotations

TARGETS: dict[str, tuple[str, ...]] = {
    "tpujob_contract.environment": ("tests/contract/test_environment.py",),
    "tpujob_contract.process_ids": ("tests/contract/test_environment.py",),
    "tpujob_contract.report": ("tests/contract/test_report.py",),
    "tpujob_contract.termination_message": ("tests/contract/test_termination_message.py",),
    "tpujob_operator.topology.parse": ("tests/operator/topology",),
    "tpujob_operator.decide.restart_accounting": ("tests/operator/decide",),
    "tpujob_operator.decide.attempt_cause": ("tests/operator/decide",),
    "tpujob_operator.decide.first_failure": ("tests/operator/decide",),
    "tpujob_operator.decide.running": ("tests/operator/decide",),
    "tpujob_operator.decide.creation": ("tests/operator/decide",),
    "tpujob_operator.decide.completion": ("tests/operator/decide",),
    "tpujob_operator.decide.capacity": ("tests/operator/decide",),
    "tpujob_operator.decide.stall": ("tests/operator/decide",),
    "tpujob_operator.observe.report": ("tests/operator/observe/test_report.py",),
    "tpujob_trainer.checkpoint.retention": ("tests/trainer/checkpoint/test_retention.py",),
    "tpujob_trainer.checkpoint.save_health": ("tests/trainer/checkpoint/test_save_health.py",),
    "tpujob_trainer.data.manifest.permutation": ("tests/trainer/data/manifest/test_permutation.py",),
    "tpujob_trainer.data.manifest.plan": ("tests/trainer/data/manifest/test_plan.py",),
    "tpujob_trainer.distributed.failure": ("tests/trainer/distributed/test_failure.py",),
    "tpujob_trainer.telemetry.goodput": ("tests/trainer/telemetry/test_goodput.py",),
    "tpujob_trainer.train.nonfinite": ("tests/trainer/train/test_nonfinite.py",),
    "tpujob_trainer.train.save_policy": ("tests/trainer/train/test_save_policy.py",),
    "tpujob_trainer.train.step_flags": ("tests/trainer/train/test_step_flags.py",),
}
"""Module to tests; tests of the same room alone, so that a mutant costs a second."""

EQUIVALENT: dict[tuple[str, str, str], str] = {}
"""Module, expression and mutant → why no test can tell them apart."""
