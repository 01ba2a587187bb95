"""Addresses are parsed once, and printed without secrets."""

import json

import pytest

from tpujob_contract import storage_address
from tpujob_contract.storage_address import StorageAddress, credentials_problems, parse, redacted


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/data/a.txt", StorageAddress("", "", "/data/a.txt")),
        ("data/*.txt", StorageAddress("", "", "data/*.txt")),
        ("gs://b/folder/part-?.txt", StorageAddress("gs", "b", "folder/part-?.txt")),
        ("GS://b/a", StorageAddress("gs", "b", "a")),
        ("gs://b", StorageAddress("gs", "b", "")),
        ("az://container/a/b", StorageAddress("az", "container", "a/b")),
        ("https://h:8443/a/b?sig=x/y&t=1", StorageAddress("https", "h:8443", "a/b", "?sig=x/y&t=1")),
        ("https://h/a#token", StorageAddress("https", "h", "a", "#token")),
        ("hf://datasets/a/b@main/c", StorageAddress("hf", "datasets", "a/b@main/c")),
    ],
)
def test_address_is_parsed(address, expected):
    assert parse(address) == expected


@pytest.mark.parametrize(
    "address",
    ["https://user:canary@host/a", "http://canary@host", "gs://user:canary@bucket/a", "s3://canary:canary@b/a"],
)
def test_user_and_password_are_refused_and_not_repeated(address):
    with pytest.raises(ValueError, match="holds a user or a password") as refused:
        parse(address)
    assert "canary" not in str(refused.value)


def test_at_sign_of_a_path_is_no_password():
    for address in ("hf://datasets/a/b@main/c", "gs://b/mail@host/x", "/data/a@b", "https://h/a@b"):
        assert storage_address.credentials_problem(address) == ""


@pytest.mark.parametrize(
    "text",
    [
        "403 Forbidden: https://h/a?X-Goog-Signature=canary",
        "url='https://h/a?sig=canary&b=canary'",
        json.dumps({"path": "https://h/a?sig=canary", "b": ["http://user:canary@h/x"]}),
        json.dumps(json.dumps({"path": "https://h/a?sig=canary"})),
        "https://canary:canary@h/a?canary#canary then text",
        "gs://bucket/a?token=canary",
        "az://container/a?sv=1&sig=canary",
        "https://h/a#canary",
        "HTTPS://h/a?canary",
        "(https://h/a?x=(canary))",
        "spec.trainer.data.path=https://h/a?sig=canary",
    ],
)
def test_no_secret_of_an_address_is_printed(text):
    assert "canary" not in redacted(text)
    assert redacted(redacted(text)) == redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "gs://bucket/part-?.txt matches no file", "is that https://h/a.txt", "a/b?c=d", "no address: what?",
        '{"a": "hf://datasets/a/b@main/c"}', "",
    ],
)  # fmt: skip
def test_other_text_stays(text):
    assert redacted(text) == text


def test_problems_name_the_field():
    block = {"data": {"mixture": [{"path": "a"}, {"path": "https://u:canary@h/a"}]}, "steps": 3}
    (problem,) = credentials_problems(block, "spec.trainer")
    assert problem.startswith("spec.trainer.data.mixture[1].path: 'https://…@h/a' holds a user or a password")


def test_values_are_redacted_at_every_level():
    block = {"a": ["https://h/x?canary", {"b": "http://canary@h"}], "n": 1}
    assert storage_address.redacted_values(block) == {"a": ["https://h/x?…", {"b": "http://…@h"}], "n": 1}
