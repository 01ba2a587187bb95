"""Entry point of the init container: `python -m tpujob_contract.code.install ARCHIVE SHA256 DIRECTORY`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tpujob_launcher.code.install", run_name="__main__", alter_sys=True)
