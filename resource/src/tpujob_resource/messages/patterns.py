"""Error messages for the patterns of fields, which users see instead of the pattern."""

from collections.abc import Mapping

from tpujob_resource.models import fields

NAME = "lower-case letters, digits and -, beginning and ending with a letter or digit"

WORDS: Mapping[str, str] = {
    fields.IMAGE_PATTERN: (
        "is not an image; write [HOST/]NAME[:TAG][@sha256:DIGEST], NAME in lower case and without https://, "
        "DIGEST of 64 digits"
    ),
    fields.CODE_ARCHIVE_PATTERN: "is neither gs://BUCKET/PATH nor an absolute path",
    fields.CODE_REPOSITORY_PATTERN: (
        "is neither https://HOST/PATH, without a user and a query, nor file:///PATH on one of the job's volumes"
    ),
    fields.PACKAGES_PATTERN: "is not a path such as requirements.txt; allowed: letters, digits, -, _, ., + and /",
    fields.MANAGER_PATTERN: (
        "is not the name of a controller; write DOMAIN/PATH, such as kueue.x-k8s.io/multikueue, DOMAIN in lower case"
    ),
    fields.QUANTITY_PATTERN: 'is not an amount such as 8, "500m" or "64Gi"',
    fields.NO_NUL_PATTERN: "has a NUL character; leave it out",
    r"^[0-9a-f]{64}$": "is not a SHA-256 digest; it has 64 hexadecimal digits in lower case",
    r"^[0-9a-f]{40}([0-9a-f]{24})?(\+changes)?$": "is not a commit; write its 40 hexadecimal digits, no branch or tag",
    r"^[A-Za-z_][A-Za-z0-9_.-]*$": "is not a variable's name; allowed: letters, digits, _, . and -, not a digit first",
    r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$": f"is not a name in Kubernetes; allowed: {NAME}, and dots within",
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": f"is not a name in a pod; allowed: {NAME}",
    r"^[-._a-zA-Z0-9]+$": "is not a key of a Secret or ConfigMap; allowed: letters, digits, -, _ and .",
    r"^/[^:\x00]+$": "is not an absolute path without colons; write /NAME",
    r"^[a-z0-9][a-z0-9._-]*[a-z0-9]$": "is not a bucket's name; allowed: lower-case letters, digits, -, _ and .",
    r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$": (
        "is not a label's value; allowed: letters, digits, -, _ and ., beginning and ending with a letter or digit"
    ),
    r"^[a-z]([-a-z0-9]*[a-z0-9])?$": f"is not a name in Google Cloud; allowed: {NAME}, a letter first",
    r"^[a-z]([-a-z0-9:.]*[a-z0-9])?$": f"is not a project's id; allowed: {NAME}, a letter first",
    r"^[1-9][0-9]*(x[1-9][0-9]*){1,2}$": "is not a topology such as 16x16",
    r"^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$": (
        "is not a label's key; write [PREFIX/]NAME, NAME of letters, digits, -, _ and ., such as example.com/pool"
    ),
}


def pattern_message(pattern: str) -> str:
    """The end of an error message about a value that does not match a pattern."""
    return WORDS.get(pattern) or f"has characters that are not allowed here; pattern {pattern}"
