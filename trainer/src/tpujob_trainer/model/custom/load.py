"""Loads the user-defined model that `module:name` refers to, in any supported form."""

import inspect
from collections.abc import Mapping
from typing import Any

from flax import linen, nnx

from tpujob_trainer.model.custom.forms import Functions, LinenModule, NnxModule
from tpujob_trainer.model.custom.module import FIELD, Module
from tpujob_trainer.values.errors import ConfigurationError, TrainerError, brief
from tpujob_trainer.values.references import load_reference


def load_module(reference: str, arguments: Mapping[str, Any], vocab_size: int) -> Module:
    """The user-defined model; its weights are not computed.

    The referenced object is called with the arguments and `vocab_size`, and with `rngs` if it accepts them.

    Raises:
        ConfigurationError: the reference does not exist, the call fails, or its result is not a model.
    """
    make = load_reference(reference, FIELD)
    keywords = {**arguments, "vocab_size": vocab_size}

    def made(seed: int) -> Any:
        given = {**keywords, "rngs": nnx.Rngs(seed)} if _takes_rngs(make) else keywords
        try:
            # Weights are placed by their sharding after they are created, not during it.
            with nnx.use_eager_sharding(False):
                return make(**given)
        except TrainerError:
            raise
        except Exception as error:
            raise ConfigurationError(f"{FIELD}: {reference}({', '.join(given)}) failed: {brief(error)}") from error

    def as_nnx() -> nnx.Module | None:
        module = made(0)
        return module if isinstance(module, nnx.Module) else None

    if (abstract := nnx.eval_shape(as_nnx)) is not None:
        return NnxModule(made, abstract, reference)
    module = made(0)
    if isinstance(module, linen.Module):
        return LinenModule(module, reference)
    init, apply, axes = _functions(module)
    if callable(init) and callable(apply):
        return Functions(init, apply, axes, reference)
    raise ConfigurationError(
        f"{FIELD}: {reference} makes a {type(module).__name__}; it must make an nnx.Module, a linen Module, or two "
        "functions: init and apply"
    )


def _takes_rngs(make: Any) -> bool:
    if isinstance(make, type):
        if issubclass(make, linen.Module):
            return False
        if issubclass(make, nnx.Module):
            return True
    accepted = inspect.signature(make).parameters.values()
    return any(each.name == "rngs" or each.kind is each.VAR_KEYWORD for each in accepted)


def _functions(module: Any) -> tuple[Any, Any, Any]:
    """The init, apply and axes of a tuple, or of an object's attributes; None: it does not have one."""
    if isinstance(module, tuple) and not hasattr(module, "init") and len(module) in (2, 3):
        init, apply, *axes = module
        return init, apply, axes[0] if axes else None
    return getattr(module, "init", None), getattr(module, "apply", None), getattr(module, "axes", None)
