"""Independent workers that share one list of units through a bucket, and never talk to each other.

- `config`: What the block of every task of independent workers says.
- `claims`: Leases on units: taken if absent, renewed, and taken over once they have not changed for a while.
- `choice`: Which unit a worker tries next. Pure.
- `states`: What a worker knows of each unit: free, taken or done.
- `board`: One listing of the finished units, made by one worker at a time and read by all.
- `results`: What a finished unit says about itself: its files, rows, bytes and checksums.
- `uploads`: Files of a unit from a bounded scratch folder into the directory, under names of one holder.
- `work`: What the engine asks of a task: read a unit, compute it, pack it into files.
- `finishing`: The end of a unit: packed, uploaded, marked as done, counted.
- `engine`: The loop of a worker: claim and read ahead, compute, finish.
- `setup`: Something that one worker does for all of them, such as listing the corpus.
- `memory`: Memory that was freed, given back to the system.
- `rate`: Rows per second of all workers together. Pure.
- `listing`: The files below a folder of the output directory, with what storage says of them.
- `failures`: Why units did not finish, one small object for each time.
"""
