"""The quickstart for the one-machine cluster: its data in the emulator's bucket, and the manifest that names it."""

import sysconfig
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tools.localcluster import storage

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
DATA = "quickstart-data/python-stdlib.parquet"
FILES = 150
"""Files of Python's standard library: enough data for the quickstart's 300 steps."""


def write_example(directory: Path) -> Path:
    """Writes the data to the bucket, and the manifest to the directory; returns the path of the manifest."""
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:FILES]
    table = pa.table({"text": [source.read_text(errors="replace") for source in sources]})
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, row_group_size=16)
    storage.OWN.write(DATA, buffer.getvalue().to_pybytes())
    job = yaml.safe_load(QUICKSTART.read_text())
    job["spec"]["checkpointDir"] = f"gs://{storage.BUCKET}/quickstart"
    job["spec"]["env"] = [{"name": name, "value": value} for name, value in storage.OWN.environment.items()]
    job["spec"]["trainer"]["data"]["path"] = f"gs://{storage.BUCKET}/{DATA}"
    manifest = directory / "quickstart.yaml"
    manifest.write_text(yaml.safe_dump(job, sort_keys=False))
    return manifest
