"""Keys of MaxText's configuration, as a command line or an environment sets them.

AI-Hypercomputer/maxtext:src/maxtext/configs/pyconfig.py: `KEY=VALUE` among the arguments, or a variable M_KEY.
"""

from typing import Mapping, Optional, Sequence


def variable(key: str) -> str:
    """The variable that sets a key."""
    return f"M_{key.upper()}"


def setting(key: str, environ: Mapping[str, Optional[str]], command: Sequence[str]) -> Optional[str]:
    """The value of a key in the command line, or else in the environment; None: it is in neither."""
    for argument in command:
        name, is_setting, value = argument.partition("=")
        if is_setting and name == key:
            return value
    return environ.get(variable(key))
