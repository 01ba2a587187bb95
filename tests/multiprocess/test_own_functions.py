"""Functions of the user's own for rows and between steps, in two processes that share the weights."""

import re

import pytest

from tests.harness import processes

pytestmark = pytest.mark.processes

CODE = """
import jax
import jax.numpy as jnp

def text(row):
    return None if "import" in row["text"] else row["text"].upper()

class Norm:
    def __init__(self, folder):
        self.folder = folder

    def __call__(self, step, weights, metrics):
        norm = jax.jit(lambda w: jnp.sqrt(sum(jnp.sum(jnp.square(each)) for each in jax.tree.leaves(w))))(weights)
        with open(f"{self.folder}/{jax.process_index()}.txt", "a") as file:
            file.write(f"{step} {float(norm)} {metrics['loss']}\\n")
        return {"norm": norm}

class OnProcessZero(Norm):
    def __call__(self, step, weights, metrics):
        if jax.process_index():
            return None
        return super().__call__(step, weights, metrics)
"""


def test_all_processes_call_them_and_other_code_on_one_host_is_refused(tmp_path, trainer_block):
    block = trainer_block(steps=4, every_steps=2)
    block["data"] |= {"custom": "my_code:text", "columns": ["text"]}
    block["callbacks"] = [{"name": "my_code:Norm", "everySteps": 2, "arguments": {"folder": str(tmp_path)}}]
    for number in (0, 1):
        (tmp_path / f"host-{number}").mkdir()
        (tmp_path / f"host-{number}" / "my_code.py").write_text(CODE)
    options = {
        "processes": 2,
        "devices": 1,
        "config": block,
        "extra_of": lambda index: {"PYTHONPATH": str(tmp_path / f"host-{index}")},
    }
    with processes.start(tmp_path / "first", **options) as run:
        run.wait()
    assert [member.poll() for member in run.members] == [0, 0], run.explain()
    lines = (tmp_path / "0.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["2", "4"]
    assert (tmp_path / "1.txt").read_text().splitlines() == lines
    assert re.search(r"Step 4: norm \d", run[0].log)

    (tmp_path / "host-1" / "my_code.py").write_text(CODE.replace("upper", "lower"))
    with processes.start(tmp_path / "second", **{**options, "config": {**block, "steps": 6}}) as run:
        run.wait()
    assert [member.poll() for member in run.members] == [78, 78], run.explain()
    assert any(
        "spec.trainer.data.custom: my_code.text has changed since" in member.termination_message
        for member in run.members
    )


def test_computation_of_process_0_alone_is_named_with_its_line(tmp_path, trainer_block):
    block = trainer_block(steps=4, every_steps=None) | {"watchdog": {"stepSeconds": 20}}
    block["callbacks"] = [{"name": "my_code:OnProcessZero", "everySteps": 2, "arguments": {"folder": str(tmp_path)}}]
    (tmp_path / "my_code.py").write_text(CODE)
    with processes.start(
        tmp_path, processes=2, devices=1, config=block, extra_of=lambda index: {"PYTHONPATH": str(tmp_path)}
    ) as run:
        run.wait()
    assert [member.poll() for member in run.members] == [79, 79], run.explain()
    line = r"at my_code\.py:\d+ in __call__.*process 1 has returned"
    assert re.search(
        rf"callbacks\[0\]\.name: my_code:OnProcessZero: process 0 waits for a computation {line}", run[0].log
    )
    assert re.search(rf"behind the others: process 0 .*{line}", run.members[0].termination_message)
