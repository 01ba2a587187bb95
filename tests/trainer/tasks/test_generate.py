"""What a job of `task: generate` computes of its rows."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.tasks.batch import tasks


def test_rows_are_prompts_and_end_where_the_model_says_so(tmp_path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    config = parse_config(
        {
            "task": "generate",
            "model": {"from": str(tmp_path)},
            "data": {"path": "a.jsonl", "messagesColumn": "chat", "tokenizer": "bytes"},
            "generate": {"tokens": 4},
        }
    )
    given: dict[str, Any] = {}
    monkeypatch.setattr(tasks, "completions_program", lambda *_, **settings: given.update(settings))
    tokenizer = SimpleNamespace(eos=3, decode=str)

    task = tasks.generate_task(config, cast("Any", None), cast("Any", tokenizer), 16)
    task.make(cast("Any", None), cast("Any", None))

    assert (task.is_prompt, task.is_cut) == (True, False)
    assert given["ends"] == (3, 7, 9)
