"""Python objects that a configuration names as `module:name`: a user's own model, loss or optimizer."""

import ast
import contextlib
import functools
import hashlib
import importlib.util
import json
import re
import sysconfig
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from tpujob_trainer.values.errors import ConfigurationError, brief

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
PATTERN = rf"^{_NAME}(\.{_NAME})*:{_NAME}$"
"""Regular expression of a reference, which Python and the API server interpret alike."""
NOT_ONE = "is not module:name; write it as in my_package.model:Decoder"
"""The message about a text that is not a reference."""

WHERE_CODE_COMES_FROM = "submit it with --code, build it into the image, or start where it is"


class MissingModuleError(ConfigurationError):
    """A module that a field names, or one that it imports, is not on this machine; the job may bring it."""


def require_reference(text: str, key: str) -> None:
    """Checks that the text is a reference.

    Raises:
        ValueError: it is not; the message begins with the key.
    """
    if not re.fullmatch(PATTERN, text):
        raise ValueError(f"{key}: {json.dumps(text)} {NOT_ONE}")


def load_reference(text: str, field: str) -> Any:
    """The object that `module:name` names.

    Raises:
        MissingModuleError: the module, or one that it imports, is not on this machine.
        ConfigurationError: the module cannot be imported, has no such name, or the object cannot be called.
    """
    module_name, _, name = text.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module_name.split(".")[0]:
            raise MissingModuleError(
                f"{field}: no module named {error.name!r} is installed or on PYTHONPATH; {WHERE_CODE_COMES_FROM}"
            ) from error
        kind = MissingModuleError if isinstance(error, ModuleNotFoundError) else ConfigurationError
        raise kind(f"{field}: {module_name} cannot be imported: {brief(error)}") from error
    try:
        found = getattr(module, name)
    except AttributeError as error:
        known = ", ".join(sorted(each for each in vars(module) if not each.startswith("_"))[:20])
        raise ConfigurationError(f"{field}: {module_name} has no {name!r}; it has {known}") from error
    if not callable(found):
        raise ConfigurationError(f"{field}: {text} is a {type(found).__name__}, which cannot be called")
    return found


@functools.cache
def source_digests(text: str, field: str) -> Mapping[str, str]:
    """Digests, 16 hexadecimal digits, of what a reference executes: of the statements, without comments and docstrings.

    The sources are read once in a process, as modules are. Those of its module and, by their import statements, of all
    modules in the same folder; in a folder of installed packages, of its own package.

    Returns:
        By definition, as `module.function`, or by `module` for its other statements.

    Raises:
        ConfigurationError: as `load_reference`, or the module has no source file.
    """
    load_reference(text, field)
    first = _spec(text.partition(":")[0])
    if first is None:
        raise ConfigurationError(f"{field}: {text} has no source file, by which a change could be noticed")
    digests: dict[str, str] = {}
    found, seen = [first], {first.name}
    for spec in found:
        tree = ast.parse(Path(str(spec.origin)).read_bytes())
        for each in map(_spec, _imported(tree, spec)):
            if each is not None and each.name not in seen and _is_of_same_code(each, first):
                seen.add(each.name)
                found.append(each)
        written: dict[str, str] = {}
        for node in tree.body:
            defined = f"{spec.name}.{node.name}" if isinstance(node, _Definition) else spec.name
            written[defined] = written.get(defined, "") + ast.unparse(_WithoutDocstrings().visit(node)) + "\n"
        digests |= {each: hashlib.blake2b(code.encode(), digest_size=8).hexdigest() for each, code in written.items()}
    return digests


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class _WithoutDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        return ast.Pass() if isinstance(node.value, ast.Constant) else node


def _spec(name: str) -> ModuleSpec | None:
    """Where a module comes from; None: it is none, or has no source."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # `from module import function` names none
        return None
    return spec if spec is not None and str(spec.origin).endswith(".py") else None


def _is_of_same_code(spec: ModuleSpec, first: ModuleSpec) -> bool:
    """Whether a module lies in the folder of another one's code; among installed packages, in the same package."""
    root = Path(str(first.origin)).parents[first.name.count(".") + (first.submodule_search_locations is not None)]
    if str(root) in sysconfig.get_paths().values():
        return spec.name.split(".")[0] == first.name.split(".")[0]
    place = Path(str(spec.origin))
    return place.is_relative_to(root) and "site-packages" not in place.parts


def _imported(tree: ast.Module, module: ModuleSpec) -> Iterator[str]:
    """What may be names of modules in the import statements of a module."""
    package = (module.name if module.submodule_search_locations is not None else module.parent) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            with contextlib.suppress(ImportError):  # in code that is not reached: it leads out of the package
                origin = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                yield from (origin, *(f"{origin}.{each.name}" for each in node.names))
