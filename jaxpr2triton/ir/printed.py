"""The text of an expression of a kernel, with as few parentheses as may be."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxpr2triton.ir.tree import Access, Hiding, Load, Pointer

# how tightly an expression holds together what it is made of
_NOT, _COMPARED, _OR, _XOR, _AND, _SHIFTED, _SUM, _TERM, _SIGNED, _POWER, _ATOM = range(1, 12)

SIGNS: Mapping[type[ast.AST], tuple[str, int]] = {
    ast.BitOr: ("|", _OR),
    ast.BitXor: ("^", _XOR),
    ast.BitAnd: ("&", _AND),
    ast.LShift: ("<<", _SHIFTED),
    ast.RShift: (">>", _SHIFTED),
    ast.Add: ("+", _SUM),
    ast.Sub: ("-", _SUM),
    ast.Mult: ("*", _TERM),
    ast.Div: ("/", _TERM),
    ast.FloorDiv: ("//", _TERM),
    ast.Mod: ("%", _TERM),
    ast.Eq: ("==", _COMPARED),
    ast.NotEq: ("!=", _COMPARED),
    ast.Lt: ("<", _COMPARED),
    ast.LtE: ("<=", _COMPARED),
    ast.Gt: (">", _COMPARED),
    ast.GtE: (">=", _COMPARED),
    ast.USub: ("-", _SIGNED),
    ast.Invert: ("~", _SIGNED),
    ast.Not: ("not ", _NOT),
}


def printed(node: ast.expr, least: int = 0) -> str:
    """The expression; in parentheses if what is around it holds together at least as tightly as that."""
    return _PRINTERS[node.__class__](node, least)


def _binary(node: ast.BinOp, least: int) -> str:
    sign, level = SIGNS[node.op.__class__]
    text = f"{printed(node.left, level)} {sign} {printed(node.right, level + 1)}"
    return f"({text})" if level < least else text


def _compared(node: ast.Compare, least: int) -> str:
    text = printed(node.left, _COMPARED + 1)
    for op, other in zip(node.ops, node.comparators):
        text += f" {SIGNS[op.__class__][0]} {printed(other, _COMPARED + 1)}"
    return f"({text})" if least > _COMPARED else text


def _signed(node: ast.UnaryOp, least: int) -> str:
    sign, level = SIGNS[node.op.__class__]
    text = sign + printed(node.operand, level)
    return f"({text})" if level < least else text


def _called(node: ast.Call, least: int) -> str:
    return printed(node.func, _ATOM) + arguments_of(node)


def arguments_of(node: ast.Call) -> str:
    words = [f"{word.arg}={printed(word.value)}" for word in node.keywords]
    return f"({', '.join([*map(printed, node.args), *words])})"


def _tuple(node: ast.Tuple, least: int) -> str:
    return f"({_listed(node.elts)})"


def _listed(nodes: Sequence[ast.expr]) -> str:
    return ", ".join(map(printed, nodes)) + ("," if len(nodes) == 1 else "")


def _part(node: ast.Subscript, least: int) -> str:
    return printed(node.value, _ATOM) + places_of(node)


def places_of(node: ast.Subscript) -> str:
    places = _listed(node.slice.elts) if isinstance(node.slice, ast.Tuple) else printed(node.slice)
    return f"[{places}]"


def _slice(node: ast.Slice, least: int) -> str:
    return ":".join("" if end is None else printed(end) for end in (node.lower, node.upper))


def _name(node: ast.Name, least: int) -> str:
    return node.id


_PRINTERS: Mapping[type[ast.AST], Callable[[Any, int], str]] = {
    ast.Name: _name,
    Pointer: _name,
    ast.Constant: lambda node, least: repr(node.value),
    ast.Attribute: lambda node, least: f"{printed(node.value, _ATOM)}.{node.attr}",
    ast.Subscript: _part,
    ast.Slice: _slice,
    ast.Call: _called,
    Access: _called,
    Load: _called,
    Hiding: _called,
    ast.Tuple: _tuple,
    ast.BinOp: _binary,
    ast.Compare: _compared,
    ast.UnaryOp: _signed,
}
