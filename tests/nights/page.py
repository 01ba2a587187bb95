"""docs/reference/invariants.md from the docstrings of the invariants, and the table of nights that were played.

python -m tests.nights.page writes both.
"""

import inspect
from collections.abc import Iterable
from pathlib import Path

from tests.nights import results
from tests.nights.invariants import INVARIANTS
from tests.nights.player import GONE_SECONDS, REST_SECONDS
from tests.nights.schedule import INFRASTRUCTURE, KINDS, TO_A_JOB

FILE = Path(__file__).parents[2] / "docs" / "reference" / "invariants.md"
HEAD = """# Invariants

What holds of every job, whatever happens to the operator, the cluster and the job. `make nights SEED=1 MINUTES=10`
plays a random night against a real API server with etcd, JobSet, the Job controller, Kueue and a scheduler, with
simulated kubelets, and watches these invariants all the time. A violation is printed with its seed and the shortest
list of blows that was found to bring it about. This page is made from `tests/nights` by `make generate`.
"""


def page() -> str:
    """The page as Markdown."""
    rows = [f"## {each.__name__.replace('_', ' ').capitalize()}\n\n{inspect.getdoc(each)}" for each in INVARIANTS]
    rest = f"Status is judged within {REST_SECONDS:g} s after the last blow, what is left within {GONE_SECONDS:g} s"
    times = f"{rest} after the deletion of all jobs; longer on a machine that does other work."
    kinds = f"## Kinds of jobs\n\n{_listed(KINDS)}."
    blows = f"## Blows\n\nTo what all jobs share: {_listed(INFRASTRUCTURE)}.\n\nTo one job: {_listed(TO_A_JOB)}."
    return "\n".join([HEAD, times + "\n", *(f"{row}\n" for row in rows), f"{kinds}\n", blows]) + "\n"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    FILE.write_text(page())
    results.write_table()
