"""Kubernetes on this machine: a control plane until Ctrl-C, or a cluster with a node until `down`.

python -m tools.localcluster tools            build the programs
python -m tools.localcluster up --dir DIR     a control plane, in the foreground
python -m tools.localcluster up --node        a whole cluster, in the background; needs root
python -m tools.localcluster down             end it, and undo what it changed on this machine
python -m tools.localcluster storage-image FILE    write the storage emulator as an image, for nodes that cannot pull
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.localcluster import background, binaries, machine, one_machine, prometheus, storage
from tools.localcluster.containerd import ImageError
from tools.localcluster.control_plane import CommandError, ControlPlane
from tools.localcluster.example import write_example
from tools.localcluster.jobset import JobSetController, jobset_custom_resources
from tools.localcluster.network import NetworkError
from tools.localcluster.processes import ProcessError
from tools.localcluster.product_images import ImageBuildError, ImagesUnavailable
from tools.localcluster.toolchain import ToolBuildError, ToolsUnavailable

EXPECTED = (
    ToolsUnavailable,
    ToolBuildError,
    ProcessError,
    CommandError,
    ImageError,
    ImageBuildError,
    ImagesUnavailable,
    machine.MachineUnfit,
    NetworkError,
    FileExistsError,
    TimeoutError,
)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line; exits with a message on an expected error."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.localcluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    tools_parser = commands.add_parser("tools", help="build what is not built yet and print where the programs are")
    up_parser = commands.add_parser("up", help="run a control plane with JobSet, or a cluster with a node")
    down_parser = commands.add_parser("down", help="end the cluster with a node")
    image_parser = commands.add_parser("storage-image", help="write an image of the storage emulator, as `docker save`")
    image_parser.add_argument("file", type=Path)
    hold_parser = commands.add_parser("hold")  # what `up --node` leaves in the background
    for subparser in (tools_parser, up_parser):
        subparser.add_argument("--node", action="store_true", help="with all that a node needs; Linux, root")
    for subparser in (up_parser, down_parser, hold_parser):
        subparser.add_argument(
            "--dir", type=Path, help="for data, logs and the kubeconfig; starts from nothing each time"
        )
    up_parser.add_argument(
        "--crds",
        type=Path,
        action="append",
        default=[],
        help="file or folder of CustomResourceDefinitions to install; repeatable; without --node",
    )
    options = parser.parse_args(arguments)
    if options.command == "up" and not options.node and options.dir is None:
        parser.error("up without --node needs --dir")
    try:
        _run(options)
    except KeyboardInterrupt:
        sys.exit("interrupted")
    except EXPECTED as error:
        sys.exit(f"error: {error}")


def _run(options: argparse.Namespace) -> None:
    directory = getattr(options, "dir", None) or background.DIRECTORY
    match options.command:
        case "tools":
            names = (*binaries.CHECKERS, *(binaries.NODE if options.node else binaries.CONTROL_PLANE))
            binaries.build_all(_say, names)
            print_tools(names)
        case "up" if options.node:
            background.up(directory, _say)
            _say_what_to_try(directory.absolute())
        case "up":
            binaries.build_all(_say)
            up(directory, options.crds)
        case "down":
            one_machine.end(directory)
        case "storage-image":
            binaries.build_all(_say, (storage.PROGRAM,))
            sys.stdout.write(f"{storage.write_image(options.file)}\n")
        case "hold":
            background.hold(directory, _say)


def _say_what_to_try(directory: Path) -> None:
    sys.stdout.write(f"export KUBECONFIG={directory}/kubeconfig\n")
    _say(f"kubectl is {binaries.path('kubectl')}, Prometheus {prometheus.URL}, storage {storage.URL}; try:")
    _say(f"  kubectl apply -f {write_example(directory)}")
    _say("  kubectl get ttj --watch")


def print_tools(names: Sequence[str]) -> None:
    """Prints each program, its version and its path."""
    for name in names:
        sys.stdout.write(f"{name:<24} {binaries.PROGRAMS[name].version:<9} {binaries.path(name)}\n")


def up(directory: Path, custom_resources: list[Path]) -> None:
    """Runs a control plane with JobSet in the foreground until it is interrupted or terminated."""
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
