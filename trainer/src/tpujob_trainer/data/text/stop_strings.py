"""Finds where a generated text ends, by the caller's stop strings."""

from collections.abc import Callable, Sequence


def before_any(stop: Sequence[str], text: str) -> str:
    """The text before the first of these strings; all of it if it has none."""
    return text[: min((at for each in stop if (at := text.find(each)) >= 0), default=len(text))]


def tokens_until_stop(stop: Sequence[str], tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> int | None:
    """The number of tokens after which their text first has one of these strings; None: it never has one."""

    def is_there(count: int) -> bool:
        text = decode(tokens[:count])
        return any(each in text for each in stop)

    if not stop or not is_there(len(tokens)):
        return None
    low, high = 1, len(tokens)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_there(middle) else (middle + 1, high)
    return high
