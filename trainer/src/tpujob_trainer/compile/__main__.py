"""`python -m tpujob_trainer.compile`: a `trainer` block as JSON on standard input, the compiled step's figures out."""

from __future__ import annotations

import argparse
import json
import sys

from tpujob_trainer.compile.program import as_json, compile_step, prepare_environment
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.errors import ConfigurationError


def main(arguments: list[str] | None = None) -> int:
    """One JSON object; the exit status is 0 if the step fits, 1 if it does not, 78 for a wrong configuration."""
    parser = argparse.ArgumentParser(prog="python -m tpujob_trainer.compile", description=main.__doc__)
    parser.add_argument("generation", help="v4, v5e, v5p, v6e or tpu7x")
    parser.add_argument("shape", help="chips of a slice, as 4x4 or 2x2x4")
    parser.add_argument("--slices", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, default=2, help="ids of the tokenizer")
    options = parser.parse_args(arguments)
    prepare_environment()
    try:
        found = compile_step(
            parse_config(json.load(sys.stdin)),
            generation=options.generation,
            shape=tuple(int(size) for size in options.shape.split("x")),
            slices=options.slices,
            vocabulary=options.vocabulary,
        )
    except ConfigurationError as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 78
    sys.stdout.write(json.dumps(as_json(found)) + "\n")
    return 0 if found.fits else 1


if __name__ == "__main__":
    sys.exit(main())
