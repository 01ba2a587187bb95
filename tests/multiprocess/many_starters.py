"""`python -m tests.multiprocess.many_starters DIRECTORY WORKERS`: so many workers start at once, in threads.

Each does what a worker does before its first unit. Prints how often the corpus was listed, and the indexes' listings.
"""

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from tpujob_trainer.corpus.workers import claims
from tpujob_trainer.corpus.workers.progress_index import ProgressIndex
from tpujob_trainer.storage import open_bucket

UNITS = 5000


def main() -> None:
    directory, workers = sys.argv[1], int(sys.argv[2])
    listed: list[str] = []
    together = threading.Barrier(workers)

    def start(worker: str) -> int:
        objects = open_bucket(directory)
        together.wait()

        def list_corpus() -> bytes:
            listed.append(worker)
            return b'{"rows": 5000}'

        assert claims.once(objects, worker, "corpus-1.0", list_corpus) == b'{"rows": 5000}'
        index = ProgressIndex(objects, worker, UNITS)
        assert not index.first().done.any()
        return index.listings

    with ThreadPoolExecutor(workers) as pool:
        indexes = list(pool.map(start, [f"job-{number}-abcdef" for number in range(workers)]))
    print(json.dumps({"corpus": len(listed), "boards": sum(indexes)}))  # noqa: T201


if __name__ == "__main__":
    main()
