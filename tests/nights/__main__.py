"""Plays nights: python -m tests.nights --seed 1 --minutes 10 [--jobs 60] [--nights 5]

Prints the seed, the blows and what was broken; then plays parts of the blows again, to find the shortest history that
breaks the same invariant. Exits with 1 if anything was broken.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from tests.nights.invariants import broken
from tests.nights.player import play
from tests.nights.schedule import INFRASTRUCTURE, KINDS, TO_A_JOB, Blow, Night, make_night
from tests.nights.shortening import shortest
from tests.nights.stage import Stage
from tools.localcluster import binaries

say = functools.partial(print, flush=True)


def main() -> int:
    """Plays the nights of the seeds from the given one on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--nights", type=int, default=1)
    parser.add_argument("--shorten-minutes", type=float, default=30.0, help="for the shortest history; 0: do not look")
    parser.add_argument("--kinds", nargs="*", default=[], choices=tuple(KINDS), help="of jobs; default: all")
    parser.add_argument("--blows", nargs="*", default=[], choices=(*INFRASTRUCTURE, *TO_A_JOB), help="default: all")
    parser.add_argument("--keep", type=Path, help="folder for logs and histories; default: a temporary one")
    options = parser.parse_args()
    binaries.build_all(say, (*binaries.CONTROL_PLANE, *binaries.QUEUE))
    with TemporaryDirectory() as folder, Stage(Path(mkdtemp(dir=options.keep) if options.keep else folder)) as stage:
        failed = 0
        for seed in range(options.seed, options.seed + options.nights):
            kinds, blows = tuple(options.kinds), tuple(options.blows)
            night = make_night(seed, seconds=60 * options.minutes, jobs=options.jobs, kinds=kinds, blows=blows)
            found = played(stage, night)
            failed += bool(found)
            if found and options.shorten_minutes:
                shorten(stage, night, found, 60 * options.shorten_minutes)
    say(f"{options.nights} nights from seed {options.seed}, {failed} with violations")
    return 1 if failed else 0


def played(stage: Stage, night: Night) -> list[str]:
    """What a night broke, after it is said."""
    history = play(stage, night)
    found = broken(history)
    restarts = len({(end.jobset, end.attempt) for end in history.ends if end.why != "finished"})
    fell = f"{len(history.struck)} of {len(night.blows)} blows fell"
    writes = f"{sum(history.writes.values())} writes"
    say(f"seed {night.seed}: {len(night.jobs)} jobs, {fell}, {restarts} attempts failed, {writes}: {len(found)} broken")
    for what in found:
        say(f"  {what}")
    if found:
        file = stage.directory / f"history-{night.seed}.jsonl"
        file.write_text("".join(f"{line}\n" for line in history.lines()))
        say(f"  all that was seen, done and ended: {file}")
    return found


def shorten(stage: Stage, night: Night, found: list[str], seconds: float) -> None:
    """Says the shortest history that breaks one of the same invariants."""
    names = {what.partition(":")[0] for what in found}

    def breaks(blows: list[Blow]) -> bool:
        return any(what.partition(":")[0] in names for what in played(stage, night.with_blows(blows)))

    left = shortest(list(night.blows), breaks, limit_seconds=seconds)
    say(f"seed {night.seed}: the shortest history that was found has {len(left)} of {len(night.blows)} blows:")
    for blow in left:
        say(f"  {blow}")


if __name__ == "__main__":
    sys.exit(main())
