"""The compiler as a program of its own, which `tpujob check --compile` starts."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tpujob_trainer.values.errors import ConfigurationError, TrainerError


def compile_apart(
    block: Mapping[str, Any],
    *,
    generation: str,
    shape: tuple[int, ...],
    slices: int = 1,
    vocabulary: int = 2,
    limit_seconds: float = 900,
) -> dict[str, Any]:
    """The fields of `program.Compiled`, for a `trainer` block.

    Raises:
        ConfigurationError: the configuration is wrong.
        TrainerError: the compiler took longer, or ended without an answer.
    """
    command = [sys.executable, "-m", "tpujob_trainer.train.compile", generation, "x".join(map(str, shape))]
    command += ["--slices", str(slices), "--vocabulary", str(vocabulary)]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(block),
            capture_output=True,
            text=True,
            timeout=limit_seconds,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TrainerError(
            f"compiling took longer than {limit_seconds:.0f} s; allow more, or use fewer layers"
        ) from error
    lines = done.stdout.strip().splitlines()
    try:
        found: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError) as error:
        raise TrainerError(f"the compiler ended with code {done.returncode}: {done.stderr[-2000:]}") from error
    if "error" in found:
        raise ConfigurationError(found["error"])
    return found
