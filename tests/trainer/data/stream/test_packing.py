"""Rows of a batch, made of spans of tokens: small ones written out, and any as if made a token at a time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tpujob_trainer.data.stream.packing import TokenSpan, pack


def span(first: int, learned: list[bool] | None = None) -> TokenSpan:
    """Two rows of two inputs: a document of three tokens, then one that goes on."""
    return TokenSpan(
        np.arange(first, first + 5, dtype=np.int32),
        np.array([3]),
        5,
        None if learned is None else np.array(learned),
    )


def test_rows_that_are_not_wanted_change_no_other() -> None:
    learned = [True, False, True, True, True]
    made = pack([(np.array([1, -1]), span(10, learned)), (np.array([-1, 0]), span(20, [True] * 5))], 2, 2)
    assert made.inputs.tolist() == [[22, 23], [10, 11]]
    assert made.targets.tolist() == [[23, 24], [11, 12]]
    # Row 0: the target 23 begins a document. Row 1: the target 11 is not learned.
    assert made.loss_mask.tolist() == [[False, True], [False, True]]


def test_documents_of_a_row_are_kept_apart() -> None:
    made = pack([(np.array([0, 1]), span(10))], 2, 2)
    assert made.segment_ids.tolist() == [[1, 1], [1, 2]]
    assert made.positions.tolist() == [[0, 1], [0, 0]]
    assert made.loss_mask.tolist() == [[True, True], [False, True]]


def test_attention_may_cross_documents() -> None:
    made = pack([(np.array([0, 1]), span(10))], 2, 2, blocks_attention=False)
    assert made.segment_ids.tolist() == [[1, 1], [1, 1]]
    assert made.positions.tolist() == [[0, 1], [0, 1]]


def plain_windows(tokens, starts, count, length):
    """The same, a token at a time."""
    document = np.searchsorted(starts, np.arange(len(tokens)), side="right")
    rows = []
    for row in range(count):
        segment, position, columns = 1, 0, []
        for at in range(row * length, (row + 1) * length):
            if at > row * length and document[at] != document[at - 1]:
                segment, position = segment + 1, 0
            columns.append((tokens[at], tokens[at + 1], segment, position, document[at] == document[at + 1]))
            position += 1
        rows.append(columns)
    return np.array(rows, dtype=np.int64)


@given(
    count=st.integers(1, 4),
    length=st.integers(1, 9),
    before=st.integers(0, 5),
    documents=st.lists(st.integers(1, 12), max_size=20),
    others=st.integers(0, 3),
)
def test_windows_are_cut_like_one_by_one(count, length, before, documents, others):
    starts = np.cumsum([-before, before + 1, *documents])
    tokens = np.arange(100, 100 + count * length + 1, dtype=np.int32)

    span = TokenSpan(tokens, starts[(starts > 0) & (starts < len(tokens))], len(tokens))
    # Some rows are another process's, and the rest stand in another place.
    held = np.arange(count) if not others else np.where(np.arange(count) % others == 0, np.arange(count) // others, -1)

    windows = pack([(held, span)], int(held.max()) + 1, length)

    columns = (windows.inputs, windows.targets, windows.segment_ids, windows.positions, windows.loss_mask)
    assert np.array_equal(np.stack(columns, axis=2), plain_windows(tokens, starts, count, length)[held >= 0])
    assert [column.dtype for column in columns] == [np.int32] * 4 + [bool]


def test_rows_of_two_stretches_may_alternate_with_rows_of_others():
    """A row of another process between two of ours, and one of another source in its place here."""
    length, tokens = 3, np.arange(100, 110, dtype=np.int32)
    mine = TokenSpan(tokens, np.array([4]), len(tokens))
    other = TokenSpan(np.array([7, 8, 9, 10], dtype=np.int32), np.array([], dtype=np.int64), 4)

    windows = pack([(np.array([1]), other), (np.array([0, -1, 2]), mine)], 3, length)

    assert windows.inputs.tolist() == [[100, 101, 102], [7, 8, 9], [106, 107, 108]]
    assert windows.targets.tolist() == [[101, 102, 103], [8, 9, 10], [107, 108, 109]]
