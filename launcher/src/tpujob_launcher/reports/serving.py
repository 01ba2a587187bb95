"""The pages that a launcher serves: a report for a program that serves none, and the restarts in place of the job.

- GET /report and /metrics, for the operator and for Prometheus. The metrics have the trainer's names, so that
  dashboards and alerts work for such a run as well.
- GET /in-place of launcher 0: how often all programs have started again; the operator reads it while the pods run. A
  program that serves a report may include the same fields there; most programs serve none.
"""

import json
from typing import Any, Callable, Mapping, Optional

from tpujob_contract.connections import http_server
from tpujob_contract.connections.http_server import HttpServer
from tpujob_contract.environment import DistributedProcess, Process
from tpujob_contract.reports import in_place
from tpujob_contract.reports.report import PATH

GAUGES = {
    "step": "tpujob_step",
    "steps": "tpujob_steps",
    "loss": "tpujob_loss",
    "gradient_norm": "tpujob_gradient_norm",
    "evaluation_loss": "tpujob_evaluation_loss",
    "evaluation_step": "tpujob_evaluation_step",
    "tokens_per_second": "tpujob_tokens_per_second",
    "committed_step": "tpujob_checkpoint_committed_step",
    "committed_time": "tpujob_checkpoint_committed_timestamp_seconds",
    "restored_from": "tpujob_restored_from_step",
}
"""The gauge of each field of a report; it is absent while the field is unknown."""


def exposition(report: Mapping[str, Any]) -> bytes:
    """The gauges of a report in Prometheus' text format."""
    values = {name: report.get(field) for field, name in GAUGES.items()}
    known = {name: float(value) for name, value in values.items() if isinstance(value, (int, float))}
    samples = [f"# TYPE {name} gauge\n{name} {value!r}\n" for name, value in known.items()]
    phase = f'# TYPE tpujob_phase gauge\ntpujob_phase{{phase="{report["phase"]}"}} 1.0\n'
    return "".join([*samples, phase]).encode()


def serve_report(
    report: Callable[[], Mapping[str, Any]], environ: Mapping[str, str], port: int
) -> Optional[HttpServer]:
    """A running server of both pages; None: the port is taken."""
    served = {
        PATH: (http_server.JSON, lambda: json.dumps(report()).encode()),
        http_server.METRICS_PATH: (http_server.EXPOSITION, lambda: exposition(report())),
    }
    return http_server.serve(served, host=http_server.address(in_pod="KUBERNETES_SERVICE_HOST" in environ), port=port)


def serve_in_place(process: Process, environ: Mapping[str, str]) -> Optional[HttpServer]:
    """A server of the page for one attempt; None: the job needs none, this is not process 0, or the port is taken.

    `environ` is the launcher's.
    """
    if not isinstance(process, DistributedProcess) or process.process_id or not process.in_place_port:
        return None
    content = json.dumps(
        {
            "in_place_restarts": process.in_place_attempt,
            "in_place_cause": process.in_place_cause or None,
            "in_place": in_place.parse(process.in_place_account),
        }
    ).encode()
    host = http_server.address(in_pod="KUBERNETES_SERVICE_HOST" in environ)
    return http_server.serve(
        {in_place.PATH: (http_server.JSON, lambda: content)}, host=host, port=process.in_place_port
    )
