"""GET /in-place of launcher 0: how often all programs have started again; the operator reads it while the pods run.

A program that serves a report may include the same fields there; most programs serve none.
"""

from __future__ import annotations

import json
from typing import Mapping, Optional

from tpujob_contract.connections import pages
from tpujob_contract.connections.http_server import HttpServer
from tpujob_contract.environment import DistributedProcess, Process
from tpujob_contract.reports import in_place


def serve(process: Process, environ: Mapping[str, str]) -> Optional[HttpServer]:
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
    host = pages.address(in_pod="KUBERNETES_SERVICE_HOST" in environ)
    return pages.serve({in_place.PATH: (pages.JSON, lambda: content)}, host=host, port=process.in_place_port)
