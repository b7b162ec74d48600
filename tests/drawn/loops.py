"""Loops and choices as statements of a drawn program: their bodies are lines again.

All names of a program differ, so that a body may be put in its loop's place. A scan prints as

    def step0(carry, xs):
        c1, = carry
        x2, = xs
        v3 = jnp.tanh(c1 + x2)
        return (v3,), (v3,)
    (v4,), (v5,) = lax.scan(step0, (x0,), (x1,), length=3, reverse=False, unroll=1)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from tests.drawn.program import Statement, indented, needed_lines


@dataclass(frozen=True)
class Carry:
    """One part of what a loop carries."""

    name: str  # in the body
    start: str  # a value from before the loop, or a literal
    after: str  # what a step makes of it; an expression for the counter of a `while`, so that no variant counts nothing
    result: str  # after the loop


@dataclass(frozen=True)
class Loop:
    """A `scan`, `fori` or `while`."""

    kind: str
    label: str  # what its functions are called by
    steps: str  # a number, or the name of one; at most so many for a `while`
    carries: tuple[Carry, ...]
    lines: tuple[Statement, ...]
    xs: tuple[tuple[str, str], ...] = ()  # (name in the body, what it runs over)
    ys: tuple[tuple[str, str], ...] = ()  # (result, name in the body)
    counter: str = ""  # for `fori`: its name in the body; for `while`: the name of the carried value that counts
    test: tuple[Statement, ...] = ()  # for `while`: how it decides to go on, besides counting; the last one is a bool
    reverse: bool = False
    unroll: int = 1

    @property
    def results(self) -> tuple[str, ...]:
        return (*(carry.result for carry in self.carries), *(result for result, _ in self.ys))

    @property
    def bound(self) -> tuple[str, ...]:
        """The names that each step gets."""
        counter = (self.counter,) if self.counter else ()
        return tuple(dict.fromkeys((*counter, *(c.name for c in self.carries), *(name for name, _ in self.xs))))

    @property
    def gives(self) -> tuple[str, ...]:
        return (*(carry.after for carry in self.carries), *(name for _, name in self.ys))

    @property
    def reads(self) -> tuple[str, ...]:
        outside = [self.steps, *(carry.start for carry in self.carries), *(source for _, source in self.xs)]
        inside = [*free(self.lines, self.gives, self.bound), *free(self.test, (), self.bound)]
        return tuple(dict.fromkeys(name for name in (*outside, *inside) if name.isidentifier()))

    def needed(self, wanted: Collection[str]) -> Loop | None:
        if not any(result in wanted for result in self.results):
            return None
        ys = tuple((result, name) for result, name in self.ys if result in wanted)
        used = {*free(self.test, (), ()), self.counter}
        carries: tuple[Carry, ...] | None = None
        while True:
            kept = tuple(c for c in self.carries if c.result in wanted or c.name in used)
            smaller = replace(self, carries=kept, ys=ys)
            lines = needed_lines(self.lines, smaller.gives)
            used |= set(free(lines, smaller.gives, ()))
            if kept == carries:
                xs = tuple((name, source) for name, source in self.xs if name in used)
                return replace(smaller, lines=lines, xs=xs)
            carries = kept

    def __str__(self) -> str:
        names, starts = pack(c.name for c in self.carries), pack(c.start for c in self.carries)
        after, results = pack(c.after for c in self.carries), pack(c.result for c in self.carries)
        step, go_on = f"step{self.label}", f"go_on{self.label}"
        opened = f"    {names} = carry\n" if self.carries else ""
        body = indented(self.lines)
        match self.kind:
            case "scan":
                opened += f"    {pack(name for name, _ in self.xs)} = xs\n" if self.xs else ""
                ys = pack(name for _, name in self.ys)
                xs = pack(source for _, source in self.xs) if self.xs else "None"
                how = f"length={self.steps}, reverse={self.reverse}, unroll={self.unroll}"
                return (
                    f"def {step}(carry, xs):\n{opened}{body}    return {after}, {ys}\n"
                    f"{results}, {pack(result for result, _ in self.ys)} = lax.scan({step}, {starts}, {xs}, {how})"
                )
            case "fori":
                return (
                    f"def {step}({self.counter}, carry):\n{opened}{body}    return {after}\n"
                    f"{results} = lax.fori_loop(0, {self.steps}, {step}, {starts})"
                )
            case _:
                tests = "".join(f" & {line.results[-1]}" for line in self.test[-1:])
                decides = f"    return ({self.counter} < {self.steps}){tests}\n"
                return (
                    f"def {go_on}(carry):\n{opened}{indented(self.test)}{decides}"
                    f"def {step}(carry):\n{opened}{body}    return {after}\n"
                    f"{results} = lax.while_loop({go_on}, {step}, {starts})"
                )


@dataclass(frozen=True)
class Branch:
    lines: tuple[Statement, ...]
    gives: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """A `cond` of two branches, or a `switch`."""

    label: str
    which: str  # a bool for two branches (the first one is that of True), else a number
    branches: tuple[Branch, ...]
    results: tuple[str, ...]
    is_switch: bool

    @property
    def reads(self) -> tuple[str, ...]:
        inside = [name for branch in self.branches for name in free(branch.lines, branch.gives, ())]
        return tuple(dict.fromkeys((self.which, *inside)))

    def needed(self, wanted: Collection[str]) -> Choice | None:
        kept = [place for place, result in enumerate(self.results) if result in wanted]
        if not kept:
            return None
        branches = []
        for branch in self.branches:
            gives = tuple(branch.gives[place] for place in kept)
            branches.append(Branch(needed_lines(branch.lines, gives), gives))
        return replace(self, branches=tuple(branches), results=tuple(self.results[place] for place in kept))

    def __str__(self) -> str:
        names = [f"branch{self.label}_{number}" for number in range(len(self.branches))]
        texts = [
            f"def {name}():\n{indented(branch.lines)}    return {pack(branch.gives)}\n"
            for name, branch in zip(names, self.branches)
        ]
        chosen = f"lax.switch({self.which}, {pack(names)})" if self.is_switch else None
        chosen = chosen or f"lax.cond({self.which}, {', '.join(names)})"
        return f"{''.join(texts)}{pack(self.results)} = {chosen}"


def pack(names: Iterable[str]) -> str:
    """A tuple of any length."""
    return f"({' '.join(f'{name},' for name in names)})"


def free(lines: Sequence[Statement], gives: Iterable[str], bound: Iterable[str]) -> list[str]:
    """What lines and their results read from outside."""
    inside, found = set(bound), []
    for line in lines:
        found += [name for name in line.reads if name not in inside]
        inside.update(line.results)
    return [*found, *(name for name in gives if name not in inside)]
