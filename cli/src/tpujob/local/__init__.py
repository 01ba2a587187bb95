"""Runs a job on this machine: every pod of its JobSet becomes a process.

- `closing`: The last lines of a run: what came of it, why, and how to go on.
- `dies_with_parent`: Becomes a command that gets a signal when its parent dies.
- `display`: Shows a person how the run is going: one live line on a terminal, plain lines in a log.
- `outcome`: What the endings of all processes mean together. Pure.
- `pace`: How long a run has taken and will take, and how its loss went, from the reports of one attempt. Pure.
- `plan`: Which processes a JobSet becomes on this machine, and with which environment. Pure.
- `ports`: Where the processes of a run on this machine report, kept in the folder of the run.
- `reports`: Asks the trainer how it is doing: over HTTP while it runs, from the files it left once it has ended.
- `run`: `tpujob run`: from a file to the last line.
- `supervisor`: Starts the processes of a job, watches them and sees every one of them end.
"""
