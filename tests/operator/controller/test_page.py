"""The operator's page shows jobs, phases and who leads, as text and nothing else."""

import aiohttp
import pytest

from tests.html_page import Page, in_chromium
from tpujob_operator.controller import page
from tpujob_operator.controller.http import listening, metrics_pages
from tpujob_operator.controller.job_gauges import JobFacts

RESTARTS = (("Crash", 2), ("Disruption", 1), ("Unexplained", 4))
LLAMA = JobFacts(phase="Running", accelerator="v5e-16", hosts=4, hosts_ready=3, chips=16, restarts=RESTARTS)
HOSTILE = "<script>alert(1)</script>\"'&"


def overview(jobs=None, *, leads=True, namespaces=()):
    jobs = {("ns", "llama"): LLAMA} if jobs is None else jobs
    return page.Overview(identity="operator-1", leads=leads, namespaces=namespaces, jobs=jobs)


def test_page_tells_of_each_job():
    words = Page(page.render(overview())).words.split("  ")
    text = " ".join(words)
    for expected in ("tpujob operator: leads", "operator-1", "1: 1 Running", "ns/llama", "v5e-16", "3 of 4"):
        assert expected in text
    row = Page(page.render(overview())).words.split("ns/llama ")[1].split()
    assert row[:8] == ["Running", "v5e-16", "3", "of", "4", "16", "2", "5"]


@pytest.mark.parametrize(("leads", "says"), [(True, "tpujob operator: leads"), (False, "Another operator leads")])
def test_page_says_who_leads(leads, says):
    assert says in Page(page.render(overview(leads=leads))).words


@pytest.mark.parametrize(("namespaces", "says"), [((), "namespaces all"), (("a", "b"), "namespaces a, b")])
def test_page_says_which_namespaces_are_served(namespaces, says):
    assert says in Page(page.render(overview(namespaces=namespaces))).words.replace("  ", " ")


def test_page_without_jobs_has_no_table_of_them():
    assert "hosts ready" not in Page(page.render(overview({}))).words


def test_page_is_bounded():
    jobs = {("ns", f"job-{number}"): LLAMA for number in range(page.MOST_JOBS + 7)}
    content = page.render(overview(jobs))
    assert content.count(b"v5e-16") == page.MOST_JOBS
    assert "7 more are not shown" in Page(content).words
    assert f"{page.MOST_JOBS + 7} Running" in Page(content).words


def test_text_of_others_is_no_markup():
    facts = JobFacts(phase=HOSTILE, accelerator=HOSTILE)
    found = Page(page.render(overview({(HOSTILE, HOSTILE): facts}, namespaces=(HOSTILE,))))
    assert "script" not in found.tags
    assert found.words.count(HOSTILE) == 5
    assert found.addresses == ["/metrics"]


async def test_server_answers_with_the_page_and_forbids_scripts():
    async with listening(metrics_pages(overview), 0, host="127.0.0.1") as server, aiohttp.ClientSession() as client:
        here = f"http://127.0.0.1:{server.port}"
        answer = await client.get(f"{here}/")
        assert answer.content_type == "text/html"
        assert answer.headers["Content-Security-Policy"] == page.SECURITY_POLICY
        assert "ns/llama" in Page(await answer.read()).words
        assert (await client.get(f"{here}/metrics")).status == 200


def test_browser_shows_the_page(tmp_path):
    file = tmp_path / "page.html"
    file.write_bytes(page.render(overview({("ns", "llama"): LLAMA, (HOSTILE, "x"): LLAMA})))
    shown = in_chromium(file.as_uri(), tmp_path)
    assert "ns/llama" in shown.words
    assert HOSTILE in shown.words
    assert "script" not in shown.tags
