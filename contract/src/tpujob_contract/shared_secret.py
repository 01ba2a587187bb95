"""The secret by which the processes of a job know each other: a random text, `environment.SECRET` of each launcher.

Everything else in a first message (name, incarnation, size) can be guessed by whoever reaches a port of the job.
"""

import hmac
import secrets
from typing import Any


def draw() -> str:
    """A new secret: 256 bits as 43 URL-safe characters."""
    return secrets.token_urlsafe(32)


def is_known(secret: str, shown: Any) -> bool:
    """Whether a caller has shown the secret; the time taken tells nothing about it. Nobody has to show an empty one."""
    given = shown if isinstance(shown, str) else ""
    return not secret or hmac.compare_digest(given.encode(errors="surrogatepass"), secret.encode())
