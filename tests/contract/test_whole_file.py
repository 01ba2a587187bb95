"""A file is replaced whole, or stays."""

import resource

import pytest

from tpujob.job.edit_file import write_trainer_fields
from tpujob.local import runs
from tpujob_contract.whole_file import replaced

JOB = "kind: TpuTrainingJob\nspec:\n  trainer:\n    steps: 5  # a note\n"


@pytest.fixture
def fill_disk():
    """Limits files of this process to 20 bytes: writing fails as on a full disk, for the superuser too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_reader_never_sees_a_part(tmp_path):
    file, link = tmp_path / "state.json", tmp_path / "link"
    file.write_text("old")
    link.symlink_to(file)
    with replaced(link, 0o600) as unfinished:
        unfinished.write_text("ne")
        assert file.read_text() == "old"
        unfinished.write_text("new")
    assert (link.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, "new", 0o600)
    with pytest.raises(ZeroDivisionError), replaced(file):
        raise ZeroDivisionError
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "state.json"]
    assert file.read_text() == "new"


def _record_of_a_run(folder):
    runs.keep(folder, [1], "s")


def _job_file(folder):
    write_trainer_fields(folder / "job.yaml", {"steps": 6})


@pytest.mark.parametrize(("name", "write"), [(runs.FILE, _record_of_a_run), ("job.yaml", _job_file)])
def test_full_disk_leaves_what_was_there(tmp_path, fill_disk, name, write):
    (tmp_path / name).write_text(JOB)
    fill_disk()
    with pytest.raises(Exception, match=r"File too large"):
        write(tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, JOB)]
