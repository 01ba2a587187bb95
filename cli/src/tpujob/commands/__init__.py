"""The verbs of the command line, one file each; each parses, calls one function and prints what came of it.

A module imports what it works with inside its function, so that `tpujob --help` and completion stay quick.

- `bundle`: everything that a site without a network needs, in one folder.
- `check`: says what a job comes to, by arithmetic.
- `checkpoint`: looks at the checkpoints of a run.
- `data`: makes data sets and looks at them.
- `describe`: says in sentences where a job stands.
- `doctor`: looks for what a cluster needs.
- `execute`: `exec`, runs a command on the hosts of a job.
- `extract`: looks at, checks and merges what the workers of an extraction wrote.
- `get`: lists jobs.
- `logs`: prints the logs of a job's hosts.
- `new`: writes a job to begin with.
- `options`: arguments and options that several verbs share.
- `profile`: traces steps of a job that trains.
- `render`: prints the JobSet of a job.
- `run`: runs a job on this machine.
- `stop`: saves and stops a job; `resume` lets it go on, `retry` starts one that has ended anew.
- `submit`: creates a job on a cluster and follows it.
- `top`: watches the jobs that are under way.
"""
