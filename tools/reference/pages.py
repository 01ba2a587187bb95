"""One function for each page, from the objects that the code uses."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from tools.reference import advice, inputs, rules
from tools.reference.text import HEADER, commented_values, fields, table
from tpujob_contract.exit_codes import ExitCode
from tpujob_resource.crd.build import custom_resource_definition
from tpujob_resource.messages.conditions import Reason, Type
from tpujob_resource.messages.remedies import REMEDIES
from tpujob_resource.models.phases import Phase
from tpujob_resource.rules.trainer_rules import trainer_schema
from tpujob_resource.topology.libtpu_flags import by_generation
from tpujob_trainer.model.config import PRESETS

VALUES = Path("charts/tpujob-operator/values.yaml")


def resource() -> str:
    """Every field of a TpuTrainingJob except the trainer block."""
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    spec = {**schema["spec"], "properties": {k: v for k, v in schema["spec"]["properties"].items() if k != "trainer"}}
    return (
        f"{HEADER}# Fields of a TpuTrainingJob\n\n"
        "`kubectl explain ttj.spec` shows the same. The `trainer` block has [a page of its own](trainer.md).\n\n"
        f"## spec\n\n{_first_and_rarely(list(fields(spec, 'spec')))}\n"
        "`spec.trainer` is the block of the trainer.\n\n"
        f"{rules.changing()}\n"
        f"## status\n\nWritten by the operator.\n\n"
        f"{table(('field', 'type', 'meaning'), list(fields(schema['status'], 'status')))}"
    )


def trainer() -> str:
    """Every field of the trainer block."""
    schema = trainer_schema()
    assert schema is not None
    return (
        f"{HEADER}# Fields of the trainer block\n\n"
        "A preset, data, and `tokens` or `steps` are a full run; the rest has defaults or follows from them. "
        "[Presets](presets.md) have a page of their own.\n\n"
        f"{_first_and_rarely(list(fields(schema, 'spec.trainer')))}"
    )


FIRST = (
    *(
        "accelerator",
        "slices",
        "workers",
        "image",
        "command",
        "args",
        "env",
        "env[].name",
        "env[].value",
        "checkpointDir",
    ),
    *("code.repository", "code.commit", "queue", "capacity.spot", "volumes", "resources", "serviceAccountName"),
    *("suspend", "restarts.crashes", "minSlices"),
    *("trainer.model.preset", "trainer.model.from", "trainer.data.path", "trainer.data.dataset"),
    *("trainer.data.tokenizer", "trainer.data.textColumn", "trainer.data.mixture", "trainer.tokens", "trainer.steps"),
    *("trainer.task", "trainer.sequenceLength", "trainer.batchSize", "trainer.optimizer.learningRate"),
    *(
        "trainer.evaluation.everySteps",
        "trainer.sample.prompt",
        "trainer.checkpoint.everySteps",
        "trainer.checkpoint.keep",
    ),
    *("trainer.lora", "trainer.export", "trainer.mesh"),
)
"""The twenty fields of each page that most jobs set; the pages show them before the others."""


def _first_and_rarely(rows: list[tuple[str, str, str]]) -> str:
    """Two tables of fields: those that most jobs set, and the others."""
    order = {f"`spec.{name}`": number for number, name in enumerate(FIRST)}
    first = sorted((row for row in rows if row[0] in order), key=lambda row: order[row[0]])
    rest = [row for row in rows if row[0] not in order]
    columns = ("field", "type", "meaning")
    return f"{table(columns, first)}\n### Rarely\n\n{table(columns, rest)}"


def presets() -> str:
    """Every preset with its dimensions."""
    shown = ("layers", "embed_dim", "heads", "kv_heads", "mlp_dim", "vocab_size", "sequence_length", "batch_tokens")
    rows = [
        (f"`{name}`", *(getattr(preset, key) or "the tokenizer's" for key in shown)) for name, preset in PRESETS.items()
    ]
    heads = ("preset", *(key.replace("_", " ") for key in shown))
    return (
        f"{HEADER}# Presets\n\n`model: {{preset: NAME}}`. A field beside it replaces the preset's. Batch tokens are "
        f"the tokens of a global batch where `batchSize` is not given.\n\n{table(heads, rows)}"
    )


def exit_codes() -> str:
    """Every exit code."""
    ours: list[tuple[str, ...]] = [
        (str(int(code)), code.meaning, REMEDIES[code].outcome, REMEDIES[code].advice) for code in sorted(ExitCode)
    ]
    others = [(code, *words) for code, words in advice.OTHER_CODES.items()]
    rows = sorted([*ours, *others], key=lambda row: int(row[0]))
    return (
        f"{HEADER}# Exit codes\n\nOf `tpujob run`, and of the container of every pod. "
        f"[Endings](../endings.md) has the faults behind them.\n\n"
        f"{table(('code', 'meaning', 'what happens next', 'what to do'), rows)}"
    )


def conditions() -> str:
    """Every phase, condition type and reason."""
    phases = [(f"`{phase}`", phase.meaning, phase.continues) for phase in Phase]
    rows = [(f"`{reason}`", reason.template, reason.advice) for reason in Reason]
    return (
        f"{HEADER}# Phases, conditions, reasons\n\n"
        f"{table(('phase', 'meaning', 'continues'), phases)}\n"
        "Condition types: "
        f"{', '.join(f'`{kind}`' for kind in Type)}. [Status](../status.md) explains how they follow each other.\n\n"
        "Reasons are part of the interface: scripts may match them. In the sentences, `{braces}` stand for names and "
        f"numbers.\n\n{table(('reason', 'message', 'what to do'), rows)}"
    )


def command_line() -> str:
    """Every command with its options."""
    from tpujob.main import app

    opening = "`tpujob` is also `kubectl tpujob`. `tpujob --install-completion` sets up completion for your shell."
    parts = [f"{HEADER}# Command line\n\n{opening}\n"]
    parts += [_command(path, command) for path, command in _commands("tpujob", typer.main.get_command(app))]
    return "\n".join(parts)


def chart_values() -> str:
    """Every value of the chart."""
    rows = [(f"`{path}`", f"`{value}`", comment) for path, value, comment in commented_values(VALUES.read_text())]
    return f"{HEADER}# Values of the chart\n\n{table(('value', 'default', 'meaning'), rows)}"


def libtpu_flags() -> str:
    """The compiler flags of each generation."""
    opening = (
        "A job with a `trainer`, or with `framework: maxtext`, gets the flags that published recipes set for its "
        "generation in `LIBTPU_INIT_ARGS`; another job gets them with `libtpuFlags: recommended`. A flag that the job "
        "sets itself in `env` keeps the job's value, and `libtpuFlags: none` leaves them all out. What they gain has "
        "not been measured here, for want of a TPU: the recipes that set them are named.\n\n"
        "MT: AI-Hypercomputer/maxtext, benchmarks/xla_flags_library.py. TR: AI-Hypercomputer/tpu-recipes, training. "
        "REP: gclouduniverse/reproducibility, Training/TPU-v5p. "
        "AX: apple/axlearn, axlearn/common/compiler_options.py.\n"
    )
    parts = [f"{HEADER}# Flags of the TPU compiler\n\n{opening}"]
    for generation, flags in by_generation().items():
        rows = [
            (f"`{flag}`", f"{flag.effect}{'; for two or more slices' if flag.needs_slices else ''}", flag.source)
            for flag in flags
        ]
        parts.append(f"## {generation}\n\n{table(('flag', 'effect', 'source'), rows)}")
    return "\n".join(parts)


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        if getattr(inner, "commands", None):
            yield from _commands(f"{path} {name}", inner)
        else:
            yield f"{path} {name}", inner


def _command(path: str, command: Any) -> str:
    rows = []
    for parameter in command.params:
        if parameter.name == "help":
            continue
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        if parameter.param_type_name == "argument":
            names = _code(parameter.metavar or parameter.name.upper())
        words = getattr(parameter, "help", None) or getattr(parameter, "prompt", None) or ""
        rows.append((names, _ended(words) + _default(parameter.default)))
    paragraphs = "\n\n".join(" ".join(text.split()) for text in (command.help or "").split("\n\n"))
    return f"## {path}\n\n{paragraphs}\n\n{table(('argument or option', 'meaning'), rows)}"


def _ended(words: str) -> str:
    """Text with a full stop, because another sentence may follow."""
    return words if not words or words.endswith((".", "…", "]")) else f"{words}."


def _code(text: str) -> str:
    """Code in a table; not in backticks if it has a bar: GitHub needs an escape there, which the site would show."""
    return f"<code>{text.replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def _default(value: Any) -> str:
    """The sentence about an option's default; empty if the default says nothing."""
    if value in (None, False, (), []) or callable(value) or "Sentinel" in repr(value):
        return ""
    return f" Default: `{getattr(value, 'value', value)}`."


PAGES: dict[str, Callable[[], str]] = {
    "resource": resource,
    "trainer": trainer,
    "rules": rules.page,
    "inputs": inputs.page,
    "presets": presets,
    "exit-codes": exit_codes,
    "conditions": conditions,
    "command-line": command_line,
    "chart-values": chart_values,
    "libtpu-flags": libtpu_flags,
}
"""File name without its ending: the function that generates the page."""
