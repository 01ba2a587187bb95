from __future__ import annotations

import pytest

from tpujob_contract.spelling import nearest_name, number_meant

KNOWN = ("batchSize", "ephemeral-storage", "sequenceLength", "llama3-8b", "llama3-70b")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("batch_size", "batchSize"),
        ("BATCHSIZE", "batchSize"),
        ("bathSize", "batchSize"),
        ("ephemeral_storage", "ephemeral-storage"),
        ("llama3-8", "llama3-8b"),
        ("sequenceLenght", "sequenceLength"),
        ("optimizer", None),
        ("", None),
    ],
)
def test_nearest_name_is_found_whatever_its_spelling(given: str, meant: str | None) -> None:
    assert nearest_name(given, KNOWN) == meant


def test_nothing_is_near_where_nothing_is_known() -> None:
    assert nearest_name("batchSize", ()) is None


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("2", "; write 2, without quotes"),
        ("20B", "; write 20e9"),
        ("1_000 k", "; write 1000e3"),
        ("1e3", "; write 1e3, without quotes"),
        ("20 billion", "; write 20e9"),
        ("1.5 Million", "; write 1.5e6"),
        ("3e-4", "; write 3e-4, without quotes"),
        ("two", "; write it in digits"),
        ("1e3k", "; write it in digits"),
        ("20 parsecs", "; write it in digits"),
        (2, ""),
        (None, ""),
    ],
)
def test_number_in_a_text_is_shown_in_digits(given: object, advice: str) -> None:
    assert number_meant(given) == advice
