"""What all files of an output directory have in common: `extract.json`, written by the first worker.

A worker for which any of this is different would mix other values into the same files: it is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.storage import Bucket

NAME = "extract.json"

type Description = Mapping[str, Any]

_REMEDIES = {
    "image": "use the image that the job began with",
    "corpus": "put the data back as it was",
}
"""Other keys are named as the fields that they come from."""


def require_same(objects: Bucket, described: Description) -> None:
    """Returns if the directory has been begun with the same description, or is begun by this.

    Raises:
        ConfigurationError: something differs; the first such key is named, with both values.
    """
    text = json.dumps(described, sort_keys=True, indent=1).encode()
    if objects.create(NAME, text) is not None:
        return
    found = objects.look(NAME)
    if found is None or found.data == text:
        return
    raise ConfigurationError(difference(json.loads(found.data), json.loads(text)))


def difference(begun: Description, now: Description) -> str:
    """One line about the first key that differs."""
    key = next(key for key in (*begun, *now) if begun.get(key) != now.get(key))
    before, after = begun.get(key), now.get(key)
    if isinstance(before, dict) and isinstance(after, dict):
        part = next(part for part in (*before, *after) if before.get(part) != after.get(part))
        name, before, after = f"{key}, {part}", before.get(part), after.get(part)
    else:
        name = key
    remedy = _REMEDIES.get(key, "put it back")
    return (
        f"{name}: {after!r} in this worker, {before!r} in the files that are there; {remedy}, "
        "or write into another spec.checkpointDir"
    )
