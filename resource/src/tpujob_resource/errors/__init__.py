"""What can be wrong with a resource, in sentences for the person who wrote it."""

from __future__ import annotations

from collections.abc import Iterable


class InvalidField(ValueError):  # noqa: N818 — it names what was found, and ends in a condition called Invalid
    """One field holds a value that cannot work; permanent until it is edited.

    Attributes:
        field: path as the user wrote it, such as `spec.accelerator`.
        problem: what was given, what is allowed and what to do, without the path.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class InvalidJob(ValueError):  # noqa: N818
    """A resource cannot become a JobSet; permanent until it is edited.

    Attributes:
        problems: everything that is wrong with it, one line each, each beginning with the path of the field.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))
