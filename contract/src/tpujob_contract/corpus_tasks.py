"""The tasks of the trainer in which independent workers share the units of a corpus."""

from typing import Literal, get_args

CorpusTask = Literal["extract", "score", "embed", "generate"]
"""In `trainer.task`; each has a block of the same name."""
CORPUS_TASKS = get_args(CorpusTask)
