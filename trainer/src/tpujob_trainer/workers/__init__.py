"""Independent workers that share one list of units through a bucket, and never talk to each other.

- `claims`: Leases on units: taken if absent, renewed, and taken over once they have not changed for a while.
- `choice`: Which unit a worker tries next. Pure.
- `board`: One listing of the finished units, made by one worker at a time and read by all.
- `results`: What a finished unit says about itself: its files, rows, bytes and checksums.
- `uploads`: Files of a unit from a bounded scratch folder into the directory, under names of one holder.
- `engine`: The loop of a worker: claim, read ahead, compute, pack and upload at the same time, mark as done.
- `setup`: Something that one worker does for all of them, such as listing the corpus.
- `listing`: The files below a folder of the output directory, with what storage says of them.
- `failures`: Why units did not finish, one small object for each time.
"""
