"""The log of the trainer and of training loops of the SDK."""

from __future__ import annotations

import logging

from tpujob_trainer.errors.programs import log_to_stderr

FORMAT = "%(asctime)s %(levelname).1s %(name)s: %(message)s"


def start_logging(*, force: bool = False) -> None:
    """Sends log records of level INFO and above to standard error.

    Args:
        force: Replace the handlers that libraries have installed at the root logger.
    """
    log_to_stderr(logging.INFO, FORMAT, replace=force)
    # Orbax logs forty lines for each save; our own lines have what matters.
    logging.getLogger("absl").setLevel(logging.WARNING)
    # gcsfs logs a traceback for each failed request; its caller logs one line and tries again.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
