"""Processor time of commands that do next to nothing, and of the trainer's imports, in turns.

    python -m benchmarks.commands

The imports are made as they are, and with pandas and Python's collections of garbage.
"""

import os
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.common import cost, in_turns, parser, show, surroundings, table

JOB = "examples/quickstart.yaml"
IMPORTS = "import tpujob_trainer.main, tpujob_trainer.tasks.pretrain"
WITH_BOTH, AS_THEY_ARE = "imports, with both", "imports, as they are"
COMMANDS = {
    "an empty program": ["-c", "pass"],
    "--version": ["-m", "tpujob", "--version"],
    "--help": ["-m", "tpujob", "--help"],
    "check --help": ["-m", "tpujob", "check", "--help"],
    "render": ["-m", "tpujob", "render", JOB],
    "get": ["-m", "tpujob", "get"],
    WITH_BOTH: ["-c", f"import pandas; {IMPORTS}"],
    AS_THEY_ARE: ["-c", f"import gc; gc.disable(); {IMPORTS}"],
}
ROUNDS = 10
NO_CLUSTER = """\
apiVersion: v1
kind: Config
current-context: none
contexts: [{name: none, context: {cluster: none, user: none}}]
clusters: [{name: none, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: none, user: {token: none}}]
"""


def main() -> None:
    parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder, "config")
        kubeconfig.write_text(NO_CLUSTER)
        # Bytecode is written once, as by an installation; the first round, which writes it, does not count.
        environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPYCACHEPREFIX": folder}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        cases = {
            name: partial(cost, [sys.executable, *arguments], environ, check=False)
            for name, arguments in COMMANDS.items()
        }
        found = {name: costs[1:] for name, costs in in_turns(cases, ROUNDS + 1).items()}
    show([surroundings()])
    rows = (
        [name, *(f"{statistics.median(each):.3f}" for each in zip(*costs, strict=True))]
        for name, costs in found.items()
    )
    show(table(["command", "CPU, s", "time, s"], rows))
    pairs = zip(found[AS_THEY_ARE], found[WITH_BOTH], strict=True)
    ratios = ([mine / other for mine, other in zip(*pair, strict=True)] for pair in pairs)
    cpu, wall = (statistics.median(each) for each in zip(*ratios, strict=True))
    show([f"imports as they are / with both: {cpu:.2f} of the CPU time, {wall:.2f} of the time"])


if __name__ == "__main__":
    main()
