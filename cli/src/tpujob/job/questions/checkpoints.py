"""What the trainer answers about a checkpoint directory, in lines: checkpoints, attempts, curves."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tpujob.output.words import counted, magnitude, sparkline
from tpujob_contract.exit_codes import describe as describe_code

type Facts = Mapping[str, Any]


def verdicts(found: Facts) -> Iterator[str]:
    """A line for each checkpoint that was verified, and one for each problem."""
    for step, problems in found["problems"].items():
        yield f"step {step}: {'every array is as it was saved' if not problems else 'damaged'}"
        yield from (f"  {problem}" for problem in problems)
    if not found["problems"]:
        yield f"{found['directory']}: no committed checkpoint"


def table(found: Facts) -> Iterator[str]:
    """The checkpoints of a directory, a line each, newest first."""
    yield f"{found['directory']}: belongs to {found['owner']}, {len(found['checkpoints'])} checkpoints"
    if found["checkpoints"]:
        yield f"{'STEP':>10}  {'COMMITTED':<16}  {'SIZE':>10}  {'TOKENS':>16}  {'LOSS':>8}  EVALUATION"
    for each in found["checkpoints"]:
        evaluation = each["metrics"].get("evaluation_loss")
        yield (
            f"{each['step']:>10}  {_when(each['committed_time'])}  {_size(each['bytes']):>10}  "
            f"{each['data']['tokens']:>16,}  {_number(each['loss']):>8}  {_number(evaluation)}"
        )
    yield from (
        f"step {each['step']} cannot be used: {each['problem']}" for each in found["checkpoints"] if each["problem"]
    )
    if found["unfinished"]:
        steps = ", ".join(map(str, found["unfinished"]))
        yield f"not committed, and deleted when the run next starts: step {steps}"


def sentences(found: Facts) -> Iterator[str]:
    """One checkpoint in lines."""
    yield f"step {found['step']} of {found['owner']}, committed {_when(found['committed_time'])}"
    if found["problem"]:
        yield f"  cannot be used: {found['problem']}"
    yield f"  directory: {found['directory']}"
    yield f"  size: {_size(found['bytes'])}, written by {found['processes']} processes"
    if found["loss"] is not None:
        yield f"  loss: {found['loss']:.4f}"
    for name, value in sorted(found["metrics"].items()):
        yield f"  {name}: {value:.4f}"
    data = found["data"]
    yield f"  data: {data['batches']:,} batches read, {data['tokens']:,} tokens, fingerprint {data['fingerprint']}"
    versions = ", ".join(f"{name} {version}" for name, version in sorted(found["versions"].items()))
    yield f"  made with: {versions}"
    model = {key: value for key, value in found["configuration"]["model"].items() if value is not None}
    yield f"  model: {json.dumps(model)}"


def attempt_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Two or more lines for each attempt, the last one at the end."""
    if not found["attempts"]:
        yield f"{found['directory']}: no attempt has left a file"
    for each in found["attempts"]:
        # A file is named by the time of its attempt: attempts/20260101T120000Z-NONCE.json.
        started = each["file"].rpartition("/")[2].partition("-")[0]
        yield f"attempt {each.get('attempt') or 'unknown'}, started {started}: {_end(each)}{_progress(each)}"
        yield from (f"  {line}" for line in str(each.get("message") or "").splitlines())


def report_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """One line for each run, and the file."""
    for run in found["runs"]:
        parts = [f"step {run['step']:,}"]
        if run["loss"] is not None:
            parts.append(f"loss {run['loss_first']:.3f} → {run['loss']:.3f} {sparkline(run['losses'])}".rstrip())
        if run["evaluation_loss_best"] is not None:
            parts.append(f"best evaluation {run['evaluation_loss_best']:.3f}")
        if run["tokens"] is not None:
            parts.append(f"{magnitude(run['tokens'])} tokens")
        parts.append(counted(run["attempts"], "attempt"))
        yield f"{run['name']}: {' · '.join(parts)}"
    yield f"report       {found['file']}"


def _end(attempt: Mapping[str, Any]) -> str:
    code = attempt.get("exit_code")
    return "runs, or was killed" if code is None else f"exit code {describe_code(code)}"


def _progress(attempt: Mapping[str, Any]) -> str:
    parts = []
    if attempt.get("step") is not None:
        steps = f" of {attempt['steps']}" if attempt.get("steps") else ""
        parts.append(f"step {attempt['step']}{steps}")
    if attempt.get("committed_step") is not None:
        parts.append(f"last checkpoint {attempt['committed_step']}")
    return "".join(f"; {part}" for part in parts)


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
