"""Rules for `spec.code` and `spec.packages`."""

from tpujob_contract.field_rules import absent, differs, given, matches, rule, several

_EITHER = "give either archive and sha256, or repository and commit"
_ARCHIVE_HAS_DIGEST = "an archive needs its sha256, and a repository has none: its commit is the digest"
_WHOLE_COMMIT = "a repository needs the whole commit, 40 hexadecimal digits as `git rev-parse` prints them"
COMMIT_PATTERN = r"^[0-9a-f]{40}$"
"""A complete commit id; a short id, a branch or a tag may refer to another commit later."""


CODE = (
    rule("", _EITHER, several("archive", "repository")),
    rule("", _EITHER, absent("archive", "repository")),
    rule("sha256", _ARCHIVE_HAS_DIGEST, given("archive"), absent("sha256", "repository")),
    rule("sha256", _ARCHIVE_HAS_DIGEST, given("repository", "sha256"), absent("archive")),
    rule("commit", _WHOLE_COMMIT, given("repository"), absent("commit", "archive")),
    rule("commit", _WHOLE_COMMIT, given("repository"), absent("archive"), differs("commit", COMMIT_PATTERN)),
)

PACKAGES = (
    rule(
        "",
        "names nothing; give requirements, a file with a --hash of every package, or wheels, a folder of them",
        absent("requirements", "wheels"),
    ),
    rule(
        "wheels",
        "are outside of the code, where hosts may have others; give requirements with a --hash of each, too",
        given("wheels"),
        absent("requirements"),
        matches("wheels", "^/"),
        shows=True,
    ),
)
