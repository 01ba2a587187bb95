"""Whatever is in a file from outside: an answer, or one line that names it; no crash, no hang, no memory without end.

A bounded number of changes in every run of the tests; `make fuzz` tries others for as long as it is told to.
"""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz import of_connections, of_data, of_jobs, of_runs
from tests.fuzz.target import Laid, Target

# Of Orbax, whose reading of metadata stops at the first error and leaves a coroutine that nobody has awaited; Python
# says so whenever that is collected.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(?s).*Store._get_array_metadatas:pytest.PytestUnraisableExceptionWarning",
    # Of Hypothesis, about what it found: the warning would hide it.
    "ignore:Generating overly large repr",
    "ignore:coroutine 'Store._get_array_metadatas' was never awaited:RuntimeWarning",
)

TARGETS = (*of_connections.TARGETS, *of_data.TARGETS, *of_runs.TARGETS, *of_jobs.TARGETS)

PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
"""Without the search for lines that only failures run: it traces the readers, and takes minutes."""


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_any_content_is_answered(target: Target, tmp_path) -> None:
    laid = Laid(target, tmp_path)

    @settings(max_examples=target.examples, suppress_health_check=list(HealthCheck), deadline=None, phases=PHASES)
    @given(content=laid.changes())
    def check(content: bytes) -> None:
        laid.check(content)

    assert laid.check(laid.content) == "", "what is valid is taken"
    check()
