"""A row of the table of wrong jobs."""

from typing import Any

type Job = dict[str, Any]

ARITHMETIC = "only arithmetic over the topology of the accelerator shows it, which the API server cannot do"
BUDGET = "a pattern for each item of a list is more than the API server's budget for rules"


class Wrong:
    """A job that is refused, and by whom."""

    def __init__(self, job: Job, *says: str, api: str | None = None, later: str | None = None) -> None:
        """Describes a row.

        Args:
            job: The resource.
            says: How each line of the refusal begins: of the operator, of `tpujob render` and of `tpujob check`.
            api: The API server's own words, where its schema refuses the job before any rule of ours. Without them it
                gives one of these sentences, too.
            later: Why the API server accepts the job.
        """
        self.job, self.says, self.api, self.later = job, says, api, later

    @property
    def block(self) -> Job | None:
        """The `trainer` block, where that alone is at fault."""
        block = (self.job.get("spec") or {}).get("trainer")
        is_at_fault = all(line.startswith("spec.trainer.") for line in self.says)
        return block if isinstance(block, dict) and is_at_fault and self.later is None else None
