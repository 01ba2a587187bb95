"""The position in the data as an array that is saved in the checkpoint beside the weights.

int32 [lanes, columns], on every device: row j holds the position of lane j (of a mixture: of the lanes j of all
sources, one after the other), and is restored whole by any number of processes. A lane of a source takes 32 bytes.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping

import numpy as np

from tpujob_trainer.data.formats import format_named
from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.manifest.permutation import row_order
from tpujob_trainer.data.manifest.plan import LanePlan
from tpujob_trainer.data.stream.lane import LanePosition
from tpujob_trainer.data.text.tokenizer import Tokenizer
from tpujob_trainer.values.errors import ANOTHER_RUN, ConfigurationError

STATE_COLUMNS = ("identity", "epoch", "unit", "row", "token", "batches", "digest_low", "digest_high")

_PACKING = "concat-and-split/1"
_LAYOUT = "by lane/1"

_FIELDS = {
    "data": "spec.trainer.data.path: the data",
    "tokenizer": "spec.trainer.data.tokenizer: the tokenizer",
    "seed": "spec.trainer.seed",
    "batchSize": "spec.trainer.batchSize",
    "sequenceLength": "spec.trainer.sequenceLength",
    "lanes": "spec.trainer.data.lanes",
    "position": "spec.trainer: the way in which this version of the trainer keeps the position of its data",
    "packing": "spec.trainer.data.blockCrossDocumentAttention, or the trainer's way of packing documents",
    "weights": "spec.trainer.data.mixture: the weights",
    "epochs": "spec.trainer.data.epochs",
}


def describe_data(
    manifest: Manifest, tokenizer: Tokenizer, plan: LanePlan, sequence_length: int
) -> dict[str, str | int]:
    """Everything that the sequence of batches depends on, as JSON values; kept with the checkpoint."""
    return {
        "data": manifest.fingerprint,
        "tokenizer": tokenizer.fingerprint,
        "seed": plan.seed,
        "batchSize": plan.batch_size,
        "sequenceLength": sequence_length,
        "lanes": plan.lanes,
        "position": _LAYOUT,
        "packing": _PACKING if plan.blocks_attention else f"{_PACKING}/open",
        "weights": "/".join(f"{weight:.9g}" for weight in plan.weights),
        "epochs": plan.epochs or 0,
    }


def require_same_batch_size(stored: Mapping[str, str | int], batch_size: int) -> None:
    """Checks the field on which the others depend, before lanes are planned with it.

    Raises:
        ConfigurationError: batchSize was changed.
    """
    _require_same(stored, {"batchSize": batch_size})


def require_same_data(stored: Mapping[str, str | int], current: Mapping[str, str | int]) -> None:
    """Checks that a continued run gets the same sequence of batches.

    Raises:
        ConfigurationError: naming the field that was changed, with both values.
    """
    _require_same(stored, current)


def _require_same(stored: Mapping[str, str | int], current: Mapping[str, str | int]) -> None:
    for key, field in _FIELDS.items():
        if key in current and stored.get(key) != current[key]:
            raise ConfigurationError(
                f"{field} was {stored.get(key)!r} when this run began and is {current[key]!r} now; "
                f"put it back, or {ANOTHER_RUN}"
            )


def identity_of(description: Mapping[str, str | int]) -> int:
    """A 31-bit hash of a description, kept in every row of the state, so that the state of another run is detected."""
    text = json.dumps(dict(description), sort_keys=True)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little") & 0x7FFFFFFF


def state_shape(plan: LanePlan) -> tuple[int, int]:
    """The shape of the state of all lanes; its dtype is int32."""
    return plan.lanes, len(STATE_COLUMNS) * plan.num_sources


def pack_positions(identity: int, positions: np.ndarray) -> np.ndarray:
    """The state of lanes, int32 [..., columns], from their positions, int64 [..., 6]."""
    packed = np.empty((*positions.shape[:-1], len(STATE_COLUMNS)), dtype=np.int32)
    packed[..., 0] = identity
    packed[..., 1:6] = positions[..., :5]
    packed[..., 6:] = np.ascontiguousarray(positions[..., 5:], dtype="<i8").view("<i4")
    return packed


def unpack_state(state: np.ndarray, plan: LanePlan, identity: int) -> dict[tuple[int, int], LanePosition]:
    """The position of each lane by its number and source, from the state of all lanes.

    Raises:
        ConfigurationError: the state belongs to another run, or contradicts itself.
    """
    state = np.asarray(state, dtype=np.int32)
    if state.shape != state_shape(plan):
        raise ConfigurationError(
            f"The data position in the checkpoint has shape {state.shape}, this run needs {state_shape(plan)}: "
            f"batchSize, lanes or the mixture has changed; put it back, or {ANOTHER_RUN}"
        )
    by_source = state.reshape(plan.lanes, plan.num_sources, len(STATE_COLUMNS))
    if not (by_source[:, :, 0] == identity).all():
        raise ConfigurationError(
            "The data position in the checkpoint belongs to other data, tokenizer, seed, batchSize, sequenceLength or "
            f"lanes; put them back, or {ANOTHER_RUN}"
        )
    batches = by_source[:, :, STATE_COLUMNS.index("batches")]
    if not (batches == batches[0, 0]).all():
        raise ConfigurationError("The data position in the checkpoint contradicts itself; restore an older checkpoint")
    return {
        (lane, source): _position(by_source[lane, source])
        for lane in range(plan.lanes)
        for source in range(plan.num_sources)
    }


def has_ended(state: np.ndarray, plan: LanePlan) -> bool:
    """Whether all lanes have completed all their passes over the data, by the state of all lanes."""
    epoch = np.asarray(state).reshape(-1, len(STATE_COLUMNS))[:, STATE_COLUMNS.index("epoch")]
    return plan.epochs is not None and bool((epoch >= plan.epochs).all())


def batches_digest(state: np.ndarray) -> str:
    """16 hexadecimal digits over all tokens delivered by all lanes: equal for two runs that saw the same batches."""
    positions = np.asarray(state, dtype="<i4").reshape(-1, len(STATE_COLUMNS))
    kept = np.ascontiguousarray(positions[:, STATE_COLUMNS.index("batches") :])
    return hashlib.blake2b(kept, digest_size=8).hexdigest()


def _position(row: np.ndarray) -> LanePosition:
    _, epoch, unit, at, token, batches = (int(value) for value in row[:6])
    low, high = (int(value) for value in row[6:].view(np.uint32))
    return LanePosition(epoch, unit, at, token, batches, high << 32 | low)


SHOWN_LANES, SHOWN_ROWS = 4, 3


def first_rows(manifest: Manifest, plan: LanePlan, lane: int, source: int, position: LanePosition) -> str:
    """What a lane reads next: rows by file and number; the start of the unit if a file's rows are not counted."""
    number = plan.unit(lane, position.epoch, position.unit, source)
    unit = manifest.unit(number)
    kind = manifest.sources[manifest.file_source[manifest.unit_file[number]]].format
    if format_named(kind).elements != "rows":
        return f"{unit.path} from byte {unit.first}" if unit.first else unit.path
    order = row_order(unit.count, "rows", plan.seed, position.epoch, number)[position.row :][:SHOWN_ROWS]
    part = f" part {unit.part}" if unit.part else ""
    return f"{unit.path}{part} rows {', '.join(str(unit.first + int(row)) for row in order)}"


def describe_share(manifest: Manifest, plan: LanePlan, positions: Mapping[tuple[int, int], LanePosition]) -> str:
    """The first rows of some lanes, and the number of other lanes.

    Args:
        manifest: the data.
        plan: the same on all processes.
        positions: of each lane of a process, by its number and source.
    """
    told = list(_of_lanes(manifest, plan, positions))
    more = f"; and {len(positions) - len(told)} more lanes" if len(positions) > len(told) else ""
    return "; ".join(told) + more


def _of_lanes(manifest: Manifest, plan: LanePlan, positions: Mapping[tuple[int, int], LanePosition]) -> Iterator[str]:
    for (lane, source), position in list(positions.items())[:SHOWN_LANES]:
        where = f"lane {lane}" if plan.num_sources == 1 else f"lane {lane} of source {source}"
        yield f"{where}: {first_rows(manifest, plan, lane, source, position)}"
