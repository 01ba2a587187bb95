"""Configures pyarrow, before its first value, not to import pandas.

If pandas is installed, pyarrow imports it to recognize its types: a third of a second at each start, for types that are
never used here. Code that asks pyarrow for a data frame later gets one: pyarrow looks for pandas again.
"""

import sys
from collections.abc import Sequence

import pyarrow as pa


class _NoPandas:
    """Makes pandas appear as not installed."""

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
