"""Errors in a resource, with messages for the user who wrote it."""

from collections.abc import Iterable


class InvalidField(ValueError):  # noqa: N818 — it names what was found, and ends in a condition called Invalid
    """One field has a value that cannot work; permanent until the user edits it.

    Attributes:
        field: The path as the user wrote it, such as `spec.accelerator`.
        problem: The given value, what is allowed and what to do, without the path.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class InvalidJob(ValueError):  # noqa: N818
    """A resource cannot become a JobSet; permanent until the user edits it.

    Attributes:
        problems: All errors in it, one line each, which starts with the path of the field.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))
