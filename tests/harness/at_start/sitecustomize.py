"""Read by every Python that has this folder in PYTHONPATH.

SIGUSR2 has it write the stacks of its threads to stderr; with SKEW_SECONDS its wall clock is wrong by so much.
"""

import faulthandler
import os
import signal
import time

faulthandler.register(signal.SIGUSR2)

if skew := float(os.environ.get("SKEW_SECONDS", "0")):
    _right = time.time
    time.time = lambda: _right() + skew
