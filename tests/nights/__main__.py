"""Plays nights: python -m tests.nights --seed 1 --minutes 10 [--jobs 60] [--nights 50 --results nights.jsonl]

Prints the seed, the blows and what was broken; then plays parts of the blows again, to find the shortest history that
breaks the same invariant. Exits with 1 if anything was broken.

With --results, each night is added to a file, a night that is there is not played again, and one that could not be
played, as on a machine without memory, is left for the next call: so fifty nights can be played over days. With
benchmarks/nights.jsonl, the table in benchmarks/README.md follows.
"""

import argparse
import functools
import os
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.nights import results
from tests.nights.invariants import broken
from tests.nights.player import play
from tests.nights.schedule import INFRASTRUCTURE, KINDS, TO_A_JOB, Blow, Night, make_night
from tests.nights.shortening import shortest
from tests.nights.stage import Stage
from tools.localcluster import binaries

KEPT = Path(".cache/nights")
"""Where histories are kept that broke something."""
say = functools.partial(print, flush=True)


def main() -> int:
    """Plays the nights of the seeds from the given one on."""
    parser = _parser()
    options = parser.parse_args()
    if options.results and (options.kinds or options.blows):
        parser.error("--results is for whole nights: leave out --kinds and --blows")
    binaries.build_all(say, (*binaries.CONTROL_PLANE, *binaries.QUEUE))
    seeds = range(options.seed, options.seed + options.nights)
    known = results.read(options.results) if options.results else []
    todo = results.left(seeds, known, minutes=options.minutes, jobs=options.jobs)
    found, unplayed = [], 0
    for seed in todo:
        try:
            found.append(_play(seed, options))
        except Exception:
            if not options.results:
                raise
            unplayed += 1
            say(f"seed {seed}: could not be played:\n{traceback.format_exc()}")
            continue
        if options.results:
            results.append(options.results, found[-1])
        if options.results and options.results.absolute() == results.FILE:
            results.write_table()
    failed = sum(bool(result.broken) for result in found)
    say(f"{options.nights} nights from seed {options.seed}: {len(found)} played, {failed} of them with violations")
    if options.results:
        say("\n".join(results.table(results.read(options.results))))
    return 1 if failed or unplayed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--nights", type=int, default=1)
    parser.add_argument("--shorten-minutes", type=float, default=30.0, help="for the shortest history; 0: do not look")
    parser.add_argument("--kinds", nargs="*", default=[], choices=tuple(KINDS), help="of jobs; default: all")
    parser.add_argument("--blows", nargs="*", default=[], choices=(*INFRASTRUCTURE, *TO_A_JOB), help="default: all")
    parser.add_argument("--results", type=Path, help="file to which each night is added, and which is gone on from")
    return parser


def _play(seed: int, options: argparse.Namespace) -> results.Result:
    """A night on a control plane of its own, whose logs of a night before would else be read with it."""
    kinds, blows = tuple(options.kinds), tuple(options.blows)
    night = make_night(seed, seconds=60 * options.minutes, jobs=options.jobs, kinds=kinds, blows=blows)
    code, before = results.code(), results.processor_seconds()
    with TemporaryDirectory() as folder, Stage(Path(folder)) as stage:
        result = played(stage, night, KEPT)
    used = round(results.processor_seconds() - before, 1)
    if result.broken and options.shorten_minutes:
        with TemporaryDirectory() as folder, Stage(Path(folder)) as stage:
            shorten(stage, night, result.broken, 60 * options.shorten_minutes)
    return replace(result, code=code, versions=results.versions(), processor_seconds=used)


def played(stage: Stage, night: Night, kept: Path | None = None) -> results.Result:
    """What became of a night, after it is said; history and logs of one that broke something are kept in the folder."""
    history = play(stage, night)
    result = results.Result(
        seed=night.seed,
        minutes=night.seconds / 60,
        jobs=len(night.jobs),
        blows=len(night.blows),
        fell=len(history.struck),
        failed_attempts=len({(end.jobset, end.attempt) for end in history.ends if end.why != "finished"}),
        writes=sum(history.writes.values()),
        load=round(os.getloadavg()[2], 1),
        broken=tuple(broken(history)),
    )
    fell = f"{result.fell} of {result.blows} blows fell"
    restarts = f"{result.failed_attempts} attempts failed, {result.writes} writes"
    say(f"seed {night.seed}: {result.jobs} jobs, {fell}, {restarts}: {len(result.broken)} broken")
    for what in result.broken:
        say(f"  {what}")
    if result.broken and kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        file = kept / f"history-{night.seed}.jsonl"
        file.write_text("".join(f"{line}\n" for line in history.lines()))
        file.with_suffix(".log").write_text(stage.operator_log())
        say(f"  all that was seen, done and ended, and the operator's log: {file.with_suffix('.*')}")
    return result


def shorten(stage: Stage, night: Night, found: tuple[str, ...], seconds: float) -> None:
    """Says the shortest history that breaks one of the same invariants."""
    names = {what.partition(":")[0] for what in found}

    def breaks(blows: list[Blow]) -> bool:
        return any(what.partition(":")[0] in names for what in played(stage, night.with_blows(blows)).broken)

    left = shortest(list(night.blows), breaks, limit_seconds=seconds)
    say(f"seed {night.seed}: the shortest history that was found has {len(left)} of {len(night.blows)} blows:")
    for blow in left:
        say(f"  {blow}")


if __name__ == "__main__":
    sys.exit(main())
