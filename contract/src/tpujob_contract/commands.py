"""How a pod specification runs its command under the launcher."""

IN_IMAGE = ("python", "-m", "tpujob_contract.launch", "--")
"""Where this package is installed: the trainer image, and a laptop."""

CARRIED_DIRECTORY = "/tpujob"
"""Mount path of the emptyDir through which the launcher reaches an image that does not contain it."""

CARRIED_FILE = CARRIED_DIRECTORY + "/launch.pyz"

CARRIED = ("python3", CARRIED_FILE, "--")
"""In any image that has Python 3.9 or newer; `CARRY` in an init container put the file there."""

CARRY = ("python", "-m", "tpujob_contract.launch_archive", CARRIED_FILE)
"""Command of the init container, which runs the operator's own image."""

INSTALL = ("python", "-m", "tpujob_contract.code.install")
"""Command of the init container that installs a job's code; archive, digest and folder follow."""

INSTALL_COMMIT = ("python", "-m", "tpujob_operator.repository")
"""The same from a git repository, in the operator's image; repository, commit and folder follow."""

GIT_PROXIES = ("https_proxy", "all_proxy", "no_proxy")
"""Variables that name a proxy, as the program of `INSTALL_COMMIT` reads them."""
