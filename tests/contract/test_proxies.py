"""Connections of a job's own processes go through no proxy."""

import urllib.request

import pytest

from tpujob_contract.proxies import without_proxies

LOOPBACK = "localhost,127.0.0.1,::1"


@pytest.mark.parametrize(
    ("environ", "hosts", "expected"),
    [
        ({"grpc_proxy": "x"}, [], {"no_proxy": LOOPBACK, "NO_PROXY": LOOPBACK}),
        ({"no_proxy": "a, b"}, [], dict.fromkeys(("no_proxy", "NO_PROXY"), f"a,b,{LOOPBACK}")),
        ({"NO_PROXY": "a", "no_proxy": "b"}, [], dict.fromkeys(("no_proxy", "NO_PROXY"), f"b,a,{LOOPBACK}")),
        ({"no_proxy": "*"}, [], dict.fromkeys(("no_proxy", "NO_PROXY"), f"*,{LOOPBACK}")),
        (
            {"no_grpc_proxy": "a"},
            ["10.0.0.1:8476"],
            {
                "no_proxy": f"{LOOPBACK},10.0.0.1",
                "NO_PROXY": f"{LOOPBACK},10.0.0.1",
                "no_grpc_proxy": f"a,{LOOPBACK},10.0.0.1",
            },
        ),
        (
            {"TPU_WORKER_HOSTNAMES": "t-0,t-1"},
            ["x-0.x.ns:1", "[fd00::1]:1", "fd00::2"],
            dict.fromkeys(("no_proxy", "NO_PROXY"), f"{LOOPBACK},x-0.x.ns,.x.ns,fd00::1,fd00::2,t-0,t-1"),
        ),
    ],
    ids=["none", "one", "both cases", "all", "of gRPC", "hosts"],
)
def test_hosts_are_added_to_those_that_are_exempt(environ, hosts, expected):
    environ = {"HTTPS_PROXY": "http://proxy", **environ}
    assert without_proxies(environ, hosts) == expected
    assert without_proxies({**environ, **expected}, hosts) == expected


@pytest.mark.parametrize("environ", [{}, {"https_proxy": ""}, {"no_proxy": "a"}])
def test_environment_without_a_proxy_stays_as_it_is(environ):
    assert without_proxies(environ, ["x-0.x.ns:1"]) == {}


@pytest.mark.parametrize(("host", "is_exempt"), [("x-7.x.ns:1", True), ("127.0.0.1:9", True), ("example.com", False)])
def test_libraries_read_them(monkeypatch, host, is_exempt):
    for name, value in without_proxies({"all_proxy": "x"}, ["x-0.x.ns:1"]).items():
        monkeypatch.setenv(name, value)
    assert bool(urllib.request.proxy_bypass(host)) == is_exempt
