"""Retries failed reads: with jitter, never sooner than the storage asks, for a limited time.

If storage limits the rate of one thread of a process, that holds for all: they wait together, and resume spread over a
while, because other hosts got the same answer at the same moment.
"""

import email.utils
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.storage.read_meter import METER, ReadMeter
from tpujob_trainer.storage.versions import PATH
from tpujob_trainer.values.errors import TrainerError, brief

logger = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
SPREAD = 0.5
"""The random fraction of a delay; to the delay of a Retry-After, up to this fraction of it is added."""
LIMIT_SECONDS = 300.0

_STATUS_CAUSES = {408: "timeout", 425: "unavailable", 429: "rate_limited", 499: "unavailable"}


class IncompleteReadError(OSError):
    """Storage sent another number of bytes than it was asked for."""


class StorageFailedError(TrainerError):
    """Storage has failed for too long."""

    def __init__(self, problem: str, field: str = PATH) -> None:
        """States what failed.

        Args:
            problem: What could not be read, why, and what to do.
            field: The field of the job that names what could not be read.
        """
        super().__init__(f"{field}: {problem}")
        self.problem = problem


def cause_of(error: BaseException) -> str | None:
    """Why a read failed, if a retry may succeed: rate_limited, unavailable, timeout, truncated or reset; else None.

    The clients of storage raise dozens of classes for these: they are recognized by status, then by name.
    """
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        return cause_of(error.__cause__)  # fsspec reports "not found" for any failed request about a web page
    if isinstance(error, TrainerError | FileNotFoundError | PermissionError | ValueError):
        return None
    status = storage_errors.status_of(error)
    if status is not None:
        return _STATUS_CAUSES.get(status, "unavailable" if status >= 500 else None)
    names = {kind.__name__ for kind in type(error).__mro__}
    if "without sending complete message body" in str(error):  # httpx has one class for all errors of a peer
        return "truncated"
    if names & {"IncompleteReadError", "ContentLengthError", "ClientPayloadError", "ChunkedEncodingError"}:
        return "truncated"
    if isinstance(error, TimeoutError) or names & {
        "FSTimeoutError",
        "Timeout",
        "TimeoutException",
        "ServerTimeoutError",
    }:
        return "timeout"
    if (
        isinstance(error, ConnectionError)
        or storage_errors.is_unreachable(error)
        or names
        & {
            "ClientError",
            "TransportError",
            "ProtocolError",
            "RequestException",
            "ServiceRequestError",  # azure.core: no answer
            "ServiceResponseError",  # azure.core: an answer that broke off
        }
    ):
        return "reset"
    return None


def retry_after_seconds(error: BaseException, now: Callable[[], float] = time.time) -> float | None:
    """How long the storage asks to wait: Retry-After in seconds or as a date, or the hub's `ratelimit: …;t=55`."""
    for headers in _headers_of(error):
        asked = headers.get("Retry-After") or headers.get("retry-after")
        if asked and asked.strip().isdecimal():
            return float(asked)
        if asked and (date := email.utils.parsedate_to_datetime(asked)):
            return max(0.0, date.timestamp() - now())
        limit = headers.get("RateLimit") or headers.get("ratelimit") or ""
        if "r=0" in limit and (reset := re.search(r";t=(\d+)", limit)):
            return float(reset[1])
    return None


class Retrying:
    """Calls functions that read, and retries them if that may help; shared by the threads of one process."""

    def __init__(
        self,
        *,
        limit_seconds: float = LIMIT_SECONDS,
        cause_of: Callable[[BaseException], str | None] = cause_of,
        given_up: Callable[[str, Exception, str], TrainerError] | None = None,
        meter: ReadMeter = METER,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Nothing is called yet.

        Args:
            limit_seconds: from the first failure of a read to giving it up.
            cause_of: a word for an error after which a retry may succeed, None for the others.
            given_up: the error to end with, from what was read, the last error, and how long and often it was tried.
            meter: called with every failure.
            clock: seconds, monotonic.
            wait: sleeps for a number of seconds.
            chance: uniform in [0, 1).
        """
        self.limit_seconds = limit_seconds
        self._cause_of = cause_of
        self._given_up = given_up or _storage_failed
        self._meter = meter
        self._clock = clock
        self._wait = wait or threading.Event().wait
        self._chance = chance
        self._not_before = 0.0
        self._lock = threading.Lock()

    def __call__[T](self, what: str, call: Callable[[], T], *, limit_seconds: float | None = None) -> T:
        """The result of `call`, which reads `what`; `limit_seconds` replaces the common limit for this call.

        Raises:
            StorageFailedError: the storage has failed for too long.
            Exception: as the call raised it, if a retry would not help.
        """
        limit = self.limit_seconds if limit_seconds is None else limit_seconds
        began: float | None = None
        tries = 0
        while True:
            self._wait_for_the_gate()
            try:
                result = call()
            except Exception as error:
                cause = self._cause_of(error)
                if cause is None:
                    if tries:
                        self._meter.ended(what)
                    raise
                tries += 1
                now = self._clock()
                began = now if began is None else began
                delay = self._delay(tries, retry_after_seconds(error))
                if now + delay - began > limit:
                    self._meter.ended(what)
                    trouble = f"{cause} for {now - began:.0f} s, {tries} {'try' if tries == 1 else 'tries'}"
                    raise self._given_up(what, error, trouble) from error
                self._meter.failed(what, cause, brief(error))
                logger.log(
                    logging.WARNING if tries > 1 else logging.INFO,
                    "Trying again in %.1f s: %s cause=%s tries=%d error=%s", delay, what, cause, tries, brief(error),
                )  # fmt: skip
                self._wait(delay)
            else:
                if tries:
                    self._meter.ended(what)
                return result

    def _delay(self, tries: int, asked: float | None) -> float:
        if asked is not None:
            with self._lock:
                self._not_before = max(self._not_before, self._clock() + asked)
            return asked + self._chance() * SPREAD * max(asked, 1.0)
        longest = min(FIRST_DELAY_SECONDS * 2 ** (tries - 1), LONGEST_DELAY_SECONDS)
        return longest * (1 - SPREAD * self._chance())

    def _wait_for_the_gate(self) -> None:
        while (left := self._not_before - self._clock()) > 0:
            self._wait(left + self._chance() * SPREAD * max(left, 1.0))


def _storage_failed(what: str, error: Exception, trouble: str) -> TrainerError:
    return StorageFailedError(
        f"{what} could not be read ({trouble}): {brief(error)}; look at the storage and its limits"
    )


def _headers_of(error: BaseException) -> Iterator[Any]:
    """Headers of the responses of an error, and of the errors that it was raised from."""
    seen: BaseException | None = error
    while seen is not None:
        for holder in (seen, getattr(seen, "response", None)):
            headers = getattr(holder, "headers", None)
            if headers is not None and hasattr(headers, "get"):
                yield headers
        seen = seen.__cause__ or seen.__context__
