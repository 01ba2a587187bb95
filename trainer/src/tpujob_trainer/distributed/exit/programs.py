"""How the programs end that `tpujob` starts for one answer, such as `data.inspection`."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def end(code: int) -> NoReturn:
    """Ends the process with this code; what was written to stdout and stderr has been passed on.

    Without the shutdown of the interpreter: a thread of a library that is still at work then aborts a process whose
    answer is complete (apache/arrow#34314).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
