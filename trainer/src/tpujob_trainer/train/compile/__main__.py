"""Reads a `trainer` block as JSON from standard input, and writes the figures of its compiled step as JSON."""

import argparse
import functools
import json
import sys
from collections.abc import Mapping
from typing import Any

from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.model.chips import CHIPS
from tpujob_trainer.train.compile.changes import Place, Tried, first_that_fits, saving_changes
from tpujob_trainer.train.compile.program import as_json, compile_step, prepare_environment
from tpujob_trainer.train.compile.search import best_compiled, layouts
from tpujob_trainer.values.errors import ConfigurationError


def main(arguments: list[str] | None = None) -> int:
    """One JSON object; the exit status is 0 if the step fits, 1 if it does not, 78 for a wrong configuration."""
    parser = argparse.ArgumentParser(prog="python -m tpujob_trainer.train.compile", description=main.__doc__)
    parser.add_argument("generation", help="v4, v5e, v5p, v6e or tpu7x")
    parser.add_argument("shape", help="chips of a slice, as 4x4 or 2x2x4")
    parser.add_argument("--slices", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, default=2, help="ids of the tokenizer")
    parser.add_argument("--mend", action="store_true", help="look for one change with which it fits, if it does not")
    parser.add_argument("--suggest", action="store_true", help="look for layouts that are faster, and rank them")
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
    """The figures of the step; under `step` if there are figures of changes, too."""

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
    chip = CHIPS[options.generation]
    place = Place(devices=step["devices"], slices=options.slices, vocabulary=options.vocabulary, chip=chip)
    found: dict[str, Any] = {"step": step}
    if options.suggest:
        compared = layouts(place.resolved(block), chip, devices=place.devices)
        seconds = {each.changes: each.seconds for each in compared}
        found["compared"] = len(compared)
        found["ranked"] = [
            {**_as_json(each), "expected_seconds": seconds.get(each.changes)}
            for each in best_compiled(block, compared, compile_block)
        ]
    if not any(each["step"]["fits"] for each in found.get("ranked", [found])):
        tried = first_that_fits(block, saving_changes(block, place), compile_block)
        found["change"] = None if tried is None else _as_json(tried)
    return found


def _as_json(tried: Tried) -> dict[str, Any]:
    """The changes as text and by field, and the figures of the step with them."""
    return {
        "change": ", ".join(map(str, tried.changes)) or None,
        "fields": {change.field: change.json_value for change in tried.changes},
        "step": tried.compiled,
    }


if __name__ == "__main__":
    sys.exit(main())
