# ruff: noqa: E501 - tables, one line each
"""What somebody can do about it: by exit code of a host, and by what keeps a container from starting."""

from __future__ import annotations

from collections.abc import Mapping

from tpujob_contract.exit_codes import KILLED, ExitCode

THEN = "then raise spec.retry, edit the job's spec, or delete this job and apply it again; its checkpoints are kept."

BY_CODE: Mapping[int, str] = {
    ExitCode.TPU_HELD: f"End the process that holds the TPU, or use another node pool, {THEN}",
    ExitCode.DIVERGED: f"Lower the learning rate, lengthen the warm-up or look at the data of these steps, {THEN}",
    ExitCode.NOT_FOUND: f"Correct the path, or grant the pods' service account the right, {THEN}",
    ExitCode.CONFIGURATION: f"Correct what it names, {THEN}",
    ExitCode.STALLED: f"The stacks in its log say where it stood; fix that, {THEN}",
    ExitCode.PEERS_MISSING: f"Look at why the hosts that it names did not come, {THEN}",
    KILLED: (
        "Somebody or the kernel killed it: if it says OOMKilled, raise spec.resources or make the batch smaller, "
        f"{THEN}"
    ),
}

IN_THE_REFERENCE: Mapping[int, tuple[str, str]] = {
    ExitCode.FINISHED: ("Succeeded, once all processes say so.", "Nothing."),
    ExitCode.TPU_HELD: (
        "Restarted, charged as a crash.",
        "End the process that the message names, or use another host.",
    ),
    ExitCode.STOPPED: (
        "Restarted without charge, or Suspended if that was asked for.",
        "Nothing; the next attempt resumes.",
    ),
    ExitCode.DIVERGED: (
        "Failed, never retried.",
        "Lower `optimizer.learningRate` or `clipNorm`, or look at the data of the steps that the message names.",
    ),
    ExitCode.NOT_FOUND: (
        "Failed, never retried.",
        "Check the spelling of the path, and let the pods' service account read it (and write, for `checkpointDir`).",
    ),
    ExitCode.CONFIGURATION: (
        "Failed, never retried.",
        "Fix the field that the message names and submit the job again.",
    ),
    ExitCode.STALLED: (
        "Restarted, charged as a crash.",
        "Read the stacks of the process that the message names: is it a read that hangs, or a step that needs a larger `watchdog.stepSeconds`?",
    ),
    ExitCode.PEERS_MISSING: (
        "Restarted; free when the node of a missing process is gone, or when there was no machine for it.",
        "See why the pods of the named processes did not start: `tpujob describe NAME`.",
    ),
}
"""Code to what happens next, and what to do; a table of the documentation is made of it."""

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
    """What to do about a job that a host's end has ended."""
    return BY_CODE.get(code or 0, f"Fix it, {THEN}")


def for_waiting(reason: str) -> str:
    """What to do about a container that does not start."""
    return BY_WAITING_REASON.get(reason, "`kubectl describe pod` has more.")
