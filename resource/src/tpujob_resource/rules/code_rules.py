"""Rules for `spec.code`: an archive with its digest, or a repository with a commit. Each yields sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tpujob_resource.messages.error_messages import shown
from tpujob_resource.models.job import TpuTrainingJob

type Problems = Iterator[str]

COMMIT_PATTERN = r"^[0-9a-f]{40}$"
"""A whole commit of a repository; a short id, a branch or a tag may become another."""
EITHER = "give either archive and sha256, or repository and commit"
ARCHIVE_HAS_DIGEST = "an archive needs its sha256, and a repository has none: its commit is the digest"
WHOLE_COMMIT = "a repository needs the whole commit, 40 hexadecimal digits as `git rev-parse` prints them"


def code_source(job: TpuTrainingJob) -> Problems:
    """The code is one thing, and what verifies it is there."""
    code = job.spec.code
    if code is None:
        return
    if (code.archive is None) == (code.repository is None):
        yield f"spec.code: {EITHER}"
    elif (code.archive is None) != (code.sha256 is None):
        yield f"spec.code.sha256: {ARCHIVE_HAS_DIGEST}"
    elif code.repository is not None and not re.fullmatch(COMMIT_PATTERN, code.commit or ""):
        given = f"{shown(code.commit)} is not it: " if code.commit else ""
        yield f"spec.code.commit: {given}{WHOLE_COMMIT}"
