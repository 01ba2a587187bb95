"""The program of the init container: `python -m tpujob_operator.repository REPOSITORY COMMIT DIRECTORY`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tpujob_launcher.code.install import as_program, end_when_asked
from tpujob_launcher.code.patience import times_of
from tpujob_launcher.git.install import install_commit


def main(arguments: list[str]) -> int:
    """Installs the files of a commit; returns the exit code of `as_program`."""
    if len(arguments) != 3:
        sys.exit("usage: python -m tpujob_operator.repository REPOSITORY COMMIT DIRECTORY")
    repository, commit, folder = arguments[0], arguments[1], Path(arguments[2])
    times = times_of(os.environ)
    return as_program(
        lambda: install_commit(repository, commit, folder, times=times), f"{repository}, commit {commit[:12]}", folder
    )


if __name__ == "__main__":
    end_when_asked()
    sys.exit(main(sys.argv[1:]))
