"""A `trainer` block as JSON on standard input, the figures of its compiled step out, as JSON."""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
from collections.abc import Mapping
from typing import Any

from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.train.compile.changes import Tried, first_that_fits, ranked, saving_changes, spending_changes
from tpujob_trainer.train.compile.program import as_json, compile_step, prepare_environment


def main(arguments: list[str] | None = None) -> int:
    """One JSON object; the exit status is 0 if the step fits, 1 if it does not, 78 for a wrong configuration."""
    parser = argparse.ArgumentParser(prog="python -m tpujob_trainer.train.compile", description=main.__doc__)
    parser.add_argument("generation", help="v4, v5e, v5p, v6e or tpu7x")
    parser.add_argument("shape", help="chips of a slice, as 4x4 or 2x2x4")
    parser.add_argument("--slices", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, default=2, help="ids of the tokenizer")
    parser.add_argument("--mend", action="store_true", help="look for one change with which it fits, if it does not")
    parser.add_argument("--suggest", action="store_true", help="compile a handful of changes, too, and rank them")
    options = parser.parse_args(arguments)
    prepare_environment()
    try:
        found = _answer(json.load(sys.stdin), options)
    except ConfigurationError as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 78
    sys.stdout.write(json.dumps(found) + "\n")
    return 0 if found.get("step", found)["fits"] else 1


def _answer(block: Mapping[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The step's own figures; under `step` where changes stand beside it."""

    @functools.cache
    def compiled(text: str) -> dict[str, Any]:
        return as_json(
            compile_step(
                parse_config(json.loads(text)),
                generation=options.generation,
                shape=shape,
                slices=options.slices,
                vocabulary=options.vocabulary,
            )
        )

    def compile_block(block: Mapping[str, Any]) -> dict[str, Any]:
        return compiled(json.dumps(block))

    shape = tuple(int(size) for size in options.shape.split("x"))
    step = compile_block(block)
    if not options.mend and not options.suggest:
        return step
    devices = step["devices"]
    assert devices % math.prod(shape) == 0
    place = {"devices": devices, "slices": options.slices, "vocabulary": options.vocabulary}
    found: dict[str, Any] = {"step": step}
    if not step["fits"]:
        tried = first_that_fits(block, saving_changes(block, **place), compile_block)
        found["change"] = None if tried is None else _as_json(tried)
    elif options.suggest:
        changes = spending_changes(block, **place)
        found["ranked"] = [_as_json(each) for each in ranked(block, changes, compile_block)]
    return found


def _as_json(tried: Tried) -> dict[str, Any]:
    return {"change": None if tried.change is None else str(tried.change), "step": tried.compiled}


if __name__ == "__main__":
    sys.exit(main())
