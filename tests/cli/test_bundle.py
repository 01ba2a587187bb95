"""`tpujob bundle`: what goes in, what the README says, and what is noticed when something is wrong."""

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

from tpujob.bundle import contents, images, making
from tpujob.bundle.checksums import verify, write_sums
from tpujob.bundle.contents import CarriedImage, Contents, readme
from tpujob.bundle.making import chart_version, default_base, find_checkout, pack
from tpujob.main import app
from tpujob.output.errors import CommandError

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "isolated-sites.md").read_text()


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
    assert images.full_name(given) == full
    assert images.full_name(full) == full
    assert images.familiar_name(given) == familiar
    assert images.archive_name(given) == f"{file}.tar"


BUILDER = """#!/bin/sh
echo "$@" >> {asked}
case "$*" in *{has}*) for word; do :; done; word=${{word#docker-archive:}}; echo image > "${{word%.tar:*}}.tar";; *)
echo "no such image" >&2; exit 1;; esac
"""


def builders(folder: Path, monkeypatch, **has: str) -> Path:
    """Stands in for builders, each of which has the images whose names contain a word; the file of what was asked."""
    asked = folder / "asked"
    for name, word in has.items():
        (folder / name).write_text(BUILDER.format(asked=asked, has=word))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))  # a builder of this machine would be asked, too
    return asked


def test_the_builder_that_has_an_image_writes_it_under_its_full_name(tmp_path, monkeypatch):
    asked = builders(tmp_path, monkeypatch, podman="nothing", buildah="localhost/x:1")
    archive = tmp_path / "x-1.tar"
    assert images.save_image("x:1", archive) == "buildah"
    assert archive.read_text() == "image\n"
    unfinished = f"docker-archive:{tmp_path}/.x-1.tar:docker.io/library/x:1"
    assert asked.read_text().splitlines()[-1] == f"push --quiet localhost/x:1 {unfinished}"


def test_an_image_that_no_builder_has_is_named_with_what_each_said(tmp_path, monkeypatch):
    builders(tmp_path, monkeypatch, podman="nothing", buildah="nothing")
    with pytest.raises(
        CommandError, match=r"image x: not on this machine \(podman: no such image; buildah: no such image\)"
    ):
        images.save_image("x", tmp_path / "x.tar")
    builders(tmp_path / "empty", monkeypatch)
    with pytest.raises(CommandError, match=r"neither docker nor podman nor buildah is here"):
        images.save_image("x", tmp_path / "x.tar")


def tar_of(path: Path, files: dict[str, bytes]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


NOTES = {"org.opencontainers.image.ref.name": "eu.dev/x:1"}


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({"manifest.json": [{"Config": "abc.json", "RepoTags": ["a.b/x:1", "a.b/y:2"]}]}, ("a.b/x:1", "a.b/y:2")),
        ({"manifest.json": [{"Config": "abc.json", "RepoTags": None}]}, ()),
        ({"index.json": {"manifests": [{"digest": "sha256:m", "annotations": NOTES}]}}, ("eu.dev/x:1",)),
    ],
    ids=["docker save", "without a name", "skopeo"],
)  # fmt: skip
def test_archives_of_others_are_read(tmp_path, files, names):
    archive = tar_of(tmp_path / "x.tar", {name: json.dumps(content).encode() for name, content in files.items()})
    assert images.names_in(archive) == names


@pytest.mark.parametrize("content", [{}, {"readme.txt": b"x"}, {"manifest.json": b"{"}, {"index.json": b"{}"}])
def test_what_is_no_image_archive_is_refused(tmp_path, content):
    with pytest.raises(CommandError, match=r"x\.tar: not an image archive"):
        images.names_in(tar_of(tmp_path / "x.tar", content))


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
    CarriedImage(f"images/{images.archive_name(name)}", (images.full_name(name),))
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
    assert verify(tmp_path) == []
    assert (tmp_path / "SHA256SUMS").read_text().endswith("  a name  with spaces\n")


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
    pack(tmp_path / "chart.tgz", chart.parent, [chart.name])
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
        pack(tmp_path / f"{folder}.tgz", tree, ["file", "sub"], "top/")
    assert (tmp_path / "one.tgz").read_bytes() == (tmp_path / "two.tgz").read_bytes()
    with tarfile.open(tmp_path / "one.tgz") as tar:
        assert tar.getnames() == ["top/file", "top/sub", "top/sub/other"]


def test_version_and_base_are_those_of_the_checkout():
    assert f"ARG VERSION={chart_version(ROOT)}\n" in (ROOT / "Dockerfile").read_text()
    assert default_base(ROOT) == "python:3.12-slim-bookworm"


def test_documentation_names_options_that_there_are():
    lines = re.findall(r".*tpujob bundle.*|^\| `--.*", DOCUMENT, re.MULTILINE)
    named = set(re.findall(r"(--[a-z-]+)", "\n".join(lines)))
    (command,) = (command for command in get_command(app).commands.values() if command.name == "bundle")  # type: ignore[attr-defined]
    assert named
    assert named <= {option for parameter in command.params for option in parameter.opts}


def test_archives_that_the_bundle_has_already_stay(tmp_path):
    manifest = json.dumps([{"Config": "x.json", "RepoTags": ["own:1"], "Layers": []}]).encode()
    archive = tar_of(tmp_path / "images" / "own.tar", {"manifest.json": manifest})
    request = making.BundleRequest(out=tmp_path, archives=(archive,))
    carried = making.carry_images(request, "python:3.12", "0.1.0", announce=lambda _: None)
    assert carried == (CarriedImage("images/own.tar", ("docker.io/library/own:1",)),)
    assert archive.is_file()
