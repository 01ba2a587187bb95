"""The dashboards are generated, ask only for what exists, and leave nothing out that no other page tells."""

import re

import pytest

from tests.monitoring.test_rules import RECORDED, RULES
from tools.monitoring import dashboards, families, reference
from tools.monitoring.grafana import Dashboard

QUERIES = sorted(
    {query.expression for page in dashboards.ALL.values() for panel in page.panels for query in panel.queries}
)
EXPORTED = {name for family in (*families.trainer(), *families.operator()) for name in family.series}


def metrics_of(expressions) -> set[str]:
    return {name for text in expressions for name in re.findall(r"\btpujob[_:][\w:]*", text)}


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
