"""A job's own code from one commit of a git repository, verified by git's own object ids.

- `answers`: The answers of a git server: closed together, and what they say of errors.
- `fetch`: One commit and what it holds, from a server or from a folder.
- `install`: The files of a commit in the folder of the job's code.
- `tree`: The files of a commit as an archive, after the id of each object was checked.
"""

COMMAND = ("python", "-m", "tpujob_operator.repository")
"""Command of the init container; repository, commit and folder follow."""
PROXIES = ("https_proxy", "all_proxy", "no_proxy")
"""Variables that name a proxy, as dulwich reads them."""
