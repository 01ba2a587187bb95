"""Low-rank adapters: the weights are frozen, and for each chosen matrix a product of two thin ones is trained.

W + alpha / rank · A · B, with A as wide as the rank (Hu and others 2021). Training multiplies by W and by A and B
separately, so that no gradient of W is computed; generation and export add them once.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_trainer.model.axes import EXPERT
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.lora_config import EXPERTS, LoraConfig, Place, place_of
from tpujob_trainer.model.partitioning import REPLICATED
from tpujob_trainer.model.quantized import Adapters
from tpujob_trainer.model.shape import LAYERS, ModelShape

LORA = "lora"
"""Key of the adapters among the weights."""


class LoraModel(Model):
    """A decoder with adapters: its weights are those of the decoder, and under `lora` the adapters'."""

    def __init__(self, shape: ModelShape, mesh: Mesh, config: LoraConfig) -> None:
        super().__init__(shape, mesh)
        self.config = config
        self._base = Model(shape, mesh)
        layers = self.abstract_weights[LAYERS]
        self.places: dict[str, Place] = {
            name: place_of(name, has_experts=bool(shape.experts)) for name in config.targets
        }
        adapters = {
            # If the layers are in two stacks, their attention has the same shapes.
            name: _adapter((shape.layers, *layers[place.module][name].shape[1:]), place, config.rank)
            for name, place in self.places.items()
        }
        self.abstract_weights = {**self.abstract_weights, LORA: adapters}
        specs = {name: dict.fromkeys("ab", _spec(place)) for name, place in self.places.items()}
        self.specs = {**self.specs, LORA: specs}
        self.shardings = jax.tree.map(lambda spec: NamedSharding(mesh, spec), self.specs)

    @property
    def base_shardings(self) -> Weights:
        """The shardings of the decoder's weights."""
        return self._base.shardings

    def init(self, seed: int) -> Weights:
        """Fresh weights, and adapters that change nothing yet."""
        return {**self._base.init(seed), LORA: self.init_adapters(seed)}

    def init_adapters(self, seed: int) -> Weights:
        """Fresh adapters: A is random, B zero."""
        made: Weights = {}
        for number, (name, parts) in enumerate(sorted(self.abstract_weights[LORA].items())):
            shape = parts["a"].shape
            key = jax.random.fold_in(jax.random.key(seed), number)
            std = 1 / math.sqrt(math.prod(shape[self.places[name].stack : -1]))
            made[name] = {"a": std * jax.random.normal(key, shape), "b": jnp.zeros(parts["b"].shape)}
        return made

    def placed_adapters(self, seed: int) -> Weights:
        """Fresh adapters, placed on devices by their shardings."""
        placed: Weights = jax.jit(lambda: self.init_adapters(seed), out_shardings=self.shardings[LORA])()
        return placed

    def merged(self, weights: Weights) -> Weights:
        """The weights of the decoder with the adapters added; gradients reach only the adapters."""
        base = jax.lax.stop_gradient({name: leaf for name, leaf in weights.items() if name != LORA})
        made = dict(base)
        for stack in self.shape.stacks:
            layers = {name: dict(module) for name, module in base[stack.name].items()}
            for name, parts in weights[LORA].items():
                place = self.places[name]
                matrix = layers[place.module][name]
                mine = jax.tree.map(lambda leaf, at=stack: leaf[at.first : at.end], parts)
                added = jax.lax.with_sharding_constraint(
                    product(mine, place, matrix.shape), self._base.shardings[stack.name][place.module][name]
                )
                layers[place.module][name] = matrix + (self.config.alpha / self.config.rank) * added
            made[stack.name] = layers
        return made

    def hidden(self, weights: Weights, *inputs: Any) -> Any:
        """As `Model.hidden`, with the adapters applied."""
        return super().hidden(_frozen(weights), *inputs)

    def hidden_and_router(self, weights: Weights, *inputs: Any) -> Any:
        """As `Model.hidden_and_router`, with the adapters applied."""
        return super().hidden_and_router(_frozen(weights), *inputs)

    def _adapters(self, weights: Weights) -> Adapters:
        scale = self.config.alpha / self.config.rank
        return {name: (parts["a"], scale * parts["b"]) for name, parts in weights[LORA].items()}

    def travelling(self, gradients: Weights) -> Weights:
        """As `Model.travelling`; adapters are small, and stay in float32."""
        return {**super().travelling(gradients), LORA: gradients[LORA]}

    def whole(self, weights: Weights) -> Weights:
        """The decoder's weights on every device, with the adapters added."""
        return self._base.whole(self.merged(weights))

    def prefill(self, weights: Weights, *inputs: Any) -> Any:
        """As `Model.prefill`."""
        return self._base.prefill(self._plain(weights), *inputs)

    def next(self, weights: Weights, *inputs: Any) -> Any:
        """As `Model.next`."""
        return self._base.next(self._plain(weights), *inputs)

    def _plain(self, weights: Weights) -> Weights:
        return self.merged(weights) if LORA in weights else weights


def _frozen(weights: Weights) -> Weights:
    """The same weights, whose gradients reach only the adapters."""
    return {name: leaf if name == LORA else jax.lax.stop_gradient(leaf) for name, leaf in weights.items()}


def product(parts: Weights, place: Place, shape: tuple[int, ...]) -> jax.Array:
    """A · B of all layers and, if there are any, all experts, in the shape of the weight."""
    a, b = parts["a"], parts["b"]
    stack, rank = shape[: place.stack], a.shape[-1]
    return jnp.matmul(a.reshape(*stack, -1, rank), b.reshape(*stack, rank, -1)).reshape(shape)


def _spec(place: Place) -> PartitionSpec:
    """Adapters of experts are divided as the experts; others are small, and whole on each device."""
    return PartitionSpec(None, EXPERT) if place.module == EXPERTS else REPLICATED


def is_adapter(path: tuple[Any, ...]) -> bool:
    """Whether a leaf of the weights is an adapter's."""
    return getattr(path[0], "key", None) == LORA


def _adapter(shape: tuple[int, ...], place: Place, rank: int) -> Weights:
    split = place.stack + place.reduced
    stack, inputs, outputs = shape[: place.stack], shape[place.stack : split], shape[split:]
    return {
        "a": jax.ShapeDtypeStruct((*stack, *inputs, rank), jnp.float32),
        "b": jax.ShapeDtypeStruct((*stack, rank, *outputs), jnp.float32),
    }
