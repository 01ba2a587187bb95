"""Read by every Python that has this folder in PYTHONPATH.

SIGUSR2 has it write the stacks of its threads to stderr; with SKEW_SECONDS its wall clock is wrong by so much. The
trainer pauses before each batch: runs that a test waits for would take the machine from the others.
"""

import faulthandler
import importlib.machinery
import os
import signal
import sys
import threading
import time
from typing import Any

STEP_SECONDS = 0.05
"""At least."""

faulthandler.register(signal.SIGUSR2)

if skew := float(os.environ.get("SKEW_SECONDS", "0")):
    _right = time.time
    time.time = lambda: _right() + skew


class PacedFeed(importlib.machinery.PathFinder):
    """Finds the trainer's module of batches when the trainer imports it, which nothing here does before."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        """The module, with a pause before each batch; None: another module."""
        if fullname != "tpujob_trainer.train.batches":
            return None
        spec: Any = super().find_spec(fullname, path, target)
        execute = spec.loader.exec_module

        def executed(module):
            execute(module)
            take = module.Feed.take

            def taken(*arguments):
                threading.Event().wait(STEP_SECONDS)
                return take(*arguments)

            module.Feed.take = taken

        spec.loader.exec_module = executed
        return spec


if sys.orig_argv[1:3] == ["-m", "tpujob_trainer"]:
    sys.meta_path.insert(0, PacedFeed)
