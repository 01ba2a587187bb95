"""Nothing in the product runs what it has read: no pickle, eval or shell, no code from a model's or data set's hub."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Executes changed copies of our own modules, which is what it is for; nothing that was read from elsewhere.
RUNS_OUR_OWN = ROOT / "tools" / "mutation"
SOURCES = sorted(
    path
    for part in ("contract", "launcher", "resource", "operator", "trainer", "sdk", "cli", "tools")
    for path in (ROOT / part).rglob("*.py")
    if not {".venv", "__pycache__", "build"} & set(path.parts) and not path.is_relative_to(RUNS_OUR_OWN)
)
MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
CALLS = {"eval", "exec", "__import__", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "torch.load"}
OPTIONS = {("trust_remote_code", True), ("shell", True), ("verify", False), ("allow_pickle", True)}


def forbidden(source: str) -> Iterator[str]:
    """What in this Python text is not allowed, with its line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found = [name.name for name in names if name.name.split(".")[0] in MODULES]
            case ast.ImportFrom(module=str(module)):
                found = [module] if module.split(".")[0] in MODULES else []
            case ast.Call(func=func, keywords=keywords):
                name = ast.unparse(func)
                found = [name] if name in CALLS else []
                # Also a value that is only known later: it may be the wrong one.
                found += [f"{k.arg}={ast.unparse(k.value)}" for k in keywords if not _is_safe(k)]
            case _:
                continue
        yield from (f"{node.lineno}: {what}" for what in found)


def _is_safe(keyword: ast.keyword) -> bool:
    wrong = {value for name, value in OPTIONS if name == keyword.arg}
    return not wrong or (isinstance(keyword.value, ast.Constant) and keyword.value.value not in wrong)


def test_product_runs_nothing_that_it_reads():
    assert len(SOURCES) > 200
    found = [f"{path.relative_to(ROOT)}:{what}" for path in SOURCES for what in forbidden(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from dill import loads",
        "import cloudpickle as c",
        "eval(text)",
        "exec(text)",
        "__import__(name)",
        "yaml.load(text)",
        "torch.load(path)",
        "f(trust_remote_code=True)",
        "f(trust_remote_code=config.trust)",
        "subprocess.run(command, shell=True)",
        "numpy.load(path, allow_pickle=True)",
        "requests.get(url, verify=False)",
    ],
)
def test_each_forbidden_thing_is_found(source):
    assert len(list(forbidden(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "f(trust_remote_code=False)",
        "YAML(typ='safe').load(text)",
        "model.eval()",
        "numpy.load(path, allow_pickle=False)",
    ],
)
def test_what_is_harmless_is_allowed(source):
    assert list(forbidden(source)) == []
