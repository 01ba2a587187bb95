"""Describes the rows that a process reads first, so that a user can see that processes read different ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tpujob_trainer.data.formats import format_named
from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.manifest.permutation import row_order
from tpujob_trainer.data.manifest.plan import LanePlan
from tpujob_trainer.data.stream.lane import LanePosition

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
