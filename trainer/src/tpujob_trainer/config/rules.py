"""Rules between the fields of the `trainer` block, which all who read the block evaluate."""

from __future__ import annotations

from tpujob_contract.block_rules import BlockRule

CORPUS_TASKS = ("extract", "score", "embed", "generate")
"""Tasks of independent workers, each with a block of its name."""
TASKS = ("pretrain", "probe", *CORPUS_TASKS)
_TRAINING = ("pretrain",)


def _of_training(field: str) -> BlockRule:
    return BlockRule(
        field,
        "is for training, and this task reads the data once; leave it out, or leave task out",
        given=(field,),
        tasks=CORPUS_TASKS,
    )


def _of_task(task: str) -> BlockRule:
    return BlockRule(
        task,
        f"goes with task: {task}; change one of them",
        given=(task,),
        tasks=tuple(other for other in TASKS if other != task),
    )


RULES = (
    *(_of_task(task) for task in CORPUS_TASKS),
    BlockRule(
        "tokens",
        "excludes steps, as each gives the length of the run; keep one of them",
        given=("tokens", "steps"),
        tasks=_TRAINING,
    ),
    BlockRule(
        "steps",
        "is missing; give steps or tokens, the length of the run",
        absent=("tokens", "steps"),
        tasks=_TRAINING,
    ),
    BlockRule(
        "zLoss",
        "excludes loss, which can have such a term itself; leave one of them out",
        given=("zLoss", "loss"),
        tasks=_TRAINING,
    ),
    BlockRule(
        "export",
        "transformers knows no model.custom; leave it out, and read the checkpoint",
        given=("export", "model.custom"),
        tasks=_TRAINING,
    ),
    BlockRule(
        "lora",
        "excludes optimizer.emaDecay, which averages all weights; leave one of them out",
        given=("lora", "optimizer.emaDecay"),
        tasks=_TRAINING,
    ),
    BlockRule(
        "lora",
        "requires model.from, whose weights stay as they are; name its folder",
        given=("lora",),
        absent=("model.from",),
        tasks=_TRAINING,
    ),
    *(
        BlockRule(
            f"{key}.average",
            "requires optimizer.emaDecay, which keeps the average; set it, 0.999 say",
            given=(f"{key}.average",),
            absent=("optimizer.emaDecay",),
            tasks=_TRAINING,
        )
        for key in ("evaluation", "export")
    ),
    BlockRule(
        "data.tokenizer",
        "required with model.from, whose weights know the ids of one tokenizer; name its folder",
        given=("model.from",),
        absent=("data.tokenizer",),
    ),
    BlockRule(
        "model.custom",
        "this task knows the layers of presets and of model.from; take one of these",
        given=("model.custom",),
        tasks=CORPUS_TASKS,
    ),
    BlockRule(
        "extract",
        "required for task: extract, and missing; name the layers to keep below it",
        absent=("extract",),
        tasks=("extract",),
    ),
    *(_of_training(key) for key in ("tokens", "steps", "evaluation", "sample", "lora", "loss", "export", "profile")),
)
"""Of those that a block breaks, the trainer names the first."""
