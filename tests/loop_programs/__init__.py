"""Programs whose time goes into a loop of small steps, as their users write them; shared by the tests and the benches.

Steps and lanes are few, because Triton's interpreter is slow; `bench_args` makes the full sizes, and `full` is the
function with its full number of steps where the arguments' shapes do not say it.
"""

from __future__ import annotations

from tests.loop_programs import chains, equations, fixed_points, learning, recurrent, sampling, signals, state_spaces
from tests.loop_programs.base import LoopProgram

__all__ = ["PROGRAMS", "LoopProgram"]

PROGRAMS: tuple[LoopProgram, ...] = (
    *chains.PROGRAMS,
    *equations.PROGRAMS,
    *recurrent.PROGRAMS,
    *learning.PROGRAMS,
    *state_spaces.PROGRAMS,
    *sampling.PROGRAMS,
    *fixed_points.PROGRAMS,
    *signals.PROGRAMS,
)
