"""Where the chips went: chips and chip-hours of all jobs, by namespace, queue, owner or job.

- `promql`: The queries; the chart's dashboard and recording rules are made of the same expressions.
- `prometheus`: Sends them to Prometheus.
- `from_prometheus`, `from_status`: Convert its answers, or the jobs of the cluster, to usage of jobs. Pure.
- `usage`: The chips and chip-hours of a job, and what these went to. Pure.
- `groups`: Sums of usage, with costs. Pure.
- `report`: The whole report, as one value and as JSON. Pure.
- `text`: The report for people. Pure.
"""
