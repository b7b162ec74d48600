"""The loops of a kernel's source, and which of them those of machine code are.

for t in range(1000):     a loop of 200 rounds, so that a round is 5 steps
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jaxpr2triton.launch.cycles.flow import Loop
from jaxpr2triton.launch.cycles.warp import Part

WHILE = "while"


@dataclass(frozen=True)
class SourceLoop:
    """A loop of a kernel's source."""

    name: str  # t
    steps: int | None  # those of all rounds; None: a `while`, or a bound that is not written
    inner: tuple[SourceLoop, ...]
    of_a_round: int = 1  # steps that are written one after the other


def source_loops(source: str, name: str) -> tuple[SourceLoop, ...]:
    """Those of the function of that name, in order."""
    functions = {each.name: each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)}
    return tuple(_loops_in(functions[name].body))


def taken(known: Mapping[int, Known], rounds: Mapping[int, int | None], is_seldom: bool) -> dict[int, int | None]:
    """How often loops run: as their counters say, or the source; a `while` that is there for rare cases does not."""
    return {
        head: 0
        if is_seldom and loop.name == WHILE
        else times
        if (times := rounds[head]) is not None or loop.steps is None
        else loop.steps // loop.unrolled
        for head, loop in known.items()
    }


def _loops_in(body: Sequence[ast.stmt]) -> Iterator[SourceLoop]:
    for statement in body:
        match statement:
            case ast.For(iter=ast.Call(func=ast.Attribute(attr="static_range"), args=[ast.Constant(int(times))])):
                yield from [*_loops_in(statement.body)] * times  # it is written out
            case ast.For(target=ast.Name(id=counter), iter=ast.Call(args=arguments)):
                # range(16), range(0, 512, 32): range_start is what the axis `range` is called, and range_round rounds
                name, steps, times, step = counter.removesuffix("_start"), _steps(arguments), 1, statement.body
                if name.endswith("_round") and (written := _written_out(statement.body)) is not None:
                    name, (times, step) = name.removesuffix("_round"), written
                yield SourceLoop(name, None if steps is None else steps * times, tuple(_loops_in(step)), times)
            case ast.While():
                yield SourceLoop(WHILE, None, tuple(_loops_in(statement.body)))
            case ast.If():
                yield from _loops_in([*statement.body, *statement.orelse])


def _written_out(body: Sequence[ast.stmt]) -> tuple[int, list[ast.stmt]] | None:
    """How many steps a round is, and one of them."""
    for statement in body:
        match statement:
            case ast.For(iter=ast.Call(func=ast.Attribute(attr="static_range"), args=[ast.Constant(int(times))])):
                return times, statement.body
    return None


def _steps(arguments: Sequence[ast.expr]) -> int | None:
    numbers = [each.value for each in arguments if isinstance(each, ast.Constant) and isinstance(each.value, int)]
    return len(range(*numbers)) if len(numbers) == len(arguments) else None


@dataclass(frozen=True)
class Known:
    """What the source says of a loop of machine code, or its counter."""

    name: str
    steps: int | None
    unrolled: int


def matched(parts: Sequence[Part], source: Sequence[SourceLoop], rounds: Mapping[int, int | None]) -> dict[int, Known]:
    """The loops of the source, by the heads of those of machine code: both stand in the same order.

    A round may be several steps; steps that are left over stand beside the loop, and short loops are written out.
    """
    found: dict[int, Known] = {}
    waiting = list(source)
    for number, part in enumerate(parts):
        times = rounds[part.head]
        place = next((n for n, loop in enumerate(waiting) if _fits(times, loop)), None)
        if place is None and times is None and len(parts) == len(source):  # its counter is not in a register
            loop = source[number]
            waiting = list(source[number + 1 :])
            found[part.head] = Known(loop.name, loop.steps, loop.of_a_round)
            found |= matched(part.inner, loop.inner, rounds)
            continue
        if place is None:
            found[part.head] = Known("a loop", times, 1)
            found |= matched(part.inner, (), rounds)
            continue
        loop = waiting[place]
        del waiting[: place + 1]
        unrolled = loop.steps // times if loop.steps and times else 1
        found[part.head] = Known(loop.name, loop.steps or times, unrolled)
        found |= matched(part.inner, loop.inner, rounds)
    return found


def _fits(rounds: int | None, loop: SourceLoop) -> bool:
    if rounds is None or loop.steps is None:
        return loop.steps is None
    return rounds <= loop.steps and loop.steps - rounds * (loop.steps // rounds) <= loop.steps // rounds


def foreign_loops(
    loops: Sequence[Loop], source: Sequence[SourceLoop], rounds: Mapping[int, int | None]
) -> frozenset[int]:
    """The heads of loops that the source does not have: libdevice's, over the digits of 2/π, for large arguments."""
    outer = [loop for loop in loops if not any(loop.head in other.addresses for other in loops if other is not loop)]
    own = _own(outer, source, rounds)
    found = {loop.head for loop in outer} - own
    for loop in outer:
        inner = [other for other in loops if other is not loop and other.head in loop.addresses]
        asked = [each for one in source for each in one.inner] if loop.head in own else []
        found |= foreign_loops(inner, asked, rounds)
    return frozenset(found)


def _own(loops: Sequence[Loop], source: Sequence[SourceLoop], rounds: Mapping[int, int | None]) -> set[int]:
    """As many as the source has, of those that may be one of its: the longest."""
    fitting = [loop for loop in loops if rounds[loop.head] is None or any(_fits(rounds[loop.head], s) for s in source)]
    longest = sorted(fitting, key=lambda loop: -len(loop.instructions))
    return {loop.head for loop in longest[: len(source)]}
