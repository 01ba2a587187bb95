"""Entry point of the init container that writes the launcher: `python -m tpujob_contract.launch_archive FILE`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tpujob_launcher.code.carrier", run_name="__main__", alter_sys=True)
