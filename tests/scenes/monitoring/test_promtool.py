"""What promtool says of rules, alerts and the dashboards' queries."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.monitoring.test_dashboards import QUERIES
from tests.monitoring.test_rules import CASES, FILE, FLEET
from tools.localcluster import binaries
from tools.localcluster.toolchain import ToolsUnavailable


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs promtool; skips the test where it cannot be had."""
    try:
        path = binaries.path("promtool")
    except ToolsUnavailable as reason:
        pytest.skip(f"no promtool: {reason}")
    return subprocess.run([path, *arguments], capture_output=True, text=True)


def with_variables(expression: str) -> str:
    """The query as Grafana sends it."""
    text = expression.replace("$namespace", "ns").replace("$tpujob", "a").replace("$__rate_interval", "5m")
    text = text.replace("$__range", "1h")
    assert "$" not in text
    return text


def test_alerts_fire_when_they_should(tmp_path):
    tests = [
        {
            "name": f"{case.alert}: {case.says}",
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}}) or vector(0)',
                    "eval_time": f"{case.minute}m",
                    "exp_samples": [{"labels": "{}", "value": case.fires}],
                }
            ],
        }
        for case in CASES
    ]
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps({"rule_files": [str(FILE)], "evaluation_interval": "30s", "tests": tests}))
    result = promtool("test", "rules", file)
    assert result.returncode == 0, result.stdout + result.stderr


def test_rules_are_sound():
    result = promtool("check", "rules", FILE, FLEET)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_query_is_parsed(tmp_path):
    rules = [{"record": f"q{number}", "expr": with_variables(query)} for number, query in enumerate(QUERIES)]
    file = tmp_path / "queries.yaml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    result = promtool("check", "rules", file)
    assert result.returncode == 0, result.stdout + result.stderr
