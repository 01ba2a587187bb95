"""What it costs to notice that a file on a disk was replaced: samples once for each file, a status at each read.

make bench-data         # python benchmarks/data_replaced.py [--files 2000] [--kibibytes 4096] [--json]
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tpujob_trainer.data.sources.files import DataFile, open_root
from tpujob_trainer.storage.versions import sampled_version


def measure(folder: Path, files: int, kibibytes: int) -> dict[str, float]:
    """Microseconds of each operation, per file or per read."""
    content = os.urandom(kibibytes << 10)
    paths = [folder / f"{number:06d}.txt" for number in range(files)]
    for path in paths:
        path.write_bytes(content)
    root = open_root(str(folder))
    versions = {path.name: sampled_version(str(path)) for path in paths}

    def read(version: str | None) -> Callable[[Path], None]:
        def one(path: Path) -> None:
            given = versions[path.name] if version is None else None
            with root.open(path.name, len(content), given) as opened:
                opened.read(256 << 10)

        return one

    kept = [DataFile(path.name, len(content), versions[path.name]) for path in paths]
    return {
        "sample_a_file_us": timed(lambda path: sampled_version(str(path)), paths),
        "read_256_kib_unchecked_us": timed(read(""), paths),
        "read_256_kib_checked_us": timed(read(None), paths),
        "check_alone_us": timed(root.require_unchanged, kept),
    }


def timed[T](call: Callable[[T], object], items: list[T], rounds: int = 5) -> float:
    """The microseconds of one call, in the best of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for item in items:
            call(item)
        best = min(best, time.perf_counter() - start)
    return round(best / len(items) * 1e6, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--kibibytes", type=int, default=4096)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.files, options.kibibytes)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:28} {value:10.1f}")


if __name__ == "__main__":
    main()
