"""Which tokens end a text."""

import json

import pytest

from tpujob_trainer.model.weights.companions import text_ends
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError


@pytest.mark.parametrize(
    ("generation", "config", "ends"),
    [
        ({"eos_token_id": [5, 7]}, {"eos_token_id": 9}, (3, 5, 7)),
        ({"eos_token_id": 3}, {}, (3,)),
        ({}, {"eos_token_id": 9}, (3,)),
        (None, {"eos_token_id": [9, 3]}, (3, 9)),
        (None, {"text_config": {"eos_token_id": 8}}, (3, 8)),
        (None, {"eos_token_id": None}, (3,)),
        (None, {"text_config": "damaged"}, (3,)),
    ],
)
def test_ends_of_a_model(tmp_path, generation, config, ends):
    (tmp_path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert text_ends(3, str(tmp_path)) == ends


def test_a_model_without_files_has_the_tokenizers(tmp_path):
    assert text_ends(3, None) == (3,)
    with pytest.raises(NotFoundError, match=r"spec\.trainer.model.from"):
        text_ends(3, str(tmp_path / "nowhere"))


@pytest.mark.parametrize("given", [["</s>"], -1, True, {"id": 3}])
def test_what_is_no_token_is_refused(tmp_path, given):
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": given}))
    with pytest.raises(
        ConfigurationError, match=r"generation_config.json: eos_token_id is .*, not the number of a token"
    ):
        text_ends(3, str(tmp_path))
