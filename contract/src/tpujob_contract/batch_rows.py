"""Checks that the rows of a batch divide over the mesh, so that the operator refuses what the trainer would refuse.

Rows are sharded over the axes slice, data, fsdp and expert. The axes tensor and context do not shard rows, but the data
of one row. `divided_dimension` is for arrays whose dimensions have no names.
"""

from __future__ import annotations

DEFAULT_SEQUENCE_LENGTH = 2048
"""Positions of a row, unless the job or a preset sets it."""
DEFAULT_BATCH_TOKENS = 524_288
"""Tokens of a global batch, unless the job or a preset sets it."""


def divide_slice(
    devices: int,
    *,
    slices: int,
    tensor: int = 1,
    context: int | None = None,
    expert: int = 1,
    fsdp: int | None = None,
    rows: int | None = None,
    positions: int | None = None,
) -> tuple[int, int]:
    """The size of the axis context, and the devices of a slice that remain for the axes fsdp and data.

    Args:
        devices: Devices of a slice.
        slices: The number of slices.
        tensor: Size of that axis.
        context: The same; None: the smallest with which the rows divide.
        expert: Size of that axis.
        fsdp: The same; None: it is chosen later.
        rows: Rows that pass through the mesh at once; None: unknown.
        positions: Positions of a row; None: unknown.

    Raises:
        ValueError: A size does not divide evenly; the message starts with the key at fault.
    """
    context = context or _least_context(devices // tensor, slices, expert, rows, positions)
    if positions and positions % context:
        raise ValueError(f"context: {context} does not divide sequenceLength ({positions})")
    inner = tensor * context * expert
    if devices % inner:
        raise ValueError(
            f"tensor: tensor x context x expert is {inner}, which does not divide the {devices} devices of a slice"
        )
    rest = devices // inner
    if fsdp and rest % fsdp:
        raise ValueError(f"fsdp: {fsdp} does not divide the {rest} devices that are left of a slice")
    return context, rest


def rows_problem(rows: int, *, parts: int, devices: int, accumulation: int = 1, derived: str = "") -> str | None:
    """An error message about a number of rows; None: they divide.

    Args:
        rows: Rows of a global batch.
        parts: Parts of the mesh over which rows are divided.
        devices: Devices of all slices.
        accumulation: Parts of a batch that pass through the mesh one after the other.
        derived: The origin of the number if it was derived.
    """
    unit = accumulation * parts
    if rows % unit == 0:
        return None
    below = rows // unit * unit
    works = f"{below}, {below + unit} and {below + 2 * unit}" if below else f"{unit}, {2 * unit} and {3 * unit}"
    in_parts = f" in {accumulation} parts (gradientAccumulation)" if accumulation > 1 else ""
    over = f"{devices} devices" if parts == devices else f"{parts} groups of {devices} devices"
    from_where = f" ({derived})" if derived else ""
    return f"{rows} rows{from_where} do not divide over {over}{in_parts}; {works} do"


def _least_context(of_slice: int, slices: int, expert: int, rows: int | None, positions: int | None) -> int:
    """1, or the fewest devices for each row with which the rows divide over the other axes; 1 if none works."""
    if rows is None or positions is None or rows >= of_slice * slices:
        return 1
    for context in range(2, of_slice // expert + 1):
        fits = of_slice % (context * expert) == 0 and rows % (of_slice // context * slices) == 0
        if fits and positions % context == 0:
            return context
    return 1


def divided_dimension(shape: tuple[int, ...], parts: int) -> int | None:
    """The index of the longest dimension that is a multiple of `parts`, the first of equal ones; None: none is."""
    fitting = [at for at, size in enumerate(shape) if size and size % parts == 0]
    return max(fitting, key=lambda at: (shape[at], -at), default=None)
