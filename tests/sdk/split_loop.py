"""A loop over a real webdataset of one's own: each process reads its tars, and prints what it saw."""

import os
import sys

import webdataset

from tpujob_sdk import Job, run


def train(job: Job) -> None:
    tars = webdataset.shardlists.expand_urls(os.environ["TARS"])
    if os.environ.get("REVERSED") and not job.is_lead:
        tars.reverse()
    mine = job.split(tars)
    held_out = job.split(range(5))
    for sample in webdataset.WebDataset(mine, shardshuffle=False):
        sys.stdout.write(f"sample {sample['txt'].decode()}\n")
    sys.stdout.write(f"held out {' '.join(map(str, held_out))}\n")


run(train)
