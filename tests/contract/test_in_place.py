"""The account of restarts in the same containers: names, order and size of what goes over the wire."""

import json
from typing import Any

import pytest

from tpujob_contract.reports import in_place
from tpujob_contract.reports.report import split_final_report

END: Any = {"process": 3, "code": 137, "at": 100.5, "line": "killed", "cause": "crash", "again": 102.0, "step": 40}


def of(number: int, **fields: Any) -> Any:
    return {"counts": {"crash": number}, "lead": "llama-w-0-0-abcde", "last": {**END, **fields}}


def test_line_stays() -> None:
    assert in_place.line(of(1)) == (
        'in place: {"counts":{"crash":1},"lead":"llama-w-0-0-abcde","last":{"process":3,"code":137,"at":100.5,'
        '"line":"killed","cause":"crash","again":102.0,"step":40}}'
    )


def test_each_cause_is_counted_and_the_last_end_is_kept() -> None:
    account: in_place.Account = {"lead": "first"}
    for cause in ("crash", "unexplained", "crash"):
        end: Any = {**END, "cause": cause}
        account = in_place.added(account, end)
    assert account == {"counts": {"crash": 2, "unexplained": 1}, "last": END, "lead": "first"}
    assert (in_place.total(account), in_place.total({})) == (3, 0)


def test_the_larger_account_is_continued() -> None:
    smaller, larger = of(1), of(2)
    assert in_place.larger(smaller, larger) is in_place.larger(larger, smaller) is larger
    assert in_place.larger(larger, of(2, line="another")) is larger, "it may have details that others lack"
    assert in_place.larger({}, {}) == {}


@pytest.mark.parametrize("words", ["x" * 5000, "\N{SNOWMAN}" * 5000, '"' * 5000], ids=["long", "wide", "escaped"])
def test_line_has_room_for_the_words_of_the_program_before_it(words: str) -> None:
    text = in_place.line(of(1000, words=f"{words} end", line=f"start {words}"))
    assert len(text.encode()) <= in_place.MOST_BYTES
    _, found = in_place.split(text)
    assert found["counts"] == {"crash": 1000}
    assert (found["last"]["words"][-3:], found["last"]["line"][:5]) == ("end", "start")


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        {"last": END},
        {"counts": []},
        {"counts": {"crash": "many"}},
        {"counts": {"crash": float("nan")}},
        {"counts": {"crash": -1}},
        {"counts": {"crash": True}},
        {"counts": {"crash": 10**30}},
        {"counts": {"weather": 3}},
    ],
)
def test_account_from_the_network_without_valid_counts_is_empty(given: Any) -> None:
    assert in_place.checked(given) == {}


def test_invalid_parts_of_an_account_from_the_network_are_dropped() -> None:
    given = {"counts": {"crash": 2, "disruption": "x"}, "lead": 3, "last": {**END, "code": [], "other": 1}}
    assert in_place.checked(given) == {
        "counts": {"crash": 2},
        "last": {name: value for name, value in END.items() if name != "code"},
    }


@pytest.mark.parametrize(
    ("message", "words", "found"),
    [
        ("exit code 1\nlast line", "exit code 1\nlast line", None),
        ('exit code 1\nin place: {"counts":{}}', "exit code 1", {"counts": {}}),
        ("exit code 1\nin place: {broken}", "exit code 1", None),
        ('in place: {"of": "a program"}\nin place: {"counts":{}}', "", {"counts": {}}),
        ('exit code 1\n in place: {"counts":{}}', 'exit code 1\n in place: {"counts":{}}', None),
        ("in place: {" + "[" * 5000 + "}", "", None),
    ],
    ids=["none", "one", "broken", "the last of two", "not at the start of a line", "deep"],
)
def test_account_is_split_from_the_words(message: str, words: str, found: Any) -> None:
    assert in_place.split(message) == (words, found)


def test_words_of_a_message_have_neither_report_nor_account() -> None:
    message = f"lost a disk\nreport: {json.dumps({'step': 9})}\n{in_place.line(of(2))}"
    assert split_final_report(message) == ("lost a disk", '{"step": 9}')


@pytest.mark.parametrize(("code", "cause"), [(75, "unexplained"), (1, "crash"), (137, "crash"), (79, "crash")])
def test_cause_follows_from_the_code(code: int, cause: str) -> None:
    assert in_place.cause_of(code) == cause
