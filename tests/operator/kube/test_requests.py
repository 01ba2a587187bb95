"""How the operator reaches the API server."""

import json

import pytest

from tpujob_operator.kube.requests import _encoded, has_proxy


@pytest.mark.parametrize(
    ("variables", "url", "expected"),
    [
        ({}, "https://10.0.0.1:443", False),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "https://10.0.0.1:443", True),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "10.0.0.1"}, "https://10.0.0.1:443", False),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "10.0.0.2"}, "https://10.0.0.1:443", True),
        ({"http_proxy": "http://proxy:3128"}, "https://10.0.0.1:443", False),
    ],
)
def test_the_environment_is_asked_once_whether_a_proxy_is_before_the_api_server(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str, expected: bool
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert has_proxy(url) is expected


@pytest.mark.parametrize("body", [{"seed": 2**70}, {"text": "é"}, {"rate": 1e-5, "none": None}])
def test_every_body_that_json_knows_is_sent(body: dict[str, object]) -> None:
    assert json.loads(_encoded(body)) == body
