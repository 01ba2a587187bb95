"""Data, checkpoints, reports and orderly stops for a training loop of your own, from the pieces of tpujob's trainer.

def train(job: Job) -> None:
    batches = job.lanes("gs://my-bucket/text/*.parquet", batch_size=256, sequence_length=1024)
    checkpoints = job.checkpoints(batches)
    step, state = checkpoints.restore(state) or (0, state)
    while step < 1000 and not job.stop_requested():
        state, loss = train_step(state, next(batches))
        step += 1
        job.report(step=step, steps=1000, loss=loss)
    checkpoints.save(step, state)

run(train)
"""

from tpujob_sdk.job import Job
from tpujob_sdk.lanes import Batch, Lanes
from tpujob_sdk.options import Options
from tpujob_sdk.place import Place, place
from tpujob_sdk.running import run
from tpujob_sdk.samples import Samples
from tpujob_sdk.saving import Checkpoints
from tpujob_trainer.corpus.extract.reading import Activations, read_activations
from tpujob_trainer.data.formats.webdataset import Sample

__all__ = [
    "Activations", "Batch", "Checkpoints", "Job", "Lanes", "Options", "Place", "Sample", "Samples", "place",
    "read_activations", "run",
]  # fmt: skip
