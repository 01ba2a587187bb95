"""What two hosts compare before they begin."""

from tpujob_trainer.distributed import host_check


def test_versions_tell_what_matters():
    found = host_check.versions()
    assert {"python", "jax", "jaxlib", "flax", host_check.INSTALLED, host_check.CODE} <= found.keys()
    assert found == host_check.versions()
    assert host_check.versions({"TPUJOB_CODE_SHA256": "1a"}) == found | {host_check.JOB_CODE: "1a"}


def test_changed_line_of_code_is_another_image(tmp_path):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "pretrain.py").write_text("a = 1\n")
    before = host_check._code(tmp_path)
    (tmp_path / "tasks" / "pretrain.py").write_text("a = 2\n")
    assert host_check._code(tmp_path) != before


def test_added_package_is_another_image(tmp_path, monkeypatch):
    before = host_check.versions()
    added = tmp_path / "extra-1.0.dist-info"
    added.mkdir()
    (added / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = host_check.versions()
    assert {name for name in found if found[name] != before.get(name)} == {host_check.INSTALLED}
