"""Process 0 as the operator asks it for its report."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.control_plane.addresses import pod_address
from tools.localcluster.api import Object
from tpujob_contract import ports
from tpujob_contract.report import PATH

REPORT_ADDRESS = pod_address(0)


@contextmanager
def reporting(report: Object | Callable[[], Object], *, address: str = REPORT_ADDRESS) -> Iterator[None]:
    """Serves a report, or what a function says at each look, at the address of the pod of process 0.

    An empty report is one that process 0 cannot give yet.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = report() if callable(report) else report
            body = json.dumps(said).encode()
            self.send_response(404 if self.path != PATH else 200 if said else 503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((address, ports.REPORT), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
