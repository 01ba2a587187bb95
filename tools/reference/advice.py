# ruff: noqa: E501 - a table, one line each
"""Exit codes outside the contract, and what to do about them."""

from tpujob_contract.exit_codes import KILLED
from tpujob_resource.messages.remedies import REMEDIES

OTHER_CODES: dict[str, tuple[str, str, str]] = {
    "1": ("an exception, or another process was lost", "Restarted, charged by cause.", "Read the message and that process's log."),
    "134": ("aborted: an assertion in C++, or JAX lost its coordinator", "Restarted, charged by cause.", "Look for the process that ended first."),
    "137": ("killed", REMEDIES[KILLED].outcome, REMEDIES[KILLED].advice),
    "139": ("segmentation fault", "Restarted, charged by cause.", "The log has the Python stacks; compare library versions with the image that worked."),
    "143": ("ended by SIGTERM, without the trainer's own ending", "Restarted; free when Kubernetes evicted the pod.", "Nothing, unless it repeats."),
}  # fmt: skip
"""Code to its meaning, what happens next, and what to do."""
