"""The text of a kernel: statements as lines of a readable width.

    total = tl.sum(long + longer + longest, axis=1)    →    total = tl.sum(
                                                                long + longer + longest,
                                                                axis=1,
                                                            )
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from jaxpr2triton.emit.scope import Line
from jaxpr2triton.emit.variables import Body, is_comment, pairs

WIDTH = 110
STEP = "    "


class Hex(int):
    """A number that is written as a pattern of bits: 0x3F800000."""

    def __repr__(self) -> str:
        return f"0x{self:08X}"


def parsed(lines: Sequence[Line]) -> Body:
    """The statements; a comment among them is a string."""
    text = "\n".join(_flat(lines, ""))
    module, rows = ast.parse(text), text.encode().split(b"\n")
    for node in ast.walk(module) if "0x" in text else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            node.value = Hex(node.value) if rows[node.lineno - 1].startswith(b"0x", node.col_offset) else node.value
    return module.body


def _flat(lines: Sequence[Line], pad: str) -> Iterator[str]:
    for line in lines:
        if isinstance(line, str):
            yield pad + (repr(line) if line.startswith("#") else line)
        else:
            header, inner = line
            yield pad + header
            yield from _flat(inner, pad + STEP)


def text_of(body: Body, pad: str = STEP) -> list[str]:
    """The lines of statements, with as few parentheses as may be."""
    lines: list[str] = []
    for statement in body:
        lines += _lines(statement, pad)
    return lines


def _lines(statement: ast.stmt, pad: str) -> list[str]:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(comment))) if is_comment(statement):
            return [_cut(pad + comment)]
        case ast.For(target=target, iter=head, body=inner):
            return [f"{pad}for {ast.unparse(target)} in {ast.unparse(head)}:", *text_of(inner, pad + STEP)]
        case ast.While(test=head, body=inner):
            return [f"{pad}while {ast.unparse(head)}:", *text_of(inner, pad + STEP)]
        case ast.If(test=head, body=inner, orelse=other):
            otherwise = [f"{pad}else:", *text_of(other, pad + STEP)] if other else []
            return [f"{pad}if {ast.unparse(head)}:", *text_of(inner, pad + STEP), *otherwise]
        case ast.Assign(targets=[ast.Tuple()], value=ast.Tuple()):
            targets, values = zip(*pairs(statement))
            left, right = ", ".join(map(ast.unparse, targets)), ", ".join(map(ast.unparse, values))
            if len(line := f"{pad}{left} = {right}") <= WIDTH:
                return [line]
            return _broken(statement.value, f"{left} = ", "", pad)
        case ast.Assign(targets=[target], value=value):
            left = ast.unparse(target).strip("()")
            return _broken(value, f"{left} = ", "", pad)
        case ast.Expr(value=value):
            return _broken(value, "", "", pad)
    return [pad + ast.unparse(statement)]


def _cut(comment: str) -> str:
    """No longer than a line is, but a comment, however deep it stands."""
    width = max(WIDTH, comment.index("#") + len("#..."))
    return comment if len(comment) <= width else comment[: width - 3].removesuffix("...") + "..."


def _broken(node: ast.expr, head: str, tail: str, pad: str, inside: bool = False) -> list[str]:
    """An expression between two texts, over as many lines as it takes; `inside` of parentheses it has its own."""
    line = f"{pad}{head}{ast.unparse(node)}{tail}"
    if len(line) <= WIDTH:
        return [line]
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if len(ast.unparse(value)) > WIDTH // 2:
            rest = ast.unparse(ast.Call(ast.Name("_"), node.args, node.keywords))[1:]
            return _as_operand(value, head, f".{name}{rest}{tail}", pad)
        case ast.Call():
            words = [("", arg) for arg in node.args] + [(f"{word.arg}=", word.value) for word in node.keywords]
            return _each(words, f"{head}{ast.unparse(node.func)}(", f"){tail}", pad)
        case ast.Subscript():
            rest = ast.unparse(ast.Subscript(ast.Name("_"), node.slice))[1:]
            return _as_operand(node.value, head, rest + tail, pad)
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
            sign = ast.unparse(ast.UnaryOp(node.op, ast.Name("_")))[:-1]
            return _as_operand(operand, head + sign, tail, pad)
    return [line]


def _each(words: Sequence[tuple[str, ast.expr]], head: str, tail: str, pad: str, last: str = "") -> list[str]:
    """Operands of a call: on one line of their own, with `last` behind the last one, or each on one."""
    together = pad + STEP + ", ".join(word + ast.unparse(value) for word, value in words) + last
    if len(together) <= WIDTH:
        return [pad + head, together, pad + tail]
    inner = [line for word, value in words for line in _broken(value, word, ",", pad + STEP, not word)]
    return [pad + head, *inner, pad + tail]


def _operands(node: ast.BinOp | ast.Compare) -> Iterator[tuple[str, ast.expr]]:
    """The operands of a chain such as a + b - c, each with the sign before it."""
    match node:
        case ast.Compare(left=left, comparators=[right]):
            yield "", left
            yield _sign(ast.Compare(ast.Name("_"), node.ops, [ast.Name("_")])), right
        case ast.BinOp(left=left, op=op, right=right):
            if isinstance(left, ast.BinOp) and _rank(left.op) == _rank(op):
                yield from _operands(left)
            else:
                yield "", left
            yield _sign(ast.BinOp(ast.Name("_"), op, ast.Name("_"))), right


def _rank(op: ast.operator) -> str:
    return "+" if isinstance(op, ast.Add | ast.Sub) else "*" if isinstance(op, ast.Mult) else type(op).__name__


def _sign(node: ast.expr) -> str:
    return ast.unparse(node)[2:-1]


def _in_place(sign: str, operand: ast.expr, head: str, pad: str) -> list[str]:
    """An operand on a line of its own; in parentheses, but for one that has some, a name, or a product of a sum."""
    bare = isinstance(operand, ast.Name | ast.Constant | ast.Call | ast.Subscript | ast.Attribute | ast.Tuple)
    bare = bare or (sign.strip() in ("", "+") and isinstance(operand, ast.BinOp) and isinstance(operand.op, ast.Mult))
    if bare and not isinstance(operand, ast.BinOp):
        return _broken(operand, head + sign, "", pad)
    if bare and len(f"{pad}{head}{sign}{ast.unparse(operand)}") <= WIDTH:
        return [f"{pad}{head}{sign}{ast.unparse(operand)}"]
    return _in_parentheses(operand, head + sign, "", pad)


def _as_operand(node: ast.expr, head: str, tail: str, pad: str) -> list[str]:
    if isinstance(node, ast.Name | ast.Call | ast.Subscript | ast.Attribute):
        return _broken(node, head, tail, pad)
    return _in_parentheses(node, head, tail, pad)


def _in_parentheses(node: ast.expr, head: str, tail: str, pad: str) -> list[str]:
    line = f"{pad}{head}({ast.unparse(node)}){tail}"
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
