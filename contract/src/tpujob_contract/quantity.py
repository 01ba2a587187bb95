"""Kubernetes quantities, such as 8, 500m or 64Gi, as numbers."""

import re
from decimal import Decimal
from typing import Optional, Union

PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
_UNITS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** (i + 1) for i, unit in enumerate("kMGTP")},
    **{f"{unit}i": Decimal(1024) ** (i + 1) for i, unit in enumerate("KMGTP")},
}


def quantity(value: Union[str, int]) -> Optional[Decimal]:
    """A Kubernetes quantity as a number; None: it is not a quantity."""
    match = re.fullmatch(PATTERN, str(value))
    if match is None:
        return None
    unit = match[2] or ""
    return Decimal(str(value)[: len(str(value)) - len(unit)]) * _UNITS[unit]
