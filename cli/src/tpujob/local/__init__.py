"""Runs a job on this machine: every pod of its JobSet becomes a process.

Decided in `plan` (which processes, with which environment) and `outcome` (what their endings mean); done in
`supervisor` (starts, watches, ends), `reports` (asks the trainer how it is) and `display` (tells the person).

- `dies_with_parent`: `python dies_with_parent.py PARENT COMMAND…`: becomes the command, which gets SIGTERM when its
  parent dies.
- `display`: Tells a person how the run is going: one live line on a terminal, plain lines in a log.
- `outcome`: What the endings of all processes mean together. Pure.
- `plan`: Which processes a JobSet becomes on this machine, and with which environment. Pure.
- `reports`: Asks the trainer how it is doing: over HTTP while it runs, from the checkpoint directory once it has
  ended.
- `run`: `tpujob run`: from a file to the last line.
- `supervisor`: Starts the processes of a job, watches them and sees every one of them end.
"""
