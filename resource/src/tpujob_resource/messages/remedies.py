# ruff: noqa: E501 - tables, one line each
"""Remedies, by exit code of a host and by the reason why a container does not start."""

from collections.abc import Mapping
from dataclasses import dataclass

from tpujob_contract.exit_codes import KILLED, ExitCode

THEN = "then raise spec.retry, edit the job's spec, or delete this job and apply it again; its checkpoints are kept."


@dataclass(frozen=True)
class Remedy:
    """The consequences of an exit code: for the documentation, and for the message of a job that failed with it."""

    outcome: str
    """What the operator does next."""
    advice: str
    """What to do, in the documentation."""
    fix: str = "Fix it"
    """What to do, in the message; `THEN` follows it."""


REMEDIES: Mapping[int, Remedy] = {
    ExitCode.FINISHED: Remedy("Succeeded, once all processes say so.", "Nothing."),
    ExitCode.TPU_HELD: Remedy(
        "Restarted, charged as a crash.",
        "End the process that the message names, or use another host.",
        "End the process that holds the TPU, or use another node pool",
    ),
    ExitCode.STOPPED: Remedy(
        "Restarted without charge, or Suspended if that was asked for.",
        "Nothing; the next attempt resumes.",
    ),
    ExitCode.DIVERGED: Remedy(
        "Failed, never retried.",
        "Lower `optimizer.learningRate` or `clipNorm`, or look at the data of the steps that the message names.",
        "Lower the learning rate, lengthen the warm-up or look at the data of these steps",
    ),
    ExitCode.NOT_FOUND: Remedy(
        "Failed, never retried.",
        "Check the spelling of the path, and let the pods' service account read it (and write, for `checkpointDir`).",
        "Correct the path, or grant the pods' service account the right",
    ),
    ExitCode.CONFIGURATION: Remedy(
        "Failed, never retried.",
        "Fix the field that the message names and submit the job again.",
        "Correct what it names",
    ),
    ExitCode.STALLED: Remedy(
        "Restarted, charged as a crash.",
        "Read the stacks of the process that the message names: is it a read that hangs, or a step that needs a larger `watchdog.stepSeconds`?",
        "The stacks in its log say where it stood; fix that",
    ),
    ExitCode.NO_ATTEMPT_LEFT: Remedy(
        "Restarted in new pods, charged by the code that the message names.",
        "Look at the program that failed last: the message has its own exit code.",
        "Its message has the exit code of its program; fix what ended that",
    ),
    ExitCode.PEERS_MISSING: Remedy(
        "Restarted; free when the node of a missing process is gone, or when there was no machine for it.",
        "See why the pods of the named processes did not start: `tpujob describe NAME`.",
        "Look at why the hosts that it names did not come",
    ),
    KILLED: Remedy(
        "Restarted, charged by cause.",
        "With reason OOMKilled, raise `spec.resources.limits.memory` or lower `data.bufferBytes`; else see the node's events.",
        "Somebody or the kernel killed it: if it says OOMKilled, raise spec.resources or make the batch smaller",
    ),
}
"""One row for each exit code with specific advice; the documentation's table is generated from them."""

BAD_IMAGE = "Check the image's name and tag (spec.image), and the registry's secret in spec.imagePullSecrets."
BY_WAITING_REASON: Mapping[str, str] = {
    "ImagePullBackOff": BAD_IMAGE,
    "ErrImagePull": BAD_IMAGE,
    "ErrImageNeverPull": "The image is not on the node; set spec.imagePullPolicy to IfNotPresent.",
    "InvalidImageName": "Correct spec.image.",
    "CreateContainerConfigError": "Create the Secret or ConfigMap that spec.env names, or correct the name.",
    "CreateContainerError": "The command does not fit the image; correct spec.command or spec.image.",
    "RunContainerError": "The command does not fit the image; correct spec.command or spec.image.",
}


def after_exit(code: int | None) -> str:
    """What to do about a job that failed with this exit code of a host."""
    remedy = REMEDIES.get(code or 0)
    return f"{'Fix it' if remedy is None else remedy.fix}, {THEN}"


def for_waiting(reason: str) -> str:
    """What to do about a container that does not start."""
    return BY_WAITING_REASON.get(reason, "`kubectl describe pod` has more.")
