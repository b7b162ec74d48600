"""The tree of a kernel: expressions and statements, made from templates and never from text.

    expr("tl.where({} > 0, {}, 0.0)", x, y)      a tree of Python's own `ast`, in which x and y are trees as they are

A template is parsed once; after that a tree is made by building what lies around its holes. Operands need no
parentheses: which are needed is known to whoever prints the tree (`ir/printed.py`). What Python's trees cannot say is
said by nodes of our own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cache
from string import Formatter
from typing import Any, TypeVar

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.kernel import Buffer

Part = ast.expr | str | bool | int | float | None | tuple[Any, ...]  # a tree, a name (dots included), a number, a tuple
Kind = TypeVar("Kind", bound=ast.Call)
Body = list[ast.stmt]

LOAD, STORE = ast.Load(), ast.Store()


class Hex(int):
    """A number that is written as a pattern of bits: 0x3F800000."""

    def __repr__(self) -> str:
        return f"0x{self:08X}"


class Pointer(ast.Name):
    """The parameter that points to a buffer."""

    def __init__(self, buffer: Buffer) -> None:
        super().__init__(buffer.parameter, LOAD)
        self.buffer = buffer


class Access(ast.Call):
    """A call that reads or writes memory, or waits until others have: it is not made twice, nor elsewhere."""


class Load(Access):
    """What is read from memory."""


class Hiding(ast.Call):
    """A call, and what stands in its place where all elements of a tile are shown; nothing, if nobody wants it."""

    def __init__(self, hidden: ast.Call, shown: ast.expr | None) -> None:
        super().__init__(hidden.func, hidden.args, hidden.keywords)
        self.shown = shown


class Store(ast.Expr):
    """What is written to memory, or added to what is there."""

    value: Access


class Barrier(ast.Expr):
    """Threads wait for each other, and see what the others have written."""


class Meeting(Barrier):
    """All programs wait for each other, and see what the others have written."""


class Comment(ast.stmt):
    """A line of comment."""

    _fields = ()

    def __init__(self, text: str) -> None:
        self.text = text


def expr(template: str, *parts: Part, **named: Part) -> ast.expr:
    """The expression, with the parts in the place of its holes: {}, {0}, {axis}."""
    values: Any = [as_expr(part) for part in parts]
    if named:
        values = dict(enumerate(values)) | {key: as_expr(part) for key, part in named.items()}
    found: ast.expr = _template(template)(values)
    return found


def as_expr(part: Part) -> ast.expr:
    if isinstance(part, ast.expr):
        return part
    if isinstance(part, str):
        return name(part)
    if isinstance(part, tuple):
        return ast.Tuple([as_expr(each) for each in part], LOAD)
    if isinstance(part, int | float) and not isinstance(part, bool) and part < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-part))
    return ast.Constant(part)


def name(text: str) -> ast.expr:
    """A variable, or what lies in a module: `tl.float32`."""
    first, *others = text.split(".")
    found: ast.expr = ast.Name(first, LOAD)
    for each in others:
        found = ast.Attribute(found, each, LOAD)
    return found


def call(function: str, *arguments: Part, **words: Part) -> ast.Call:
    return _called(ast.Call, function, *arguments, **words)


def _called(kind: type[Kind], function: str, *arguments: Part, **words: Part) -> Kind:
    keywords = [ast.keyword(word, as_expr(value)) for word, value in words.items()]
    return kind(name(function), [as_expr(each) for each in arguments], keywords)


def sum_of(one: Part, other: Part) -> ast.expr:
    """one + other, whose terms are added one after the other: a + (b - c) is a + b - c."""
    one, other = as_expr(one), as_expr(other)
    if isinstance(other, ast.BinOp) and isinstance(other.op, ast.Add | ast.Sub):
        return ast.BinOp(sum_of(one, other.left), other.op, other.right)
    return ast.BinOp(one, ast.Add(), other)


def scaled(value: ast.expr, times: int) -> ast.expr:
    return value if times == 1 else ast.BinOp(value, ast.Mult(), as_expr(times))


def all_hold(conditions: Sequence[ast.expr]) -> ast.expr:
    """one & other & …"""
    found, *others = conditions
    for each in others:
        found = ast.BinOp(found, ast.BitAnd(), each)
    return found


def assign(targets: str | Sequence[str], value: Part) -> ast.Assign:
    """name = value; or one, other = value."""
    if isinstance(targets, str):
        target: ast.expr = ast.Name(targets, STORE)
    elif len(targets) == 1:
        target = ast.Name(targets[0], STORE)
    else:
        target = ast.Tuple([ast.Name(each, STORE) for each in targets], STORE)
    return ast.Assign([target], as_expr(value))


def loop_of(step: str, steps: ast.expr, body: Body) -> ast.For:
    return ast.For(ast.Name(step, STORE), steps, body, [])


def load(address: ast.expr, mask: ast.expr | None, other: ast.expr) -> Load:
    masked = {} if mask is None else {"mask": mask, "other": other}
    return _called(Load, "tl.load", address, **masked)


def store(address: ast.expr, value: ast.expr, mask: ast.expr | None) -> Store:
    masked = {} if mask is None else {"mask": mask}
    return Store(_called(Access, "tl.store", address, value, **masked))


def atomic(function: str, address: ast.expr, value: ast.expr, mask: ast.expr | None) -> Store:
    """Each lane combines what it has with what is there, in some order."""
    masked = {} if mask is None else {"mask": mask}
    ways = {"sem": ast.Constant("relaxed"), "scope": ast.Constant("cta")}
    return Store(_called(Access, f"tl.atomic_{function}", address, value, **masked, **ways))


def barrier() -> Barrier:
    return Barrier(_called(Access, "tl.debug_barrier"))


def meeting(counter: Buffer, programs: int) -> Meeting:
    return Meeting(_called(Access, "_all_meet", Pointer(counter), programs))


def buffer_of(access: Access) -> Buffer:
    """What a load or a store reads or writes: what the pointer points to, to which offsets are added."""
    address = access.args[0]
    while not isinstance(address, Pointer):
        match address:
            case ast.BinOp(left=inner) | ast.Call(args=[inner, *_]):
                address = inner
            case _:
                raise CompilerBug(f"an address is a {type(address).__name__}")
    return address.buffer


def mask_of(access: Access) -> ast.expr | None:
    """Where it reads or writes; None if everywhere."""
    return next((word.value for word in access.keywords if word.arg == "mask"), None)


def is_atom(node: ast.expr) -> bool:
    """Whether it is a name, a number, a call or a part of something like that, and no parentheses are in it."""
    match node:
        case ast.Name() | ast.Constant():
            return True
        case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Call(func=inner):
            return is_atom(inner)
    return False


Build = Callable[[Any], Any]  # from the parts, by their places and names


@cache
def _template(template: str) -> Build:
    """What makes the expression of the parts."""
    holes: dict[str, int | str] = {}
    text, count = "", 0
    for literal, field, _, _ in Formatter().parse(template):
        text += literal
        if field is not None:
            key: int | str = count if field == "" else int(field) if field.isdigit() else field
            count += field == ""
            holes[f"_hole_{key}_"] = key
            text += f"_hole_{key}_"
    tree = ast.parse(text, mode="eval").body
    return _builder(tree, holes) or (lambda values: tree)


def _builder(node: Any, holes: dict[str, int | str]) -> Build | None:
    """What builds this part of a template; None if there is no hole in it, and it may be shared by all."""
    if isinstance(node, list):
        builders = [_builder(each, holes) for each in node]
        if not any(builders):
            return None
        both = list(zip(builders, node))
        return lambda values: [each if build is None else build(values) for build, each in both]
    if not isinstance(node, ast.AST):
        return None
    if isinstance(node, ast.Name) and node.id in holes:
        key = holes[node.id]
        return lambda values: values[key]
    kind, fields = type(node), {field: getattr(node, field) for field in node._fields}
    parts = [(field, _builder(value, holes)) for field, value in fields.items()]
    varying = [(field, part) for field, part in parts if part is not None]
    if not varying:
        return None

    def build(values: Any) -> ast.AST:
        made = kind.__new__(kind)
        made.__dict__.update(fields)
        for field, part in varying:
            made.__dict__[field] = part(values)
        return made

    return build
