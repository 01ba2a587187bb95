"""Lines by package, and the functions and files that are too long."""

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

MOST_LINES_OF_A_FUNCTION = 60
MOST_LINES_OF_A_FILE = 500

NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(folder: Path) -> list[Path]:
    """The Python files of a folder and its subfolders, sorted."""
    return sorted(folder.rglob("*.py"))


def lines(folder: Path) -> int:
    """The lines of all Python files of a folder."""
    return sum(len(file.read_text().splitlines()) for file in python_files(folder))


def code_lines(folder: Path) -> int:
    """The lines of all Python files of a folder, without blank lines, comments and docstrings."""
    return sum(code_lines_of(file.read_text()) for file in python_files(folder))


def code_lines_of(source: str) -> int:
    """The lines of a module with a token of code."""
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    return len(held - set(docstring_lines(ast.parse(source))))


def docstring_lines(tree: ast.Module) -> Iterator[int]:
    """The lines of string statements: docstrings of modules, classes, functions and fields."""
    for node in statements(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements below a node; does not descend into expressions, which are many and have no statements."""
    for inside in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, inside, None) or ():
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child)


def long_functions(folder: Path) -> dict[str, int]:
    """Functions over MOST_LINES_OF_A_FUNCTION lines, as `file:name`, with their lines."""
    return {
        f"{file}:{node.name}": size
        for file in python_files(folder)
        for node in statements(ast.parse(file.read_text()))
        if isinstance(node, Function) and (size := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    }


def long_files(folder: Path) -> dict[str, int]:
    """Files over MOST_LINES_OF_A_FILE lines, with their lines."""
    sizes = {str(file): len(file.read_text().splitlines()) for file in python_files(folder)}
    return {name: size for name, size in sizes.items() if size > MOST_LINES_OF_A_FILE}
