"""`tpujob doctor`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpujob.commands.options import Context, Namespace, Output, problems_on_stderr
from tpujob.output.documents import OutputFormat, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpujob.cluster.client import Cluster
    from tpujob.cluster.doctor import CheckResult


def doctor(
    namespace: Namespace = None,
    context: Context = None,
    probe: Annotated[
        Path | None,
        typer.Option(
            metavar="JOB.YAML",
            help="Start a pod that checks whether this job's image starts and its service account may use its "
            "checkpointDir. The pod needs no TPU, and is deleted after at most five minutes.",
            show_default=False,
        ),
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Check that a cluster has what jobs need.

    Operator, JobSet, queues, TPU nodes, quota, rights, images and bucket. Exit code 1 if something that every job needs
    is missing.
    """
    from tpujob.cluster.client import Cluster
    from tpujob.cluster.doctor import as_value, examine

    results = []
    with problems_on_stderr():
        manifest = None if probe is None else _read(probe)
        own_namespace = None if manifest is None else manifest["metadata"].get("namespace")
        cluster = Cluster.connect(context=context, namespace=namespace or own_namespace)
        for result in itertools.chain(examine(cluster), _tried(cluster, manifest)):
            results.append(result)
            if output is OutputFormat.TEXT:
                _tell(result)
    if output is not OutputFormat.TEXT:
        write(as_value(results), output)
    raise typer.Exit(1 if any(result.verdict == "missing" for result in results) else 0)


def _read(file: Path) -> dict[str, Any]:
    from tpujob.job.job_file import read_manifest

    return read_manifest(file)[0]


def _tried(cluster: Cluster, manifest: Mapping[str, Any] | None) -> Iterator[CheckResult]:
    if manifest is None:
        return
    from tpujob.cluster.probe import probes, try_out

    for each in probes(manifest):
        yield try_out(cluster, each)


def _tell(result: CheckResult) -> None:
    typer.echo(f"{result.verdict:<8} {result.subject}: {result.found}")
    if result.advice:
        typer.echo(f"{'':<8} → {result.advice}")
