"""Watches, queue, leadership, and carrying out what was decided.

- `apply`: Carries out a decision: the status first, then the one step. Writes have preconditions: nothing stale is
  done.
- `http`: The HTTP side: /healthz and /readyz on one port, /metrics and a page for people on another.
- `job_watch`: The watch of TpuTrainingJobs, by kopf: all that kopf does here, and all of kopf there is.
- `kopf_loop`: An event loop for kopf in a thread of its own, which ends even where kopf leaves tasks behind.
- `json_logs`: Log lines as JSON objects, each with the job that it is about: for pods, whose logs are collected and
  searched.
- `leader_election`: Which of several operators writes: the holder of a Lease, for as long as it can be sure of it.
- `job_gauges`: What the metrics say of each job: its phase, its hosts and chips, its restarts by cause.
- `page`: The page at `/` of the metrics port: jobs, their phases, who leads; one HTML document without scripts.
- `reconcile`: The one reconcile behind every trigger: look, decide, do, and say when to look again.
- `resync`: Looks at every job from time to time although nothing was heard of it: the net under the watches.
- `watch_staleness`: Whether the watches still tell what happens: what a list shows must have come through the watch,
  too, before long.
- `watches`: The watches of jobs, by kopf, and of the JobSets and pods that were made for jobs: they feed the cache.
- `work_queue`: Which job is looked at when: one at a time per job, many jobs at once.
"""
