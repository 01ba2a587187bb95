import json
from typing import Any

import jsonschema
import pytest

from tests.trainer.config.test_schema import block
from tpujob_trainer.config import json_schema
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.values.errors import ConfigurationError


def test_the_committed_schema_is_current() -> None:
    assert json_schema.main(["--check"]) == 0, "run `python -m tpujob_trainer.config.json_schema`"


def test_a_stale_file_is_noticed(tmp_path: Any) -> None:
    target = tmp_path / "schema.json"
    assert json_schema.main(["--to", str(target)]) == 0
    assert json_schema.main(["--check", "--to", str(target)]) == 0
    target.write_text(target.read_text().replace("Tokens of a row", "Tokens"))
    assert json_schema.main(["--check", "--to", str(target)]) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"steps": None, "tokens": 20e9},
        {"steps": 0},
        {"steps": 1.5},
        {"steps": "7"},
        {"data": {}},
        {"data": {"path": ""}},
        {"batchsize": 4},
        {"model": {"preset": "huge"}},
        {"model": {"preset": "tiny", "tieEmbeddings": "yes"}},
        {"optimizer": {"learningRate": 11}},
    ],
    ids=json.dumps,
)
def test_schema_and_parser_agree(changes: dict[str, Any]) -> None:
    given = block(**changes)
    try:
        parse_config(given)
        is_valid = True
    except ConfigurationError:
        is_valid = False
    assert jsonschema.Draft202012Validator(json_schema.schema()).is_valid(given) == is_valid


def test_every_field_is_described_and_none_has_a_default() -> None:
    def walk(node: dict[str, Any], path: str) -> None:
        assert "default" not in node, path
        for key, child in node.get("properties", {}).items():
            assert child["description"].endswith("."), f"{path}.{key}"
            walk(child, f"{path}.{key}")

    walk(json_schema.schema(), "")
