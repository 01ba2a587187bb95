"""The table of outcomes that runs of the tests have left: python -m tests.multiprocess.outages.table FOLDER…

A folder is that of one run, as pytest makes it; of a cell that several have, the last one's outcome counts.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.multiprocess.outages.cells import Cell, Outcome, markdown


def outcomes(folders: Iterable[str]) -> list[Outcome]:
    """Those below the folders, each cell once."""
    found = {}
    for folder in folders:
        for file in sorted(Path(folder).rglob("outcome.json")):
            values = json.loads(file.read_text())
            cell = Cell(**values["cell"])
            found[cell] = Outcome(**{**values, "cell": cell, "codes": tuple(values["codes"])})
    return list(found.values())


if __name__ == "__main__":
    sys.stdout.write(markdown(outcomes(sys.argv[1:])) + "\n")
