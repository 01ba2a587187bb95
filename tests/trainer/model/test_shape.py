from collections.abc import Mapping

import pytest

from tpujob_trainer.model.config import PRESETS, ModelConfig
from tpujob_trainer.model.families import FAMILIES
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.values.errors import ConfigurationError
from tpujob_trainer.values.from_mapping import parse


def shape(**fields: object) -> ModelShape:
    return ModelConfig(**fields).resolve(vocabulary=259, platform="cpu")  # type: ignore[arg-type]


DIMENSIONS = {"layers": 4, "embedDim": 64, "heads": 4, "headDim": 96, "mlpDim": 64}


@pytest.mark.parametrize(("key", "names"), [("preset", PRESETS), ("family", FAMILIES)], ids=["preset", "family"])
def test_names_are_those_that_there_are(key: str, names: Mapping[str, object]) -> None:
    for name in names:
        given = {key: name} if key == "preset" else {key: name, **DIMENSIONS}
        assert getattr(parse(ModelConfig, given, "model"), key) == name
    with pytest.raises(ConfigurationError, match=f'model.{key}: "bert" is not one of {", ".join(names)}$'):
        parse(ModelConfig, {key: "bert"}, "model")


@pytest.mark.parametrize(
    ("preset", "parameters"),
    # As told by the models' own safetensors indexes.
    [
        ("llama2-7b", 6_738_415_616),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama3.1-405b", 405_853_388_800),
        ("mixtral-8x22b", 140_620_634_112),
        ("mistral-7b", 7_248_023_552),
        # As transformers counts its parameters and the routers' buffers of a model on the device `meta`.
        ("deepseek-v3", 671_026_404_352 + 14_848),
        ("moonlight-16b-a3b", 15_960_108_544 + 1_664),
    ],
)
def test_a_preset_has_the_published_number_of_parameters(preset: str, parameters: int) -> None:
    assert shape(preset=preset).num_parameters == parameters


def test_fields_replace_those_of_the_preset() -> None:
    changed = shape(preset="tiny", layers=1, rope_theta=5.0)
    assert (changed.layers, changed.rope_theta, changed.embed_dim) == (1, 5.0, 128)


def test_dimensions_follow_from_each_other() -> None:
    made = shape(layers=2, embed_dim=256, heads=8)
    assert (made.kv_heads, made.head_dim, made.mlp_dim, made.vocab_size) == (8, 32, 768, 384)


@pytest.mark.parametrize(("platform", "dtype"), [("cpu", "float32"), ("tpu", "bfloat16"), ("gpu", "bfloat16")])
def test_the_type_of_computation_follows_the_devices(platform: str, dtype: str) -> None:
    assert ModelConfig(preset="tiny").resolve(vocabulary=9, platform=platform).compute_dtype == dtype
    asked = ModelConfig(preset="tiny", compute_dtype="bfloat16")
    assert asked.resolve(vocabulary=9, platform=platform).compute_dtype == "bfloat16"
