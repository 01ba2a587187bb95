"""Commands in pod specifications that run a job's command under the launcher, and prepare for that."""

IN_IMAGE = ("python", "-m", "tpujob_contract.launch", "--")
"""If this package is installed: in the trainer image, and on a laptop."""

CARRIED_DIRECTORY = "/tpujob"
"""Mount path of the emptyDir that carries the launcher to an image that does not contain it."""

CARRIED_FILE = CARRIED_DIRECTORY + "/launch.pyz"

CARRIED = ("python3", CARRIED_FILE, "--")
"""In any image with Python 3.9 or newer, after `CARRY` in an init container has written the file."""

CARRY = ("python", "-m", "tpujob_contract.launch_archive", CARRIED_FILE)
"""Command of the init container, which runs the operator's own image."""

INSTALL = ("python", "-m", "tpujob_contract.code.install")
"""Command of the init container that installs a job's code; its arguments are archive, digest and folder."""

INSTALL_COMMIT = ("python", "-m", "tpujob_operator.repository")
"""The same from a git repository, in the operator's image; its arguments are repository, commit and folder."""

GIT_PROXIES = ("https_proxy", "all_proxy", "no_proxy")
"""Proxy variables that the program of `INSTALL_COMMIT` reads."""
