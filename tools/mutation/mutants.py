"""Small changes of a module's syntax tree, one at a time."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
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
    before: str
    after: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"line {self.line}: {self.before}  →  {self.after}"


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    tree = ast.parse(source)
    # Type annotations say nothing at run time, and a docstring is no code.
    nodes = [node for node in _code(tree) if isinstance(node, ast.expr)]
    for number, node in enumerate(nodes):
        for variant in range(len(_changes(node))):
            changed = copy.deepcopy(tree)
            there = [each for each in _code(changed) if isinstance(each, ast.expr)][number]
            before = ast.unparse(there)
            after = _replace(changed, there, _changes(there)[variant])
            yield Mutant(node.lineno, before, after, ast.fix_missing_locations(changed))


def _changes(node: ast.expr) -> list[ast.expr]:
    """What may stand in the place of an expression."""
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
    return []


def _one_or_all(op: ast.boolop, values: list[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else ast.BoolOp(op, values)


def _replace(tree: ast.Module, old: ast.expr, new: ast.expr) -> str:
    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else self.generic_visit(node)

    Replace().visit(tree)
    return ast.unparse(new)


def _code(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes of a module that are executed, in the order of lines."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        children = []
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
                continue
            children += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, ast.AST)]
        stack += reversed([child for child in children if not isinstance(child, ast.JoinedStr)])
