"""`python -m tests.cluster tools` builds the programs; `… up --dir DIR` runs a control plane until Ctrl-C."""

import argparse
import signal
import sys
from pathlib import Path

from tests.cluster import binaries
from tests.cluster.control_plane import CommandError, ControlPlane
from tests.cluster.jobset import JobSetController, jobset_custom_resources
from tests.cluster.processes import ProcessError
from tests.cluster.toolchain import ToolBuildError, ToolsUnavailable


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line; exits with a message where something is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tools", help="build what is not built yet and print where the programs are")
    up_parser = commands.add_parser("up", help="run a control plane with JobSet until Ctrl-C")
    up_parser.add_argument(
        "--dir", type=Path, required=True, help="for data, logs and the kubeconfig; starts from nothing each time"
    )
    up_parser.add_argument(
        "--crds",
        type=Path,
        action="append",
        default=[],
        help="file or folder of CustomResourceDefinitions to install; repeatable",
    )
    options = parser.parse_args(arguments)
    try:
        binaries.build_all(_say)
        if options.command == "tools":
            print_tools()
        else:
            up(options.dir, options.crds)
    except (ToolsUnavailable, ToolBuildError, ProcessError, CommandError, FileExistsError, TimeoutError) as error:
        sys.exit(f"error: {error}")


def print_tools() -> None:
    """Prints each program, its version and its path."""
    for name, program in binaries.PROGRAMS.items():
        sys.stdout.write(f"{name:<24} {program.version:<9} {binaries.path(name)}\n")


def up(directory: Path, custom_resources: list[Path]) -> None:
    """Runs a control plane with JobSet in the foreground until it is interrupted or told to stop."""
    # Before anything starts, so that a SIGTERM during the start also ends what has been started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        plane = ControlPlane(directory, custom_resources=[jobset_custom_resources(), *custom_resources])
        with plane, JobSetController(plane):
            sys.stdout.write(f"export KUBECONFIG={plane.kubeconfig}\n")
            sys.stdout.flush()
            _say("running until Ctrl-C")
            signal.pause()
    except KeyboardInterrupt:
        _say("stopped")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
