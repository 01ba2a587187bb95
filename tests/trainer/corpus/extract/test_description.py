import pytest

from tpujob_trainer.corpus.extract.description import require_same, require_same_weights
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.values.errors import ConfigurationError

FIELD = "spec.trainer.extract"
BEGUN = {
    "corpus": "abc",
    "spec.trainer.model": {"layers": 28, "heads": 4},
    "spec.trainer.extract.layers": ["layer_15_residual"],
    "spec.trainer.model.from": "gs://bucket/model",
    "image": {"jax": "0.12.0", "values": 1},
}


@pytest.fixture
def objects(tmp_path):
    made = open_bucket(tmp_path)
    require_same(made, BEGUN, field=FIELD)
    return made


def test_same_description_is_accepted(objects):
    require_same(objects, dict(BEGUN), field=FIELD)


def test_moved_model_is_accepted(objects):
    require_same(objects, {**BEGUN, "spec.trainer.model.from": "gs://elsewhere/model"}, field=FIELD)


def test_other_image_is_accepted_where_asked(objects):
    other = {**BEGUN, "image": {"jax": "0.13.0", "values": 2}}
    require_same(objects, other, accept_other_image=True, field=FIELD)
    with pytest.raises(ConfigurationError, match=r"^corpus"):
        require_same(objects, {**other, "corpus": "xyz"}, accept_other_image=True, field=FIELD)


def test_other_weights_are_refused_wherever_they_lie(objects):
    require_same_weights(objects, "aaa", "gs://bucket/model")
    require_same_weights(objects, "aaa", "gs://elsewhere/model")
    with pytest.raises(ConfigurationError, match=r"model\.from: the weights at gs://bucket/model are not"):
        require_same_weights(objects, "bbb", "gs://bucket/model")


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
            {"image": {"jax": "0.13.0", "values": 1}},
            "^image, jax: '0.13.0' in this worker, '0.12.0' .* use the image that the job began with, or set "
            r"spec\.trainer\.extract\.acceptOtherImage",
            id="image",
        ),
        pytest.param(
            {"image": {"jax": "0.12.0", "values": 2}}, "^image, values: 2 in this worker, 1 in the files", id="values"
        ),
    ],
)
def test_difference_is_named(objects, changes, message):
    with pytest.raises(ConfigurationError, match=message):
        require_same(objects, {**BEGUN, **changes}, field=FIELD)
    require_same(objects, BEGUN, field=FIELD)
