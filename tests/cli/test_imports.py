"""What a command imports decides how quickly it starts: modules are counted here, not milliseconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "jax", "numpy", "pyarrow", "pydantic", "jsonschema", "ruamel.yaml", "kubernetes", "aiohttp", "fsspec", "pygments",
    "rich", "rich.markdown", "markdown_it", "tpujob_operator", "tpujob_trainer", "urllib3",
}  # fmt: skip
PROGRAM = """
import contextlib, io, json, sys
opened = []
sys.addaudithook(lambda event, values: opened.append(str(values[0])) if event == "open" else None)
from tpujob.main import app
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    app(sys.argv[1:])
print(json.dumps({"modules": sorted(sys.modules), "files": opened}))
"""


def imported(*arguments: str) -> set[str]:
    return set(touched(*arguments)["modules"])


def touched(*arguments: str) -> dict[str, list[str]]:
    """Modules that a command imported, and files that it opened."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]], ids=" ".join)
def test_the_first_help_imports_nothing_heavy(arguments):
    assert imported(*arguments) & HEAVY == set()


@pytest.mark.parametrize(
    "arguments",
    [["run", "--help"], ["check", "--help"], ["data", "--help"], ["bundle", "--help"], ["doctor", "--help"]],
    ids=" ".join,
)
def test_the_help_of_a_verb_imports_only_what_typer_needs(arguments):
    assert imported(*arguments) & HEAVY <= {"pydantic"}


CLIENT = {"kubernetes", "urllib3", "aiohttp"}
LEARNING = {"jax", "numpy", "pyarrow", "tpujob_trainer", "fsspec"}
NEVER = {"jsonschema", "rich", "pygments", "markdown_it", "aiohttp"}
"""Of no command that ends in text and is given a right file."""
JOB = "examples/quickstart.yaml"


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["render", JOB], NEVER | CLIENT | LEARNING | {"http.client", "urllib.request"}),
        (["check", JOB], NEVER | CLIENT | LEARNING),
        (
            ["new", "/dev/null/job.yaml", "--name=a", "--accelerator=cpu:1x1", "--data=x", "--preset=tiny"],
            NEVER | CLIENT,
        ),
        (["get", "--context", "none"], NEVER | LEARNING | {"tpujob_operator"}),
        (["describe", "a", "--context", "none"], NEVER | LEARNING | {"tpujob_operator"}),
        (["logs", "a", "--context", "none"], NEVER | LEARNING | {"tpujob_operator"}),
        (["stop", "a", "--context", "none"], NEVER | LEARNING | {"tpujob_operator"}),
        (["top", "--context", "none"], LEARNING | {"tpujob_operator"}),
        (["profile", "a", "--context", "none"], NEVER | LEARNING | {"tpujob_operator"}),
        (["exec", "a", "--context", "none", "--", "date"], NEVER | LEARNING | {"tpujob_operator"}),
        (["doctor", "--context", "none"], NEVER | LEARNING | {"tpujob_operator"}),
        (["submit", JOB, "--context", "none"], NEVER | LEARNING),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_imports_nothing_that_it_does_not_need(arguments, heavy):
    assert imported(*arguments) & heavy == set()


@pytest.mark.parametrize("program", ["tasks.job_facts", "main"])
def test_the_trainers_checks_of_a_job_import_no_jax(program):
    said = f"import sys, tpujob_trainer.{program}; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_wrong_field_is_what_jsonschema_is_for(tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text(Path(JOB).read_text().replace("trainer:", "trainer:\n    stesp: 1"))
    assert "jsonschema" in imported("render", str(job))


def test_render_looks_for_no_plugins_of_pydantic():
    # entry_points.txt of every installed package, 20 ms and more with each.
    files = touched("render", JOB)["files"]
    assert JOB in files
    assert [file for file in files if file.endswith("entry_points.txt")] == []
