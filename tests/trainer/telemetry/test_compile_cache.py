import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from tpujob_trainer.telemetry.compile_cache import COUNTS, Counts, folder_name, is_exact, use
from tpujob_trainer.telemetry.process import process_age, resident_bytes

VERSIONS = {"jaxlib": "0.12.0", "jax": "0.12.0.1"}


def test_folder_tells_software_and_hardware():
    name = folder_name(versions=VERSIONS, kind="TPU v5 lite", devices=4, processes=64)
    assert name == "jax-0.12.0.1-jaxlib-0.12.0-TPU_v5_lite-4x64"
    assert re.fullmatch(r"[A-Za-z0-9._=-]+", name)


@pytest.mark.parametrize(
    ("backend", "devices", "exact"), [("tpu", 64, True), ("gpu", 2, True), ("cpu", 1, True), ("cpu", 2, False)]
)
def test_programs_with_collectives_between_cpus_are_not_kept(backend, devices, exact):
    assert is_exact(backend, devices=devices) is exact


@pytest.fixture
def one_device(monkeypatch):
    """As in a new process with one device: runs of other tests in this one have their own place."""
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.usefixtures("one_device")
@pytest.mark.parametrize(("directory", "enabled"), [(None, True), ("/nowhere", False)])
def test_without_a_place_or_a_wish_nothing_is_kept(directory, enabled):
    assert use(directory, enabled=enabled) is None
    assert not jax.config.jax_compilation_cache_dir


PROGRAM = """
import sys, jax
from tpujob_trainer.telemetry.compile_cache import COUNTS, use
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
use(sys.argv[1], enabled=True)
jax.jit(lambda x: x * 3 + 1)(1.0).block_until_ready()
print(COUNTS.hits)
"""


@pytest.mark.parametrize(("devices", "is_found"), [(1, True), (2, False)])
def test_next_process_finds_programs_where_they_are_exact(devices, is_found, tmp_path):
    environment = {"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    hits = [int(subprocess.check_output(command, env=environment, text=True)) for _ in range(2)]
    assert hits[0] == 0
    assert (hits[1] > 0) is is_found
    assert any(tmp_path.rglob("jit_*")) is is_found


def test_events_are_counted():
    counts = Counts()
    for event in ("cache_hits", "cache_hits", "cache_misses", "compile_requests_use_cache"):
        counts.event(f"/jax/compilation_cache/{event}")
    counts.duration("/jax/core/compile/backend_compile_duration", 1.5)
    counts.duration("/jax/core/compile/jaxpr_trace_duration", 9.0)
    assert (counts.hits, counts.misses, counts.seconds) == (2, 1, 1.5)


def test_jax_tells_what_compiling_takes():
    COUNTS.listen()
    before = COUNTS.seconds
    jax.jit(lambda x: x * 3 + 1)(jnp.arange(5)).block_until_ready()
    assert COUNTS.seconds > before


def test_age_is_since_the_process_was_started():
    fields = ["S"] + ["0"] * 18 + ["12300"] + ["0"] * 30
    assert process_age("7 (a (b) c) " + " ".join(fields), now=200.0) == pytest.approx(77.0)
    assert 0 < process_age() < 86400


def test_memory_is_that_of_this_process():
    assert 50e6 < resident_bytes() < 100e9
