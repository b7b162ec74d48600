"""Kernels whose programs meet give in the interpreter what NumPy gives, and what is wrong with a meeting is found."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.kernel import Buffer, Kernel
from jaxpr2triton.launch.compile.compile import compile_kernel
from jaxpr2triton.launch.elements import poisoned
from jaxpr2triton.launch.interpret.exchange import NOBODY, Exchange
from jaxpr2triton.launch.interpret.interpret import run_interpreted
from jaxpr2triton.launch.interpret.memory import Memory
from tests.launch.meeting import (
    COUNTER,
    F32,
    halve,
    halved,
    make_meeting,
    numbers_for,
    shift,
    shifted,
    total,
    totalled,
    with_line,
)

PROGRAMS = (2, 3, 4, 5, 6, 7, 8, 128)
MEET = "_all_meet(met_ptr, 4)"
STORE = "tl.store(shown_ptr + half + lane, x)"
READ = "x = 0.5 * (x + tl.load(shown_ptr + half + (lane + 1) % 64))"
UNWRITTEN = "reads an element of shown that no program has written before"


def failure(kernel: Kernel) -> str:
    with pytest.raises(CompilerBug) as caught:
        run_interpreted(kernel, [numbers_for(kernel)])
    return str(caught.value)


def at(kernel: Kernel, program: int, line: str) -> str:
    """Where a failure is, as it is printed."""
    (number,) = (i for i, each in enumerate(kernel.source.splitlines(), 1) if each.strip() == line)
    return f"\n  at   program ({program}, 0, 0), line {number}: {line}"


# values


@pytest.mark.parametrize("programs", PROGRAMS)
def test_neighbours(programs: int) -> None:
    kernel = shift(programs)
    x = numbers_for(kernel)
    (out,) = run_interpreted(kernel, [x])
    np.testing.assert_array_equal(out, shifted(x))


@pytest.mark.parametrize("grid", [*((programs, 1, 1) for programs in PROGRAMS), (2, 3, 2), (1, 1, 5)])
def test_partial_sums(grid: tuple[int, int, int]) -> None:
    kernel = total(grid)
    x = numbers_for(kernel)
    (out,) = run_interpreted(kernel, [x])
    np.testing.assert_allclose(out, totalled(x), rtol=1e-6)


@pytest.mark.parametrize("programs", PROGRAMS)
def test_all_find_out_whether_to_go_on(programs: int) -> None:
    kernel = halve(programs)
    x = numbers_for(kernel)
    out, steps = run_interpreted(kernel, [x])
    want, want_steps = halved(x)
    assert steps == want_steps > 3
    np.testing.assert_array_equal(out, want)


def test_hundreds_of_meetings() -> None:
    kernel = shift(4, 300)
    x = numbers_for(kernel)
    np.testing.assert_array_equal(run_interpreted(kernel, [x])[0], shifted(x, 300))


HELPER = f"""@triton.jit
def _shown(shown_ptr, met_ptr, lane, x):
    tl.store(shown_ptr + lane, x)
    {MEET}
    return tl.load(shown_ptr + (lane + 1) % 64)


"""
BY_HELPER = """
lane = tl.program_id(0) * 16 + tl.arange(0, 16)
x = tl.load(x_ptr + lane)
x = 0.5 * (x + _shown(shown_ptr, met_ptr, lane, x))
tl.store(out_ptr + lane, x)
"""


def test_a_function_that_the_kernel_calls_may_meet() -> None:
    kernel = make_meeting("shift", BY_HELPER, [("out", (64,), "float32")], (64,), (4, 1, 1), HELPER)
    x = numbers_for(kernel)
    np.testing.assert_array_equal(run_interpreted(kernel, [x])[0], shifted(x, 1))
    bad = with_line(kernel, "    tl.store(shown_ptr + lane, x)\n", "")
    read = "return tl.load(shown_ptr + (lane + 1) % 64)"
    assert failure(bad) == f"kernel shift {UNWRITTEN}" + at(bad, 0, read)


@pytest.mark.parametrize("kernel", [shift(4), total((2, 2, 1)), halve(4)], ids=lambda kernel: str(kernel.name))
def test_they_are_kernels_for_a_device(kernel: Kernel) -> None:
    assert f".entry {kernel.name}" in str(compile_kernel(kernel, TARGETS["sm_90"]).code)


def test_a_counter_begins_as_zero() -> None:
    assert poisoned(COUNTER).tolist() == [0]
    assert np.isnan(poisoned(Buffer("shown", (2,), F32, is_exchanged=True))).all()


# what is wrong


class Wrong(NamedTuple):
    """A change of `shift` for four programs, what is said of it, and in which program and line."""

    old: str
    new: str
    program: int
    line: str
    what: str


def never(program: str) -> str:
    return f"waits in a meeting that program {program} never comes to"


def replaced(old: str, new: str, what: str) -> Wrong:
    """One line by another, in which the first program stops."""
    return Wrong(old, new, 0, new, what)


OVERWRITTEN = "writes an element of shown that program (0, 0, 0) reads with no meeting between"
UNORDERED = "reads an element of shown that program (0, 0, 0) writes with no meeting between"
OTHER_HALF = "x = 0.5 * (x + tl.load(shown_ptr + 64 - half + (lane + 1) % 64))"
AT_ONCE = "if p == 1:\n        return\n    for t in range(4):"
FROM_STEP_TO_STEP = "for t in range(4):"
WRONG = {
    "deleted": Wrong(MEET, "", 0, READ, UNWRITTEN),
    "before the store": Wrong(f"{STORE}\n        {MEET}", f"{MEET}\n        {STORE}", 0, READ, UNWRITTEN),
    "behind the load": Wrong(f"{MEET}\n        {READ}", f"{READ}\n        {MEET}", 0, READ, UNWRITTEN),
    "left out in one step": Wrong(MEET, f"if t != 2:\n            {MEET}", 1, STORE, OVERWRITTEN),
    "one half instead of two": Wrong("half = t % 2 * 64", "half = 0", 1, STORE, OVERWRITTEN),
    "the other half": Wrong(READ, OTHER_HALF, 0, OTHER_HALF, UNWRITTEN),
    "one does not meet": Wrong(MEET, f"if p != 3:\n            {MEET}", 3, READ, UNORDERED),
    "one leaves early": Wrong(FROM_STEP_TO_STEP, "for t in range(4 - p // 2):", 0, MEET, never("(2, 0, 0)")),
    "one leaves at once": Wrong(FROM_STEP_TO_STEP, AT_ONCE, 0, MEET, never("(1, 0, 0)")),
    "the first one leaves": Wrong(FROM_STEP_TO_STEP, "for t in range(3 + (p + 3) // 4):", 1, MEET, never("(0, 0, 0)")),
    "fewer programs": replaced(MEET, "_all_meet(met_ptr, 3)", "meets as if it had 3 programs, but it has 4"),
    "no counter": replaced(MEET, "_all_meet(shown_ptr, 4)", "meets by an element of shown that is no counter"),
    "counter read": replaced(STORE, "y = tl.load(met_ptr)", "reads its counter met outside of a meeting"),
    "counter written": replaced(STORE, "tl.store(met_ptr, 0)", "writes its counter met outside of a meeting"),
    "counter added to": replaced(STORE, "tl.atomic_add(met_ptr, 1)", "adds to its counter met outside of a meeting"),
    "behind a meeting": replaced(READ, "x = nowhere", "stops with NameError: name 'nowhere' is not defined"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_found(wrong: Wrong) -> None:
    kernel = with_line(shift(4), wrong.old, wrong.new)
    assert failure(kernel) == f"kernel shift {wrong.what}" + at(kernel, wrong.program, wrong.line)


def test_not_all_go_on() -> None:
    alone = with_line(halve(4), "while total > 1.0:", "while (total > 1.0) & (t < 5 - p):")
    assert failure(alone) == f"kernel halve {never('(3, 0, 0)')}" + at(alone, 0, MEET)


# exchanged buffers of kernels that say nothing else


def exchanging(text: str, programs: int = 4) -> Kernel:
    """`i` is the program's number, and the result is `x`, a number for each."""
    text = f"i = tl.program_id(0)\nx = tl.load(x_ptr + i)\n{text}\ntl.store(out_ptr + i, x)"
    return make_meeting("wild", text, [("out", (programs,), "float32")], (2, programs), (programs, 1, 1))


SHOWN = f"tl.store(shown_ptr + i, x)\n{MEET}\n"
WRITES, READS, ADDS = (f"{verb} an element of shown that" for verb in ("writes", "reads", "adds to"))
RACES = [  # the program that is stopped in the last line, and why
    ("tl.store(shown_ptr, x, mask=i == 0)\nx = tl.load(shown_ptr)", 1, UNORDERED),
    ("tl.store(shown_ptr + i // 2, 1.0)", 1, f"{WRITES} program (0, 0, 0) writes with no meeting between"),
    (f"{SHOWN}x = tl.load(shown_ptr + 1)\ntl.store(shown_ptr + i + 0, x)", 1, OVERWRITTEN),
    (
        f"{SHOWN}x = tl.load(shown_ptr + 3)\ntl.store(shown_ptr + i + 0, x)",
        3,
        OVERWRITTEN,
    ),
    (
        f"{SHOWN}x = tl.load(shown_ptr + 2, mask=i < 2)\ntl.atomic_add(shown_ptr + i, x)",
        2,
        f"{ADDS} program (0, 0, 0) reads with no meeting between",
    ),
    (f"{SHOWN}tl.atomic_add(shown_ptr + 3 - i, x)", 0, f"{ADDS} this program has not written"),
    (
        f"tl.store(shown_ptr + i, x, mask=i < 3)\n{MEET}\nx = tl.load(shown_ptr + (i + 1) % 4)",
        2,
        f"{READS} no program has written before",
    ),
    (
        f"tl.store(out_ptr + i, x)\n{MEET}\nx = tl.load(out_ptr + (i + 1) % 4)",
        0,
        "reads an element of its output out that this program has not written",
    ),
]


@pytest.mark.parametrize(("text", "program", "what"), RACES)
def test_races(text: str, program: int, what: str) -> None:
    kernel = exchanging(text)
    assert failure(kernel) == f"kernel wild {what}" + at(kernel, program, text.splitlines()[-1])


@pytest.mark.parametrize("length", [2, 3, 4])
def test_races_do_not_depend_on_who_is_first(length: int) -> None:
    """All orders of all accesses of three programs to one element, in one phase, after others in an earlier one."""
    accesses = itertools.product(range(3), (False, True))
    for order in itertools.product(accesses, repeat=length):
        exchange, place = Exchange.of(np.full(1, NOBODY, np.int32)), np.zeros(1, np.int64)
        assert exchange.write(place, 1, 4) is None
        assert exchange.read(place, 1, 4) is exchange.read(place, 0, 5) is exchange.read(place, 2, 5) is None
        found = None
        for number, is_write in order:
            found = found or (exchange.write if is_write else exchange.read)(place, number, 6)
        pairs = itertools.combinations(order, 2)
        assert (found is not None) == any(a != b and (x or y) for (a, x), (b, y) in pairs)
        assert found is None or (found.program, found.access == "writes") in order


def test_a_meeting_between_makes_it_none() -> None:
    text = f"""tl.store(shown_ptr + i, x)
{MEET}
x = tl.load(shown_ptr + 3 - i, mask=i > 1, other=7.0)
{MEET}
tl.store(shown_ptr + (i + 1) % 4, x)
x = tl.load(shown_ptr + (i + 1) % 4)
tl.store(shown_ptr + (i + 1) % 4, 2 * x)
{MEET}
x = tl.load(shown_ptr + i)"""
    kernel = exchanging(text)
    x = numbers_for(kernel)
    np.testing.assert_array_equal(run_interpreted(kernel, [x])[0], 2 * np.array([x[0], 7, 7, x[1]], np.float32))


def test_a_kernel_that_exchanges_but_does_not_meet() -> None:
    kernel = exchanging("tl.store(shown_ptr + i, x)\nx = 2 * tl.load(shown_ptr + i)")
    alone = replace(kernel, kept=kernel.kept[:1], source=kernel.source.replace(", met_ptr):\n    i =", "):\n    i ="))
    assert not alone.meets
    x = numbers_for(alone)
    np.testing.assert_array_equal(run_interpreted(alone, [x])[0], 2 * x[:4])
    shared = with_line(alone, "tl.store(shown_ptr + i, x)", "tl.store(shown_ptr, x)")
    assert failure(shared) == (
        "kernel wild writes an element of shown that program (0, 0, 0) writes with no meeting between"
        + at(shared, 1, "tl.store(shown_ptr, x)")
    )


# interrupts


def test_an_interrupt_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, countdown, load = shift(8), [20], Memory.load
    x = numbers_for(kernel)

    def interrupted(*args: Any) -> np.ndarray:
        countdown[0] -= 1
        if not countdown[0]:
            raise KeyboardInterrupt
        return load(*args)

    before = threading.active_count()
    with monkeypatch.context() as patch:
        patch.setattr(Memory, "load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_interpreted(kernel, [x])
    assert threading.active_count() == before
    np.testing.assert_array_equal(run_interpreted(kernel, [x])[0], shifted(x))
