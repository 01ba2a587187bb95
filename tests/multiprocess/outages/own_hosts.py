"""Runs a program that finds the names of machines in a file of its own: python -m … FILE PROGRAM ARGUMENT…

The file is /etc/hosts in a mount namespace of the program's; there is no other name server. Needs the superuser.
"""

import os
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Becomes the program."""
    hosts, *program = sys.argv[1:]
    nobody = Path(f"{hosts}.resolv")
    nobody.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    os.unshare(os.CLONE_NEWNS)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for file, place in ((hosts, "/etc/hosts"), (nobody, "/etc/resolv.conf")):
        subprocess.run(["mount", "--bind", str(file), place], check=True)
    os.execv(program[0], program)  # noqa: S606 - there is nothing for a shell to do


if __name__ == "__main__":
    main()
