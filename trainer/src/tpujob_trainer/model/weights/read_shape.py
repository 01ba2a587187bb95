"""Reads the shape of a stored model from its config.json; without JAX, since `tpujob check` waits for it."""

from dataclasses import dataclass, replace

from tpujob_trainer.model.config import FIELDS_BESIDE_FROM, ModelConfig
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.model.weights.companions import FROM as FIELD
from tpujob_trainer.model.weights.companions import read_config
from tpujob_trainer.model.weights.config_json import shape_of
from tpujob_trainer.storage.remote import RETRYING
from tpujob_trainer.storage.retrying import StorageFailedError
from tpujob_trainer.values.errors import NotFoundError


def read_shape(path: str, *, remat: str, compute_dtype: str, ignored: tuple[str, ...] | None = None) -> ModelShape:
    """The decoder that the config.json in a folder describes.

    Args:
        path: local, or a URL (gs://, hf://).
        remat: what the backward pass recomputes.
        compute_dtype: type of activations.
        ignored: unknown keys of it to ignore.

    Raises:
        NotFoundError: there is none, or it cannot be read.
        ConfigurationError: it describes an unsupported model.
    """
    given = read_config(path)
    where = f"{FIELD}: {path}/config.json"
    return shape_of(given, where, remat=remat, compute_dtype=compute_dtype, ignored=ignored or ())


@dataclass(frozen=True, kw_only=True)
class ReadModel(ModelConfig):
    """A model block with `from`, and the dimensions that were read from it."""

    shape: ModelShape
    """As in config.json."""

    def resolve(self, *, vocabulary: int, platform: str) -> ModelShape:
        """The model's dimensions, as `ModelConfig.resolve`."""
        if self.shape.vocab_size < vocabulary:
            raise ValueError(
                f"from: the model has {self.shape.vocab_size} ids, the tokenizer {vocabulary}; "
                "name the model's own tokenizer as spec.trainer.data.tokenizer"
            )
        usual = "float32" if platform == "cpu" else "bfloat16"
        return replace(
            self.shape,
            remat_save=self.remat_save or (),
            remat_offload=self.remat_offload or (),
            quantization=self.quantization,
            compute_dtype=self.compute_dtype or usual,
        )


def with_shape_read(model: ModelConfig) -> ModelConfig:
    """The model block with the shape read from its `from`; unchanged if it has none.

    Raises:
        NotFoundError: there is no config.json, or it cannot be read.
        ConfigurationError: it describes an unsupported model.
    """
    if model.from_ is None:
        return model
    remat = model.remat or "full"
    dtype = model.compute_dtype or "float32"
    shape = read_shape(model.from_, remat=remat, compute_dtype=dtype, ignored=model.ignore_config_keys)
    return ReadModel(**{name: getattr(model, name) for name in FIELDS_BESIDE_FROM}, shape=shape)


def model_read(model: ModelConfig, reach_seconds: float) -> ReadModel:
    """As `with_shape_read`, for a model with `from`, whose storage has `reach_seconds` to answer."""
    RETRYING.limit_seconds = reach_seconds
    try:
        read = with_shape_read(model)
    except StorageFailedError as error:
        raise NotFoundError(str(error)) from error
    assert isinstance(read, ReadModel)
    return read
