"""What `tpujob checkpoint` makes of the facts about a directory."""

from tpujob.job.questions.checkpoints import sentences, table, verdicts

CHECKPOINT = {
    "step": 400,
    "problem": None,
    "committed_time": 1_900_000_000.0,
    "bytes": 12_345_678,
    "loss": 2.25,
    "metrics": {"evaluation_loss": 2.5},
    "data": {"batches": 400, "tokens": 1_638_400, "fingerprint": "abc"},
    "processes": 4,
    "versions": {"jax": "1.2", "python": "3.12"},
    "configuration": {"model": {"layers": 2, "window": None}},
}


def test_a_line_for_each_checkpoint() -> None:
    bare = {**CHECKPOINT, "step": 200, "loss": None, "metrics": {}}
    found = {"directory": "gs://b/run", "owner": "team/llama", "checkpoints": [CHECKPOINT, bare], "unfinished": [600]}
    head, titles, newest, before, unfinished = table(found)
    assert head == "gs://b/run: belongs to team/llama, 2 checkpoints"
    assert titles.split() == ["STEP", "COMMITTED", "SIZE", "TOKENS", "LOSS", "EVALUATION"]
    assert newest.split()[0] == "400"
    assert newest.split()[-5:] == ["12.3", "MB", "1,638,400", "2.2500", "2.5000"]
    assert before.split()[-2:] == ["-", "-"]
    assert unfinished.endswith("step 600")


def test_a_checkpoint_that_cannot_be_used_says_why() -> None:
    renamed = {**CHECKPOINT, "problem": "it holds step 2: the folder was renamed", "versions": None}
    found = {"directory": "gs://b/run", "owner": "team/llama", "checkpoints": [renamed], "unfinished": []}
    assert list(table(found))[-1] == "step 400 cannot be used: it holds step 2: the folder was renamed"
    assert "  cannot be used: it holds step 2: the folder was renamed" in sentences({**found, **renamed})


def test_one_checkpoint_in_lines() -> None:
    lines = list(sentences({**CHECKPOINT, "directory": "gs://b/run", "owner": "team/llama"}))
    assert lines[0].startswith("step 400 of team/llama, committed ")
    assert "  data: 400 batches read, 1,638,400 tokens, fingerprint abc" in lines
    assert "  made with: jax 1.2, python 3.12" in lines
    assert lines[-1] == '  model: {"layers": 2}'


def test_a_verdict_for_each_checkpoint() -> None:
    found = {"directory": "gs://b/run", "problems": {"400": [], "200": ["weights.embedding: wrong"]}}
    assert list(verdicts(found)) == [
        "step 400: every array is as it was saved",
        "step 200: damaged",
        "  weights.embedding: wrong",
    ]
    assert list(verdicts({"directory": "gs://b/run", "problems": {}})) == ["gs://b/run: no committed checkpoint"]
