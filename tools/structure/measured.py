"""All measurements of the structure, as one value."""

from dataclasses import dataclass
from pathlib import Path

from tools.structure import fields, rooms, sizes

PACKAGES = {
    "contract": "tpujob_contract",
    "launcher": "tpujob_launcher",
    "resource": "tpujob_resource",
    "operator": "tpujob_operator",
    "trainer": "tpujob_trainer",
    "sdk": "tpujob_sdk",
    "cli": "tpujob",
}
"""The folder of each distribution, and its package."""
BESIDE = ("tests", "tools", "benchmarks")
"""Folders that are measured beside the distributions."""


@dataclass(frozen=True, kw_only=True)
class Structure:
    """The measurements that `make structure` prints, and that are compared with the limits."""

    arrows: list[rooms.Arrow]
    cycles: list[list[str]]
    lines: dict[str, int]
    """By the folder of each distribution, and for BESIDE."""
    fields_without_example: list[str]
    long_functions: dict[str, int]
    long_files: dict[str, int]

    @property
    def source_lines(self) -> int:
        """The lines of all distributions."""
        return sum(self.lines[folder] for folder in PACKAGES)


def measure(root: Path) -> Structure:
    """The structure of the checkout at `root`, whose packages this Python imports."""
    arrows = rooms.arrows(PACKAGES.values())
    folders = measured_folders(root)
    return Structure(
        arrows=arrows,
        cycles=rooms.cycles(arrows),
        lines={name: sizes.lines(folder) for name, folder in folders.items()},
        fields_without_example=fields.fields_without_example(root),
        long_functions={k: v for folder in folders.values() for k, v in sizes.long_functions(folder).items()},
        long_files={k: v for folder in folders.values() for k, v in sizes.long_files(folder).items()},
    )


def measured_folders(root: Path) -> dict[str, Path]:
    """The folders whose Python files are counted, by the printed name."""
    return {folder: root / folder / "src" for folder in PACKAGES} | {name: root / name for name in BESIDE}
