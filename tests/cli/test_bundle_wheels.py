"""The wheels of a bundle: found by their hashes, made whole by pip without an index."""

import re
import zipfile
from pathlib import Path

import pytest

from tests.harness.wheels import wheel
from tpujob.bundle import making
from tpujob.bundle.checksums import sha256
from tpujob.bundle.contents import LOCKS
from tpujob.bundle.making import BundleRequest
from tpujob.bundle.wheels import fetch_wheels, own_lock, pins_for
from tpujob.output.errors import CommandError

ROOT = Path(__file__).parents[2]


def write_wheel(folder: Path, name: str, tag: str = "py3-none-any") -> Path:
    """The smallest wheel that pip takes."""
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{name}-1.0-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{name}-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        file.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return wheel


def pin_of(*wheels: Path) -> str:
    return " ".join([f"{wheels[0].name.partition('-')[0]}==1.0", *(f"--hash=sha256:{sha256(one)}" for one in wheels)])


@pytest.fixture
def seed(tmp_path) -> Path:
    """An older bundle's wheels; pip is not let near an index, for what is missing has none."""
    return tmp_path / "seed"


@pytest.fixture(autouse=True)
def no_index(monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")


@pytest.fixture
def said() -> list[str]:
    return []


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_wheels_are_chosen_for_the_pythons_that_were_asked_for(tmp_path, seed, said):
    old, new, newer = (write_wheel(seed, "jaxlike", f"cp3{v}-cp3{v}-manylinux_2_27_x86_64") for v in (12, 13, 14))
    foreign = write_wheel(seed, "jaxlike", "cp312-cp312-macosx_11_0_arm64")
    common = write_wheel(seed, "pure")
    lock = "\n".join([pin_of(old, new, newer, foreign), pin_of(common)])
    fetch_wheels(lock, ["3.12", "3.13"], tmp_path / "wheels", [seed], said.append)
    assert names(tmp_path / "wheels") == {old.name, new.name, common.name}
    assert said == []


def test_interrupted_and_damaged_fetching_goes_on_and_wheels_of_earlier_locks_go(tmp_path, seed, said):
    wheels = [write_wheel(seed, name) for name in ("there", "missing", "damaged")]
    folder = tmp_path / "wheels"
    folder.mkdir()
    there = folder / wheels[0].name
    there.write_bytes(wheels[0].read_bytes())
    (folder / wheels[2].name).write_bytes(b"cut short")
    earlier = write_wheel(folder, "earlier")
    kept = there.stat().st_ino
    fetch_wheels("\n".join(map(pin_of, wheels)), ["3.12"], folder, [seed], said.append)
    gone = [f"wheels/{wheel.name}: no lock file has its checksum; removed" for wheel in (wheels[2], earlier)]
    assert sorted(said) == sorted(gone)
    assert {wheel.name: sha256(wheel) for wheel in folder.iterdir()} == {one.name: sha256(one) for one in wheels}
    assert there.stat().st_ino == kept


def test_a_seed_with_another_hash_is_not_taken(tmp_path, seed, said):
    wheel = write_wheel(seed, "one")
    lock = pin_of(wheel)
    wheel.write_bytes(wheel.read_bytes() + b"x")
    with pytest.raises(CommandError, match=r"pip download failed:\nERROR: .*one"):
        fetch_wheels(lock, ["3.12"], tmp_path / "wheels", [seed], said.append)


def test_own_wheels_are_locked_like_the_others(tmp_path):
    contract, command = (write_wheel(tmp_path, name) for name in ("tpujob_contract", "tpujob"))
    text = own_lock({"tpujob-contract": contract, "tpujob": command}, "1.0", ["tpujob-contract", "tpujob"])
    assert pins_for(text, "3.12") == [pin_of(contract).replace("_", "-"), pin_of(command)]


FIT = (
    "py2.py3-none-any",
    "cp38-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64",
    "cp312-cp312-manylinux_2_36_x86_64",
)
UNFIT = (
    "cp312-cp312-manylinux_2_37_x86_64",
    "cp313-cp313-manylinux_2_27_x86_64",
    "cp312-cp312t-manylinux_2_27_x86_64",
    "cp312-cp312-musllinux_1_2_x86_64",
    "cp312-cp312-manylinux_2_27_aarch64",
    "cp312-cp312-macosx_11_0_arm64",
)


def test_wheels_fit_linux_with_glibc(tmp_path, seed, said):
    fit = [write_wheel(seed, f"fit{number}", tag) for number, tag in enumerate(FIT)]
    pins = [pin_of(wheel) for wheel in fit]
    for number, tag in enumerate(UNFIT):
        # pip prefers one for a platform to one for any, if it can be installed at all.
        fit.append(write_wheel(seed, f"unfit{number}"))
        pins.append(pin_of(fit[-1], write_wheel(seed, f"unfit{number}", tag)))
    fetch_wheels("\n".join(pins), ["3.12"], tmp_path / "wheels", [seed], said.append)
    assert names(tmp_path / "wheels") == {wheel.name for wheel in fit}


def test_a_wheel_of_an_older_python_is_the_second_choice(tmp_path, seed, said, monkeypatch):
    """The index is asked for a better one; here it is a folder that pip's configuration names."""
    old = write_wheel(seed, "multiprocess", "py312-none-any")
    new = write_wheel(tmp_path / "index", "multiprocess", "py313-none-any")
    monkeypatch.setenv("PIP_FIND_LINKS", str(new.parent))
    fetch_wheels(pin_of(old, new), ["3.13"], tmp_path / "wheels", [seed], said.append)
    assert said == ["fetching wheels for Python 3.13"]
    assert names(tmp_path / "wheels") == {new.name}


@pytest.mark.parametrize(
    ("marker", "needed"),
    [
        ("", True),
        (" ; sys_platform == 'win32'", False),
        (" ; sys_platform != 'win32'", True),
        (" ; platform_machine == 'x86_64' and sys_platform == 'linux'", True),
        (" ; python_full_version < '3.12'", False),
        (" ; python_version >= '3.12'", True),
    ],
)
def test_markers_are_judged_for_the_target(marker, needed):
    pins = pins_for(f"x==1.0{marker} \\\n    --hash=sha256:{'a' * 64}\n    # via y\n", "3.12")
    assert pins == [f"x==1.0 --hash=sha256:{'a' * 64}"] * needed


@pytest.mark.parametrize("line", ["jax>=0.12", "jax==0.12", "--index-url https://example.com", "jax @ file:///x"])
def test_what_is_not_pinned_with_hashes_is_refused(line):
    with pytest.raises(ValueError, match="is not NAME==VERSION --hash"):
        pins_for(f"{line}\n", "3.12")


@pytest.mark.parametrize("python", ["3", "2.7", "three", "3.12.1", "3."])
def test_what_is_no_python_is_refused(tmp_path, said, python):
    with pytest.raises(CommandError, match=r"--python: .* is no version of Python"):
        making.make_bundle(BundleRequest(out=tmp_path / "bundle", source=ROOT, pythons=(python,)), said.append)


def test_lock_files_are_read_whole_and_agree():
    versions = set()
    for name in LOCKS:
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        pins = pins_for(re.sub(" ;.*\\\\", " \\\\", text), "3.12")
        assert len(pins) == len(re.findall(r"^\S+==", text, re.MULTILINE))
        assert "".join(pins).count("--hash=sha256:") == text.count("--hash=sha256:")
        versions |= {pin.split()[0] for pin in pins}
        assert not any(pin.startswith("colorama") for pin in pins_for(text, "3.12"))
    assert {"jax", "libtpu", "kopf", "hatchling", "typer"} <= {pin.partition("==")[0] for pin in versions}
    assert len({pin.partition("==")[0] for pin in versions}) == len(versions)


def test_packages_of_jobs_are_a_folder_with_their_pins(tmp_path, seed, said):
    pins = tmp_path / "pins.txt"
    pins.write_text(wheel(seed, 2))
    request = BundleRequest(out=tmp_path / "bundle", wheels=(seed,), packages=pins)
    making.carry_packages(request, pins.read_text(), said.append)
    assert names(request.out / "packages") == {"gadget-2.0-py3-none-any.whl", "requirements.txt"}
    assert (request.out / "packages" / "requirements.txt").read_text() == pins.read_text()
    there = request.out / "packages" / "gadget-2.0-py3-none-any.whl"
    there.unlink()  # it may be a link to the one that it was made from
    there.write_bytes(b"cut short")
    making.carry_packages(request, pins.read_text(), said.append)
    assert there.read_bytes() == (seed / there.name).read_bytes()
    making.carry_packages(request, None, said.append)
    assert not (request.out / "packages").exists()


@pytest.mark.parametrize("line", ["gadget", "gadget==1.0", None])
def test_packages_without_pins_are_refused_before_anything_is_made(tmp_path, said, line):
    pins = tmp_path / "pins.txt"
    if line is not None:
        pins.write_text(line)
    problem = "No such file" if line is None else "generate-hashes"
    with pytest.raises(CommandError, match=rf"--packages: .*pins\.txt: .*{problem}"):
        making.make_bundle(BundleRequest(out=tmp_path / "bundle", source=ROOT, packages=pins), said.append)
    assert not (tmp_path / "bundle").exists()
