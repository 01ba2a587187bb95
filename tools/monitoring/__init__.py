"""What is generated from the metrics in the code.

- `families`: Every metric of trainer and operator, read from the code that exports it.
- `reference`: docs/reference/metrics.md.
- `grafana`: Dashboards as typed values, and their JSON.
- `dashboards`: Those of the chart: one job, all jobs, chips, the cluster.
- `fleet_rules`: Recording rules of chips.
"""
