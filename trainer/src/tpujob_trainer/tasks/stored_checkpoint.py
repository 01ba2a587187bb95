"""Reads a checkpoint without its run: verifies its arrays, or writes its weights as a Hugging Face model.

    python -m tpujob_trainer.tasks.stored_checkpoint verify DIRECTORY [STEP]
    python -m tpujob_trainer.tasks.stored_checkpoint export DIRECTORY STEP|newest OUT DTYPE

Writes one JSON object to stdout; `tpujob checkpoint` starts it. One process reads on one CPU device, so the arrays must
fit into its memory: all of them to verify, the weights in their stored type to export.
"""

import dataclasses
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_contract import ExitCode
from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.fingerprint import ALGORITHM, Fingerprinter, unequal
from tpujob_trainer.checkpoint.inspection import inspect, select
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.model.families.base import RopeScaling
from tpujob_trainer.model.lora import LoraModel
from tpujob_trainer.model.lora_config import LoraConfig
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.shape import TRAINING_ONLY, ModelShape
from tpujob_trainer.model.weights.companions import read_companions
from tpujob_trainer.model.weights.custom_weights import export_custom_weights
from tpujob_trainer.model.weights.export import export_weights
from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.storage.errors import unusable
from tpujob_trainer.storage.whole import retried_if_short
from tpujob_trainer.values import programs
from tpujob_trainer.values.errors import NotFoundError
from tpujob_trainer.values.from_mapping import camel_case
from tpujob_trainer.values.programs import answer, log_to_stderr

WEIGHTS = "weights"


def verify(directory: str, step: int | None) -> dict[str, Any]:
    """The problems of each checkpoint of a directory, or of one of them; nothing is changed.

    Raises:
        TrainerError: there is no run or no such checkpoint, or it cannot be listed.
    """
    found = inspect(directory)
    steps = [each["step"] for each in found["checkpoints"]] if step is None else [select(found, step)["step"]]
    return {"directory": directory, "owner": found["owner"], "problems": {n: _problems(directory, n) for n in steps}}


def export(directory: str, step: int | None, out: str, *, dtype: str) -> dict[str, Any]:
    """Writes the weights of a checkpoint as config.json and safetensors; those of `model.custom` are named by path.

    Raises:
        TrainerError: there is no run or no such checkpoint, or the trainer did not make it.
        OSError: `out` cannot be written to.
    """
    chosen = select(inspect(directory), step)
    if chosen["problem"] is not None:
        raise NotFoundError(
            f"--step: {chosen['step']} cannot be exported: {chosen['problem']}; `tpujob checkpoint ls` lists the others"
        )
    configuration = chosen["configuration"]
    if "model" not in configuration:
        raise NotFoundError(f"DIRECTORY: step {chosen['step']} names no model; it was not made by `trainer`")
    if configuration["model"].get("custom"):
        return _export_custom(directory, chosen["step"], configuration["model"], out, dtype)
    shape = shape_from(configuration["model"])
    weights = _merged(_read(directory, chosen["step"], only=WEIGHTS)[WEIGHTS], shape, configuration.get("lora"))
    companions = read_companions(configuration.get("weightsFrom"), _data(configuration))
    export_weights(
        out, shape, weights, max_positions=configuration["sequenceLength"], companions=companions, dtype=dtype
    )
    return {"directory": directory, "step": chosen["step"], "out": out, "parameters": shape.num_parameters}


def _export_custom(directory: str, step: int, model: Mapping[str, Any], out: str, dtype: str) -> dict[str, Any]:
    weights = _read(directory, step, only=WEIGHTS)[WEIGHTS]
    export_custom_weights(out, weights, model, step, dtype=dtype)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(weights))
    return {"directory": directory, "step": step, "out": out, "parameters": parameters}


def _data(configuration: Mapping[str, Any]) -> DataConfig:
    """A data configuration with only the tokenizer."""
    return DataConfig(path="/", tokenizer=configuration.get("data", {}).get("tokenizer"))


def _merged(weights: Any, shape: ModelShape, lora: Mapping[str, Any] | None) -> Any:
    """The weights of the decoder, with the adapters merged if there are any."""
    if not lora:
        return weights
    found = LoraConfig(rank=lora["rank"], alpha=lora["alpha"], targets=tuple(lora["targets"]))
    model = LoraModel(shape, build_mesh(slices=1, devices=jax.devices()[:1]), found)
    return jax.jit(model.merged, out_shardings=model.base_shardings)(jax.device_put(weights, model.shardings))


def shape_from(model: Mapping[str, Any]) -> ModelShape:
    """The shape of a model from the configuration that is stored with a checkpoint; unknown fields are ignored."""
    values = {name: model[key] for name, key in _keys(ModelShape).items() if key in model and name not in TRAINING_ONLY}
    scaling = values.get("rope_scaling")
    if scaling is not None:
        values["rope_scaling"] = RopeScaling(
            **{name: _hashable(scaling[key]) for name, key in _keys(RopeScaling).items() if key in scaling}
        )
    return ModelShape(**{name: _hashable(value) for name, value in values.items()})


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _keys(kind: type[Any]) -> dict[str, str]:
    """Field → its key in the configuration."""
    return {field.name: camel_case(field.name) for field in dataclasses.fields(kind)}


def _problems(directory: str, step: int) -> list[str]:
    try:
        algorithm, stored = layout.fingerprints_of(directory, step)
        tree = _read(directory, step)
        found = Fingerprinter()(tree)
        saved = layout.metadata_of(directory, step).get(layout.STEP)
    except Exception as error:  # whatever a damaged file makes a library raise
        if storage_errors.is_out_of_reach(error):
            raise unusable(directory, error, field="DIRECTORY") from error
        return [f"cannot be read: {storage_errors.brief(error)}"]
    if wrong := layout.of_another_step(step, tree.get("step") if saved is None else saved):
        return [wrong]
    if algorithm != ALGORITHM:
        return [f"its fingerprints are of {algorithm}, which this version cannot compare; the arrays are readable"]
    return [f"{name}: the fingerprint is not that of what was saved" for name in unequal(stored, found.by_leaf)]


def _read(directory: str, step: int, only: str | None = None) -> Any:
    """The arrays of a checkpoint, or one part of them, on one device."""
    folder = layout.folder(directory, step)
    return retried_if_short(str(folder), lambda: _arrays(folder / layout.STATE, only))


def _arrays(item: epath.Path, only: str | None) -> Any:
    tree = ocp.StandardCheckpointHandler().metadata(item).tree
    whole = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("all",)), PartitionSpec())
    abstract = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=whole), tree)
    if only is not None:
        abstract = {key: value if key == only else _left_out(value) for key, value in abstract.items()}
        arguments = ocp.args.PyTreeRestore(abstract, restore_args=ocp.checkpoint_utils.construct_restore_args(abstract))
        return ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(item, args=arguments)
    return ocp.Checkpointer(ocp.StandardCheckpointHandler()).restore(item, args=ocp.args.StandardRestore(abstract))


def _left_out(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: ocp.PLACEHOLDER, tree)


def main() -> int:
    """Verifies or exports what the arguments name; returns the exit code."""
    log_to_stderr(logging.ERROR)
    verb, directory, *rest = sys.argv[1:]
    step = int(rest[0]) if rest and rest[0] != "newest" else None
    try:
        return answer(
            lambda: verify(directory, step) if verb == "verify" else export(directory, step, rest[1], dtype=rest[2])
        )
    except OSError as error:
        sys.stderr.write(f"OUT: {storage_errors.brief(error)}; name a folder that you may write to\n")
        return int(ExitCode.NOT_FOUND)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    programs.end(main())
