"""Process 0 as the operator asks it for its report."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.fakes import Exchange, HttpServer
from tests.scenes.control_plane.addresses import pod_address
from tools.localcluster.api import Object
from tpujob_contract import ports
from tpujob_contract.reports.report import PATH

REPORT_ADDRESS = pod_address(0)


@contextmanager
def reporting(report: Object | Callable[[], Object], *, address: str = REPORT_ADDRESS) -> Iterator[None]:
    """Serves a report, or what a function says at each look, at the address of the pod of process 0.

    An empty report is one that process 0 cannot give yet.
    """

    def answer(exchange: Exchange) -> None:
        said = report() if callable(report) else report
        exchange.reply(404 if exchange.path != PATH else 200 if said else 503, json.dumps(said).encode())

    with HttpServer(answer, address=address, port=ports.REPORT):
        yield
