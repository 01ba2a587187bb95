"""What a command imports decides how quickly it starts: modules are counted here, not milliseconds."""

import json
import subprocess
import sys

import pytest

HEAVY = {
    "jax", "numpy", "pyarrow", "pydantic", "jsonschema", "ruamel.yaml", "kubernetes", "aiohttp", "fsspec", "pygments",
    "rich", "rich.markdown", "markdown_it", "tpujob_operator", "tpujob_trainer", "urllib3",
}  # fmt: skip
PROGRAM = """
import contextlib, io, json, sys
from tpujob.main import app
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    app(sys.argv[1:])
print(json.dumps(sorted(sys.modules)))
"""


def imported(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]], ids=" ".join)
def test_the_first_help_imports_nothing_heavy(arguments):
    assert imported(*arguments) & HEAVY == set()


@pytest.mark.parametrize("arguments", [["run", "--help"], ["data", "--help"], ["bundle", "--help"]], ids=" ".join)
def test_the_help_of_a_verb_imports_only_what_typer_needs(arguments):
    assert imported(*arguments) & HEAVY <= {"pydantic"}


def test_render_imports_no_machine_learning_and_no_client():
    assert imported("render", "examples/quickstart.yaml") & {"jax", "numpy", "pyarrow", "kubernetes", "rich"} == set()
