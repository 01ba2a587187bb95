"""A trainer block for each rule of the trainer, made of its conditions: it breaks the rule, and fits the schema."""

from typing import Any

from tpujob_contract.field_rules import Condition, Rule, keys
from tpujob_resource.rules.trainer_rules import trainer_schema

WEIGHTS = "gs://bucket/weights"
BLOCKS: dict[str, Any] = {
    "model": {"preset": "tiny"},
    "data": {"path": "gs://bucket/data"},
    "evaluation": {"everySteps": 5},
    "sample": {"prompt": "a", "everySteps": 5},
    "extract": {"layers": ["1"]},
    "profile": {"memoryEverySteps": 5},
    "model.ropeScaling": {"factor": 2.0, "originalLength": 64},
    "checkpoint.local": {"dir": "/copies", "everySteps": 5},
    "evaluation.data": {"path": "gs://bucket/data"},
    "evaluation.metrics": [{"name": "mine:top1"}],
    "data.mixture": [{"path": "gs://bucket/data"}],
}
"""What blocks hold at least; the others may be empty."""
VALUES: dict[str, Any] = {
    "steps": 5,
    "loss": "mine:loss",
    "custom": "mine:Model",
    "callbacks": [{"name": "mine:Norm"}],
    "columns": ["text"],
    "from": WEIGHTS,
    "emaDecay": 0.99,
    "template": "{{ text }}",
    "messages": [{"role": "user", "content": "{{ text }}"}],
    "mixture": [{"path": "gs://bucket/data"}],
    "kvHeads": 3,
    "headDim": 32,
}
ALONE = ("from", "custom")
"""Fields of a model in the place of a preset."""


def block_example(rule: Rule) -> dict[str, Any]:
    """A block that breaks a rule of the trainer."""
    task = next((each.values[0] for each in rule.when if each.path == "/task"), "pretrain")
    block: dict[str, Any] = {
        "task": task,
        **({"steps": 5} if task == "pretrain" else {}),
        **({"extract": {"layers": ["1"]}} if task == "extract" else {}),
        "model": {"preset": "tiny"},
        "data": {"path": "gs://bucket/data", "tokenizer": "bytes"},
    }
    if rule.at == "callbacks[]":
        block["callbacks"] = [{"name": "mine:Norm"}]
    elif rule.at == "evaluation.metrics[]":
        block["evaluation"] = {"everySteps": 5, "metrics": [{"name": "mine:top1"}]}
    elif rule.at.endswith("[]"):
        block["data"] = {"mixture": [{"path": "gs://bucket/data"}], "tokenizer": "bytes"}
    at = rule.at.replace("[]", ".0")
    for each in rule.when:
        if each.path != "/task":
            _apply(block, f"{at}.{each.path}".strip("."), at, each)
    if rule.field == "custom" and any(each.kind == "differs" for each in rule.when):
        # Or another rule would be broken, too.
        _set(block, f"{at}.columns", ["text"])
    return block


def _apply(block: dict[str, Any], path: str, at: str, each: Condition) -> None:
    """Makes a condition hold."""
    match each.kind:
        case "given" | "there":
            _set(block, path, _value(path))
        case "several":
            for inner in each.values:
                _set(block, f"{at}.{inner}", _value(f"{at}.{inner}"))
        case "absent":
            *_, key = _parts(path)
            _inside(block, path).pop(key, None)
        case "one of":
            _set(block, path, each.values[-1])
        case "none of":
            _set(block, path, next(n for n in (3, 5, 7, 11, "none") if n not in each.values and _fits(path, n)))
        case "differs":
            _set(block, path, "relative")
        case "at least":
            _set(block, path, 5)
        case "less":
            _set(block, path, 2)
            _set(block, f"{at}.{each.values[0]}".strip("."), 4)
        case "indivisible":
            _set(block, path, 4 if path.endswith(".heads") and each.values[0] == "model.kvHeads" else 31)
            if isinstance(each.values[0], str):
                _set(block, f"{at}.{each.values[0]}".strip("."), 3)
        case _:
            raise AssertionError(f"no example of {each.kind}")


def _parts(path: str) -> list[str | int]:
    return [int(key) if key.isdigit() else key for key in keys(path)]


def _inside(block: dict[str, Any], path: str) -> Any:
    """What holds a field, made if it is missing."""
    inner: Any = block
    parts = _parts(path)[:-1]
    for i, key in enumerate(parts):
        if isinstance(inner, dict) and key not in inner:
            inner[str(key)] = _copy(BLOCKS.get(".".join(map(str, parts[: i + 1])), {}))
        inner = inner[key]
    return inner


def _copy(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else list(value)


def _set(block: dict[str, Any], path: str, value: Any) -> None:
    inner, key = _inside(block, path), _parts(path)[-1]
    if key in ALONE and path.startswith("model."):
        inner.pop("preset", None)
    if key == "mixture":
        inner.pop("path", None)
    inner[key] = value


def _schema(path: str) -> Any:
    schema: Any = trainer_schema()
    for key in _parts(path):
        schema = schema["items"] if isinstance(key, int) else schema["properties"][key]
    return schema


def _fits(path: str, value: Any) -> bool:
    schema = _schema(path)
    return value in schema["enum"] if "enum" in schema else isinstance(value, int) == (schema.get("type") == "integer")


def _value(path: str) -> Any:
    """A value that the schema allows."""
    if path in BLOCKS:
        return _copy(BLOCKS[path])
    key = path.rpartition(".")[2]
    if key in VALUES:
        return VALUES[key]
    schema = _schema(path)
    match schema.get("type"):
        case "boolean":
            return True
        case "integer":
            return max(2, schema.get("minimum", 2))
        case "number":
            return max(min(0.5, schema.get("maximum", 0.5)), schema.get("minimum", 0))
        case "string":
            return schema["enum"][-1] if "enum" in schema else "text"
        case "array":
            return [_item(schema["items"])]
        case "object":
            return {"key": 1} if "properties" not in schema else {}
        case _:
            return 1


def _item(schema: dict[str, Any]) -> Any:
    return schema["enum"][0] if "enum" in schema else "text" if schema.get("type") == "string" else 1
