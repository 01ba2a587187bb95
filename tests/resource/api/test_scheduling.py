"""Names of reservations, as Compute Engine allows them."""

import pytest
from pydantic import ValidationError

from tpujob_resource.models.scheduling import Reservation


@pytest.mark.parametrize("name", ["a", "a" * 63, "my-reservation-2"])
def test_names_of_compute_engine_are_accepted(name: str) -> None:
    assert Reservation(name=name).name == name


@pytest.mark.parametrize("name", ["", "a" * 64, "2a", "a-", "A"])
def test_names_that_no_reservation_has_are_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        Reservation(name=name)
