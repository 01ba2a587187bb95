"""The Python version and the system that wheels are for, which may differ from those that run this. Pure."""

from __future__ import annotations

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from tpujob.bundle.locks import Pin

NEWEST_GLIBC = 36
"""Minor version of the newest glibc that wheels may need: that of Debian 12, on which the images are based."""
ARCHITECTURE = "x86_64"


class Target:
    """CPython of one version, on Linux."""

    def __init__(self, python: str) -> None:
        """Takes a version such as `3.12`.

        Raises:
            ValueError: It is not such a version.
        """
        major, _, minor = python.partition(".")
        if major != "3" or not minor.isdecimal():
            raise ValueError(f"{python!r} is no version of Python such as 3.12")
        self.python = python
        version, interpreter = (int(major), int(minor)), f"cp{major}{minor}"
        self._platforms = [f"manylinux_2_{glibc}_{ARCHITECTURE}" for glibc in range(NEWEST_GLIBC, 4, -1)]
        self._platforms += [f"manylinux{year}_{ARCHITECTURE}" for year in ("2014", "2010", "1")]
        self._tags: frozenset[Tag] = frozenset(cpython_tags(version, platforms=self._platforms))
        self._tags |= frozenset(compatible_tags(version, interpreter, self._platforms))
        older = {f"py{major}{other}" for other in range(int(minor))}
        self._close_tags = frozenset(tag for tag in self._tags if tag.interpreter not in older)

    @property
    def pip_options(self) -> list[str]:
        """The options that make pip choose wheels for this target."""
        platforms = (f"--platform={platform}" for platform in self._platforms)
        return ["--only-binary=:all:", f"--python-version={self.python}", *platforms]

    def fits(self, wheel: str) -> bool:
        """Whether a wheel of that file name can be installed."""
        try:
            return not self._tags.isdisjoint(parse_wheel_filename(wheel)[3])
        except InvalidWheelFilename:
            return False

    def is_meant_by(self, wheel: str) -> bool:
        """Whether it fits and is not tagged for an older Python (`py312` on 3.13): this one may have its own wheel."""
        return self.fits(wheel) and not self._close_tags.isdisjoint(parse_wheel_filename(wheel)[3])

    def needs(self, pin: Pin) -> bool:
        """Whether a pin's marker holds; a pin without one always does."""
        environment = {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": ARCHITECTURE,
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }
        return pin.marker is None or Marker(pin.marker).evaluate(environment)
