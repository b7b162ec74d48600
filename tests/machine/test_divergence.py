"""Drawn programs of integers, with branches and loops that lanes leave apart, against a NumPy evaluator with masks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxpr2triton.launch.machine.run import Settings
from tests.machine.handwritten import Launch, see

REGISTERS = 5  # r0 … r4 of the drawn programs
Rows = np.ndarray  # (REGISTERS, threads), u32


@dataclass(frozen=True)
class Assign:
    to: int
    op: str
    a: int
    b: int | None  # a register; None: the constant
    constant: int


@dataclass(frozen=True)
class Condition:
    compare: str
    a: int
    constant: int


@dataclass(frozen=True)
class Guarded:
    condition: Condition
    negated: bool
    body: Assign


@dataclass(frozen=True)
class If:
    condition: Condition
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True)
class Loop:
    """As often as the last bits of a register say: tested before each round, or after it."""

    a: int
    most: int
    first: bool
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Leave:
    """These lanes end."""

    condition: Condition


@dataclass(frozen=True)
class Shuffle:
    """By all lanes."""

    to: int
    a: int
    way: str
    by: int


Statement = Assign | Guarded | If | Loop | Leave | Shuffle
OPERATIONS: dict[str, Callable[[Rows, Rows], Rows]] = {
    "add.s32": lambda a, b: a + b,
    "sub.s32": lambda a, b: a - b,
    "mul.lo.s32": lambda a, b: a * b,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "xor.b32": lambda a, b: a ^ b,
    "min.s32": lambda a, b: np.minimum(a.view(np.int32), b.view(np.int32)).view(np.uint32),
    "max.u32": np.maximum,
    "shl.b32": lambda a, b: np.where(b < 32, a << (b & 31), 0),
    "shr.u32": lambda a, b: np.where(b < 32, a >> (b & 31), 0),
}
COMPARISONS: dict[str, Callable[[Rows, Rows], Rows]] = {
    "lt.u32": lambda a, b: a < b,
    "ge.u32": lambda a, b: a >= b,
    "lt.s32": lambda a, b: a.view(np.int32) < b.view(np.int32),
    "eq.s32": lambda a, b: a == b,
    "ne.s32": lambda a, b: a != b,
}

registers = st.integers(0, REGISTERS - 1)
constants = st.sampled_from([0, 1, 2, 3, 5, 7, 16, 31, 32, 100, 2**31 - 1, 2**31, 2**32 - 3])
conditions = st.builds(Condition, st.sampled_from(sorted(COMPARISONS)), registers, constants)
assigns = st.builds(Assign, registers, st.sampled_from(sorted(OPERATIONS)), registers, st.none() | registers, constants)
simple = assigns | st.builds(Guarded, conditions, st.booleans(), assigns)


def _blocks(inner: st.SearchStrategy[Statement]) -> st.SearchStrategy[Statement]:
    body = st.lists(inner, max_size=4).map(tuple)
    return st.builds(If, conditions, body, body) | st.builds(Loop, registers, st.integers(1, 3), st.booleans(), body)


def _programs(leaf: st.SearchStrategy[Statement], top: st.SearchStrategy[Statement]) -> st.SearchStrategy:
    nested = st.recursive(leaf, _blocks, max_leaves=8)
    return st.lists(nested | top, min_size=1, max_size=8)


shuffles = st.builds(Shuffle, registers, registers, st.sampled_from(["bfly", "idx"]), st.integers(0, 31))
programs = _programs(simple, shuffles) | _programs(simple | st.builds(Leave, conditions), simple)


# as PTX


def _text(statements: tuple[Statement, ...], fresh: Iterator[int]) -> Iterator[str]:
    for each in statements:
        n = next(fresh)
        match each:
            case Assign():
                b = each.constant if each.b is None else f"%r{each.b + 1}"
                yield f"{each.op} %r{each.to + 1}, %r{each.a + 1}, {b};"
            case Guarded(condition, negated, body):
                yield _setp(condition)
                yield f"@{'!' * negated}%p1 " + next(_text((body,), fresh))
            case If(condition, then, otherwise):
                yield _setp(condition)
                yield f"@!%p1 bra ELSE{n};"
                yield from _text(then, fresh)
                yield from (f"bra END{n};", f"ELSE{n}:")
                yield from _text(otherwise, fresh)
                yield f"END{n}:"
            case Loop(a, most, first, body):
                yield from (f".reg .b32 %n{n};", f"and.b32 %n{n}, %r{a + 1}, {most};", f"LOOP{n}:")
                if first:
                    yield from (f"setp.eq.s32 %p1, %n{n}, 0;", f"@%p1 bra END{n};")
                yield from _text(body, fresh)
                yield f"sub.s32 %n{n}, %n{n}, 1;"
                if first:
                    yield from (f"bra LOOP{n};", f"END{n}:")
                else:
                    yield from (f"setp.ge.s32 %p1, %n{n}, 0;", f"@%p1 bra LOOP{n};")
            case Leave(condition):
                yield _setp(condition)
                yield "@%p1 ret;"
            case Shuffle(to, a, way, by):
                yield f"shfl.sync.{way}.b32 %r{to + 1}, %r{a + 1}, {by}, 31, -1;"


def _setp(condition: Condition) -> str:
    return f"setp.{condition.compare} %p1, %r{condition.a + 1}, {condition.constant};"


# as NumPy


@dataclass
class Evaluator:
    rows: Rows
    live: np.ndarray

    def run(self, statements: tuple[Statement, ...], mask: np.ndarray) -> None:
        for each in statements:
            mask = mask & self.live
            match each:
                case Assign():
                    b = np.full_like(mask, each.constant, np.uint32) if each.b is None else self.rows[each.b]
                    self.rows[each.to] = np.where(mask, OPERATIONS[each.op](self.rows[each.a], b), self.rows[each.to])
                case Guarded(condition, negated, body):
                    self.run((body,), mask & (self.holds(condition) ^ negated))
                case If(condition, then, otherwise):
                    holds = self.holds(condition)
                    self.run(then, mask & holds)
                    self.run(otherwise, mask & ~holds)
                case Loop(a, most, first, body):
                    rounds = (self.rows[a] & most) + (not first)
                    for n in range(rounds.max()):
                        self.run(body, mask & (n < rounds))
                case Leave(condition):
                    self.live = self.live & ~(mask & self.holds(condition))
                case Shuffle(to, a, way, by):
                    lane = np.arange(mask.size)
                    self.rows[to] = self.rows[a][lane ^ by if way == "bfly" else lane - lane % 32 + by]

    def holds(self, condition: Condition) -> np.ndarray:
        return COMPARISONS[condition.compare](self.rows[condition.a], np.array([condition.constant], np.uint32))


START = """ld.global.b32 %r1, [%its];
ld.global.b32 %r2, [%its+256];
mov.b32 %r3, %tid;
shr.u32 %r4, %tid, 2;
mov.b32 %r5, 6;
"""
X = np.random.default_rng(1).integers(0, 2**32, 128, dtype=np.uint32)


@given(programs, st.integers(0, 40))
def test_drawn_programs(program: list[Statement], quantum: int) -> None:
    stores = [f"st.global.b32 [%mine+{256 * k}], %r{k + 1};" for k in range(REGISTERS)]
    body = START + "\n".join([*_text(tuple(program), itertools.count()), *stores])
    seen = see(body, Launch((64, 1, 1), x=X, out=256 * REGISTERS, settings=Settings(quantum=quantum, seed=quantum + 1)))
    threads = np.arange(64, dtype=np.uint32)
    rows = np.stack([X[:64], X[64:], threads, threads >> 2, np.full(64, 6, np.uint32)])
    evaluator = Evaluator(rows, np.ones(64, bool))
    evaluator.run(tuple(program), evaluator.live)
    expected = np.where(evaluator.live, evaluator.rows, 0xEEEEEEEE)
    assert seen.says == []
    np.testing.assert_array_equal(seen.words.reshape(REGISTERS, 64), expected)
