"""The release workflow: linted, without rights that it does not use, and about the images and the chart that exist."""

import re
from pathlib import Path

from ruamel.yaml import YAML

from tests.charts.test_dockerfile import DOCKERFILE, FINAL

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github"
FILE = FOLDER / "workflows" / "release.yaml"
TEXT = FILE.read_text()
WORKFLOW = YAML(typ="safe").load(TEXT)
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
APPROVED = {"images", "signatures", "chart", "wheels"}
"""What publishes, each after somebody has approved."""
VALUES = YAML(typ="safe").load((ROOT / "charts" / "tpujob-operator" / "values.yaml").read_text())


def commands(job: str) -> str:
    return "\n".join(step.get("run", "") for step in WORKFLOW["jobs"][job]["steps"])


def test_actions_are_pinned_by_content():
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", each) for each in used)


def test_rights_are_given_to_single_jobs():
    assert WORKFLOW["permissions"] == {}
    given = {name: job["permissions"] for name, job in WORKFLOW["jobs"].items()}
    assert {name for name, rights in given.items() if "write" in rights.values()} == APPROVED
    assert given == {
        "reviewers": {"actions": "read"},
        "test": {"contents": "read"},
        "images": {"contents": "read", "packages": "write"},
        "pods": {"contents": "read", "packages": "read"},
        "signatures": {"packages": "write", "id-token": "write"},
        "chart": {"contents": "read", "packages": "write", "id-token": "write"},
        "wheels": {"contents": "write", "id-token": "write"},
    }


def test_every_image_is_built_with_sbom_and_provenance_and_pushed_without_a_tag():
    text = commands("images")
    assert re.findall(r"for part in (.*); do", text) == [" ".join(FINAL)]
    assert {"--sbom=true", "--provenance=mode=max"} <= set(text.split())
    assert "push-by-digest=true" in text
    assert "--tag" not in text
    arguments = re.findall(r"--build-arg (\w+)=", text)
    assert set(arguments) <= set(re.findall(r"^ARG (\w+)", DOCKERFILE, re.MULTILINE))


def test_what_is_published_is_signed_and_checksums_cover_all_files():
    for name in APPROVED - {"images"}:
        assert "cosign" in commands(name), name
    build = commands("wheels")
    assert build.index("sbom") < build.index("sha256sum ./*.whl ./*.cdx.json > SHA256SUMS") < build.index("sign-blob")


def test_released_chart_names_the_images_that_ran():
    assert {"image.registry", "image.digest", "trainerImage.digest"} == set(
        re.findall(r"\.([\w.]+) = env", commands("chart"))
    )
    for key in ("image.registry", "image.digest", "trainerImage.digest"):
        part, name = key.split(".")
        assert VALUES[part][name] == "", "a key of the chart, which the release fills in"


def test_nothing_is_signed_before_its_pods_ran_and_nothing_begins_without_reviewers():
    needs = {name: job.get("needs", []) for name, job in WORKFLOW["jobs"].items()}
    assert needs == {
        "reviewers": [],
        "test": "reviewers",
        "images": "test",
        "pods": "images",
        "signatures": ["images", "pods"],
        "chart": ["images", "signatures"],
        "wheels": "pods",
    }
    assert {name for name, job in WORKFLOW["jobs"].items() if job.get("environment") == "release"} == APPROVED
    assert "required_reviewers" in commands("reviewers")
    assert any(step.get("run") == ".ci/run" for step in WORKFLOW["jobs"]["test"]["steps"])
    assert "make e2e" in commands("pods")


def test_page_verifies_this_workflow_of_a_tag_and_no_other():
    page = (ROOT / "docs" / "install.md").read_text()
    [identity] = re.findall(r"--certificate-identity (\S+)", page)
    path = FILE.relative_to(ROOT)
    assert re.fullmatch(rf"https://github\.com/OWNER/tpujob/{re.escape(str(path))}@refs/tags/v[\d.]+", identity)


def test_every_lock_image_and_module_is_kept_current():
    updates = YAML(typ="safe").load((FOLDER / "dependabot.yml").read_text())["updates"]
    folders = {each["package-ecosystem"]: each.get("directories", each.get("directory")) for each in updates}
    assert folders == {
        "github-actions": "/",
        "uv": "/requirements",
        "docker": ["/", "/images/*"],
        "gomod": ["/tools/localcluster/programs/*"],
    }


def test_each_change_is_tested():
    check = YAML(typ="safe").load((FOLDER / "workflows" / "check.yaml").read_text())
    assert check["jobs"]["tests"]["strategy"]["matrix"]["kind"] == ["test", "scenes"]
