"""The search for decisions with which a program can be cut into kernels that all stages can make.

It starts from none, grants what can be foreseen without an attempt, and lets the stages try; what a stage wishes then
is granted, and they begin again. Each grant is recorded:

    foresee(Decisions())       →  KeepMore(((states, (0,)),), None)
    foresee(Decisions(kept=…)) →  None: nothing more is known
    attempt(Decisions(kept=…)) →  None: all is made

A mistake of ours that no single loop is to blame for costs all loops, and if there are none, all kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from jaxpr2triton.errors import CompilerBug, Mistake
from jaxpr2triton.ir.jaxprs import Eqn
from jaxpr2triton.mistakes import mistake_of
from jaxpr2triton.plan.decisions import UNDECIDED, Decisions, Reach, Wish, granted, retreated


@dataclass(frozen=True)
class Round:
    """What stood in the way of some decisions, and which ones came next."""

    before: Decisions
    obstacle: Wish | Mistake
    after: Decisions
    is_foreseen: bool = False  # without an attempt


def search(
    foresee: Callable[[Decisions], Wish | None],
    attempt: Callable[[Decisions], Wish | None],
    has_loops: bool,
    eqns: Iterable[Eqn],
) -> tuple[Decisions, tuple[Round, ...]]:
    """The decisions with which an attempt came to its end; if there are none such, nothing is compiled."""
    decisions = UNDECIDED
    rounds: list[Round] = []
    while decisions.reach is not Reach.NOTHING:
        try:
            foreseen = foresee(decisions)
            wish = foreseen or attempt(decisions)
            if wish is None:
                break
            rounds.append(Round(decisions, wish, _next(decisions, wish), foreseen is not None))
        except Exception as problem:
            mistake = mistake_of(problem, eqns)
            further = has_loops and decisions.reach is Reach.ALL
            after = retreated(decisions, mistake, Reach.NO_LOOPS if further else Reach.NOTHING)
            rounds.append(Round(decisions, mistake, after))
        decisions = rounds[-1].after
    return decisions, tuple(rounds)


def _next(decisions: Decisions, wish: Wish) -> Decisions:
    after = granted(decisions, wish)
    if after.measure <= decisions.measure:
        raise CompilerBug(f"planning would go round in circles, for {type(wish).__name__} was granted before")
    return after
