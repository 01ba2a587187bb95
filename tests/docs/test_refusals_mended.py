"""What a refusal advises, done to the letter: then the same command works."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tpujob.main import app

HEAD = "apiVersion: tpujob.dev/v1beta1\nkind: TpuTrainingJob\nmetadata: {name: job}\nspec:\n"
TRAINING = f"""{HEAD}  accelerator: cpu:2x4
  trainer:
    model: {{preset: tiny}}
    data: {{path: my-data/*.parquet, tokenizer: bytes}}
    steps: 200
"""
PROGRAM = f"{HEAD}  accelerator: cpu:2x4\n  image: a/b:1\n  command: [python3, train.py]\n"
NEW = "tpujob new new.yaml --name a --accelerator cpu:2x2 --data 'my-data/*.parquet' --preset tiny"


def types(command: str, code: int) -> str:
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == code, done.output
    return done.output


def found(pattern: str, message: str) -> str:
    match = re.search(pattern, message)
    assert match, message
    return match[1]


type Edit = Callable[[str], tuple[str, str]]
"""From a message to what is replaced by what."""

JOBS: dict[str, tuple[str, str, str, Edit]] = {
    "a misspelt field": (
        TRAINING, "accelerator:", "acelerator:",
        lambda said: ("acelerator", found(r"did you mean (\w+)\?", said)),
    ),
    "a misspelt field of the trainer": (
        TRAINING, "steps:", "stesp:",
        lambda said: ("stesp", found(r"did you mean (\w+)\?", said)),
    ),
    "no space after a colon": (
        TRAINING, "preset: tiny", "preset:tiny",
        lambda said: ("preset:tiny", found(r"write (.+), with a space", said)),
    ),
    "a number in quotes": (
        TRAINING, "200", '"200"',
        lambda said: ('"200"', found(r"write (\d+), without quotes", said)),
    ),
    "a number in words": (
        TRAINING, "steps: 200", "tokens: 20B",
        lambda said: ("20B", found(r"write (\w+)", said)),
    ),
    "a number in more words": (
        TRAINING, "steps: 200", "tokens: 20 billion",
        lambda said: ("20 billion", found(r"write (\w+)", said)),
    ),
    "a bucket as a browser shows it": (
        PROGRAM, "  image:", "  checkpointDir: https://storage.googleapis.com/my-bucket/llama\n  image:",
        lambda said: ("https://storage.googleapis.com/my-bucket/llama", found(r"write (gs://\S+)", said)),
    ),
    "no such slice": (
        PROGRAM, "cpu:2x4", "v4-12",
        lambda said: ("v4-12", found(r"nearest: ([\w-]+)", said)),
    ),
    "capitals": (
        PROGRAM, "cpu:2x4", "V5E-16",
        lambda said: ("V5E-16", found(r'write it in lower case without spaces, "(.+)"', said)),
    ),
    "rows that do not divide": (
        TRAINING, "steps:", "batchSize: 20\n    steps:",
        lambda said: ("20\n", found(r"devices; (\d+),", said) + "\n"),
    ),
    "no length of the run": (
        TRAINING, "    steps: 200\n", "",
        lambda said: ("bytes}\n", f"bytes}}\n    {found(r'give (steps) or', said)}: 200\n"),
    ),
    "two lengths of the run": (
        TRAINING, "steps:", "tokens: 20e9\n    steps:",
        lambda said: ("    tokens: 20e9\n" * (found(r"keep (one) of", said) == "one"), ""),
    ),
    "no such preset": (
        TRAINING, "tiny", "tinny",
        lambda said: ("tinny", found(r'one of "(\w+)"', said)),
    ),
    "a vocabulary without its tokenizer": (
        TRAINING,
        "{preset: tiny}\n    data: {path: my-data/*.parquet, tokenizer: bytes}",
        "{preset: llama3-8b}\n    data: {path: my-data/*.parquet}",
        lambda said: ("parquet}", "parquet, tokenizer: " + found(r"tokenizer: .+ write (\w+)", said) + "}"),
    ),
    "a command as a line": (
        PROGRAM, "[python3, train.py]", "python3 train.py",
        lambda said: ("python3 train.py", found(r"write (\[.+\])", said)),
    ),
    "no command": (
        PROGRAM, "  command: [python3, train.py]\n", "",
        lambda said: ("b:1\n", f"b:1\n  {found(r'name the (command)', said)}: [python3, train.py]\n"),
    ),
    "another version": (
        TRAINING, "v1beta1", "v1",
        lambda said: ("tpujob.dev/v1", found(r"one of '([^']+)'", said)),
    ),
    "a tab": (
        TRAINING, "    model", "\tmodel",
        lambda said: ("\t", "    " * (found(r"indent with (spaces)", said) == "spaces")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", JOBS)
def test_a_job_is_mended_by_what_its_refusal_says(case: str, tmp_path: Path) -> None:
    text, right, wrong, edit = JOBS[case]
    file = tmp_path / "job.yaml"
    assert text.count(right) == 1
    file.write_text(text.replace(right, wrong))
    refused = types(f"tpujob render {file}", 78)
    old, new = edit(refused)
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    types(f"tpujob render {file}", 0)


COMMANDS: dict[str, tuple[str, int, Callable[[str, str], str]]] = {
    "a name that Kubernetes has not": (
        NEW.replace("--name a", "--name My-Model"),
        78,
        lambda typed, said: typed.replace("My-Model", "My-Model".lower()) if "lower-case" in said else typed,
    ),
    "a file that is there": (
        NEW.replace("new.yaml", "job.yaml"),
        78,
        lambda typed, said: typed.replace("job.yaml", "another.yaml") if "name another file" in said else typed,
    ),
    "a pattern that matches nothing": (
        "tpujob data from-folder texts out --include '*.md'",
        77,
        lambda typed, said: typed.replace("'*.md'", found(r"it has 1 of ('.+'); give one as --include", said)),
    ),
    "a folder that is not there": (
        "tpujob data from-folder text out",
        77,
        lambda typed, said: typed.replace("text ", "texts ") if "name one with text files" in said else typed,
    ),
    "a target that is there": (
        "tpujob data from-folder texts my-data",
        78,
        lambda typed, said: typed.replace("my-data", "other") if "name another folder" in said else typed,
    ),
    "a misspelt verb": (
        "tpujob rendr job.yaml",
        2,
        lambda typed, said: typed.replace("rendr", found(r"Did you mean '(\w+)'", said)),
    ),
    "a misspelt option": (
        "tpujob render job.yaml --outptu json",
        2,
        lambda typed, said: typed.replace("--outptu", found(r"Possible options: (--\w+)", said)),
    ),
    "a file that is not there": (
        "tpujob render many.yaml",
        77,
        lambda typed, said: typed.replace("many.yaml", "job.yaml") if "name a file" in said else typed,
    ),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_command_is_mended_by_what_its_refusal_says(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(TRAINING)
    Path("texts").mkdir()
    Path("my-data").mkdir()
    Path("texts/one.rst").write_text("A text of some words.")
    command, code, mended = COMMANDS[case]
    types(mended(command, types(command, code)), 0)
