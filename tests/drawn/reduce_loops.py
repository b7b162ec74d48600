"""Makes the loops of a failing program small: fewer lines in a body, less carried, one step instead of a loop.

What a statement gave gets another name in whatever comes after it.

    def step0(carry, xs):                             v3 = jnp.tanh(x0)
        c1, = carry                                →
        v3 = jnp.tanh(c1)                             v3 in the place of v4
        return (v3,), ()
    (v4,), () = lax.scan(step0, (x0,), None, …)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from tests.drawn.loops import Branch, Choice, Loop
from tests.drawn.program import DTYPES, Input, Line, Program, Statement

Lines = tuple[Statement, ...]


@dataclass(frozen=True)
class Variant:
    """Other lines in the place of some, what the names after them become, and what is read in addition."""

    lines: Lines
    renamed: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()


def simpler_loops(program: Program) -> Iterator[Program]:
    types = inner_types(program)
    for variant in variants(program.lines, types, False):
        yield program.replace(
            lines=variant.lines,
            outputs=tuple(variant.renamed.get(name, name) for name in program.outputs),
            inputs=(*program.inputs, *variant.inputs),
            batched=(*program.batched, *(0 for _ in variant.inputs)) if program.batched else (),
        ).without_dead_lines()


def variants(lines: Lines, types: Mapping[str, Any], inside: bool) -> Iterator[Variant]:
    """One statement is replaced by something simpler."""
    for n, line in enumerate(lines):
        for made in _simpler(line, types, inside):
            rest = tuple(renamed(each, made.renamed) for each in lines[n + 1 :])
            yield replace(made, lines=(*lines[:n], *made.lines, *rest))


def _simpler(line: Statement, types: Mapping[str, Any], inside: bool) -> Iterator[Variant]:
    match line:
        case Loop():
            yield from _one_step(line)
            yield from _smaller_loop(line)
            for made in variants(line.lines, types, True):
                carries = tuple(replace(c, after=made.renamed.get(c.after, c.after)) for c in line.carries)
                ys = tuple((result, made.renamed.get(name, name)) for result, name in line.ys)
                yield replace(made, lines=(replace(line, lines=made.lines, carries=carries, ys=ys),), renamed={})
        case Choice():
            for branch in line.branches:
                yield Variant(branch.lines, dict(zip(line.results, branch.gives)))
            for n, branch in enumerate(line.branches):
                for made in variants(branch.lines, types, True):
                    other = Branch(made.lines, tuple(made.renamed.get(name, name) for name in branch.gives))
                    branches = (*line.branches[:n], other, *line.branches[n + 1 :])
                    yield replace(made, lines=(replace(line, branches=branches),), renamed={})
        case Line() if inside:
            for name in line.reads:
                if _like(types, name, line.name):
                    yield Variant((), {line.name: name})
            aval = types.get(line.name)
            if aval is not None and aval.dtype.name in DTYPES:
                name = f"x_{line.name}"
                yield Variant((), {line.name: name}, (Input(name, aval.shape, aval.dtype.name, "normal"),))


def _like(types: Mapping[str, Any], one: str, other: str) -> bool:
    a, b = types.get(one), types.get(other)
    return a is None or b is None or (a.shape, a.dtype) == (b.shape, b.dtype)


def _one_step(loop: Loop) -> Iterator[Variant]:
    """The body in the place of the loop."""
    entry = {carry.name: carry.start for carry in loop.carries}
    first = [Line(name, f"{source}[0]", (source,)) for name, source in loop.xs]
    first += [Line(carry.name, carry.start, ()) for carry in loop.carries if not carry.start.isidentifier()]
    if loop.kind == "fori":
        first.append(Line(loop.counter, "jnp.int32(0)", ()))
    entry = {name: start for name, start in entry.items() if start.isidentifier()}
    body = tuple(renamed(line, entry) for line in loop.lines)
    plain = [carry for carry in loop.carries if carry.after.isidentifier()]
    results = {carry.result: entry.get(carry.after, carry.after) for carry in plain}
    last = [Line(c.result, c.after, (c.name,)) for c in loop.carries if c not in plain]
    last += [Line(result, f"{entry.get(name, name)}[None]", (entry.get(name, name),)) for result, name in loop.ys]
    yield Variant((*first, *body, *last), results)


def _smaller_loop(loop: Loop) -> Iterator[Variant]:
    for n, carry in enumerate(loop.carries):  # it stays as it was
        if carry.start.isidentifier() and len(loop.results) > 1 and carry.name != loop.counter:
            changed = replace(loop, carries=(*loop.carries[:n], *loop.carries[n + 1 :]))
            yield Variant((renamed(changed, {carry.name: carry.start}),), {carry.result: carry.start})
    for n, (name, source) in enumerate(loop.xs):
        first = Line(name, f"{source}[0]", (source,))
        yield Variant((replace(loop, xs=(*loop.xs[:n], *loop.xs[n + 1 :]), lines=(first, *loop.lines)),))
    if loop.test:
        yield Variant((replace(loop, test=()),))
    if not loop.steps.isdigit():
        yield Variant((replace(loop, steps="2"),))
    elif not loop.xs:
        for fewer in range(1, int(loop.steps)):
            yield Variant((replace(loop, steps=str(fewer)),))
    elif int(loop.steps) > 2:
        short = [Line(f"{source}_2", f"{source}[:2]", (source,)) for source in dict.fromkeys(s for _, s in loop.xs)]
        xs = tuple((name, f"{source}_2") for name, source in loop.xs)
        yield Variant((*short, replace(loop, steps="2", xs=xs)))
    if loop.unroll > 1:
        yield Variant((replace(loop, unroll=1),))
    if loop.reverse:
        yield Variant((replace(loop, reverse=False),))


# ------------------------------------------------------------------------------------------------------------- names


def renamed(line: Any, names: Mapping[str, str]) -> Any:
    """The statement with other names for what it reads."""
    if not names:
        return line

    def new(name: str) -> str:
        return names.get(name, name)

    def those(lines: Sequence[Statement]) -> Lines:
        return tuple(renamed(each, names) for each in lines)

    match line:
        case Line():
            pattern = r"\b(" + "|".join(map(re.escape, names)) + r")\b"
            text = re.sub(pattern, lambda found: names[found[0]], line.text)
            return replace(line, text=text, reads=tuple(dict.fromkeys(map(new, line.reads))))
        case Loop():
            return replace(
                line,
                steps=new(line.steps),
                carries=tuple(replace(c, start=new(c.start), after=new(c.after)) for c in line.carries),
                lines=those(line.lines),
                xs=tuple((name, new(source)) for name, source in line.xs),
                ys=tuple((result, new(name)) for result, name in line.ys),
                test=those(line.test),
            )
        case Choice():
            branches = tuple(Branch(those(b.lines), tuple(map(new, b.gives))) for b in line.branches)
            return replace(line, which=new(line.which), branches=branches)
    raise TypeError(line)


def inner_types(program: Program) -> dict[str, Any]:
    """The types of everything that has a name, in bodies too."""
    found: dict[str, Any] = {}

    def note(name: str, value: Any) -> Any:
        found[name] = jax.typeof(value)
        return value

    def noting(line: Any) -> Any:
        match line:
            case Line():
                return replace(line, text=f"note({line.name!r}, {line.text})")
            case Loop():
                entries = [*(c.name for c in line.carries), *(name for name, _ in line.xs)]
                seen = [Line(f"n_{name}", f"note({name!r}, {name})", (name,)) for name in entries]
                return replace(line, lines=(*seen, *map(noting, line.lines)), test=tuple(map(noting, line.test)))
            case Choice():
                return replace(line, branches=tuple(replace(b, lines=_each(b.lines, noting)) for b in line.branches))
        raise TypeError(line)

    noted = program.replace(lines=_each(program.lines, noting))
    structs = [jax.ShapeDtypeStruct(each.shape, DTYPES[each.dtype]) for each in program.inputs]
    found.update((each.name, struct) for each, struct in zip(program.inputs, structs))
    with jax.enable_x64(program.x64):
        jax.eval_shape(noted.function_in({"note": note}), *structs)
    return found


def _each(lines: Sequence[Statement], do: Callable[[Any], Any]) -> Lines:
    return tuple(do(line) for line in lines)
