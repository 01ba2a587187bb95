import pytest

from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.extract.description import require_same
from tpujob_trainer.storage import open_bucket

BEGUN = {
    "corpus": "abc",
    "spec.trainer.model": {"layers": 28, "heads": 4},
    "spec.trainer.extract.layers": ["layer_15_residual"],
    "image": {"jax": "0.12.0", "the trainer's own code": "aaa"},
}


@pytest.fixture
def objects(tmp_path):
    made = open_bucket(tmp_path)
    require_same(made, BEGUN)
    return made


def test_same_description_is_accepted(objects):
    require_same(objects, dict(BEGUN))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"corpus": "xyz"}, "corpus: 'xyz' in this worker, 'abc' in the files .* put the data back", id="corpus"
        ),
        pytest.param(
            {"spec.trainer.extract.layers": ["layer_16_residual"]},
            r"^spec\.trainer\.extract\.layers: \['layer_16_residual'\] in this worker",
            id="layers",
        ),
        pytest.param(
            {"spec.trainer.model": {"layers": 30, "heads": 4}},
            "^spec.trainer.model, layers: 30 in this worker, 28 in the files",
            id="model",
        ),
        pytest.param(
            {"image": {"jax": "0.12.0", "the trainer's own code": "bbb"}},
            "^image, the trainer's own code: 'bbb' in this worker, 'aaa' .* use the image that the job began with",
            id="image",
        ),
    ],
)
def test_difference_is_named(objects, changes, message):
    with pytest.raises(ConfigurationError, match=message):
        require_same(objects, {**BEGUN, **changes})
    require_same(objects, BEGUN)
