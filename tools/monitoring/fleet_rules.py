"""`python -m tools.monitoring.fleet_rules` writes the recording rules of chips."""

import sys
import textwrap
from pathlib import Path

from tools.monitoring import promql

FILE = Path("charts/tpujob-operator/rules/fleet.yaml")
WIDTH = 110
HEAD = f"""\
# Recording rules of chips. `make generate` writes them from tools/monitoring/promql.py.
#
# The sum over time of chips, times {promql.RECORDED_SECONDS} s and divided by 3600 s, is in chip-hours.
groups:
  - name: tpujob.fleet
    interval: {promql.RECORDED_SECONDS}s
    rules:
"""


def written() -> str:
    """The content of the file."""
    return HEAD + "".join(_rule(name, expression) for name, expression in promql.recorded().items())


def _rule(name: str, expression: str) -> str:
    lines = textwrap.wrap(expression, WIDTH, break_long_words=False, break_on_hyphens=False)
    folded = "".join(f"          {line}\n" for line in lines)
    return f"      - record: {name}\n        expr: >-\n{folded}"


if __name__ == "__main__":
    FILE.write_text(written())
    sys.stdout.write(f"wrote {FILE}\n")
