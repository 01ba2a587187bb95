"""What all files of an output directory have in common: `extract.json`, written by the first worker.

A worker for which any of this differs would add different values to the same files: it is refused, and the difference
is named. The path of the model does not identify its weights; `weights.json` has their fingerprint, once the first
worker has read them.
"""

import json
from collections.abc import Mapping
from typing import Any

from tpujob_trainer.storage import Bucket
from tpujob_trainer.values.errors import ConfigurationError
from tpujob_trainer.values.json_object import kept_object

NAME = "extract.json"
WEIGHTS = "weights.json"
VALUES_VERSION = 2
"""Version of the code that computes values from text and weights. Raise it with any change after which the same model
gives other values for the same row; other changes of the trainer do not affect a directory."""
IMAGE = "image"
VALUES = "values"
"""Key of `VALUES_VERSION` within `IMAGE`."""
PACKAGES = ("jax", "jaxlib", "libtpu")
"""Packages whose versions determine the last digits of every value."""
FROM = "spec.trainer.model.from"
TASK = "spec.trainer.task"

DIRECTORY = "spec.checkpointDir"
REMEDY = "put it back, or write into another directory"

type Description = Mapping[str, Any]

_REMEDIES = {
    IMAGE: "use the image that the job began with, or set FIELD.acceptOtherImage if values may differ in their last "
    "digits",
    "corpus": "put the data back as it was",
}
"""Other keys are named as the fields that they come from."""


def image(versions: Mapping[str, str]) -> dict[str, Any]:
    """The versions in an image that the values depend on, given those of all installed packages."""
    return {**{name: versions[name] for name in PACKAGES if name in versions}, VALUES: VALUES_VERSION}


def parse(content: bytes, url: str) -> dict[str, Any]:
    """The description that a file of a directory holds.

    Raises:
        ConfigurationError: it holds something else.
    """
    return kept_object(content, f"{DIRECTORY}: {url}/{NAME}", REMEDY)


def require_same(objects: Bucket, described: Description, *, field: str, accept_other_image: bool = False) -> None:
    """Returns if the directory was started with the same description, or is started with this one.

    Args:
        objects: of the output directory.
        described: all that the values depend on, except the weights.
        field: the task's block, for messages.
        accept_other_image: whether `image` may differ.

    Raises:
        ConfigurationError: something differs; the first such key is named, with both values.
    """
    text = json.dumps(described, sort_keys=True, indent=1).encode()
    if objects.create(NAME, text) is not None:
        return
    found = objects.look(NAME)
    if found is None or found.data == text:
        return
    ignored = {FROM, IMAGE} if accept_other_image else {FROM}
    both = (parse(content, objects.url) for content in (found.data, text))
    begun, now = ({key: each[key] for key in each if key not in ignored} for each in both)
    if begun != now:
        raise ConfigurationError(difference(begun, now, field=field))


def require_same_weights(objects: Bucket, fingerprint: str, source: str) -> None:
    """Returns if the weights are those that the files were made with, or are the first.

    Raises:
        ConfigurationError: they differ.
    """
    text = json.dumps({"fingerprint": fingerprint, "from": source})
    if objects.create(WEIGHTS, text) is not None:
        return
    found = objects.look(WEIGHTS)
    begun = {} if found is None else kept_object(found.data, f"{DIRECTORY}: {objects.url}/{WEIGHTS}", REMEDY)
    if begun.get("fingerprint", fingerprint) != fingerprint:
        raise ConfigurationError(
            f"{FROM}: the weights at {source} are not those that the files there were made with, read from "
            f"{begun.get('from')}; put them back, or write into another spec.checkpointDir"
        )


def difference(begun: Description, now: Description, *, field: str) -> str:
    """One line about the first key that differs."""
    key = next(key for key in (TASK, *begun, *now) if begun.get(key) != now.get(key))
    before, after = begun.get(key), now.get(key)
    if isinstance(before, dict) and isinstance(after, dict):
        part = next(part for part in (*before, *after) if before.get(part) != after.get(part))
        name, before, after = f"{key}, {part}", before.get(part), after.get(part)
    else:
        name = key
    remedy = _REMEDIES.get(key, "put it back").replace("FIELD", field)
    return (
        f"{name}: {after!r} in this worker, {before!r} in the files that are there; {remedy}, "
        "or write into another spec.checkpointDir"
    )
