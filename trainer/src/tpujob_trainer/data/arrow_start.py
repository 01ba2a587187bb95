"""pyarrow, configured before its first value not to look for pandas.

It imports pandas, where that is installed, to know the types of pandas when it meets one: a third of a second at each
start, for types that are never used here. Who asks pyarrow for a data frame later gets one: it looks for pandas again.
"""

import sys
from collections.abc import Sequence

import pyarrow as pa


class _NoPandas:
    """As if it were not installed."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


if "pandas" not in sys.modules:
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)
