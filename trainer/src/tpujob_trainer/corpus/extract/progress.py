"""The progress of an extraction and its chip-hours, from the files in its directory. Pure.

A worker's time runs from the claim of its first unit to the end of its last one, without start-up and compilation.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpujob_trainer.corpus.workers.results import UnitResult
from tpujob_trainer.model.chips import BY_KIND

WINDOW_SECONDS = 300.0
"""The rate is that of the last five minutes, or of the whole extraction if it is younger."""


def summary(
    described: Mapping[str, Any],
    finished: Sequence[Finished],
    claims: Sequence[Mapping[str, Any]],
    failures: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The figures of `tpujob extract status`, as JSON values.

    Args:
        described: what all files have in common, as in extract.json.
        finished: all units that are done.
        claims: contents of the leases.
        failures: contents of the failures.
    """
    units = int(described["units"])
    rate, tokens = rows_per_second(finished), _rate(finished, lambda result: result.tokens)
    claimed = min(len(claims), units - len(finished))
    skipped: collections.Counter[str] = collections.Counter()
    for each in finished:
        skipped.update(each.result.skipped)
    rows = sum(each.result.rows for each in finished)
    return {
        "units": units,
        "done": len(finished),
        "claimed": claimed,
        "left": units - len(finished) - claimed,
        "rows": rows,
        "rows_total": described.get("rows"),
        "rows_skipped": dict(skipped),
        "tokens": sum(each.result.tokens for each in finished),
        "bytes": sum(each.result.num_bytes for each in finished),
        "rows_per_second": None if rate is None else round(rate, 3),
        "tokens_per_second": None if tokens is None else round(tokens, 1),
        "seconds_left": seconds_left(units, finished),
        **chip_time(units, finished),
        "taken_over": sum(each.result.taken_over_from is not None for each in finished),
        "not_finite": sum(each.result.not_finite for each in finished),
        "workers": _workers(finished, claims),
        "failures": dict(collections.Counter(failure["cause"] for failure in failures)),
        "last_failure": max(failures, key=lambda failure: failure.get("time", 0), default=None),
    }


def rows_per_second(finished: Sequence[Finished]) -> float | None:
    """Rows per second, from the recently finished units; None: fewer than two are finished."""
    return _rate(finished, lambda result: result.rows)


def seconds_left(units: int, finished: Sequence[Finished]) -> float | None:
    """Seconds until all units are done, at the present rate; None: the rate is unknown."""
    rate = _rate(finished, lambda result: 1)
    if len(finished) == units:
        return 0.0
    return None if not rate else round((units - len(finished)) / rate, 1)


def _rate(finished: Sequence[Finished], amount: Any) -> float | None:
    if len(finished) < 2:
        return None
    times = sorted(each.time for each in finished)
    start = max(times[0], times[-1] - WINDOW_SECONDS)
    if times[-1] <= start:
        return None
    # The first one's work was before the window.
    done = sum(amount(each.result) for each in finished if each.time > start)
    return float(done / (times[-1] - start))


def _workers(finished: Sequence[Finished], claims: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The figures of each worker, by its number, over all its restarts."""
    of_worker: dict[str, list[Finished]] = collections.defaultdict(list)
    for each in finished:
        of_worker[index_of(each.result.worker)].append(each)
    held: dict[str, list[Mapping[str, Any]]] = collections.defaultdict(list)
    for claim in claims:
        held[index_of(claim["worker"])].append(claim)
    names = sorted(of_worker.keys() | held.keys(), key=lambda name: (len(name), name))
    return [_worker(name, of_worker[name], held[name]) for name in names]


def _worker(name: str, done: Sequence[Finished], held: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of one worker; `host` is that of its newest lease, `last_time` the time of its last write."""
    rate = rows_per_second(done)
    newest = max(held, key=lambda claim: claim.get("time") or 0, default=None)
    return {
        "worker": name,
        "units": len(done),
        "rows": sum(each.result.rows for each in done),
        "files": sum(len(each.result.files) for each in done),
        "claimed": len(held),
        "host": newest and newest.get("host"),
        "rows_per_second": None if rate is None else round(rate, 3),
        "last_time": max(
            [each.time for each in done] + [claim["time"] for claim in held if claim.get("time")], default=None
        ),
    }


def index_of(worker: str) -> str:
    """The worker's number, from its name `job-number-nonce`."""
    return worker.rsplit("-", 2)[-2] if worker.count("-") >= 2 else worker


KEYS = (
    "chip_kind",
    "chip_hours",
    "chip_hours_left",
    "rows_per_chip_second",
    "tokens_per_chip_second",
    "peak_fraction",
)
"""Keys of the result of `chip_time`."""


@dataclass(frozen=True)
class Finished:
    """A unit's result, and when it was written to storage."""

    result: UnitResult
    time: float


def chip_time(units: int, finished: Sequence[Finished]) -> dict[str, Any]:
    """Chip-hours so far and left, rows and tokens per chip-second, and the part of the chip's peak; None: unknown.

    Args:
        units: length of the whole list.
        finished: all units that are done; those of earlier releases do not have the number of chips.
    """
    counted = [each for each in finished if each.result.chips]
    seconds = chip_seconds(counted)
    if not seconds:
        return dict.fromkeys(KEYS)
    kinds = sorted({each.result.chip_kind or "" for each in counted})
    of_a_unit = seconds / 3600 / len(counted)
    return {
        "chip_kind": ", ".join(kinds),
        "chip_hours": round(of_a_unit * len(finished), 6),
        "chip_hours_left": round(of_a_unit * (units - len(finished)), 6),
        "rows_per_chip_second": round(sum(each.result.rows for each in counted) / seconds, 3),
        "tokens_per_chip_second": round(sum(each.result.tokens for each in counted) / seconds, 1),
        "peak_fraction": _peak_fraction(counted, kinds, seconds),
    }


def _peak_fraction(counted: Sequence[Finished], kinds: Sequence[str], seconds: float) -> float | None:
    """The operations for the tokens, as a part of the chips' bfloat16 rate; None: either is unknown."""
    chip = BY_KIND.get(kinds[0]) if len(kinds) == 1 else None
    flops = [each.result.flops for each in counted if each.result.flops is not None]
    if chip is None or len(flops) < len(counted):
        return None
    return round(sum(flops) / seconds / (chip.flops * chip.devices_per_chip), 4)


def chip_seconds(finished: Sequence[Finished]) -> float:
    """Chip-seconds of all workers, over all their restarts."""
    lives: dict[str, list[Finished]] = collections.defaultdict(list)
    for each in finished:
        lives[each.result.worker].append(each)
    return sum(
        (max(each.time for each in life) - min(each.time - each.result.seconds for each in life))
        * (life[0].result.chips or 0)
        for life in lives.values()
    )
