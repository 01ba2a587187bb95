"""Whether there is room for a step: nothing starts beside what still lies, or is still written, in its place."""

import pytest

from tpujob_trainer.checkpoint.save_decision import MAX_STUCK, StepSlots


class Deleter:
    """Notes what it is asked to delete, and says whether that is done in time."""

    def __init__(self, *, is_done: bool = True) -> None:
        self.discarded: list[int] = []
        self._is_done = is_done

    def discard(self, step: int) -> None:
        self.discarded.append(step)

    def wait(self, limit_seconds: float) -> bool:
        return self._is_done


def slots(*, occupied: tuple[int, ...] = ()) -> StepSlots:
    made = StepSlots()
    made.set_aside(occupied)
    return made


def make(room: StepSlots, answers: list[tuple[int, bool]], deleter: Deleter) -> str:
    return room.make(7, answers, deleter, limit_seconds=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answers", "hindrance"),
    [
        ([(0, False), (0, False)], ""),
        ([(MAX_STUCK - 1, False), (0, False)], ""),
        ([(0, False), (MAX_STUCK, False)], "saves that were given up"),
        ([(0, True), (0, False)], "an earlier save of the same step"),
    ],
    ids=["nobody hinders", "one stuck", "one process has too many stuck", "one process writes"],
)
def test_any_process_can_hinder_a_save(answers: list[tuple[int, bool]], hindrance: str) -> None:
    found = make(slots(), answers, Deleter())
    assert bool(found) == bool(hindrance)
    assert hindrance in found


def test_free_place_is_not_deleted() -> None:
    deleter = Deleter()
    make(slots(occupied=(8,)), [(0, False)], deleter)
    assert deleter.discarded == []


def test_remains_are_deleted_before_the_next_save() -> None:
    room, deleter = slots(occupied=(7,)), Deleter()
    assert make(room, [(0, False)], deleter) == ""
    assert deleter.discarded == [7]
    assert not room.is_taken(7)


def test_no_save_starts_while_remains_are_there() -> None:
    room = slots(occupied=(7,))
    assert "not deleted yet" in make(room, [(0, False)], Deleter(is_done=False))
    assert room.is_taken(7)
