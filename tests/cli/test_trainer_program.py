"""Questions to the trainer's programs: an answer, or one error that says what happened."""

import dataclasses
import sys
from typing import Any

import pytest

from tpujob.job.questions.trainer_program import Program, ask, follow
from tpujob.output.errors import CommandError
from tpujob_contract.job_facts import Place, Question


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Makes a module of this text, and gives its name."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(text: str) -> str:
        (tmp_path / "some_program.py").write_text("import json, os, signal, sys\n" + text)
        return "some_program"

    return make


def test_the_answer_is_the_last_line_of_stdout(program):
    made = program("print('a library greets'); print(json.dumps({'asked': sys.argv[1:]}))")
    assert ask(made, "verb", {"a": 1}) == {"asked": ["verb", '{"a": 1}']}


def test_problems_that_were_found_are_an_answer(program):
    assert ask(program("""print('{"problems": ["one"]}'); sys.exit(1)""")) == {"problems": ["one"]}


@pytest.mark.parametrize(
    ("text", "words", "code"),
    [
        ("sys.stderr.write('warning\\nspec.steps: is wrong\\n'); sys.exit(78)", ["spec.steps: is wrong"], 78),
        ("print(json.dumps({'error': 'spec.steps: is wrong'})); sys.exit(78)", ["spec.steps: is wrong"], 78),
        ("raise KeyError('embedding')", ["Traceback", "KeyError: 'embedding'", "please report"], 1),
        ("os.kill(os.getpid(), signal.SIGKILL)", ["memory", "SIGKILL"], 137),
        ("os.kill(os.getpid(), signal.SIGTERM)", ["143, killed by SIGTERM"], 143),
        ("sys.exit(0)", ["ended without an answer"], 1),
        ("raise MemoryError", ["memory"], 1),
        ("""sys.stderr.write("No module named 'tpujob_trainer'"); sys.exit(1)""", ["install tpujob-trainer"], 77),
    ],
    ids=["refusal", "refusal on stdout", "traceback", "SIGKILL", "SIGTERM", "nothing", "memory", "not installed"],
)
def test_no_answer_is_one_error_with_its_cause(program, text, words, code):
    with pytest.raises(CommandError) as error:
        ask(program(text))
    assert [word for word in words if word not in str(error.value)] == []
    assert error.value.exit_code == code


def test_programs_that_compute_do_so_on_cpu(tmp_path):
    with pytest.raises(CommandError, match="is no checkpoint directory"):
        ask(Program.STORED_ARRAYS, "verify", str(tmp_path))


@pytest.mark.parametrize("each", Program)
def test_every_program_is_there_and_ends_with_its_own_words(each, tmp_path):
    place = Place(devices=1, slices=1, platform="cpu", devices_here=1)
    question = Question(
        trainer={"steps": 1},
        checkpoint_dir=None,
        owner="a/b",
        place=place,
        is_run=False,
        has_all_packages=True,
        has_figures=False,
        forecast_workers=None,
    )
    requests: dict[Program, tuple[Any, ...]] = {
        Program.RUN_REPORT: ({"directories": [str(tmp_path)], "out": str(tmp_path / "report.html")},),
        Program.COMPILE: ("v5e", "4x4"),
        Program.DATA: ({"data": {"path": str(tmp_path / "none")}, "batchSize": 1, "sequenceLength": 8},),
        Program.CHECKPOINTS: (str(tmp_path),),
        Program.STORED_ARRAYS: ("verify", str(tmp_path)),
        Program.EXPORTED_WEIGHTS: (str(tmp_path), sys.executable),
        Program.EXTRACTION: ("status", str(tmp_path)),
        Program.JOB_FACTS: (dataclasses.asdict(question),),
    }
    with pytest.raises(CommandError) as error:
        ask(each, *requests[each], stdin={"steps": 1} if each is Program.COMPILE else None)
    assert error.value.exit_code in (77, 78)
    assert "Traceback" not in str(error.value)


def test_answers_come_as_they_are_written_whatever_is_warned_of_beside_them(program):
    made = program("for n in range(3):\n sys.stderr.write('w' * 100_000)\n print(json.dumps({'n': n}), flush=True)")
    assert [each["n"] for each in follow(made)] == [0, 1, 2]


def test_the_last_words_of_a_program_that_repeats_itself_are_its_error(program):
    answers = follow(program("print('{}', flush=True)\nsys.stderr.write('gone: the bucket'); sys.exit(77)"))
    assert next(answers) == {}
    with pytest.raises(CommandError, match="gone: the bucket") as error:
        next(answers)
    assert error.value.exit_code == 77
