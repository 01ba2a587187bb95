"""Requests to the trainer's programs, each run as a process: the only place where the command line starts them.

A new request needs its program's name here and one call of `ask`. A program writes its answer as one JSON object, the
last line of stdout. It explains a failure in the field `error` of that object or in the last line of stderr, with an
exit code of the contract.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode
from tpujob_contract.exit_codes import KILLED, describe
from tpujob_contract.proxies import without_proxies
from tpujob_contract.typed import object_in

ANSWERED = (0, 1)
"""Exit codes of a program that wrote an answer; 1 is an answer with problems in it."""
SHOWN_CHARACTERS = 4000
"""How much of the end of a traceback is shown."""


_START = (
    "import runpy, sys; sys.path.append(''); del sys.argv[0]; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
"""As `-m`, but a job's own modules in the current folder hide none of Python's: the folder is the last on the path."""


class Program(StrEnum):
    """The programs of the trainer that answer requests."""

    JOB_FACTS = "tpujob_trainer.tasks.job_facts"
    COMPILE = "tpujob_trainer.train.compile"
    DATA = "tpujob_trainer.data.inspection"
    CHECKPOINTS = "tpujob_trainer.checkpoint.inspection"
    RUN_REPORT = "tpujob_trainer.tasks.run_report"
    STORED_ARRAYS = "tpujob_trainer.tasks.stored_checkpoint"
    EXPORTED_WEIGHTS = "tpujob_trainer.model.weights.verified_export"
    EXTRACTION = "tpujob_trainer.corpus.extract.inspection"


COMPUTE_ON_CPU = (Program.STORED_ARRAYS, Program.EXPORTED_WEIGHTS, Program.JOB_FACTS)
"""These use JAX, or import modules that may, and a run on this machine may hold its TPU."""


def ask(
    program: Program,
    *request: str | Mapping[str, Any],
    stdin: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> dict[str, Any]:
    """Runs a program, and returns its answer.

    Args:
        program: The program.
        request: Its arguments; a mapping is passed as JSON.
        stdin: JSON that it reads from standard input; None: it reads none.
        environ: Its environment; None: that of the command line.
        directory: Where it runs; None: where the command line does.

    Raises:
        CommandError: with the program's own message and exit code; or it is missing, was killed, or broke.
    """
    done = subprocess.run(
        _command(program, request),
        env=_environment(program, environ),
        cwd=directory,
        input=None if stdin is None else json.dumps(stdin),
        capture_output=True,
        text=True,
        check=False,
    )
    found = _last_object(done.stdout)
    if found is not None and "error" in found:
        raise CommandError(found["error"], exit_code=done.returncode or ExitCode.CONFIGURATION)
    if found is None or done.returncode not in ANSWERED:
        raise _failure(program, done.returncode, done.stderr)
    return found


def follow(program: Program, *request: str | Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The answers of a program that writes several, each as it is written, until the program ends.

    Raises:
        CommandError: as `ask`.
    """
    # A file takes any number of warnings; an unread pipe would fill up and block the program.
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr,
        subprocess.Popen(
            _command(program, request), env=_environment(program), stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if (found := _last_object(line)) is not None:
                    yield found
            if process.wait() not in ANSWERED:
                raise _failure(program, process.returncode, _content(stderr))
        finally:
            process.terminate()


def _command(program: Program, request: tuple[str | Mapping[str, Any], ...]) -> list[str]:
    arguments = [each if isinstance(each, str) else json.dumps(each) for each in request]
    return [sys.executable, "-P", "-c", _START, program, *arguments]


def _environment(program: Program, environ: Mapping[str, str] | None = None) -> Mapping[str, str]:
    environ = os.environ if environ is None else environ
    environ = {**environ, **without_proxies(environ)}
    return {**environ, "JAX_PLATFORMS": "cpu"} if program in COMPUTE_ON_CPU else environ


def _content(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _last_object(stdout: str) -> dict[str, Any] | None:
    """The answer in the last line; None: that line is no JSON object, as libraries print, too."""
    last = (stdout.splitlines() or [""])[-1]
    return object_in(last) or ({} if last == "{}" else None)


def _failure(program: Program, code: int, stderr: str) -> CommandError:
    """The error for a program that ended without an answer."""
    code = 128 - code if code < 0 else code
    lines = stderr.strip().splitlines()
    last = lines[-1] if lines else ""
    if "No module named 'tpujob_trainer'" in last or last.endswith("No module named tpujob_trainer"):
        return CommandError(
            f"the trainer is not installed for {sys.executable}; install tpujob-trainer beside tpujob",
            exit_code=ExitCode.NOT_FOUND,
        )
    if code == KILLED or last.startswith("MemoryError"):
        return CommandError(
            f"{program} ran out of this machine's memory, or was killed ({describe(code)}); "
            "free some memory, or ask on a machine with more",
            exit_code=code,
        )
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        return CommandError(
            stderr.strip()[-SHOWN_CHARACTERS:],
            f"{program} broke ({last}); this is a fault of tpujob: please report it with the lines above",
            exit_code=code or 1,
        )
    return CommandError(last or f"{program} ended without an answer: exit code {describe(code)}", exit_code=code or 1)
