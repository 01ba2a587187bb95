"""A person who wrote a wrong value reads what is allowed, not a regular expression."""

from collections.abc import Iterator
from typing import Any

from tpujob_resource.messages.error_messages import WORDS
from tpujob_resource.models.job import TpuTrainingJob


def patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for inner in schema.values():
            yield from patterns(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from patterns(inner)


def test_every_pattern_of_the_resource_has_words() -> None:
    assert set(patterns(TpuTrainingJob.model_json_schema()["$defs"])) - set(WORDS) == set()
