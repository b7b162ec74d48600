"""The text of a kernel: statements as lines of a readable width.

    total = tl.sum(long + longer + longest, axis=1)    →    total = tl.sum(
                                                                long + longer + longest,
                                                                axis=1,
                                                            )
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.printed import SIGNS, arguments_of, places_of, printed
from jaxpr2triton.ir.tree import Body, Comment

WIDTH = 110
STEP = "    "
SUMS = {ast.Add, ast.Sub}


def text_of(body: Body, pad: str = STEP) -> list[str]:
    """The lines of statements, with as few parentheses as may be."""
    lines: list[str] = []
    for statement in body:
        lines += _lines(statement, pad)
    return lines


def _lines(statement: ast.stmt, pad: str) -> list[str]:
    match statement:
        case Comment():
            return [_cut(pad + statement.text)]
        case ast.For(target=target, iter=head, body=inner):
            return [f"{pad}for {printed(target)} in {printed(head)}:", *text_of(inner, pad + STEP)]
        case ast.While(test=head, body=inner):
            return [f"{pad}while {printed(head)}:", *text_of(inner, pad + STEP)]
        case ast.If(test=head, body=inner, orelse=other):
            otherwise = [f"{pad}else:", *text_of(other, pad + STEP)] if other else []
            return [f"{pad}if {printed(head)}:", *text_of(inner, pad + STEP), *otherwise]
        case ast.Assign(targets=[target], value=value):
            left, right = _listed(target), _listed(value) if isinstance(target, ast.Tuple) else printed(value)
            if len(line := f"{pad}{left} = {right}") <= WIDTH:
                return [line]
            return _broken(value, f"{left} = ", "", pad)
        case ast.AugAssign(target=target, op=op, value=value):
            return [f"{pad}{printed(target)} {SIGNS[type(op)][0]}= {printed(value)}"]
        case ast.Expr(value=value):
            return _broken(value, "", "", pad)
        case ast.Pass():
            return [f"{pad}pass"]
    raise CompilerBug(f"a kernel has a statement of the kind {type(statement).__name__}")


def _listed(value: ast.expr) -> str:
    """a, b instead of (a, b)."""
    return ", ".join(map(printed, value.elts)) if isinstance(value, ast.Tuple) else printed(value)


def _cut(comment: str) -> str:
    """No longer than a line is, but a comment, however deep it stands."""
    width = max(WIDTH, comment.index("#") + len("#..."))
    return comment if len(comment) <= width else comment[: width - 3].removesuffix("...") + "..."


def _broken(node: ast.expr, head: str, tail: str, pad: str, inside: bool = False) -> list[str]:
    """An expression between two texts, over as many lines as it takes; `inside` of parentheses it has its own."""
    line = f"{pad}{head}{printed(node)}{tail}"
    if len(line) <= WIDTH:
        return [line]
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if len(printed(value)) > WIDTH // 2:
            return _as_operand(value, head, f".{name}{arguments_of(node)}{tail}", pad)
        case ast.Call():
            words = [("", arg) for arg in node.args] + [(f"{word.arg}=", word.value) for word in node.keywords]
            return _each(words, f"{head}{printed(node.func)}(", f"){tail}", pad)
        case ast.Subscript():
            return _as_operand(node.value, head, places_of(node) + tail, pad)
        case ast.Tuple():
            last = "," if len(node.elts) == 1 else ""  # or it would be no tuple
            return _each([("", each) for each in node.elts], f"{head}(", f"){tail}", pad, last)
        case ast.BinOp() | ast.Compare():
            operands = list(_operands(node))
            if inside:
                first, *others = operands
                lines = _in_place(*first, head, pad)
                for sign, operand in others:
                    lines += _in_place(sign, operand, "", pad)
                return [*lines[:-1], lines[-1] + tail]
            inner = _broken(node, "", "", pad + STEP, True)
            return [f"{pad}{head}(", *inner, f"{pad}){tail}"]
        case ast.UnaryOp(operand=operand):
            return _as_operand(operand, head + SIGNS[type(node.op)][0], tail, pad)
    return [line]


def _each(words: Sequence[tuple[str, ast.expr]], head: str, tail: str, pad: str, last: str = "") -> list[str]:
    """Operands of a call: on one line of their own, with `last` behind the last one, or each on one."""
    together = pad + STEP + ", ".join(word + printed(value) for word, value in words) + last
    if len(together) <= WIDTH:
        return [pad + head, together, pad + tail]
    inner = [line for word, value in words for line in _broken(value, word, ",", pad + STEP, not word)]
    return [pad + head, *inner, pad + tail]


def _operands(node: ast.BinOp | ast.Compare) -> Iterator[tuple[str, ast.expr]]:
    """The operands of a chain such as a + b - c, each with the sign before it."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield "", left
            yield f"{SIGNS[type(op)][0]} ", right
        case ast.BinOp(left=left, op=op, right=right):
            sign = SIGNS[type(op)][0]
            if isinstance(left, ast.BinOp) and (SIGNS[type(left.op)][0] == sign or {type(left.op), type(op)} <= SUMS):
                yield from _operands(left)
            else:
                yield "", left
            yield f"{sign} ", right


def _in_place(sign: str, operand: ast.expr, head: str, pad: str) -> list[str]:
    """An operand on a line of its own; in parentheses, but for one that has some, a name, or a product of a sum."""
    bare = isinstance(operand, ast.Name | ast.Constant | ast.Call | ast.Subscript | ast.Attribute | ast.Tuple)
    bare = bare or (sign.strip() in ("", "+") and isinstance(operand, ast.BinOp) and isinstance(operand.op, ast.Mult))
    if bare and not isinstance(operand, ast.BinOp):
        return _broken(operand, head + sign, "", pad)
    if bare and len(f"{pad}{head}{sign}{printed(operand)}") <= WIDTH:
        return [f"{pad}{head}{sign}{printed(operand)}"]
    return _in_parentheses(operand, head + sign, "", pad)


def _as_operand(node: ast.expr, head: str, tail: str, pad: str) -> list[str]:
    if isinstance(node, ast.Name | ast.Call | ast.Subscript | ast.Attribute):
        return _broken(node, head, tail, pad)
    return _in_parentheses(node, head, tail, pad)


def _in_parentheses(node: ast.expr, head: str, tail: str, pad: str) -> list[str]:
    line = f"{pad}{head}({printed(node)}){tail}"
    if len(line) <= WIDTH:
        return [line]
    return [f"{pad}{head}(", *_broken(node, "", "", pad + STEP, True), f"{pad}){tail}"]


def filled(head: str, words: Iterable[str], between: str, further: str) -> list[str]:
    """Words one after the other, on as many lines as they need; those after the first begin with `further`."""
    lines = [head]
    for number, word in enumerate(words):
        text = word if not number else between + word
        if len((lines[-1] + text + between).rstrip()) > WIDTH and lines[-1] not in (head, further):
            lines[-1] = (lines[-1] + between).rstrip()
            lines.append(further + word)
        else:
            lines[-1] += text
    return lines
