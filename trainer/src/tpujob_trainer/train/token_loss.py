"""The loss of each token: cross-entropy, or a user-defined function.

If the model returns hidden states and an output matrix, logits are computed for a chunk of tokens at a time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from tpujob_trainer.config.schema import BLOCK
from tpujob_trainer.model.axes import WEIGHT_AXES
from tpujob_trainer.model.decoder import Model, Weights, soft_capped
from tpujob_trainer.model.loss import CHUNK_BYTES, OUTPUT, cross_entropy, num_chunks, token_losses
from tpujob_trainer.model.partitioning import POSITIONS, of_each_device
from tpujob_trainer.model.shape import CustomShape
from tpujob_trainer.values.errors import ConfigurationError, TrainerError, brief
from tpujob_trainer.values.references import load_reference

TokenFunction = Callable[[jax.Array, jax.Array], jax.Array]
"""From logits float32 `[T, V]` and targets int32 `[T]` to values `[T]`, each only from the token's own logits."""


@dataclass(frozen=True)
class RouterFactors:
    """The factors of the losses of a mixture's routers, relative to the mean loss of a token."""

    balance: float = 0.0
    z: float = 0.0


class TokenLoss:
    """The loss that a model's step minimises, summed or by token."""

    def __init__(
        self,
        model: Model,
        *,
        custom: str | None = None,
        z_loss: float = 0.0,
        router: RouterFactors | None = None,
    ) -> None:
        """The loss of a model.

        Args:
            model: The model.
            custom: `module:name` of a user-defined function; None: cross-entropy, with the z-loss.
            z_loss: See `loss.cross_entropy`.
            router: Factors of the losses of routers; if all are 0, or for None, the model needs no experts.
        """
        self.model = model
        self._router = router if router and (router.balance or router.z) else None
        self._own = None if custom is None else _load(custom, f"{BLOCK}.loss")
        self._z_loss = z_loss

    @property
    def is_sum_over_rows(self) -> bool:
        """Whether the total of a batch is the sum of the totals of its parts, without random numbers."""
        # A router's losses are products of means; how a custom model uses the mesh is unknown.
        return self._router is None and not isinstance(self.model.shape, CustomShape)

    def total(self, weights: Weights, batch: Any, dropout_key: jax.Array | None = None) -> jax.Array:
        """The sum over the positions that count, float32; for differentiation.

        The losses of routers are in its gradient, but not in its value. `dropout_key` is for models with dropout.
        """
        if self._router is None:
            return self._total(*self.model.hidden_in_training(weights, _inputs(batch), dropout_key), batch)
        hidden, output, losses = self.model.hidden_and_router(weights, *_inputs(batch))
        pulled = self._router.balance * losses.balance + self._router.z * losses.z
        pulled *= jnp.sum(batch.loss_mask)
        return self._total(hidden, output, batch) + (pulled - jax.lax.stop_gradient(pulled))

    def _total(self, hidden: jax.Array, output: jax.Array | None, batch: Any) -> jax.Array:
        if self._own is None and output is not None:
            softcap = self.model.shape.logit_softcap
            return cross_entropy(hidden, output, batch.targets, batch.loss_mask, self.model.mesh, softcap, self._z_loss)
        return jnp.sum(self._of_logits(self._own or _cross_entropy(self._z_loss), hidden, output, batch))

    def of_positions(
        self, weights: Weights, batch: Any, metrics: Sequence[TokenFunction] = ()
    ) -> tuple[jax.Array, ...]:
        """The loss of each position and the values of other functions, each float32 `[B, S]`.

        They are 0 at positions that do not count. Not for differentiation.
        """
        hidden, output = self.model.hidden(weights, *_inputs(batch))
        if self._own is None and output is not None:
            softcap = self.model.shape.logit_softcap
            losses = token_losses(hidden, output, batch.targets, batch.loss_mask, self.model.mesh, softcap)
        else:
            losses = self._of_logits(self._own or _cross_entropy(), hidden, output, batch)
        return (losses, *(self._of_logits(each, hidden, output, batch) for each in metrics))

    def _of_logits(self, function: TokenFunction, hidden: jax.Array, output: jax.Array | None, batch: Any) -> jax.Array:
        """The values of a function, in chunks of each device's tokens, whose logits the backward pass recomputes."""
        softcap = self.model.shape.logit_softcap

        def of_chunk(states: jax.Array, columns: jax.Array | None, targets: jax.Array) -> jax.Array:
            if columns is None:
                return function(states.astype(jnp.float32), targets)
            logits = jnp.matmul(states, columns, preferred_element_type=jnp.float32)
            return function(soft_capped(logits, softcap), targets)

        def of_device(hidden: jax.Array, output: jax.Array | None, targets: jax.Array, mask: jax.Array) -> jax.Array:
            if output is None:
                losses = of_chunk(hidden.reshape(targets.size, -1), None, targets.ravel())
            else:
                whole = jax.lax.all_gather(output.astype(hidden.dtype), WEIGHT_AXES, tiled=True)
                losses = _in_chunks(of_chunk, hidden.reshape(targets.size, -1), whole, targets.ravel())
            # Selected, not multiplied: a loss that does not count may be infinite.
            return jnp.where(mask, losses.reshape(targets.shape), 0.0)

        given = (
            (hidden, batch.targets, batch.loss_mask)
            if output is None
            else (hidden, output, batch.targets, batch.loss_mask)
        )
        mapped = of_each_device(
            of_device if output is not None else lambda hidden, *rest: of_device(hidden, None, *rest),
            self.model.mesh,
            tuple(OUTPUT if each is output else POSITIONS for each in given),
            POSITIONS,
        )
        found: jax.Array = mapped(*given)
        return found


def _inputs(batch: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    return batch.inputs, batch.positions, batch.segment_ids


def _cross_entropy(z_loss: float = 0.0) -> TokenFunction:
    def of_tokens(logits: jax.Array, targets: jax.Array) -> jax.Array:
        log_z = jax.nn.logsumexp(logits, axis=-1)
        losses = log_z - jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
        pulled = z_loss * jnp.square(log_z)
        # The gradient includes the z-loss, the value does not.
        return losses + (pulled - jax.lax.stop_gradient(pulled))

    return of_tokens


def load_metric(number: int, name: str) -> TokenFunction:
    """The function of `evaluation.metrics[number]`, `module:name`.

    Raises:
        ConfigurationError: there is no such function.
    """
    return _load(name, f"{BLOCK}.evaluation.metrics[{number}].name")


def _load(name: str, field: str) -> TokenFunction:
    """A user-defined function, whose values are checked."""
    own = load_reference(name, field)

    def of_tokens(logits: jax.Array, targets: jax.Array) -> jax.Array:
        try:
            values = jnp.asarray(own(logits, targets))
        except TrainerError:
            raise
        except Exception as error:
            raise ConfigurationError(f"{field}: {name} failed: {brief(error)}") from error
        if values.shape != targets.shape:
            raise ConfigurationError(
                f"{field}: {name} gives {list(values.shape)} for {targets.size} tokens; it must give a number for "
                "each, from logits [tokens, vocabulary] and targets [tokens]"
            )
        return values.astype(jnp.float32)

    return of_tokens


def _in_chunks(
    of_chunk: Callable[..., jax.Array], states: jax.Array, columns: jax.Array, targets: jax.Array
) -> jax.Array:
    tokens = targets.size
    chunks = num_chunks(tokens, columns.shape[1], CHUNK_BYTES)
    padding = -tokens % chunks
    states = jnp.pad(states, ((0, padding), (0, 0))).reshape(chunks, -1, states.shape[1])
    of_parts = jax.checkpoint(lambda part: of_chunk(part[0], columns, part[1]))
    losses: jax.Array = jax.lax.map(of_parts, (states, jnp.pad(targets, (0, padding)).reshape(chunks, -1)))
    return losses.ravel()[:tokens]
