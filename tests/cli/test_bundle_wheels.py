"""The wheels of a bundle: found by their hashes, made whole by pip without an index."""

import dataclasses
import zipfile
from pathlib import Path

import pytest

from tests.harness.wheels import wheel
from tpujob.bundle import making
from tpujob.bundle.checksums import sha256
from tpujob.bundle.contents import LOCKS
from tpujob.bundle.locks import Pin, own_lock, read_lock
from tpujob.bundle.making import BundleRequest
from tpujob.bundle.target import Target
from tpujob.bundle.wheels import WheelFolder
from tpujob.errors import CommandError

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


def pin_of(*wheels: Path) -> Pin:
    hashes = " ".join(f"--hash=sha256:{sha256(wheel)}" for wheel in wheels)
    (pin,) = read_lock(f"{wheels[0].name.partition('-')[0]}==1.0 {hashes}")
    return pin


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


def folder_with(tmp_path: Path, seed: Path, said: list[str]) -> WheelFolder:
    return WheelFolder(tmp_path / "wheels", [seed], said.append)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_wheels_are_chosen_for_the_python_that_was_asked_for(tmp_path, seed, said):
    folder = folder_with(tmp_path, seed, said)
    old, new = (write_wheel(folder.folder, "jaxlike", f"cp{v}-cp{v}-manylinux_2_27_x86_64") for v in ("312", "313"))
    foreign = write_wheel(folder.folder, "jaxlike", "cp312-cp312-macosx_11_0_arm64")
    common = write_wheel(folder.folder, "pure")
    pins = [pin_of(old, new, foreign), pin_of(common)]
    assert folder.fetch(pins, Target("3.12")) == {old.name, common.name}
    assert folder.fetch(pins, Target("3.13")) == {new.name, common.name}
    assert said == []


def test_interrupted_and_damaged_fetching_goes_on(tmp_path, seed, said):
    wheels = [write_wheel(seed, name) for name in ("there", "missing", "damaged")]
    pins = [pin_of(wheel) for wheel in wheels]
    folder = folder_with(tmp_path, seed, said)
    there = folder.folder / wheels[0].name
    there.write_bytes(wheels[0].read_bytes())
    (folder.folder / wheels[2].name).write_bytes(b"cut short")
    kept = there.stat().st_ino
    folder.drop_damaged(pins)
    assert said == [f"wheels/{wheels[2].name}: wrong checksum; fetched again"]
    assert folder.find(pins) is None
    assert folder.fetch(pins, Target("3.12")) == {wheel.name for wheel in wheels} == folder.find(pins)
    assert there.stat().st_ino == kept
    assert names(folder.folder) == {wheel.name for wheel in wheels}


def test_a_seed_with_another_hash_is_not_taken(tmp_path, seed, said):
    wheel = write_wheel(seed, "one")
    pins = [pin_of(wheel)]
    wheel.write_bytes(wheel.read_bytes() + b"x")
    with pytest.raises(CommandError, match=r"fetching one to one: pip failed: ERROR: .*one"):
        folder_with(tmp_path, seed, said).fetch(pins, Target("3.12"))


def test_wheels_of_earlier_locks_go(tmp_path, seed, said):
    folder = folder_with(tmp_path, seed, said)
    kept, old = (write_wheel(folder.folder, name).name for name in ("kept", "old"))
    folder.keep_only({kept})
    assert names(folder.folder) == {kept}
    assert old not in names(folder.folder)


def test_own_wheels_are_found_by_their_lock(tmp_path, seed, said):
    folder = folder_with(tmp_path, seed, said)
    wheel = write_wheel(folder.folder, "tpujob_contract")
    lock = own_lock({"tpujob-contract": sha256(wheel)}, "1.0", ["tpujob-contract"])
    assert folder.find(read_lock(lock)) == {wheel.name}
    wheel.write_bytes(b"")
    assert folder.find(read_lock(lock)) is None


@pytest.mark.parametrize(
    ("wheel", "fits"),
    [
        ("x-1.0-py3-none-any.whl", True),
        ("x-1.0-py2.py3-none-any.whl", True),
        ("x-1.0-cp312-cp312-manylinux_2_27_x86_64.whl", True),
        ("x-1.0-cp38-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", True),
        ("x-1.0-cp312-cp312-manylinux_2_36_x86_64.whl", True),
        ("x-1.0-cp312-cp312-manylinux_2_37_x86_64.whl", False),
        ("x-1.0-cp313-cp313-manylinux_2_27_x86_64.whl", False),
        ("x-1.0-cp312-cp312t-manylinux_2_27_x86_64.whl", False),
        ("x-1.0-cp312-cp312-musllinux_1_2_x86_64.whl", False),
        ("x-1.0-cp312-cp312-manylinux_2_27_aarch64.whl", False),
        ("x-1.0-cp312-cp312-macosx_11_0_arm64.whl", False),
        ("x-1.0.whl", False),
    ],
)
def test_wheels_fit_linux_with_glibc(wheel, fits):
    assert Target("3.12").fits(wheel) is fits


@pytest.mark.parametrize(
    ("tag", "fits", "meant"),
    [
        ("py3-none-any", True, True),
        ("cp38-abi3-manylinux2014_x86_64", True, True),
        ("py313-none-any", True, True),
        ("py312-none-any", True, False),
        ("py314-none-any", False, False),
    ],
)
def test_a_wheel_of_an_older_python_is_the_second_choice(tag, fits, meant):
    target, wheel = Target("3.13"), f"multiprocess-1.0-{tag}.whl"
    assert (target.fits(wheel), target.is_meant_by(wheel)) == (fits, meant)


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
    (pin,) = read_lock(f"x==1.0{marker} \\\n    --hash=sha256:{'a' * 64}")
    assert Target("3.12").needs(pin) is needed
    assert pin.unconditional == f"x==1.0 --hash=sha256:{'a' * 64}"


@pytest.mark.parametrize("python", ["3", "2.7", "three", "3.12.1", "3."])
def test_what_is_no_python_is_refused(python):
    with pytest.raises(ValueError, match="no version of Python"):
        Target(python)


def test_markers_of_the_locks_can_be_judged():
    for name in LOCKS:
        pins = read_lock((ROOT / "requirements" / f"{name}.txt").read_text())
        needed = {pin.name for pin in pins if Target("3.12").needs(pin)}
        assert needed
        assert "colorama" not in needed


def test_packages_of_jobs_are_a_folder_with_their_pins(tmp_path, seed, said):
    pins = tmp_path / "pins.txt"
    pins.write_text(wheel(seed, 2))
    request = BundleRequest(out=tmp_path / "bundle", wheels=(seed,), packages=pins)
    making._packages(request, said.append)
    assert names(request.out / "packages") == {"gadget-2.0-py3-none-any.whl", "requirements.txt"}
    assert (request.out / "packages" / "requirements.txt").read_text() == pins.read_text()
    there = request.out / "packages" / "gadget-2.0-py3-none-any.whl"
    there.unlink()  # it may be a link to the one that it was made from
    there.write_bytes(b"cut short")
    making._packages(request, said.append)
    assert there.read_bytes() == (seed / there.name).read_bytes()
    making._packages(dataclasses.replace(request, packages=None), said.append)
    assert not (request.out / "packages").exists()


@pytest.mark.parametrize("line", ["gadget", "gadget==1.0", None])
def test_packages_without_pins_are_refused(tmp_path, said, line):
    pins = tmp_path / "pins.txt"
    if line is not None:
        pins.write_text(line)
    with pytest.raises(CommandError, match=r"--packages: .*pins\.txt: .*generate-hashes"):
        making._packages(BundleRequest(out=tmp_path / "bundle", packages=pins), said.append)
