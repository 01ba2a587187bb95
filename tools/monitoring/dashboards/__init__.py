"""The chart's Grafana dashboards: one job, one extraction, all jobs, chips, the cluster.

- `job`: The loss and the speed of one job, and what it waits for.
- `extraction`: The progress of the workers of one extraction, and what delays them.
- `fleet`: All jobs side by side.
- `chips`: The use of chip-hours, and the jobs that lost most of them.
- `cluster`: The queue, the capacity, and the operator.
"""

import json
from pathlib import Path

from tools.monitoring.dashboards import chips, cluster, extraction, fleet, job
from tools.monitoring.grafana import Dashboard

FOLDER = Path(__file__).parents[3] / "charts" / "tpujob-operator" / "dashboards"
ALL = {
    "job": job.DASHBOARD,
    "extraction": extraction.DASHBOARD,
    "fleet": fleet.DASHBOARD,
    "chips": chips.DASHBOARD,
    "cluster": cluster.DASHBOARD,
}
"""By file name, without its ending."""


def text(dashboard: Dashboard) -> str:
    """The content of the dashboard's file."""
    return json.dumps(dashboard.to_json(), indent=1) + "\n"
