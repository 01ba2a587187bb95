"""A folder of code as `tpujob submit --code` stores it, for jobs of the tests."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.jobs import Jobs
from tpujob.job.code.job_code import attach


def repository(folder: Path, files: dict[str, str]) -> Path:
    """A folder that git tracks, with these files by their paths in it."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(folder)], check=True, capture_output=True)
    return folder


def stored(jobs: Jobs, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Packs and stores the folder in the bucket; returns `spec.code`."""
    for name, value in jobs.surroundings.bucket_environment.items():
        monkeypatch.setenv(name, value)
    if jobs.surroundings.bucket_url is not None:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", jobs.surroundings.bucket_url)
    manifest, _, _ = attach({"spec": {"checkpointDir": jobs.checkpoint_dir("code")}}, folder, None)
    code: dict[str, Any] = manifest["spec"]["code"]
    return code
