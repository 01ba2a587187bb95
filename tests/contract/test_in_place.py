"""The account of attempts in the same containers: names, order and size of what goes over the wire."""

import json
from typing import Any

import pytest

from tpujob_contract.reports import in_place
from tpujob_contract.reports.report import split_final_report

END: Any = {"cause": "crash", "process": 3, "code": 137, "at": 100.5, "again": 102.0, "line": "killed", "step": 40}


def of(number: int, **fields: Any) -> Any:
    account: Any = {"counts": {}, "ends": []}
    for _ in range(number):
        end: Any = {**END, **fields}
        account = in_place.added(account, end)
    return account


def test_line_stays() -> None:
    assert in_place.line(of(1)) == (
        'in place: {"counts":{"crash":1},"ends":[{"cause":"crash","process":3,"code":137,"at":100.5,"again":102.0,'
        '"line":"killed","step":40,"number":1}]}'
    )


def test_all_are_counted_and_the_last_are_told() -> None:
    asked_again: Any = {**END, "cause": "unexplained"}
    account = in_place.added(of(20), asked_again)
    assert account["counts"] == {"crash": 20, "unexplained": 1}
    assert [end["number"] for end in account["ends"]] == list(range(14, 22))


@pytest.mark.parametrize("words", ["x" * 5000, "\N{SNOWMAN}" * 5000, '"' * 5000], ids=["long", "wide", "escaped"])
@pytest.mark.parametrize("number", [1, 3, 8, 1000])
def test_line_has_room_for_the_words_of_the_program_before_it(number: int, words: str) -> None:
    text = in_place.line(of(number, words=f"{words} end", line=f"start {words}"))
    assert len(text.encode()) <= in_place.MOST_BYTES
    _, found = in_place.split(text)
    assert found["counts"] == {"crash": number}
    last = found["ends"][-1]
    assert (last["number"], last["words"][-3:], last["line"][:5]) == (number, "end", "start")


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
