from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tpujob_trainer.data.packing import Stretch, pack


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


@settings(deadline=None)
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

    stretch = Stretch(tokens, starts[(starts > 0) & (starts < len(tokens))], len(tokens))
    # Some rows are another process's, and the rest stand in another place.
    held = np.arange(count) if not others else np.where(np.arange(count) % others == 0, np.arange(count) // others, -1)

    windows = pack([(held, stretch)], int(held.max()) + 1, length)

    columns = (windows.inputs, windows.targets, windows.segment_ids, windows.positions, windows.loss_mask)
    assert np.array_equal(np.stack(columns, axis=2), plain_windows(tokens, starts, count, length)[held >= 0])
    assert [column.dtype for column in columns] == [np.int32] * 4 + [bool]
