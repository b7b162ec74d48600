"""What the user calls the values of a program, by the lines that assign them.

    mean = x.mean(-1)         the equation that ends this expression computes `mean`
    k2 = slope(x + h * k1)    and so does the last one of what a function called here gives back

    i, f = jnp.split(x, 2)    where what is split is computed, its parts are `i` and `f`

An equation of a transposed program is on the line whose values it takes back. What it is given by the equations of
later lines is the cotangent of what the line assigned: `d_mean`.
"""

from __future__ import annotations

import ast
import functools
import linecache
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.extend.core as jex

from jaxpr2triton._compat import Frame, is_differentiated, is_transposed, user_frames
from jaxpr2triton.ir.evaluate import variables

AMONG = ","  # stands between the names of a line with several
Span = tuple[int, int, int, int]  # first line and column, last line and column


@dataclass(frozen=True)
class Assigned:
    """An expression that a line gives a name, within the calls that led to it."""

    name: str
    span: Span
    calls: tuple[Frame, ...]
    transposed: bool


@dataclass(frozen=True)
class Part:
    """A slice of a value that a line gives a name of its own."""

    name: str
    dim: int
    start: int
    limit: int


Runs = dict[Assigned, list[list[int]]]  # numbers of equations


def user_names(jaxpr: Any, loop: Any = None) -> dict[Any, str]:
    """A name for each variable of a jaxpr that a line of the user's assigns; `loop`: whose body the jaxpr is."""
    around = () if loop is None else user_frames(loop)
    backwards = loop is not None and is_transposed(loop)  # its body does not say so
    frames = [_inside(user_frames(eqn), around) for eqn in jaxpr.eqns]
    transposed = [backwards or is_transposed(eqn) for eqn in jaxpr.eqns]
    readers: dict[Any, set[int]] = {}
    makers = {var: number for number, eqn in enumerate(jaxpr.eqns) for var in eqn.outvars}
    for number, eqn in enumerate(jaxpr.eqns):
        for operand in variables(eqn.invars):
            readers.setdefault(operand, set()).add(number)
    for result in variables(jaxpr.outvars):
        readers.setdefault(result, set()).add(-1)
    given = {var: number for var, number in makers.items() if transposed[number]}
    found: dict[Any, str] = {}
    runs = _runs(frames, transposed)
    for place in sorted(runs, key=lambda place: -len(place.calls)):
        for run in runs[place]:
            if AMONG in place.name:
                for var, name in _together(jaxpr, run, place, frames).items():
                    found.setdefault(var, name)
                continue
            if place.transposed:
                var = _cotangent(jaxpr, run, given, frames, place)
                name = f"d_{place.name}"
            else:
                whole = frames[run[-1]][len(place.calls)].span == place.span  # not a part that has been left of it
                var, name = _result(jaxpr, run, readers) if whole else None, place.name
            if var is not None:
                found.setdefault(var, name)
    return found


def parts_of(jaxpr: Any, names: Mapping[Any, str]) -> dict[Any, list[Part]]:
    """The named slices of each variable, by the names of variables."""
    found: dict[Any, list[Part]] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "slice" and eqn.outvars[0] in names:
            for dim in _cut(eqn):
                start, limit = eqn.params["start_indices"][dim], eqn.params["limit_indices"][dim]
                found.setdefault(eqn.invars[0], []).append(Part(names[eqn.outvars[0]], dim, start, limit))
    return found


def _cut(eqn: Any) -> list[int]:
    """The one dimension that a slice is a part of."""
    before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    dims = [d for d, (one, other) in enumerate(zip(before, after)) if one != other]
    return dims if len(dims) == 1 and set(eqn.params["strides"] or (1,)) == {1} else []


def _together(jaxpr: Any, run: Sequence[int], place: Assigned, frames: Sequence[Sequence[Frame]]) -> dict[Any, str]:
    """Names for equal parts of one value; those of cotangents are put together again where the line is taken back."""
    names = place.name.split(AMONG)
    found: dict[Any, str] = {}
    for number in run:
        eqn = jaxpr.eqns[number]
        if len(frames[number]) != len(place.calls) + 1 or frames[number][-1].span != place.span:
            continue
        if place.transposed and eqn.primitive.name == "concatenate" and len(eqn.invars) == len(names):
            pairs = list(zip(eqn.invars, names))
            found |= {var: f"d_{name}" for var, name in pairs if name and not isinstance(var, jex.Literal)}
        elif not place.transposed and eqn.primitive.name == "slice":
            for dim in _cut(eqn):
                size = eqn.outvars[0].aval.shape[dim]
                name = names[min(eqn.params["start_indices"][dim] // size, len(names) - 1)]
                if name and size * len(names) == eqn.invars[0].aval.shape[dim]:
                    found[eqn.outvars[0]] = name
    return found


def _inside(frames: Sequence[Frame], around: Sequence[Frame]) -> Sequence[Frame]:
    """The calls within a loop's body."""
    shared = next((n for n, pair in enumerate(zip(frames, around)) if pair[0] != pair[1]), len(around))
    return frames[shared:]


def _runs(frames: Sequence[Sequence[Frame]], transposed: Sequence[bool]) -> Runs:
    """The equations of each expression that is assigned; where it is evaluated several times, one run for each."""
    runs: Runs = {}
    last: set[Assigned] = set()
    files = dict.fromkeys(frame.file for calls in frames for frame in calls)
    targets = {file: _targets(file) for file in files}
    for number, calls in enumerate(frames):
        current = set()
        for depth, frame in enumerate(calls):
            for span, name in targets[frame.file].get(frame.line, ()):
                if span[:2] <= frame.span[:2] and frame.span[2:] <= span[2:]:
                    place = Assigned(name, span, tuple(calls[:depth]), transposed[number])
                    current.add(place)
                    if place not in last:
                        runs.setdefault(place, []).append([])
                    runs[place][-1].append(number)
        last = current
    return runs


def _result(jaxpr: Any, run: Sequence[int], readers: Mapping[Any, set[int]]) -> Any:
    """The one variable that is read elsewhere; of several the last one, but derivatives may be among those."""
    own, last = set(run), jaxpr.eqns[run[-1]].outvars
    outs = [var for number in run for var in jaxpr.eqns[number].outvars if readers.get(var, set()) - own]
    if not outs or last != outs[-1:]:
        return None
    derived = len(outs) > 1 and any(is_differentiated(jaxpr.eqns[number]) for number in run)
    return None if derived else outs[-1]


def _cotangent(
    jaxpr: Any, run: Sequence[int], makers: Mapping[Any, int], frames: Sequence[Sequence[Frame]], place: Assigned
) -> Any:
    """The one cotangent that comes from a later line; what is only added to another one may be anything's."""
    own = set(run)
    given: dict[Any, None] = {}
    for number in run:
        eqn = jaxpr.eqns[number]
        operands = variables(eqn.invars) if eqn.primitive.name != "add_any" else []
        given |= dict.fromkeys(v for v in operands if v in makers and makers[v] not in own)
    later = [var for var in given if _is_later(frames[makers[var]], place)]
    return later[0] if len(later) == 1 else None


def _is_later(calls: Sequence[Frame], place: Assigned) -> bool:
    """Whether a line lies after an expression, or outside of the function that it is in."""
    depth = len(place.calls)
    return len(calls) <= depth or tuple(calls[:depth]) != place.calls or calls[depth].line > place.span[2]


def _targets(file: str) -> Mapping[int, Sequence[tuple[Span, str]]]:
    return _parsed("".join(linecache.getlines(file)))


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> Mapping[int, Sequence[tuple[Span, str]]]:
    """For each line the expressions on it that are assigned, with the names they are given."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user has seen them
            tree = ast.parse(text)
    except (SyntaxError, ValueError):  # a template, say, or a line of a debugger's
        return {}
    found: dict[int, list[tuple[Span, str]]] = {}
    for node in ast.walk(tree) if ":=" in text else _statements(tree):
        for name, value in _assigned(node):
            span = _span(value)
            for line in range(span[0], span[2] + 1):
                found.setdefault(line, []).append((span, name))
    return found


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements, and what holds some; there are few beside what they are made of."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            stack.extend(getattr(node, part, ()))


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    pairs: list[tuple[ast.expr, ast.AST]] = []
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            pairs = list(zip(names, values))
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
            yield AMONG.join(map(_plain, names)), value
        case ast.Assign(targets=[target], value=value) | ast.NamedExpr(target=target, value=value):
            pairs = [(target, value)]
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            pairs = [(target, value)]
        case ast.AugAssign(target=whole):
            pairs = [(whole, node)]
    for name, expression in pairs:
        if _plain(name):
            yield _plain(name), expression


def _plain(target: ast.expr) -> str:
    """A name without underscores around it, if there is one that kernels can have."""
    return target.id.strip("_") if isinstance(target, ast.Name) and target.id.isascii() else ""


def _span(node: Any) -> Span:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
