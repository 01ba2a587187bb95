"""What tests of the command line share."""

import dataclasses
import json
from typing import Any

import pytest

from tpujob.job.questions import trainer_program
from tpujob.job.questions.trainer_program import Program
from tpujob.output.errors import CommandError
from tpujob_contract.job_facts import Place, Question
from tpujob_trainer.storage.remote import RETRYING
from tpujob_trainer.tasks.job_facts import facts_of
from tpujob_trainer.values.errors import TrainerError


@pytest.fixture
def answered_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the facts of a job computed in this process, not in one each, but for a job with code of its own.

    That the program starts, and how it fails, is claimed in test_trainer_program.py.
    """
    in_a_process = trainer_program.ask
    monkeypatch.setattr(RETRYING, "limit_seconds", RETRYING.limit_seconds)  # what an answer sets does not stay

    def ask(program: Program, request: Any, *, environ: Any = None, **more: Any) -> dict[str, Any]:
        if program is not Program.JOB_FACTS or environ is not None:
            return in_a_process(program, request, environ=environ, **more)
        asked = json.loads(json.dumps(request))
        try:
            facts = facts_of(Question(**{**asked, "place": Place(**asked["place"])}))
        except TrainerError as error:
            raise CommandError(str(error), exit_code=error.exit_code) from error
        found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(facts)))
        return found

    monkeypatch.setattr(trainer_program, "ask", ask)
