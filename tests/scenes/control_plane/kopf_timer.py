"""A kopf operator with nothing but a timer on jobs, which prints their names.

python -m tests.scenes.control_plane.kopf_timer NAMESPACE
"""

import sys
from typing import Any

import kopf

from tpujob_contract import kubernetes_names


@kopf.timer(kubernetes_names.GROUP, kubernetes_names.VERSION, kubernetes_names.PLURAL, interval=0.2)
def look(name: str, **_: Any) -> None:
    """Called by kopf for each job."""
    sys.stdout.write(f"looked at {name}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    kopf.run(namespaces=[sys.argv[1]], standalone=True)
