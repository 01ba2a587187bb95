"""One unit of independent workers that somebody else holds: however fast they are, their job is not over meanwhile."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NAME = "claims/00000000"
"""The claim of the first unit, in the directory of the job."""
RENEW_SECONDS = 0.5


@contextmanager
def held_unit(write: Callable[[str, bytes], object]) -> Iterator[None]:
    """Renews the claim for as long as the block runs; then it lapses.

    Args:
        write: Makes or replaces a file in the job's directory, by its name there.
    """
    is_over = threading.Event()

    def renew() -> None:
        for beat in itertools.count():
            write(NAME, json.dumps({"worker": "somebody-else", "token": "none", "beat": beat}).encode())
            if is_over.wait(RENEW_SECONDS):
                return

    renewer = threading.Thread(target=renew, name="held-unit")
    renewer.start()
    try:
        yield
    finally:
        is_over.set()
        renewer.join()
