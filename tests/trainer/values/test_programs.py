"""Programs that `tpujob` starts for one answer."""

import subprocess
import sys

PROGRAM = """
import sys, threading
from tpujob_trainer.values import programs
threading.Thread(target=threading.Event().wait).start()
sys.stdout.write("the answer")
sys.stderr.write("a remark")
programs.end(3)
"""


def test_busy_thread_neither_keeps_nor_aborts_them() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)

    assert (done.returncode, done.stdout, done.stderr) == (3, "the answer", "a remark")
