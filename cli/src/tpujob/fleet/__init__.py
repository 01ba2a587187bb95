"""Where the chips went: chips and chip-hours of all jobs, by namespace, queue, owner or job.

- `promql`: What Prometheus is asked; the chart's dashboard and recording rules are made of the same expressions.
- `prometheus`: Asks it.
- `from_prometheus`, `from_status`: Its answers, or the jobs of the cluster, as usage of jobs. Pure.
- `usage`: What a job used, and what its chip-hours went to. Pure.
- `groups`: Usage added up, with costs. Pure.
- `report`: All that is said, as one value.
- `text`: The same for people. Pure.
"""
