"""Process 0 as the operator asks it for its report."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.fakes import Exchange, HttpServer
from tests.scenes.control_plane.addresses import pod_address
from tools.localcluster.api import Object
from tpujob_contract.connections import ports
from tpujob_contract.reports import in_place
from tpujob_contract.reports.report import PATH

REPORT_ADDRESS = pod_address(0)
LAUNCHER_ADDRESS = pod_address(99)
"""Of a pod whose launcher alone tells something; tests that share the operator share the other address."""


@contextmanager
def reporting(
    report: Object | Callable[[], Object],
    *,
    address: str = REPORT_ADDRESS,
    port: int = ports.REPORT,
    path: str = PATH,
) -> Iterator[None]:
    """Serves a report, or what a function says at each look, at the address of the pod of process 0.

    An empty report is one that process 0 cannot give yet.
    """

    def answer(exchange: Exchange) -> None:
        said = report() if callable(report) else report
        exchange.reply(404 if exchange.path != path else 200 if said else 503, json.dumps(said).encode())

    with HttpServer(answer, address=address, port=port):
        yield


def launcher_telling(account: in_place.Account) -> AbstractContextManager[None]:
    """Serves the account of restarts in place that launcher 0 gives where the program serves no report."""
    told = {"in_place_restarts": sum(account["counts"].values()), "in_place_cause": "a fault", "in_place": account}
    return reporting(told, address=LAUNCHER_ADDRESS, port=ports.IN_PLACE, path=in_place.PATH)
