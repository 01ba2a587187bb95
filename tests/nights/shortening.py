"""The shortest part of a list that still fails, by playing parts of it again (delta debugging).

A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002, algorithm ddmin.
"""

import time
from collections.abc import Callable


def shortest[Item](
    items: list[Item],
    fails: Callable[[list[Item]], bool],
    *,
    limit_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> list[Item]:
    """The shortest failing part that is found in the time, in the same order.

    Args:
        items: Known to fail.
        fails: Plays a part; one that fails only at times is found at times.
        limit_seconds: After which no further part is begun.
        clock: Steady, in seconds.
    """
    until, parts = clock() + limit_seconds, 2
    while len(items) >= 2 and clock() < until:
        size = -(-len(items) // parts)
        cuts = [(start, start + size) for start in range(0, len(items), size)]
        # First each part alone, then each rest without one part; both halves are each other's rest.
        tried = [items[start:end] for start, end in cuts]
        tried += [items[:start] + items[end:] for start, end in cuts] if parts > 2 else []
        smaller = next((part for part in tried if clock() < until and fails(part)), None)
        if smaller is not None:
            parts = 2 if len(smaller) == size else max(parts - 1, 2)
            items = smaller
        elif parts < len(items):
            parts = min(2 * parts, len(items))
        else:
            break
    return items
