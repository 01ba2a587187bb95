"""Rules between the fields of the `trainer` block, which every reader of the block evaluates."""

import dataclasses
import itertools
from collections.abc import Iterator

from tpujob_contract.corpus_tasks import CORPUS_TASKS
from tpujob_contract.field_rules import (
    TASK,
    Rule,
    absent,
    at_least,
    differs,
    given,
    indivisible,
    less,
    none_of,
    of_tasks,
    one_of,
    rule,
    several,
    there,
)
from tpujob_trainer.model.config import FIELDS_BESIDE_CUSTOM, FIELDS_BESIDE_FROM, PRESETS, ModelConfig
from tpujob_trainer.values.from_mapping import camel_case
from tpujob_trainer.values.references import NOT_ONE, PATTERN

EVALUATION_LOSS = "evaluation_loss"
"""The metric that every evaluation has, by its name in checkpoints."""
TASKS = (TASK, "probe", *CORPUS_TASKS)
_TRAINS = of_tasks(TASK)
_READS_ONCE = of_tasks(*CORPUS_TASKS)
SOURCES = ("data", "evaluation.data", "data.mixture[]")
"""Blocks that define the source of rows."""


def _of_training(field: str) -> Rule:
    return rule(
        field,
        "is for training, and this task reads the data once; leave it out, or leave task out",
        given(field),
        _READS_ONCE,
    )


def _of_task(task: str) -> Rule:
    others = of_tasks(*(other for other in TASKS if other != task))
    return rule(task, f"goes with task: {task}; change one of them", given(task), others)


def _sources() -> Iterator[Rule]:
    """Rules about the source of rows, and about their columns."""
    for at in ("data", "evaluation.data"):
        yield rule(
            "",
            "path, dataset and mixture exclude each other; keep one source, or list them in mixture",
            several("path", "dataset", "mixture"),
            at=at,
        )
        yield rule(
            "epochs",
            "not for a mixture, whose sources have epochs of their own; use steps or tokens",
            given("epochs", "mixture"),
            at=at,
        )
    for at in SOURCES:
        for one, other in itertools.combinations(
            ("messagesColumn", "tokensColumn", "template", "messages", "custom"), 2
        ):
            yield rule(other, f"excludes {one}; keep one of the two", given(one, other), at=at)
        yield rule(
            "specialTokens",
            "goes with texts, and tokensColumn has none",
            given("specialTokens", "tokensColumn"),
            at=at,
        )
        yield rule(
            "returns",
            "is about custom, which is missing; name a function there, or leave it out",
            given("returns"),
            absent("custom"),
            at=at,
        )
        for key in ("lossOn", "specialTokens"):
            yield rule(
                key, "goes with texts, and custom returns tokens; leave it out", given(key, "returns", "custom"), at=at
            )
        for one, other in (("columns", "custom"), ("custom", "columns")):
            yield rule(
                one,
                f"required with {other}, and missing; custom gets the columns that are named",
                given(other),
                absent(one),
                at=at,
            )
        for key in ("datasetConfig", "revision"):
            yield rule(key, "goes with dataset, and there is none", given(key), absent("dataset"), at=at)
        yield rule(
            "lossOn",
            "assistant goes with conversations, or a template with a generation block",
            one_of("lossOn", ("assistant",)),
            absent("messagesColumn", "messages", "template", "custom"),
            at=at,
        )


def _conversations() -> Iterator[Rule]:
    """Rules about fields that only conversations have."""
    for at in SOURCES:
        yield rule(
            "toolsColumn",
            "goes with messagesColumn, which is missing; name the conversations there",
            given("toolsColumn"),
            absent("messagesColumn"),
            at=at,
        )
        for key in ("chatTemplateArguments", "chatTemplateDate"):
            yield rule(
                key,
                "goes with conversations, and there are none; leave it out",
                given(key),
                absent("messagesColumn", "messages", "custom"),
                at=at,
            )


def _heads() -> Iterator[Rule]:
    """Rules between heads, key-value heads and width; a preset has the values that the block leaves out."""
    kv_message = "does not divide heads; change one of them"
    width_message = "does not divide embedDim; change one, or give headDim"
    yield rule("model.kvHeads", kv_message, indivisible("model.heads", "model.kvHeads"), shows=True)
    yield rule(
        "model.heads", width_message, indivisible("model.embedDim", "model.heads"), absent("model.headDim"), shows=True
    )
    for heads in sorted({preset.heads for preset in PRESETS.values()}):
        of_preset = one_of("model.preset", [name for name, preset in PRESETS.items() if preset.heads == heads])
        divisors = [n for n in range(1, heads + 1) if heads % n == 0]
        yield rule(
            "model.kvHeads",
            kv_message,
            of_preset,
            absent("model.heads"),
            none_of("model.kvHeads", divisors),
            shows=True,
        )
        yield rule(
            "model.heads",
            width_message,
            of_preset,
            absent("model.heads", "model.headDim"),
            indivisible("model.embedDim", heads),
        )
    for width in sorted({preset.embed_dim for preset in PRESETS.values()}):
        of_preset = one_of("model.preset", [name for name, preset in PRESETS.items() if preset.embed_dim == width])
        divisors = [n for n in range(1, width + 1) if width % n == 0]
        yield rule(
            "model.heads",
            width_message,
            of_preset,
            absent("model.embedDim", "model.headDim"),
            none_of("model.heads", divisors),
            shows=True,
        )


def _model() -> Iterator[Rule]:
    """Rules between the fields of a model."""
    keys = {camel_case(field.name): field.name for field in dataclasses.fields(ModelConfig)}
    for whole, why, beside in (
        ("from", "whose config.json says it", FIELDS_BESIDE_FROM),
        ("custom", "whose module says it by its arguments", FIELDS_BESIDE_CUSTOM),
    ):
        for key, name in keys.items():
            # `custom` with `from` is refused only once.
            if name not in beside and (whole, key) != ("custom", "from"):
                unless = absent("from") if whole == "custom" else ()
                yield rule(key, f"excludes {whole}, {why}; leave it out", given(whole), there(key), unless, at="model")
    for key in ("layers", "embedDim", "heads"):
        yield rule(
            key,
            "required where there is no preset; name one, or give layers, embedDim and heads",
            absent(key, "preset", "from", "custom"),
            at="model",
        )
    yield rule(
        "arguments",
        "are those of custom, which is missing; name a module there, or leave them out",
        given("arguments"),
        absent("custom", "from"),
        at="model",
    )
    yield rule(
        "ignoreConfigKeys",
        "are those of the config.json of from, which is missing; leave it out",
        given("ignoreConfigKeys"),
        absent("from", "custom"),
        at="model",
    )
    yield rule(
        "headDim",
        "is odd; rotary positions turn pairs, so it must be even",
        indivisible("headDim", 2),
        at="model",
        shows=True,
    )
    yield rule(
        "expertsPerToken", "is more than experts; lower it", less("experts", "expertsPerToken"), at="model", shows=True
    )
    yield rule(
        "quantization",
        "is for single blocks, and most products of a model with experts are in these; leave it out",
        given("quantization", "experts"),
        at="model",
    )
    for key in ("rematSave", "rematOffload"):
        yield rule(
            key,
            f"stands beside remat: full only, and remat is another; set it, or leave {key} out",
            given(key),
            none_of("remat", ("full",)),
            at="model",
        )


RULES = (
    *(_of_task(task) for task in CORPUS_TASKS),
    rule(
        "tokens",
        "excludes steps, as each gives the length of the run; keep one of them",
        given("tokens", "steps"),
        _TRAINS,
    ),
    rule("steps", "is missing; give steps or tokens, the length of the run", absent("tokens", "steps"), _TRAINS),
    rule(
        "zLoss",
        "excludes loss, which can have such a term itself; leave one of them out",
        given("zLoss", "loss"),
        _TRAINS,
    ),
    rule(
        "export.merged",
        "adds adapters to the weights, and the job has none; set lora, or leave it out",
        given("export.merged"),
        absent("lora"),
        _TRAINS,
    ),
    rule(
        "lora",
        "excludes optimizer.emaDecay, which averages all weights; leave one of them out",
        given("lora", "optimizer.emaDecay"),
        _TRAINS,
    ),
    rule(
        "lora",
        "requires model.from, whose weights stay as they are; name its folder",
        given("lora"),
        absent("model.from"),
        _TRAINS,
    ),
    *(
        rule(
            f"{key}.average",
            "requires optimizer.emaDecay, which keeps the average; set it, 0.999 say",
            given(f"{key}.average"),
            absent("optimizer.emaDecay"),
            _TRAINS,
        )
        for key in ("evaluation", "export")
    ),
    rule(
        "optimizer.warmupSteps",
        "leaves nothing of the run's steps; it must be less, a tenth of them for instance",
        at_least("optimizer.warmupSteps", "steps"),
        _TRAINS,
        shows=True,
    ),
    rule(
        "data.tokenizer",
        "required with model.from, whose weights know the ids of one tokenizer; name its folder",
        given("model.from"),
        absent("data.tokenizer"),
    ),
    rule(
        "data.tokenizer",
        "required with this model.preset, whose vocabulary is fixed; name its tokenizer.json or its folder, or write "
        "bytes to train on bytes",
        one_of("model.preset", [name for name, preset in PRESETS.items() if preset.vocab_size]),
        absent("model.from", "data.tokenizer"),
    ),
    *(
        rule(field, NOT_ONE, differs(field, PATTERN), at=at, shows=True)
        for at, field in (
            ("", "model.custom"),
            ("", "optimizer.custom"),
            ("", "loss"),
            ("data", "custom"),
            ("data.mixture[]", "custom"),
            ("evaluation.data", "custom"),
            ("callbacks[]", "name"),
            ("evaluation.metrics[]", "name"),
        )
    ),
    rule(
        "checkpoint.bestMetric",
        "is not evaluated; write evaluation_loss, or name its function in evaluation.metrics",
        none_of("checkpoint.bestMetric", [EVALUATION_LOSS]),
        absent("evaluation.metrics"),
        shows=True,
    ),
    rule(
        "model.custom",
        "this task knows the layers of presets and of model.from; take one of these",
        given("model.custom"),
        _READS_ONCE,
    ),
    rule(
        "extract",
        "required for task: extract, and missing; name the layers to keep below it",
        absent("extract"),
        of_tasks("extract"),
    ),
    *(
        _of_training(key)
        for key in ("tokens", "steps", "evaluation", "sample", "callbacks", "lora", "loss", "export", "profile")
    ),
    rule(
        "model.weights",
        "are those of custom, which is missing; write from for a Hugging Face model",
        there("model.weights"),
        absent("model.custom", "model.from"),
    ),
    rule(
        "optimizer.arguments",
        "are those of custom, which is missing; name a function there, or leave them out",
        given("optimizer.arguments"),
        absent("optimizer.custom"),
    ),
    rule(
        "sample.prompt", "required, and missing; or prompts", given("sample"), absent("sample.prompt", "sample.prompts")
    ),
    rule("sample.prompts", "excludes prompt; keep one of them", given("sample.prompt", "sample.prompts")),
    rule(
        "sample.system",
        "goes with chat, which is false; leave one of them out",
        given("sample.system"),
        one_of("sample.chat", (False,)),
    ),
    rule(
        "generate.format",
        "safetensors holds no text; write parquet or arrow",
        one_of("generate.format", ("safetensors",)),
    ),
    rule(
        "checkpoint.local.dir",
        "is not an absolute path; write one that begins with /, on a volume that outlives the pods",
        differs("checkpoint.local.dir", "^/"),
        shows=True,
    ),
    *_model(),
    *_sources(),
    *_conversations(),
    *_heads(),
)
"""Of the rules that a block breaks, the trainer reports the first."""
