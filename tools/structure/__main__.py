"""Prints the structure; with --check, compares it with the limits; with --keep, lowers these."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.structure import limits, sizes
from tools.structure.measured import PACKAGES, Structure, measure, measured_folders


def main() -> int:
    structure = measure(Path())
    now, text = limits.reached(structure), limits.FILE.read_text()
    if "--keep" in sys.argv:
        limits.FILE.write_text(limits.lowered(text, now))
    if "--check" not in sys.argv:
        sys.stdout.writelines(f"{line}\n" for line in report(structure))
        return 0
    worse = [*limits.broken(now, limits.read(text)), *limits.unexplained(text, limits.before() or text)]
    sys.stdout.writelines(f"structure: {line}\n" for line in worse)
    if worse:
        sys.stdout.write(f"`make structure` lists what was counted; raise a limit in {limits.FILE} with the reason\n")
    return int(bool(worse))


def report(structure: Structure) -> Iterator[str]:
    """The output of `make structure`."""
    yield from arrow_lines(structure)
    yield ""
    yield from size_lines(structure)
    yield ""
    yield f"cycles of rooms: {len(structure.cycles)}"
    yield from (f"  {' <- '.join(way)}" for way in structure.cycles)
    yield f"functions above 60 lines: {len(structure.long_functions)}"
    yield from (f"  {size:4} {name}" for name, size in structure.long_functions.items())
    yield f"files above 500 lines: {len(structure.long_files)}"
    yield from (f"  {size:4} {name}" for name, size in structure.long_files.items())
    yield f"fields of a job that no example and no page shows: {len(structure.fields_without_example)}"
    yield from (f"  {name}" for name in structure.fields_without_example)


def size_lines(structure: Structure) -> Iterator[str]:
    """All lines, and lines of code, of each package."""
    code = {name: sizes.code_lines(folder) for name, folder in measured_folders(Path()).items()}
    yield f"{'lines':24}{'all':>8}{'code':>8}"
    for name, count in structure.lines.items():
        yield f"  {name:22}{count:8}{code[name]:8}"
    yield f"  {'source together':22}{structure.source_lines:8}{sum(code[folder] for folder in PACKAGES):8}"


def arrow_lines(structure: Structure) -> Iterator[str]:
    """Imports between rooms: the number of each kind by package, and a list of all."""
    counts = Counter((arrow.importer.partition(".")[0], arrow.kind) for arrow in structure.arrows)
    yield f"{'imports between rooms':24}{'sibling':>8}{'root':>8}{'across':>8}"
    for package in PACKAGES.values():
        yield f"  {package:22}" + "".join(f"{counts[package, kind]:8}" for kind in ("sibling", "root", "across"))
    totals = [
        sum(count for (_, kind), count in counts.items() if kind == wanted) for wanted in ("sibling", "root", "across")
    ]
    yield f"  {'together':22}" + "".join(f"{total:8}" for total in totals)
    yield from (f"  {arrow}" for arrow in structure.arrows)


if __name__ == "__main__":
    sys.exit(main())
