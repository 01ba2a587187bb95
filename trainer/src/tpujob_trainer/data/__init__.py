"""Text for training: the same global batches for any number of processes, each of which reads only its share.

tokenizer = load_tokenizer(config)
manifest = kept_manifest(directory, config, batch_size=B)
plan = plan_lanes(manifest, config, batch_size=B, seed=seed)
with BatchLoader(manifest, tokenizer, plan, S, rows=rows, state=restored_state) as loader:
    batch = next(loader)
"""

import tpujob_trainer.data.arrow_start  # noqa: F401  # before any module that creates pyarrow values
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.manifest.plan import LanePlan, plan_lanes
from tpujob_trainer.data.manifest.scan import make_manifest, verify_unchanged
from tpujob_trainer.data.manifest.table import FILE_NAME as MANIFEST_FILE
from tpujob_trainer.data.manifest.table import kept_manifest, read_manifest, write_manifest
from tpujob_trainer.data.stream.lane import LanePosition
from tpujob_trainer.data.stream.loader import BatchLoader, LocalBatch
from tpujob_trainer.data.stream.position import (
    STATE_COLUMNS,
    batches_digest,
    describe_data,
    has_ended,
    require_same_batch_size,
    require_same_data,
    state_shape,
)
from tpujob_trainer.data.stream.rows import SkippedRows
from tpujob_trainer.data.stream.samples import evaluation_batches
from tpujob_trainer.data.text.tokenizer import Tokenizer
from tpujob_trainer.data.text.tokenizer_files import load_tokenizer
from tpujob_trainer.storage.versions import DataChangedError

__all__ = [
    "MANIFEST_FILE",
    "STATE_COLUMNS",
    "BatchLoader",
    "DataChangedError",
    "DataConfig",
    "LanePlan",
    "LanePosition",
    "LocalBatch",
    "Manifest",
    "SkippedRows",
    "Tokenizer",
    "batches_digest",
    "describe_data",
    "evaluation_batches",
    "has_ended",
    "kept_manifest",
    "load_tokenizer",
    "make_manifest",
    "plan_lanes",
    "read_manifest",
    "require_same_batch_size",
    "require_same_data",
    "state_shape",
    "verify_unchanged",
    "write_manifest",
]
