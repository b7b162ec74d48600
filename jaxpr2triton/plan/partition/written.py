"""Results that a kernel would make again, although another one writes them anyway: it reads them, where that is less.

    w, i = top_k p          one kernel writes both
    n = sum (one_hot i)     another one: of i, two numbers a row, not of p, of which it would have to read whole rows

Where a kernel ends because something is needed first, such a result is needed in its place. What kernels make in common
is made by one of them where they can be joined; of the others it is seen when all kernels are known.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxpr2triton.graph.demands import TooManyPlaces
from jaxpr2triton.graph.nodes import Reduce
from jaxpr2triton.graph.space import Space, space_of
from jaxpr2triton.ir.jaxprs import Var, nbytes
from jaxpr2triton.plan.partition.cuts import Cuts


def written_instead(cuts: Cuts, root: Var, value: Var) -> list[Var]:
    """Results that are made of a value, and with which in memory a kernel reads less than with that value there.

    Of a contraction, or as much: it is the result that is written where its rows are.
    """
    results = [each for each in _made_again(cuts, [root]) if cuts.maker(value) in cuts.below([each])]
    if not results or (space := _reading(cuts, [root], [value])) is None:
        return []
    most = _bytes(cuts, space)
    return _less(cuts, [root], most + 1 if cuts.maker(value).primitive.name == "dot_general" else most, results)


def written_by_others(cuts: Cuts, roots: Sequence[Var], space: Space) -> list[Var]:
    """The results that a kernel of these roots had better read, so that it reads less altogether."""
    if space.steps or next(space.graph.of_kind(Reduce), None) is None:
        return []
    results = _made_again(cuts, roots)
    return _less(cuts, roots, _bytes(cuts, space), results) if results else []


def _made_again(cuts: Cuts, roots: Sequence[Var]) -> list[Var]:
    """What other kernels write, and one of these roots makes as well."""
    others = {root for root in cuts.roots if root not in roots and root not in cuts.loaded}
    return [var for eqn in cuts.below(roots) for var in eqn.outvars if var in others] if others else []


def _less(cuts: Cuts, roots: Sequence[Var], most: int, results: Sequence[Var]) -> list[Var]:
    """Those of these results that a kernel reads which finds them in memory, if it reads less bytes than so many."""
    space = _reading(cuts, roots, results)
    if space is None or _bytes(cuts, space) >= most:
        return []
    return [each for each in map(cuts.numbered.__getitem__, space.buffers) if each in results]


def _reading(cuts: Cuts, roots: Sequence[Var], more: Sequence[Var]) -> Space | None:
    """What a kernel would be that finds more values in memory."""
    memory = {**cuts.memory(roots), **{value: cuts.numbers[value] for value in more}}
    try:
        return space_of(cuts.jaxpr, roots, cuts.classes, memory, may_repeat=False)
    except TooManyPlaces:
        return None


def _bytes(cuts: Cuts, space: Space) -> int:
    """What it reads."""
    return nbytes(*(cuts.numbered[number] for number in space.buffers))
