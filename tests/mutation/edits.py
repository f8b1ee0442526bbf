"""Small edits of a module, each of which a test should notice: mutants."""

import ast
import copy
from collections.abc import Iterator
from typing import Final, NamedTuple

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


class Mutant(NamedTuple):
    """One edit.

    Attributes:
        tree: the whole module with it.
    """

    line: int
    what: str
    tree: ast.Module


def mutants(source: str) -> Iterator[Mutant]:
    """Yields every edit of the functions of a module: comparisons, conditions, numbers and results."""
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        for variant, what in enumerate(_edits(node)):
            changed = copy.deepcopy(tree)
            edited = next(other for index, other in enumerate(ast.walk(changed)) if index == number)
            _apply(edited, variant)
            yield Mutant(getattr(node, "lineno", 0), what, ast.fix_missing_locations(changed))


def _edits(node: ast.AST) -> list[str]:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARISONS:
            return [f"{type(operator).__name__} to {_COMPARISONS[type(operator)].__name__}"]
        case ast.BoolOp(op=ast.And()):
            return ["and to or"]
        case ast.BoolOp(op=ast.Or()):
            return ["or to and"]
        case ast.If() | ast.IfExp() | ast.While():
            return ["condition to its opposite"]
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            return ["result to None"]
        case ast.Constant(value=bool()):
            return ["truth to its opposite"]
        case ast.Constant(value=int() as value):
            return [f"{value} to {value + 1}"]
        case ast.Raise():
            return ["raise to pass"]
    return []


def _apply(node: ast.AST, variant: int) -> None:
    assert variant == 0
    match node:
        case ast.Compare():
            node.ops = [_COMPARISONS[type(node.ops[0])]()]
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.If() | ast.IfExp() | ast.While():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Return():
            node.value = ast.Constant(None)
        case ast.Constant(value=bool() as value):
            node.value = not value
        case ast.Constant(value=int() as value):
            node.value = value + 1
        case ast.Raise():
            node.__class__ = ast.Pass  # type: ignore[assignment]
            node._fields = ()  # type: ignore[misc]
