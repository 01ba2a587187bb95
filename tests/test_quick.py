"""Which tests a change reaches, and which of them are played."""

from tools.quick import SOURCES, imports, module, reached, starts, within

FILES = {
    "resource/src/tpujob_resource/topology/chips.py": "import math",
    "resource/src/tpujob_resource/jobset/build.py": "from tpujob_resource.topology import chips",
    "tests/resource/test_chips.py": "from tpujob_resource.topology.chips import CHIPS",
    "tests/resource/test_build.py": "import tpujob_resource.jobset.build",
    "tests/resource/conftest.py": "NAME = 'quickstart.yaml'",
    "tests/cli/test_other.py": "import json",
}


def test_a_change_reaches_what_imports_it_at_any_distance() -> None:
    begin = starts({"resource/src/tpujob_resource/topology/chips.py", "gone.py"}, FILES)
    assert reached(imports(FILES), begin) == {
        "resource/src/tpujob_resource/topology/chips.py": 0,
        "resource/src/tpujob_resource/jobset/build.py": 1,
        "tests/resource/test_chips.py": 1,
        "tests/resource/test_build.py": 2,
    }


def test_a_file_of_another_kind_reaches_whoever_names_it_and_a_conftest_its_folder() -> None:
    assert reached(imports(FILES), starts({"examples/quickstart.yaml"}, FILES)) == {
        "tests/resource/conftest.py": 0,
        "tests/resource/test_chips.py": 1,
        "tests/resource/test_build.py": 1,
    }


def test_nearest_and_cheapest_come_first_within_the_seconds() -> None:
    tests = {"far": 2, "near": 1, "dear": 1}
    assert within(tests, {"dear": 60, "far": 5}, 70) == ["near", "dear", "far"]
    assert within(tests, {"dear": 60, "far": 5}, 65) == ["near", "dear"]


def test_modules_are_named_as_they_are_imported() -> None:
    assert len(SOURCES) == 8
    assert module("cli/src/tpujob/__init__.py") == "tpujob"
    assert module("tests/conftest.py") == "tests.conftest"
