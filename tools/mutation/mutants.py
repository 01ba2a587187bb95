"""Small changes of a module's syntax tree, one at a time."""

import ast
import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """A changed module."""

    line: int
    text: str
    """The line in which the changed expression starts."""
    function: int | None
    """The first line of the changed function, including decorators; None: the change is outside functions."""
    before: str
    after: str
    make: Callable[[], ast.Module]
    """Builds the changed module; lazily, because a sample needs only a few."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.before}  →  {self.after}"


def mutants(source: str) -> Iterator[Mutant]:
    """All mutants of a module, ordered by line."""
    tree, texts = ast.parse(source), source.splitlines()
    lines = _functions(tree)
    conditions = _conditions(tree)
    nodes = [node for node in _code(tree) if isinstance(node, ast.expr)]
    for number, node in enumerate(nodes):
        is_condition = id(node) in conditions
        changes = _changes(node, is_condition=is_condition)
        before = ast.unparse(node) if changes else ""
        for variant, change in enumerate(changes):
            make = functools.partial(_changed, tree, number, variant, is_condition=is_condition)
            yield Mutant(
                node.lineno, texts[node.lineno - 1].strip(), lines.get(id(node)), before, ast.unparse(change), make
            )


def _changed(tree: ast.Module, number: int, variant: int, *, is_condition: bool) -> ast.Module:
    """A copy of a module with one change of one expression."""
    changed = copy.deepcopy(tree)
    there = [node for node in _code(changed) if isinstance(node, ast.expr)][number]
    _replace(changed, there, _changes(there, is_condition=is_condition)[variant])
    return ast.fix_missing_locations(changed)


def _changes(node: ast.expr, *, is_condition: bool) -> list[ast.expr]:
    """The replacements of an expression."""
    match node:
        case ast.Compare(ops=[op, *rest]) if type(op) in COMPARISONS:
            return [ast.Compare(node.left, [COMPARISONS[type(op)](), *rest], node.comparators)]
        case ast.BoolOp(values=values):
            return [_one_or_all(node.op, values[:at] + values[at + 1 :]) for at in range(len(values))]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return [operand]
        case ast.BinOp(op=op) if type(op) in OPERATORS and not isinstance(node.left, ast.Constant | ast.JoinedStr):
            return [ast.BinOp(node.left, OPERATORS[type(op)](), node.right)]
        case ast.Constant(value=bool() as value):
            return [ast.Constant(not value)]
        case ast.Constant(value=int() as value):
            return [ast.Constant(value + 1), ast.Constant(value - 1)]
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
    return [ast.UnaryOp(ast.Not(), node)] if is_condition else []


def _one_or_all(op: ast.boolop, values: list[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else ast.BoolOp(op, values)


def _replace(tree: ast.Module, old: ast.expr, new: ast.expr) -> None:
    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else self.generic_visit(node)

    Replace().visit(tree)


def _conditions(tree: ast.Module) -> set[int]:
    """The ids of the expressions that are conditions."""
    found: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                found.add(id(test))
            case ast.comprehension(ifs=ifs):
                found.update(id(each) for each in ifs)
    return found


def _functions(tree: ast.Module) -> dict[int, int]:
    """For each node inside a function, by its id: the first line of the innermost function."""
    found: dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            for statement in node.body:
                found.update((id(each), first) for each in ast.walk(statement))
    return found


def _code(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes of a module that are mutated, ordered by line.

    Left out: type annotations, which have no effect at run time; f-strings, because the wording of messages is not
    judged; and values of constants (`LIMIT_SECONDS = 64`), which are choices that no test should repeat.
    """
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        if _is_constant(node):
            continue
        children = []
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
                continue
            children += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, ast.AST)]
        stack += reversed([child for child in children if not isinstance(child, ast.JoinedStr)])


def _is_constant(node: ast.AST) -> bool:
    """Whether a node assigns a constant to names in capitals."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and all(isinstance(target, ast.Name) and target.id.isupper() for target in node.targets)
    )
