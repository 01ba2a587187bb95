"""Readers of what runs have left: checkpoints, local copies, extractions, model folders."""

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from tests.fuzz.target import Target
from tests.trainer.corpus.extract.test_shards import make_table
from tests.trainer.model.weights.make_reference import FOLDER as MODELS
from tpujob.job.questions.checkpoints import attempt_lines, report_lines, sentences, table
from tpujob.job.questions.extraction import describe, verified
from tpujob_trainer.checkpoint import inspection, layout, lease, local_file, ownership
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.retention import Retention, Settings
from tpujob_trainer.corpus.extract.inspection import Inspection
from tpujob_trainer.corpus.extract.reading import read_activations
from tpujob_trainer.corpus.extract.shards import write_shards
from tpujob_trainer.corpus.workers.progress_index import ProgressIndex
from tpujob_trainer.corpus.workers.results import OutputFile, UnitResult, name_of
from tpujob_trainer.corpus.workers.uploads import crc32c_of
from tpujob_trainer.data.sources.files import open_root
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.model.lora_config import LoraConfig
from tpujob_trainer.model.weights.adapter_config import ADAPTER_CONFIG, check_adapter
from tpujob_trainer.model.weights.read_shape import read_shape
from tpujob_trainer.model.weights.safetensors import INDEX, SINGLE, SafetensorsFolder
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.tasks import run_report
from tpujob_trainer.telemetry.tracker_files import METRICS, MetricsFile
from tpujob_trainer.values.errors import TrainerError

OWNER, FROM = "team/llama", "spec.trainer.model.from"
SHARD = "model-00001-of-00001.safetensors"
SAVED = {step: np.full(8, step, np.float32) for step in (2, 4)}
"""The array of each step."""


def _runtime() -> Runtime:
    return Runtime(process_id=0, num_processes=1, attempt_id="0.0-x", host="here", coordination=kv_store.alone())


@functools.cache
def _checkpoints() -> dict[str, bytes]:
    """The files of a run with two checkpoints, by name."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        claim = ownership.claim(name, owner=OWNER, adopt=None, runtime=_runtime())
        run = {"configuration": {"batchSize": 8, "sequenceLength": 32}, "data": {"data": "abc"}, "processes": 1}
        checkpoints = Checkpoints(name, Settings(retention=Retention(last=3), metadata=run), _runtime())
        for step, values in SAVED.items():
            checkpoints.save(step, {"w": jax.device_put(values, jax.devices()[0])})
            assert checkpoints.finish(30)
        checkpoints.record_metrics(4, {"evaluation_loss": 1.5})
        checkpoints.close()
        claim.close()
        bucket = open_bucket(name)
        bucket.write("attempts/1.json", json.dumps({"step": 4, "loss": 1.25}))
        lease.take(name, run="0.0-x", host="here").release()
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _run(changed: str, folder: Path) -> Path:
    """A run of which a file is changed, by the beginning of its name."""
    found = [
        name for name in sorted(_checkpoints()) if name.startswith(changed) and not name.endswith(layout.COMMITTED)
    ]
    for name, content in _checkpoints().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder / max(found, key=lambda name: len(_checkpoints()[name]))


def _inspect(folder: Path) -> None:
    found = inspection.inspect(str(folder))
    attempts = {"directory": str(folder), "attempts": inspection.attempts(open_bucket(folder))}
    of_command_line = json.loads(json.dumps([found, inspection.select(found, None), attempts]))
    for lines, each in zip((table, sentences, attempt_lines), of_command_line, strict=True):
        assert list(lines(each))


def _metrics(folder: Path) -> Path:
    file = MetricsFile(str(folder), first_step=0, now=lambda: 1.5e9)
    for step in (2, 4, 6):
        file.scalars(step, {"train/loss": 2.5 / step, "train/tokens_seen": 512.0 * step, "evaluation/loss": 1.0})
    file.close()
    return folder / METRICS


def _draw(folder: Path) -> None:
    run = run_report.read_run(str(folder), "a")
    assert "<h1>" in run_report.render([run], now=1.6e9)
    facts = {"runs": [json.loads(json.dumps(run.summary()))], "file": "report.html"}
    assert list(report_lines(facts))
    file = MetricsFile(str(folder), first_step=5)
    file.scalars(6, {"train/loss": 1.5})
    file.close()
    assert run_report.read_run(str(folder), "a").rows[-1]["step"] == 6


def _own(folder: Path) -> None:
    ownership.own(open_bucket(folder), OWNER, None)
    lease.take(str(folder), run="1.0-x", host="here").release()


def _restore(folder: Path) -> None:
    """What is restored is what was saved at that step, whatever became of its files."""
    checkpoints = Checkpoints(str(folder), Settings(retention=Retention(last=3)), _runtime())
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    found = checkpoints.restore({"w": jax.ShapeDtypeStruct((8,), jnp.float32, sharding=sharding)})
    checkpoints.close()
    assert found is not None, "there is a whole step"
    step, tree = found
    np.testing.assert_array_equal(np.asarray(tree["w"]), SAVED[step])


def _local_copy(folder: Path) -> Path:
    header = local_file.Header(
        run="/run", step=4, save="s", committed=2, process=(0, 1), algorithm="a", fingerprints={"w": "f"}, metadata={}
    )
    local_file.write(folder / "4.state", header, [("w", (8,), ((0, 8),), SAVED[4])])
    return folder / "4.state"


def _read_local_copy(folder: Path) -> None:
    found = local_file.open_file(folder / "4.state")
    for leaf, index in found.shards:
        np.testing.assert_array_equal(found.read(leaf, index), SAVED[4])


def _extraction(file_format: Literal["parquet", "safetensors"], changed: Callable[[Path], Path], folder: Path) -> Path:
    (folder / "done").mkdir()
    (folder / "out").mkdir()
    (folder / "extract.json").write_text(json.dumps({"units": 1, "spec.trainer.extract.positions": "all"}))
    packed = write_shards(
        make_table("float32"), folder / "out", "u0", file_format=file_format, compression="zstd", shard_bytes=1000
    )
    files = tuple(
        OutputFile(
            name=f"out/{each.path.name}",
            rows=each.rows,
            bytes=each.path.stat().st_size,
            crc32c=crc32c_of(each.path),
        )
        for each in packed
    )
    result = UnitResult(
        unit=0, rows=3, skipped={"empty": 1}, tokens=9, files=files, checksum="",
        statistics={"norm": [9.0, 1.5, 2.5, 0.5, 1.0, 0.0]}, worker="job-0-aa", token="t", seconds=1.0, chips=4,
        chip_kind="TPU v5e", flops=99,
    )  # fmt: skip
    (folder / name_of(0)).write_bytes(result.to_json())
    (folder / "claims").mkdir()
    (folder / "claims" / "00000001").write_text(json.dumps({"worker": "job-1-bb", "host": "a", "token": "t"}))
    ProgressIndex(open_bucket(folder), "w", 1).look()
    return changed(folder)


def _read_extraction(folder: Path) -> None:
    found = Inspection(str(folder))
    for line in describe(json.loads(json.dumps(found.status())), now=1e9):
        assert line
    verified(found.verify(read_all=False, repair=False))
    for row in read_activations(str(folder), partial=True):
        assert len(row.tokens) < 1000
    ProgressIndex(open_bucket(folder), "v", 1).look()
    found.merge(remove_leftovers=False, partial=True)


def _model(changed: str, folder: Path) -> Path:
    for path in (MODELS / "llama").iterdir():
        shutil.copyfile(path, folder / path.name)
    if changed == INDEX:
        whole = SafetensorsFolder(open_root(str(folder)), FROM)
        (folder / SINGLE).rename(folder / SHARD)
        (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(whole.tensors, SHARD)}))
    return folder / changed


def _read_model(folder: Path) -> None:
    read_shape(str(folder), remat="none", compute_dtype="float32")
    found = SafetensorsFolder(open_root(str(folder)), FROM)
    for name, stored in found.tensors.items():
        if stored.shape:
            found.read(name, 0, min(stored.shape[0], 4))


def _adapter(folder: Path) -> Path:
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config))
    return folder / ADAPTER_CONFIG


def _read_adapter(folder: Path) -> None:
    check_adapter(str(folder), LoraConfig(rank=4, alpha=8.0, targets=("query",)))


STEP = f"{layout.STEPS}/4"
ARRAYS = tuple(f"{layout.STATE}/{name}" for name in ("d", "manifest", "_METADATA"))
TARGETS = (
    Target(
        "owner.json",
        functools.partial(_run, "owner.json"),
        _own,
        (TrainerError,),
        says=("spec.checkpointDir",),
        is_json=True,
    ),
    Target(
        "lease.json", functools.partial(_run, "lease.json"), _own, (TrainerError,), says=("another run",), is_json=True
    ),
    *(
        Target(
            f"ls of a changed {name}",
            functools.partial(_run, name),
            _inspect,
            (TrainerError,),
            says=("DIRECTORY",),
            is_json=True,
        )
        for name in ("owner.json", "attempts/", f"{STEP}/{layout.METADATA}", f"{layout.METRICS}/")
    ),
    Target("metrics.csv", _metrics, _draw, (TrainerError,)),
    *(
        Target(
            f"restore with a changed {name}",
            functools.partial(_run, f"{STEP}/{name}"),
            _restore,
            (),
            is_json="metadata" in name.lower(),
            examples=12,
        )
        for name in (layout.METADATA, f"{layout.FINGERPRINTS}/metadata", *ARRAYS)
    ),
    Target("local copy", _local_copy, _read_local_copy, (ValueError, OSError)),
    *(
        Target(
            f"extraction: {name}",
            functools.partial(_extraction, "safetensors" if name == "safetensors" else "parquet", changed),
            _read_extraction,
            (TrainerError,),
            says=("extract.json", "0.json", "u0-0", "units are done", "unit 0: ", "no unit is done"),
            is_json=is_json,
        )
        for name, changed, is_json in (
            ("description", lambda folder: folder / "extract.json", True),
            ("result of a unit", lambda folder: folder / name_of(0), True),
            ("claim", lambda folder: folder / "claims" / "00000001", True),
            ("progress index", lambda folder: folder / "board.json", True),
            ("parquet", lambda folder: next((folder / "out").iterdir()), False),
            ("safetensors", lambda folder: next((folder / "out").iterdir()), False),
        )
    ),
    Target("config.json", functools.partial(_model, "config.json"), _read_model, (TrainerError,), is_json=True),
    Target("safetensors", functools.partial(_model, SINGLE), _read_model, (TrainerError,)),
    Target(
        "safetensors' index",
        functools.partial(_model, INDEX),
        _read_model,
        (TrainerError,),
        says=(INDEX, SHARD),
        is_json=True,
    ),
    Target("adapter_config.json", _adapter, _read_adapter, (TrainerError,), is_json=True),
)
