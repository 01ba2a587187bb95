"""The dashboards are generated, ask only for what exists, and leave nothing out that no other page tells."""

import json
import re

import pytest

from tests.charts.rendered import of_kind
from tests.monitoring.test_rules import RECORDED, RULES, promtool
from tools.monitoring import dashboards, families, reference
from tools.monitoring.grafana import Dashboard

QUERIES = sorted(
    {query.expression for page in dashboards.ALL.values() for panel in page.panels for query in panel.queries}
)
EXPORTED = {name for family in (*families.trainer(), *families.operator()) for name in family.series}
LIMIT_BYTES = 1 << 20
"""Of a ConfigMap."""


def metrics_of(expressions) -> set[str]:
    return {name for text in expressions for name in re.findall(r"\btpujob[_:][\w:]*", text)}


def with_variables(expression: str) -> str:
    """The query as Grafana sends it."""
    text = expression.replace("$namespace", "ns").replace("$tpujob", "a").replace("$__rate_interval", "5m")
    text = text.replace("$__range", "1h")
    assert "$" not in text
    return text


@pytest.mark.parametrize("name", dashboards.ALL)
def test_file_is_what_the_code_says(name):
    assert (dashboards.FOLDER / f"{name}.json").read_text() == dashboards.text(dashboards.ALL[name]), "make generate"


def test_queries_ask_for_what_exists():
    assert metrics_of(QUERIES) - EXPORTED - RECORDED == set()


def test_every_metric_is_shown_or_told_of():
    shown = metrics_of(QUERIES) | metrics_of(rule["expr"] for rule in RULES)
    # Sums and counts of histograms that are shown by their buckets.
    rest = {name for name in EXPORTED - shown if re.sub(r"_(sum|count)$", "_bucket", name) not in shown}
    assert rest == set()
    assert all(f"`{re.sub(r'_(bucket|sum|count)$', '', name)}`" in reference.PAGE.read_text() for name in EXPORTED)


@pytest.mark.parametrize("program", ["promtool-2", "promtool"])
def test_every_query_is_parsed(program, tmp_path):
    rules = [{"record": f"q{number}", "expr": with_variables(query)} for number, query in enumerate(QUERIES)]
    file = tmp_path / "queries.yaml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    result = promtool(program, "check", "rules", file)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("page", dashboards.ALL.values(), ids=lambda page: page.uid)
def test_panels_fill_rows_without_overlap(page: Dashboard):
    taken: set[tuple[int, int]] = set()
    for panel in page.to_json()["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells
    titles = [panel.title for panel in page.panels]
    assert len(titles) == len(set(titles))


def test_sidecar_finds_every_dashboard():
    maps = of_kind(
        "ConfigMap", {"metrics": {"dashboards": {"enabled": True, "annotations": {"grafana_folder": "TPU"}}}}
    )
    found = {}
    for each in maps:
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "TPU"}
        [(file, content)] = each["data"].items()
        assert len(content.encode()) < LIMIT_BYTES
        found[file] = json.loads(content)
    assert found == {f"tpujob-{name}.json": page.to_json() for name, page in dashboards.ALL.items()}
