"""The name of the program of init containers: `python -m tpujob_operator.repository REPOSITORY COMMIT DIRECTORY`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tpujob_launcher.code.commit", run_name="__main__", alter_sys=True)
