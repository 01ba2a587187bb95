"""Wrong files and commands: each refused by name, with its exit code, at once, and without a traceback."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.operator.manifests import container_manifest
from tests.wrong_inputs.files import FILES
from tests.wrong_inputs.table import WRONG
from tpujob.main import app

LONGEST_LINE = 1000
"""Of a line that lists all fields, or all presets."""
MOST_SECONDS = 2.0
"""Of the processor: how busy the machine is does not count."""
SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}


def _job(job: dict[str, Any]) -> str:
    return json.dumps(job)


@pytest.fixture(scope="module", autouse=True)
def _imports(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Imports what the commands import, so that no case is charged for it."""
    wrong = tmp_path_factory.mktemp("imports") / "job.yaml"
    wrong.write_text(json.dumps(WRONG["a trainer without data"].job))
    for verb in ("render", "check"):
        CliRunner().invoke(app, [verb, str(wrong)])


# Both read the job by the same function: `check` is asked about what is wrong with the file alone.
@pytest.mark.parametrize(
    ("verb", "case"), [*(("render", case) for case in [*FILES, *WRONG]), *(("check", case) for case in FILES)]
)
def test_a_wrong_file_is_refused_by_name(verb: str, case: str, tmp_path: Path) -> None:
    text, *words = FILES[case] if case in FILES else (json.dumps(WRONG[case].job), *WRONG[case].says)
    file = tmp_path / "job.yaml"
    file.write_text(text)
    begun = time.process_time()
    done = CliRunner().invoke(app, [verb, str(file)])
    assert time.process_time() - begun < MOST_SECONDS
    for each in words:
        assert each in done.output
    assert done.exit_code == 78
    assert isinstance(done.exception, SystemExit), "an exception would be a traceback"
    assert all(len(line) < LONGEST_LINE for line in done.output.splitlines())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["render", "absent.yaml"], 77, "absent.yaml: No such file"),
        (["render", "."], 77, "Is a directory"),
        (["render", "binary"], 77, "is not UTF-8"),
        (["render", "/dev/zero"], 77, "/dev/zero: is larger than 1 MiB"),
        (["run", "large.yaml"], 78, "cpu:2x4"),
        (["run", "secret.yaml"], 78, "export it here first"),
        (["data", "from-folder", "absent", "out"], 77, "is not a folder"),
        (["data", "from-folder", ".", "."], 78, "is there already"),
        (["data", "from-folder", "empty", "out"], 77, "no text"),
        (["data", "from-folder", "empty", "binary/out"], 78, "OUT: 'binary/out' cannot be written (Not a directory)"),
        (["checkpoint", "ls", "empty"], 77, "is no checkpoint directory"),
        (
            ["new", "large.yaml", "--name", "a", "--accelerator", "cpu:1x1", "--data", "x", "--preset", "tiny"],
            78,
            "there",
        ),
        (["runn", "job.yaml"], 2, "runn"),
        (["run"], 2, "JOB.YAML"),
        (["run", "large.yaml", "--max-processes", "0"], 2, "--max-processes"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_a_wrong_command_is_refused(
    arguments: list[str], code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("binary").write_bytes(b"\xff\xfe\x00")
    Path("empty").mkdir()
    Path("large.yaml").write_text(_job(container_manifest(accelerator="v5e-256")))
    Path("secret.yaml").write_text(_job(container_manifest(env=[{"name": "NOT_SET_HERE", "valueFrom": SECRET}])))
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code, done.output
    assert words in done.output
    assert isinstance(done.exception, SystemExit)
