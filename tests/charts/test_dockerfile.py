"""The images: linted, without rights, started by the launcher; and the wheels that they install are whole."""

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.charts.rendered import CHART
from tpujob.bundle import contents as bundled
from tpujob_contract import commands
from tpujob_resource.jobset.pod import TRAINER

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
OFFLINE = (ROOT / "images" / "offline" / "Dockerfile").read_text()
FINAL = ["operator", "trainer"]
USER = 10001
"""Also in tests/scenes/charts/test_chart.py: the user that the chart gives to pods."""


def stage(name: str, dockerfile: str = DOCKERFILE) -> list[tuple[str, str]]:
    """Instructions of a stage, those of the stages that it is built on first."""
    instructions = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", dockerfile, flags=re.MULTILINE))
    parts = re.split(r"^FROM (\S+) AS (\S+)\n", instructions, flags=re.MULTILINE)
    stages = {parts[i + 1]: (parts[i], parts[i + 2]) for i in range(1, len(parts), 3)}
    parent, body = stages[name]
    own = [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in body.splitlines() if line.strip()]
    return (stage(parent, dockerfile) if parent in stages else []) + own


def values(name: str, instruction: str, dockerfile: str = DOCKERFILE) -> list[str]:
    return [" ".join(rest.split()) for word, rest in stage(name, dockerfile) if word == instruction]


@pytest.mark.parametrize(
    "file", ["Dockerfile", "images/offline/Dockerfile", "images/base/Dockerfile", "images/extended/Dockerfile"]
)
def test_dockerfile_lints(file):
    hadolint = Path(sys.executable).with_name("hadolint")
    result = subprocess.run([hadolint, ROOT / file], capture_output=True, text=True)
    assert result.stdout + result.stderr == ""
    assert result.returncode == 0


def test_trainer_is_started_by_the_launcher():
    assert json.loads(values("trainer", "ENTRYPOINT")[-1]) == list(commands.IN_IMAGE)
    assert json.loads(values("trainer", "CMD")[-1]) == list(TRAINER)


def test_operator_starts_the_command_that_it_installs():
    scripts = tomllib.loads((ROOT / "operator" / "pyproject.toml").read_text())["project"]["scripts"]
    [command] = json.loads(values("operator", "ENTRYPOINT")[-1])
    assert command in scripts


@pytest.mark.parametrize("name", FINAL)
def test_user_of_the_image_runs_whatever_is_run(name):
    user = values(name, "USER")[-1]
    assert user == f"{USER}:{USER}"
    # Whatever is run is run as this user.
    assert [word for word, _ in stage(name)].index("USER") > max(
        i for i, (word, _) in enumerate(stage(name)) if word == "RUN"
    )


@pytest.mark.parametrize("name", FINAL)
def test_images_install_wheels_only_and_without_an_index(name):
    runs = [
        part.strip() for s in (f"{name}-dependencies", name) for run in values(s, "RUN") for part in run.split("&&")
    ]
    installs = [part for part in runs if "pip install" in part]
    # The trainer's may also have other versions of some, by TRAINER_OVERRIDES.
    assert len(installs) == (3 if name == "trainer" else 2)
    assert all("--no-index" in part for part in installs)
    assert "--require-hashes" in installs[0]
    fetching = [part for part in runs if re.search(r"\b(curl|wget|gcc)\b|\bapt-get install\b", part)]
    # The operator's fetches code with git, a package of the distribution.
    git = "apt-get install --yes --no-install-recommends ca-certificates git"
    assert fetching == ([git] if name == "operator" else [])
    assert not values(name, "ADD")


@pytest.mark.parametrize("name", FINAL)
def test_images_take_from_other_stages_only_what_they_install(name):
    downloaded = [copy.split()[0] for copy in values(f"{name}-dependencies", "COPY")]
    assert downloaded == [f"--from={name}-wheels", *(["--from=trainer-overrides"] if name == "trainer" else [])]
    assert [copy.split()[:2] for copy in values(name, "COPY")] == [
        [f"--from={name}-dependencies", "/opt/tpujob"],
        ["--from=own-wheels", "/wheels/tpujob_contract-*.whl"],
    ]


@pytest.mark.parametrize("name", ["operator-wheels", "trainer-wheels"])
def test_downloads_are_wheels_with_known_hashes(name):
    downloads = [run for run in values(name, "RUN") if "pip download" in run or "pip install" in run]
    assert len(downloads) == 2
    for run in downloads:
        assert "--require-hashes" in run
        assert "--only-binary :all:" in run


@pytest.mark.parametrize("name", ["operator-wheels", "trainer-wheels", "trainer-overrides"])
def test_every_download_may_have_an_index_of_the_site(name):
    secret = "--mount=type=secret,id=pip.conf,target=/run/secrets/pip.conf "
    asking = [run for run in values(name, "RUN") if re.search(r"pip (download|install)", run)]
    assert len(asking) == 2
    assert all(run.startswith(secret) for run in asking)
    assert "PIP_CONFIG_FILE=/run/secrets/pip.conf" in " ".join(values(name, "ENV"))


@pytest.mark.parametrize("name", FINAL)
@pytest.mark.parametrize("instruction", ["ENV", "LABEL", "USER", "WORKDIR", "ENTRYPOINT", "CMD", "ARG"])
def test_images_of_an_isolated_site_are_the_same_to_those_who_run_them(name, instruction):
    assert values(name, instruction, OFFLINE) == values(name, instruction)


@pytest.mark.parametrize("name", FINAL)
def test_images_of_an_isolated_site_have_the_same_system(name):
    assert values(name, "RUN", OFFLINE)[0] == values(name, "RUN")[0]
    assert OFFLINE.split("FROM")[0].splitlines()[-2:] == DOCKERFILE.split("FROM")[0].splitlines()[-2:]


@pytest.mark.parametrize("name", FINAL)
def test_images_of_an_isolated_site_install_by_hash_and_know_no_index(name):
    runs = values(name, "RUN", OFFLINE)[1:]
    assert len(runs) == 2
    for run in runs:
        assert run.startswith(
            "--mount=type=bind,source=wheels,target=/wheels pip install --no-index --find-links /wheels"
        )
        assert "--require-hashes" in run
    assert runs[-1].endswith("&& pip check && pip uninstall --yes pip")
    # What decides about the mounted wheels is copied: else a layer from the cache may be of another lock.
    locks = [copy.split()[0] for copy in values(name, "COPY", OFFLINE)]
    assert [re.search(r"--requirement (\S+)", run)[1].removeprefix("/opt/tpujob/") for run in runs] == locks  # type: ignore[index]
    assert "--from" not in OFFLINE


def test_version_is_the_charts():
    versions = set(re.findall(r"ARG VERSION=(\S+)", DOCKERFILE + OFFLINE))
    assert versions == {re.search(r"^appVersion: (\S+)", (CHART / "Chart.yaml").read_text(), re.MULTILINE)[1]}  # type: ignore[index]
    for part in ("contract", "launcher", "resource", "operator", "trainer", "sdk", "cli"):
        versions.add(tomllib.loads((ROOT / part / "pyproject.toml").read_text())["project"]["version"])
    assert len(versions) == 1


def test_everything_that_is_copied_is_let_in():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {rest.split()[0].split("/")[0] for rest in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)}
    assert copied == allowed
    assert all((ROOT / source).exists() for source in copied)


def test_everything_that_an_isolated_site_copies_is_in_the_context():
    allowed = {line[1:] for line in bundled.DOCKERIGNORE.splitlines() if line.startswith("!")}
    copied = [rest.split()[0] for rest in re.findall(r"^COPY (.*)$", OFFLINE, re.MULTILINE)]
    mounted = re.findall(r"source=(\w+)", OFFLINE)
    assert {path.split("/")[0] for path in [*copied, *mounted]} == allowed
    made = {f"requirements/{name}.txt" for name in bundled.OWN_LOCKS} | set(bundled.COPIED.values())
    assert set(copied) <= made


def test_wheels_hold_what_the_code_reads(tmp_path):
    parts = ["contract", "launcher", "resource", "operator", "trainer", "sdk", "cli"]
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path]
    builds = [subprocess.Popen(command, cwd=ROOT / part, stdout=subprocess.DEVNULL) for part in parts]
    assert [build.wait() for build in builds] == [0] * len(parts)
    files = {name for wheel in tmp_path.glob("*.whl") for name in zipfile.ZipFile(wheel).namelist()}
    sources = {
        str(path.relative_to(ROOT / part / "src"))
        for part in parts
        for path in (ROOT / part / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len(sources) > 40
    assert sources <= files
