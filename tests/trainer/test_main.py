"""How the process starts, in one of its own: what this one has imported would tell nothing."""

import json
import os
import subprocess
import sys
import textwrap

CONFIG = {
    "model": {"preset": "llama3-8b"},
    "data": {"path": "somewhere", "tokenizer": "bytes"},
    "sequenceLength": 8,
    "batchSize": 8,
    "steps": 1,
}
PROGRAM = """
    import gc, os, sys
    gc.disable()
    from tpujob_contract import read_environment
    from tpujob_trainer import main
    from tpujob_trainer.tasks import pretrain

    def run(process, config, stop, *, in_pod):
        assert gc.isenabled()
        assert gc.get_freeze_count() > 100_000
        assert "pandas" not in sys.modules
        import pyarrow
        assert list(pyarrow.table({"a": [1]}).to_pandas()["a"]) == [1]
        return 42

    pretrain.run = run
    sys.exit(main.run(read_environment(os.environ), None))
"""


def test_what_is_imported_is_never_collected_and_pandas_only_when_asked_for():
    environment = {"PATH": os.environ["PATH"], "TPUJOB_CONFIG": json.dumps(CONFIG)}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 42, done.stderr
