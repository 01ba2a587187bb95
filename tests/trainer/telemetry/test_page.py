"""The page at / shows what the report says, as text and nothing else."""

import re
import urllib.request

import pytest

from tests.html_page import Page, in_chromium
from tpujob_trainer.telemetry import page, server
from tpujob_trainer.telemetry.report import INITIAL, Report

SNAPSHOT = {
    **INITIAL,
    "phase": "training",
    "step": 1200,
    "steps": 5000,
    "loss": 2.345678,
    "tokens_per_second": 81234.5,
    "committed_step": 1000,
    "committed_time": 900.0,
    "goodput": {"step": 300.0, "compile": 100.0, "end": 0.0},
    "processes": 4,
}
CURVE = [(step, 10 / (1 + step)) for step in range(0, 1200, 10)]
HOSTILE = "<script>alert(1)</script>\"'&{{}}"


def test_page_tells_what_the_report_knows():
    words = Page(page.render(SNAPSHOT, CURVE, name="ns/llama", now=960.0)).words
    for text in ("ns/llama: training", "1,200 of 5,000", "2.3457", "81,234", "step 1,000, 60 s ago", "300 s", "0 of 4"):
        assert text in words
    assert "evaluation" not in words


def test_page_of_a_process_that_knows_nothing():
    assert "tpujob: starting" in Page(page.render(Report().snapshot())).words


@pytest.mark.parametrize("field", ["message", "checkpoint_message", "data_slow_message"])
def test_text_of_others_is_no_markup(field):
    content = page.render({**SNAPSHOT, field: HOSTILE}, name=HOSTILE)
    assert HOSTILE in Page(content).words
    assert "script" not in Page(content).tags


def test_page_loads_nothing_from_elsewhere():
    found = Page(page.render(SNAPSHOT, CURVE))
    assert not found.tags & {"script", "img", "link", "iframe", "object", "form"}
    assert found.addresses == ["/report", "/metrics"]


@pytest.mark.parametrize(
    "curve", [[], [(1, 2.0)], [(1, 2.0), (1, 2.0)], [(1, float("nan")), (2, 1.0), (3, float("inf"))]]
)
def test_curve_needs_no_good_numbers(curve):
    content = page.render(SNAPSHOT, curve).decode()
    assert not re.search(r"\b(nan|inf)\b", content)


def test_server_answers_with_the_page_and_forbids_scripts():
    report = Report()
    report.update(step=7, loss=2.5)
    http = server.serve(report.snapshot, lambda: b"", host="127.0.0.1", port=0, curve=report.curve, name="ns/a")
    assert http is not None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{http.port}/", timeout=60) as answer:
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            assert answer.headers["Content-Security-Policy"] == page.SECURITY_POLICY
            assert "ns/a: starting" in Page(answer.read()).words
    finally:
        http.close()


def test_curve_keeps_its_form_in_bounded_memory():
    report = Report()
    for step in range(100_000):
        report.update(step=step, loss=float(step))
    curve = report.curve()
    assert 100 <= len(curve) <= 1000
    assert curve[0] == (0, 0.0)
    assert curve[-1][0] > 99_000
    assert all(loss == step for step, loss in curve)


def test_browser_shows_the_page(tmp_path):
    file = tmp_path / "page.html"
    file.write_bytes(page.render({**SNAPSHOT, "message": HOSTILE}, CURVE, name="ns/llama"))
    shown = in_chromium(file.as_uri(), tmp_path)
    assert "ns/llama: training" in shown.words
    assert "svg" in shown.tags
    assert "script" not in shown.tags
