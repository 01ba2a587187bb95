"""`tpujob run`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.commands.options import DEFAULT_RUN_DIRECTORY, Commit, Output, Settings, given_file
from tpujob.output.documents import OutputFormat, write
from tpujob.output.errors import CommandError

if TYPE_CHECKING:
    from tpujob_resource.models.job import TpuTrainingJob


JobOrProgram = Annotated[
    Path,
    typer.Argument(
        metavar="JOB.YAML|PROGRAM.PY",
        help="File with one TpuTrainingJob, - for standard input, or a Python program.",
        callback=given_file,
    ),
]
Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="[-- ARGUMENT...]", help="Arguments of a program.", show_default=False)
]
AcceleratorName = Annotated[
    str | None,
    typer.Option(help="For a program: cpu:HOSTSxDEVICES, or a TPU type to rehearse. [cpu:1x1, or the TPU VM's own]"),
]
Cpu = Annotated[
    bool, typer.Option("--cpu", help="Use CPU devices in place of TPU chips, even if this machine has TPU chips.")
]
Hosts = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…|auto",
        help="Addresses of all machines of the job, in order, the first optionally with a port; each runs one "
        "host. A TPU VM knows them; `auto` always reads its metadata.",
    ),
]
Host = Annotated[
    int | None, typer.Option(help="Number of this machine in --hosts, or of the worker that it runs.", min=0)
]
Restarts = Annotated[
    int,
    typer.Option(
        help="How often to run again after a crash or a lost machine; the count starts anew with each new checkpoint.",
        min=0,
    ),
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Run in the background, so that the run survives a lost connection.")
]
RunFolder = Annotated[Path, typer.Option(help="Folder for logs, and for checkpoints unless spec.checkpointDir is set.")]
Code = Annotated[
    Path | None, typer.Option(help="Folder of your code: packed, unpacked and put on PYTHONPATH as in pods.")
]
MaxProcesses = Annotated[int, typer.Option(help="Refuse jobs with more processes than this.", min=1)]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also show what the launcher and JAX's network library print.")
]


def run(
    job_file: JobOrProgram,
    arguments: Arguments = None,
    accelerator: AcceleratorName = None,
    settings: Settings = None,
    cpu: Cpu = False,
    hosts: Hosts = None,
    host: Host = None,
    restarts: Restarts = 0,
    detach: Detach = False,
    output: Output = OutputFormat.TEXT,
    json_output: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    directory: RunFolder = DEFAULT_RUN_DIRECTORY,
    code: Code = None,
    commit: Commit = None,
    max_processes: MaxProcesses = 16,
    verbose: Verbose = False,
) -> None:
    """Run a job or a program on this machine.

    Runs its JobSet, with a process for every pod. A command needs no image here: this machine's Python runs it. A
    machine with TPU chips uses them, and a TPU VM is one host of its slice: start the same line on all of them.
    Elsewhere TPU accelerators are rehearsed with as many hosts and as many CPU devices each.

    Ctrl-C saves and stops; run it again to continue. Exit codes: 0 finished, 75 stopped, 76 diverged, 77 something is
    not there, 78 a wrong field. With -o json, stdout ends with one object in every case: phase, exit_code, message and
    the last report.
    """
    from tpujob.local.placement import HostOptions, placed_file
    from tpujob.local.run import refusal, run_job

    output = OutputFormat.JSON if json_output else output
    is_text = output is OutputFormat.TEXT
    try:
        placed = placed_file(job_file, arguments or [], accelerator, settings or [], HostOptions(hosts, host, cpu))
        if detach:
            return _detach(placed.job, directory, is_text=is_text)
        exit_code, summary = run_job(
            placed,
            directory=directory,
            max_processes=max_processes,
            text_to_stderr=not is_text,
            code=code,
            commit=commit,
            verbose=verbose,
            restarts=restarts,
        )
    except CommandError as error:
        for problem in error.problems:
            typer.echo(problem, err=True)
        exit_code, summary = error.exit_code, refusal(error)
    if not is_text:
        write(summary, output)
    raise typer.Exit(exit_code)


def _detach(job: TpuTrainingJob, directory: Path, *, is_text: bool) -> None:
    """Starts the same command line in the background."""
    from tpujob.local import detached, runs

    if not is_text:
        raise CommandError("--detach: prints text; `tpujob get --local -o json` has the run as JSON")
    name, namespace = job.metadata.name, job.metadata.namespace or "default"
    root = directory.absolute() / namespace / name
    if runs.has_run(root) and (running := runs.newest(root)).is_running:
        # A second run would be refused as well, but its log would replace that of the first.
        raise CommandError(f"--detach: {name} is running, pid {running.pid}; `tpujob stop --local {name}` stops it")
    words = sys.argv[1:]
    words.remove("--detach")  # Only the first one: another one is an argument of the program.
    pid = detached.start(
        words,
        root,
        lambda child: runs.has_run(root) and (run := runs.newest(root)).pid == child and run.is_running,
    )
    where = "" if directory == DEFAULT_RUN_DIRECTORY else f" --directory {directory}"
    where += "" if namespace == "default" else f" -n {namespace}"
    typer.echo(f"{name}: runs in the background, pid {pid}; what it prints is in {root / detached.LOG}")
    typer.echo(
        f"  tpujob logs --local {name} -f{where}   tpujob get --local{where}   tpujob stop --local {name}{where}"
    )
