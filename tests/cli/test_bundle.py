"""`tpujob bundle`: what goes in, what the README says, and what is noticed when something is wrong."""

import gzip
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.main import get_command
from typer.testing import CliRunner

from tpujob.bundle import contents, making
from tpujob.bundle.checksums import differences, files_of, read_sums, verify, write_sums
from tpujob.bundle.contents import CarriedImage, Contents
from tpujob.bundle.locks import own_lock, read_lock, union
from tpujob.bundle.making import chart_version, default_base, find_checkout
from tpujob.bundle.packing import pack
from tpujob.bundle.readme import readme
from tpujob.errors import CommandError
from tpujob.main import app

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "isolated-sites.md").read_text()
A, B = "a" * 64, "b" * 64


@pytest.mark.parametrize("lock", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda path: path.stem)
def test_every_lock_file_is_read_whole(lock):
    text = lock.read_text()
    pins = read_lock(text)
    assert len(pins) == len(re.findall(r"^\S+==", text, re.MULTILINE))
    assert sum(len(pin.hashes) for pin in pins) == text.count("--hash=sha256:")


def test_locks_of_a_bundle_agree():
    locks = [read_lock((ROOT / "requirements" / f"{name}.txt").read_text()) for name in contents.LOCKS]
    names = {pin.name for pin in union(locks)}
    assert {"jax", "libtpu", "kopf", "hatchling", "typer"} <= names
    assert len(names) == len(union(locks))


@pytest.mark.parametrize("line", ["jax>=0.12", "jax==0.12", "--index-url https://example.com", "jax @ file:///x"])
def test_what_is_not_pinned_with_hashes_is_refused(line):
    with pytest.raises(ValueError, match="not pinned with hashes"):
        read_lock(f"{line}\n")


def test_locks_that_disagree_are_refused_by_name():
    with pytest.raises(ValueError, match=r"jax is pinned to 1 and, otherwise, to 2"):
        union([read_lock(f"jax==1 --hash=sha256:{A}"), read_lock(f"jax==2 --hash=sha256:{A}")])


def test_own_wheels_are_locked_like_the_others():
    text = own_lock({"tpujob-contract": A, "tpujob": B}, "1.2", ["tpujob-contract", "tpujob"])
    pins = read_lock(text)
    assert [(pin.name, pin.version, *pin.hashes) for pin in pins] == [
        ("tpujob-contract", "1.2", A),
        ("tpujob", "1.2", B),
    ]
    assert pins[0].wheel_prefix == "tpujob_contract-1.2-"


@pytest.mark.parametrize(
    ("given", "full", "familiar", "file"),
    [
        ("tpujob:0.1.0", "docker.io/library/tpujob:0.1.0", "tpujob:0.1.0", "tpujob-0.1.0"),
        ("python", "docker.io/library/python:latest", "python:latest", "python-latest"),
        ("team/base:1", "docker.io/team/base:1", "team/base:1", "base-1"),
        ("localhost/base:1", "localhost/base:1", "localhost/base:1", "base-1"),
        ("reg:5000/x/base", "reg:5000/x/base:latest", "reg:5000/x/base:latest", "base-latest"),
        ("eu.pkg.dev/p/r/x:2", "eu.pkg.dev/p/r/x:2", "eu.pkg.dev/p/r/x:2", "x-2"),
    ],
)  # fmt: skip
def test_image_names_are_completed_as_runtimes_do(given, full, familiar, file):
    assert contents.full_name(given) == full
    assert contents.full_name(full) == full
    assert contents.familiar_name(given) == familiar
    assert contents.archive_name(given) == f"images/{file}.tar"


def test_buildah_is_asked_for_its_localhost_too():
    assert contents.local_names("x:1") == ("docker.io/library/x:1", "localhost/x:1")
    assert contents.local_names("eu.pkg.dev/x:1") == ("eu.pkg.dev/x:1",)


def test_everything_that_is_copied_is_in_a_checkout():
    assert find_checkout(ROOT) == ROOT
    for name in (*contents.COPIED, *contents.SOURCES, *contents.SOURCE_FILES, contents.EXAMPLES, contents.CHART):
        assert (ROOT / name).exists(), name
    # The sources of a bundle are a checkout for the next one.
    for needed in (*contents.MARKS, *contents.COPIED, *contents.OWN.values(), contents.EXAMPLES):
        assert needed in contents.SOURCE_FILES or needed.split("/")[0] in contents.SOURCES


def test_our_distributions_are_those_of_the_checkout():
    for name, folder in contents.OWN.items():
        assert f'name = "{name}"' in (ROOT / folder / "pyproject.toml").read_text()
    assert {p.parent.name for p in ROOT.glob("*/pyproject.toml")} == set(contents.OWN.values())


def test_a_folder_without_the_sources_is_refused(tmp_path):
    with pytest.raises(CommandError, match=r"--source: '.*' is not a checkout of tpujob"):
        find_checkout(tmp_path)


IMAGES = tuple(
    CarriedImage(contents.archive_name(name), (contents.full_name(name),))
    for name in (*contents.product_images("0.1.0"), "python:3.12-slim-bookworm")
)


def commands(text: str) -> list[list[str]]:
    """Commands of a Markdown text, as words."""
    joined = text.replace("\\\n", " ")
    lines = [line.strip() for line in joined.splitlines() if line.startswith("    ")]
    return [part.split() for line in lines for part in line.split(" # ")[0].split("&&") if part.strip()]


def test_readme_names_files_that_are_there():
    text = readme(Contents("0.1.0", ("3.12", "3.13"), "python:3.12-slim-bookworm", IMAGES))
    assert "$" not in text
    words = {word.removeprefix("docker-archive:") for command in commands(text) for word in command}
    paths = {word for word in words if re.match(r"(images|requirements|chart|source)/", word)}
    made = {image.file for image in IMAGES} | set(contents.COPIED.values())
    made |= {f"requirements/{name}.txt" for name in contents.OWN_LOCKS}
    made |= {"chart/tpujob-operator-0.1.0.tgz", "source/tpujob-0.1.0.tar.gz"}
    assert paths
    assert paths <= made
    for image in IMAGES:
        assert f"ctr --namespace k8s.io images import {image.file}" in text


def test_readme_sets_values_that_the_chart_has():
    text = readme(Contents("0.1.0", ("3.12",), "python:3.12", IMAGES))
    values = YAML(typ="safe", pure=True).load((ROOT / contents.CHART / "values.yaml").read_text())
    settings = re.findall(r"--set ([\w.]+)=", text)
    assert len(settings) == 3
    for setting in settings:
        place = values
        for key in setting.split("."):
            place = place[key]
    for name in ("image", "trainerImage"):
        # With images imported by their own names the chart needs no setting.
        repository = f"docker.io/library/{values[name]['repository']}"
        assert repository in {carried.rpartition(":")[0] for image in IMAGES for carried in image.names}


def test_readme_builds_stages_that_the_dockerfile_has():
    text = readme(Contents("0.1.0", ("3.12",), "python:3.12", IMAGES))
    dockerfile = (ROOT / "images/offline/Dockerfile").read_text()
    builds = [command for command in commands(text) if command[1:2] == ["build"]]
    assert len(builds) == 4
    for build in builds:
        assert f" AS {build[build.index('--target') + 1]}\n" in dockerfile
        assert build[build.index("--network") + 1] == "none"


def test_readme_without_images_says_so():
    text = readme(Contents("0.1.0", ("3.12",), "python:3.12", ()))
    assert "none in this bundle" in text
    assert "docker load" not in text


TWO = {"one": "1", "wheels/two": "2"}


def bundle_of(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    write_sums(folder)
    return folder


def test_sums_are_what_sha256sum_checks(tmp_path):
    bundle_of(tmp_path, TWO)
    (tmp_path / ".dockerignore").write_text("*")
    write_sums(tmp_path)
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    result = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0
    assert sorted(result.stdout.split()) == [".dockerignore:", "OK", "OK", "OK", "one:", "wheels/two:"]
    assert verify(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "wheels/two").write_text("3"), "wheels/two: wrong checksum; expected d47.*"),
        (lambda folder: (folder / "one").unlink(), "one: missing"),
        (lambda folder: (folder / "wheels/three").write_text("3"), "wheels/three: not in SHA256SUMS"),
        (lambda folder: (folder / "SHA256SUMS").unlink(), ".*not complete; run `tpujob bundle` again"),
        (lambda folder: (folder / "SHA256SUMS").write_text("what"), ".*'what' is not a checksum and a path"),
    ],
    ids=["changed", "missing", "added", "unfinished", "no sums"],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path, change, said):
    bundle_of(tmp_path, TWO)
    change(tmp_path)
    result = CliRunner().invoke(app, ["bundle", "--verify", str(tmp_path)])
    assert result.exit_code == 1
    assert re.fullmatch(said, result.stderr.strip())


def test_a_whole_bundle_is_said_to_be_whole(tmp_path):
    bundle_of(tmp_path, TWO)
    result = CliRunner().invoke(app, ["bundle", "--verify", str(tmp_path)])
    assert result.exit_code == 0
    assert "every file is as it should be" in result.stdout


def test_sums_survive_strange_names(tmp_path):
    bundle_of(tmp_path, {"a name  with spaces": "1"})
    assert list(read_sums((tmp_path / "SHA256SUMS").read_text())) == files_of(tmp_path) == ["a name  with spaces"]


def test_equal_sums_differ_in_nothing():
    assert differences({"a": A}, {"a": A}) == []


@pytest.mark.parametrize("arguments", [[], ["--out", "x", "--verify", "x"]], ids=["neither", "both"])
def test_making_and_checking_exclude_each_other(arguments):
    result = CliRunner().invoke(app, ["bundle", *arguments])
    assert result.exit_code == 78
    assert "--out" in result.stderr


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    result = CliRunner().invoke(app, ["bundle", "--out", str(tmp_path), "--source", str(ROOT)])
    assert result.exit_code == 78
    assert "holds something else" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_packed_chart_is_what_helm_packs(tmp_path):
    chart = ROOT / contents.CHART
    pack(tmp_path / "chart.tgz", chart.name, chart, ["."])
    with tarfile.open(tmp_path / "chart.tgz") as tar:
        names = {name for name in tar.getnames() if tar.getmember(name).isfile()}
        definition = tar.extractfile("tpujob-operator/crd/tputrainingjobs.yaml")
        assert definition is not None
        assert definition.read() == (chart / "crd/tputrainingjobs.yaml").read_bytes()
    assert {"tpujob-operator/Chart.yaml", "tpujob-operator/values.yaml", "tpujob-operator/templates/crd.yaml"} <= names


def test_packing_depends_on_content_alone(tmp_path):
    for folder, moment in (("one", 1_000_000_000), ("two", 1_500_000_000)):
        tree = tmp_path / folder
        left_out = {"sub/__pycache__/z.pyc": "x", "sub/x.egg-info/y": "x"}
        bundle_of(tree, {"file": "x", "sub/other": "y", **left_out})
        subprocess.run(["touch", "-d", f"@{moment}", tree / "file"], check=True)
        pack(tmp_path / f"{folder}.tgz", "top", tree, ["file", "sub"])
    assert (tmp_path / "one.tgz").read_bytes() == (tmp_path / "two.tgz").read_bytes()
    assert gzip.decompress((tmp_path / "one.tgz").read_bytes())
    with tarfile.open(tmp_path / "one.tgz") as tar:
        assert tar.getnames() == ["top/file", "top/sub/other"]


def test_wheels_of_another_source_are_not_taken_for_current(tmp_path):
    """Also when the run that packed the new source was interrupted before it made wheels of it."""
    for folder in ("chart", "source", "requirements"):
        (tmp_path / folder).mkdir()
    lock = tmp_path / "requirements" / "own-run.txt"
    lock.write_text("of the source before")
    assert not making._pack(ROOT, tmp_path, "0.1.0")
    assert making._pack(ROOT, tmp_path, "0.1.0")
    assert not lock.exists()
    lock.write_text("of this source")
    assert making._pack(ROOT, tmp_path, "0.1.0")
    assert lock.exists()


def test_version_and_base_are_those_of_the_checkout():
    assert f"ARG VERSION={chart_version(ROOT)}\n" in (ROOT / "Dockerfile").read_text()
    assert default_base(ROOT) == "python:3.12-slim-bookworm"


def test_help_says_what_is_needed():
    shown = CliRunner().invoke(app, ["bundle", "--help"]).stdout
    for word in ("--verify", "--no-images", "checkout"):
        assert word in shown


def test_documentation_names_options_that_there_are():
    lines = re.findall(r".*tpujob bundle.*|^\| `--.*", DOCUMENT, re.MULTILINE)
    named = set(re.findall(r"(--[a-z-]+)", "\n".join(lines)))
    (command,) = (command for command in get_command(app).commands.values() if command.name == "bundle")  # type: ignore[attr-defined]
    assert named
    assert named <= {option for parameter in command.params for option in parameter.opts}


def test_archives_that_the_bundle_has_already_stay(tmp_path):
    archive = tmp_path / "images" / "own.tar"
    archive.parent.mkdir()
    manifest = json.dumps([{"Config": f"{A}.json", "RepoTags": ["own:1"], "Layers": []}]).encode()
    with tarfile.open(archive, "w") as tar:
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(manifest)
        tar.addfile(entry, io.BytesIO(manifest))
    request = making.BundleRequest(out=tmp_path, archives=(archive,))
    carried = making._carry_images(request, "python:3.12", "0.1.0", announce=lambda _: None)
    assert [image.file for image in carried] == ["images/own.tar"]
    assert archive.is_file()
