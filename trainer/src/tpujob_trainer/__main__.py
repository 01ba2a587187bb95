"""`python -m tpujob_trainer`."""

import os
import signal

# Nothing is begun yet: asked to stop during the first imports, the process ends as it would afterwards, with 75.
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: os._exit(75))

from tpujob_trainer.main import main  # noqa: E402

main()
