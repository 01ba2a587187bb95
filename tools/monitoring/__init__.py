"""Files that are generated from the metrics in the code.

- `families`: Every metric of trainer and operator, read from the code that exports it.
- `reference`: docs/reference/metrics.md.
- `grafana`: Dashboards as typed values, and their JSON.
- `dashboards`: The chart's dashboards: one job, one extraction, all jobs, chips, the cluster.
- `pictures`: The dashboards as SVG.
- `promql`: Queries about chips.
- `fleet_rules`: The recording rules of chips.
- `runbooks`: The steps of the runbooks, for the descriptions of alerts.
"""
