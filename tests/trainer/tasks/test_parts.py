"""A run has the mesh that suits the chips on which it is."""

from types import SimpleNamespace
from typing import Any

import jax
import pytest

from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.model.chips import CHIPS
from tpujob_trainer.tasks import parts

CONFIG = {"model": {"preset": "tiny"}, "data": {"path": "a.txt"}, "steps": 1}


class Resolved(Exception):  # noqa: N818 - ends a start at this point
    """With what a configuration was resolved for."""


@pytest.mark.parametrize(("kind", "chip"), [("TPU v5p", CHIPS["v5p"]), ("cpu", None)], ids=["v5p", "no TPU"])
def test_mesh_is_chosen_for_the_chip_that_is_there(kind: str, chip: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(config: object, **place: Any) -> None:
        raise Resolved(place["chip"])

    monkeypatch.setattr(parts, "resolve", resolve)
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(device_kind=kind)])
    session: Any = SimpleNamespace(slices=1)
    with pytest.raises(Resolved) as resolved:
        parts.assemble(session, parse_config(CONFIG))
    assert resolved.value.args == (chip,)
