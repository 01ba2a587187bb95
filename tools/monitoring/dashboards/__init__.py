"""The chart's Grafana dashboards: one job, one extraction, all jobs, chips, the cluster.

- `job`: How one job learns, how fast, and what it waits for.
- `extraction`: How far the workers of one extraction are, and what keeps them.
- `fleet`: All jobs side by side.
- `chips`: What chip-hours went to, and which jobs lost most of them.
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
"""By the name of their file."""


def text(dashboard: Dashboard) -> str:
    """What the file holds."""
    return json.dumps(dashboard.to_json(), indent=1) + "\n"
