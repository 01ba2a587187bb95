"""Extractions under way or done: `tpujob extract`.

- `live_table`: The live table of `tpujob extract status --watch`: a bar, the figures, and a line for each worker.
- `progress`: Looks at an extraction with the trainer's own code, started as a process, and tells it in words.
"""
