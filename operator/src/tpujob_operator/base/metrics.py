"""The operator's own metrics, all names in one place. What a job does is in the trainer's metrics, not here."""

from typing import NamedTuple

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily

from tpujob_resource.models import restart_causes

PREFIX = "tpujob_operator_"

RECONCILES = Counter(
    PREFIX + "reconciles_total", "Reconciles by result: ok, conflict, unavailable, refused, crashed.", ["result"]
)
RECONCILE_SECONDS = Histogram(
    PREFIX + "reconcile_seconds",
    "Time of one reconcile, reads and writes included.",
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
QUEUE_SECONDS = Histogram(
    PREFIX + "queue_seconds",
    "Time from when a job is due for a reconcile until the reconcile starts.",
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
LEADER = Gauge(PREFIX + "leader", "Whether this process holds the Lease, and so is the one that writes.")
QUEUED = Gauge(PREFIX + "queued_jobs", "Jobs that wait for a reconcile now.")
PHASE_SECONDS = Histogram(
    PREFIX + "phase_seconds",
    "Time that jobs spent in a phase before they left it: Queued is the wait in a queue.",
    ["phase"],
    buckets=(1, 10, 60, 300, 1800, 7200, 28800, 86400, 604800),
)
RESTARTS = Counter(
    PREFIX + "restarts_total",
    f"Restarts of jobs by cause: {', '.join(restart_causes.Cause)}.",
    ["cause"],
)
JOBSETS_CREATED = Counter(PREFIX + "jobsets_created_total", "JobSets created.")
STATUS_WRITES = Counter(PREFIX + "status_writes_total", "Status writes; none while nothing changes.")
API_REQUESTS = Counter(
    PREFIX + "api_requests_total",
    "Requests to the API server, without watches, by HTTP method, resource and status (none: no answer).",
    ["method", "resource", "status"],
)
REPORTS = Counter(
    PREFIX + "reports_total", "Progress reports asked of process 0, by result: ok, unreachable.", ["result"]
)
WATCH_RESTARTS = Counter(
    PREFIX + "watch_restarts_total",
    "Times a watch was opened again after an error.",
)
WATCH_EVENTS = Counter(
    PREFIX + "watch_events_total", "Events that came through the watches, by resource.", ["resource"]
)
WATCH_LAST_EVENT = Gauge(
    PREFIX + "watch_last_event_timestamp_seconds", "When the last event came, by resource, in Unix time.", ["resource"]
)
WATCH_MISSED = Gauge(PREFIX + "watch_missed_objects", "Objects whose present state a list showed and no watch has yet.")
UNREADABLE = Counter(
    PREFIX + "unreadable_objects_total",
    "Versions of objects that were left aside for their depth, size or content, by resource; the log names them.",
    ["resource"],
)
LAST_RESYNC = Gauge(PREFIX + "last_resync_timestamp_seconds", "When all jobs were last listed, in Unix time.")


class JobGauge(NamedTuple):
    """A gauge with a sample for each job, computed when it is read."""

    name: str
    help: str
    labels: tuple[str, ...]

    def family(self) -> GaugeMetricFamily:
        """Its family, without samples."""
        return GaugeMetricFamily(PREFIX + self.name, self.help, labels=self.labels)


JOB = ("job_namespace", "job_name")
"""Not `namespace`, which is the label of the scraped pod."""
JOBS = JobGauge("jobs", "TpuTrainingJobs by phase, as the leading operator knows them.", ("phase",))
JOB_PHASE = JobGauge(
    "job_phase", "1 for the phase that a job is in, as the leading operator knows it.", (*JOB, "phase")
)
JOB_PHASE_SINCE = JobGauge(
    "job_phase_start_timestamp_seconds",
    "When a job came into the phase that it is in, in Unix time.",
    (*JOB, "phase"),
)
JOB_HOSTS = JobGauge("job_hosts", "Hosts that a job needs.", JOB)
JOB_HOSTS_READY = JobGauge("job_hosts_ready", "Hosts of a job that are ready or have finished.", JOB)
JOB_CHIPS = JobGauge(
    "job_chips",
    "TPU chips that a job holds now; 0 while it holds no machines, and for `cpu` accelerators.",
    (*JOB, "accelerator"),
)
JOB_PHASE_CHIPS = JobGauge(
    "job_phase_chips",
    "TPU chips that a job holds or waits for, with its phase; absent in other phases, and for `cpu` accelerators.",
    (*JOB, "accelerator", "queue", "owner", "spot", "phase"),
)
JOB_RESTARTS = JobGauge(
    "job_restarts",
    f"Restarts of a job so far by cause: {', '.join(restart_causes.RESTARTS)}.",
    (*JOB, "cause"),
)
