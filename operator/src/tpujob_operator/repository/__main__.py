"""What the init container does: `python -m tpujob_operator.repository REPOSITORY COMMIT DIRECTORY`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tpujob_contract.code.archive import CodeRefused
from tpujob_operator.repository.install import install_commit


def main(arguments: list[str]) -> int:
    """The exit code: 0, 77 or 78 for what another try would not change, 1 for a server out of reach."""
    if len(arguments) != 3:
        sys.exit("usage: python -m tpujob_operator.repository REPOSITORY COMMIT DIRECTORY")
    repository, commit, folder = arguments
    try:
        count = install_commit(repository, commit, Path(folder))
    except (CodeRefused, OSError) as error:
        sys.stderr.write(f"tpujob code: {error}\n")
        return error.exit_code if isinstance(error, CodeRefused) else 1
    sys.stderr.write(f"tpujob code: {count} files of {repository}, commit {commit[:12]}, in {folder}\n")
    return 0


if __name__ == "__main__":
    # The first process of a container is not ended by a signal that it does not handle, but killed after the grace.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
