"""Programs of a grid, one after the other or, where they meet, side by side: each by turns, from meeting to meeting.

Where programs meet, the kernel is a generator, which `rewrite.py` makes of it. So what belongs to a program stays in
its frame while others have their turn, and nothing but the number of the program is switched. The order is always that
of the numbers, and there are no threads: an error or an interrupt leaves nothing behind.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Sequence
from typing import Any

from triton.language.core import _unwrap_if_constexpr

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.launch.interpret.memory import Memory
from jaxpr2triton.launch.interpret.semantic import SEMANTIC

Program = Generator[None, None, Any]


def meet(met_ptr: Any, programs: Any) -> Program:
    """Stands for `_all_meet`: the program that runs has come to a meeting, and goes on after the `yield`."""
    SEMANTIC.builder.memory.meet(int(met_ptr.handle.data.item()), int(_unwrap_if_constexpr(programs)))
    yield


def run_programs(function: Callable[..., Any], arguments: Sequence[Any], memory: Memory) -> None:
    """Run `function` as each program; `memory` knows which one it is, also when it raises."""
    if inspect.isgeneratorfunction(function):
        _run_side_by_side([function(*arguments) for _ in range(memory.programs)], memory)
        return
    for number in range(memory.programs):
        memory.enter(number)
        function(*arguments)


def _run_side_by_side(programs: Sequence[Program], memory: Memory) -> None:
    """A round is a phase of each program, to its next meeting or its end, which is to be that of all."""
    while True:
        waiting: list[int] = []
        ended: list[int] = []
        for number, program in enumerate(programs):
            memory.enter(number)
            (ended if _ends(program) else waiting).append(number)
        if not waiting:
            return
        if ended:
            _stop(programs, waiting[0], ended[0], memory)
        memory.phase += 1


def _stop(programs: Sequence[Program], waiting: int, ended: int, memory: Memory) -> None:
    """Raise where a program waits, which so has a line."""
    memory.enter(waiting)
    absent = memory.program_of(ended)
    programs[waiting].throw(
        CompilerBug(f"kernel {memory.kernel} waits in a meeting that program {absent} never comes to")
    )


def _ends(program: Program) -> bool:
    """Let a program go on, and say whether that was its last phase."""
    try:
        next(program)
    except StopIteration:
        return True
    return False
