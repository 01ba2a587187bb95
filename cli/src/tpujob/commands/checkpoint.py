"""`tpujob checkpoint`."""

from enum import StrEnum
from typing import Annotated

import typer

from tpujob.commands.options import Directory, Output, problems_on_stderr
from tpujob.output.documents import OutputFormat, show
from tpujob.output.words import absolute

app = typer.Typer(
    help="Inspect, verify and export the checkpoints of a run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Step = Annotated[int | None, typer.Option(help="Step of the checkpoint; by default the newest.", min=0)]


class Dtype(StrEnum):
    """The dtype of stored weights."""

    BF16 = "BF16"
    F16 = "F16"
    F32 = "F32"


@app.command("ls")
def ls(directory: Directory, output: Output = OutputFormat.TEXT) -> None:
    """List committed checkpoints with tokens and losses.

    Of each: step, time, size, tokens trained on, and the losses that are known.
    """
    from tpujob.job.questions.checkpoints import table
    from tpujob.job.questions.trainer_program import Program, ask

    with problems_on_stderr():
        found = ask(Program.CHECKPOINTS, directory)
    show(found, output, table(found))


@app.command("show")
def show_one(
    directory: Directory,
    step: Step = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show one checkpoint, and the run that made it.

    Size, losses, position in the data, processes, versions and model.
    """
    from tpujob.job.questions.checkpoints import sentences
    from tpujob.job.questions.trainer_program import Program, ask

    with problems_on_stderr():
        found = ask(Program.CHECKPOINTS, directory, "newest" if step is None else str(step))
    show(found, output, sentences(found))


@app.command("verify")
def verify(
    directory: Directory,
    step: Annotated[int | None, typer.Option(help="Only the checkpoint of this step; by default all.", min=0)] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Compare every array with its saved fingerprint.

    Changes nothing. Reads on this machine, whose memory must hold one checkpoint. Exit code 1 if anything is damaged.
    """
    from tpujob.job.questions.checkpoints import verdicts
    from tpujob.job.questions.trainer_program import Program, ask

    with problems_on_stderr():
        found = ask(Program.STORED_ARRAYS, "verify", directory, *([] if step is None else [str(step)]))
    show(found, output, verdicts(found))
    raise typer.Exit(1 if any(found["problems"].values()) else 0)


@app.command("export")
def export(
    directory: Directory,
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="Folder to write: a path or a gs:// address.", callback=absolute)
    ],
    step: Step = None,
    dtype: Annotated[Dtype, typer.Option(help="Type of the stored weights.")] = Dtype.BF16,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Write weights that transformers reads.

    The folder of config.json and safetensors can be loaded by transformers and by `model.from`. Reads on this machine,
    whose memory must hold the weights. Tokenizer, chat template and generation_config.json are copied from `model.from`
    and `data.tokenizer` of the run, which must still be there. The weights of `model.custom` are written by the paths
    of its parameters, with a model.json of arguments and step.
    """
    from tpujob.job.questions.trainer_program import Program, ask

    with problems_on_stderr():
        newest = "newest" if step is None else str(step)
        found = ask(Program.STORED_ARRAYS, "export", directory, newest, out, dtype)
    show(found, output, [f"{out}: step {found['step']}, {found['parameters'] / 1e6:,.1f} M parameters as {dtype}"])


@app.command("verify-export")
def verify_export(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="A local folder that was exported.", callback=absolute)
    ],
    python: Annotated[
        str | None,
        typer.Option(
            metavar="PYTHON", help="Python with transformers and torch; by default this one.", show_default=False
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="Key of config.json to ignore, as in model.ignoreConfigKeys; repeatable.",
            show_default=False,
        ),
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Compare an export in transformers with the trainer.

    Runs the exported model with both, in float32 on this machine, and compares logits for 32 token IDs, and at the end
    of a text longer than the model's sliding window and unscaled context if these are at most 4096. Exit code 1 if they
    differ by more than 0.001.
    """
    from tpujob.job.questions.trainer_program import Program, ask

    with problems_on_stderr():
        found = ask(Program.EXPORTED_WEIGHTS, directory, python or "", *(ignore or []))
    verdict = "the same" if found["equal"] else "another thing"
    peer = f"{found['model']} of transformers {found['version']} computes {verdict}"
    line = f"{directory}: {peer}: logits of {len(found['ids'])} tokens within {found['difference']:.1e}"
    show(found, output, [line])
    raise typer.Exit(0 if found["equal"] else 1)
