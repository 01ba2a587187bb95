"""Whatever is in a file that should hold a JSON object: the object, or one line that says what it is instead."""

import pytest

from tpujob_trainer.values.errors import ConfigurationError
from tpujob_trainer.values.json_object import json_object, kept_object


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Expecting value"),
        (b"[1]", "no object"),
        (b"null", "no object"),
        (b"\xff\xfe{}", "not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a": "\\ud83d"}', "half of a character"),
        (b'{"a": 1', "Expecting ',' delimiter"),
    ],
    ids=["empty", "list", "null", "bytes", "UTF-16", "deep", "surrogate", "cut"],
)
def test_what_is_no_object_is_said(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        json_object(content)
    with pytest.raises(
        ConfigurationError, match=rf"^spec\.checkpointDir: /run/a\.json is damaged \(.*{said}.*\); delete it$"
    ):
        kept_object(content, "spec.checkpointDir: /run/a.json", "delete it")


def test_object_is_read_from_bytes_and_text() -> None:
    assert json_object(b'{"a": 1}') == json_object('{"a": 1}') == {"a": 1}
