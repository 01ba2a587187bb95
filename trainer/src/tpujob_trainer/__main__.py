"""`python -m tpujob_trainer`."""

import gc
import os
import signal

from tpujob_contract import ExitCode

# Nothing is begun yet: asked to stop during the first imports, the process ends as it would afterwards.
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: os._exit(ExitCode.STOPPED))

# Thousands of modules are imported now, to stay: looking for garbage among them takes a quarter of that time. Until
# `main.run` has them all.
gc.disable()

from tpujob_trainer.main import main  # noqa: E402

main()
