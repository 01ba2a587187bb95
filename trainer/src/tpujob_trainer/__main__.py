"""`python -m tpujob_trainer`."""

import gc
import os
import signal

from tpujob_contract import ExitCode

# Nothing has started yet: a stop request during the first imports ends the process as it would later.
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: os._exit(ExitCode.STOPPED))

# Thousands of modules are imported now and stay: collecting garbage among them takes a quarter of the import time.
# `main.run` enables it once they are all imported.
gc.disable()

from tpujob_trainer.main import main  # noqa: E402

main()
