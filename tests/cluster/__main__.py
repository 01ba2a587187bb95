"""`python -m tests.cluster tools` builds the programs; `python -m tests.cluster up` runs a control plane until Ctrl-C."""

import argparse
import logging
import signal
import sys
from pathlib import Path

from tests.cluster import binaries
from tests.cluster.control_plane import ControlPlane
from tests.cluster.jobset import JobSetController, jobset_custom_resources
from tests.cluster.processes import ProcessFailed
from tests.cluster.toolchain import ToolBuildFailed, ToolsUnavailable


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line; exits with a message where something is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tools", help="build what is not built yet and print where the programs are")
    up_parser = commands.add_parser("up", help="run a control plane with JobSet until Ctrl-C")
    up_parser.add_argument("--dir", type=Path, required=True, help="for data, logs and the kubeconfig; starts from nothing each time")
    up_parser.add_argument(
        "--crds", type=Path, action="append", default=[], help="file or folder of CustomResourceDefinitions to install; repeatable"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        if options.command == "tools":
            print_tools()
        else:
            up(options.dir, options.crds)
    except (ToolsUnavailable, ToolBuildFailed, ProcessFailed, FileExistsError) as error:
        sys.exit(f"error: {error}")


def print_tools() -> None:
    """Prints each program, its version and its path."""
    for name, program in binaries.PROGRAMS.items():
        print(f"{name:<24} {program.version:<9} {binaries.path(name)}", flush=True)


def up(directory: Path, custom_resources: list[Path]) -> None:
    """Runs a control plane with JobSet in the foreground until it is interrupted or told to stop."""
    # Before anything starts, so that a stop during the start ends what has been started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ControlPlane(directory, custom_resources=[jobset_custom_resources(), *custom_resources]) as plane:
            with JobSetController(plane):
                print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
                print("Running until Ctrl-C.", file=sys.stderr, flush=True)
                signal.pause()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)


if __name__ == "__main__":
    main()
