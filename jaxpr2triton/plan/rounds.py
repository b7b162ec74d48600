"""How a program came to be cut as it is: each round of the search, said in a sentence.

KeepMore(((states, (0,)),), None)   →   a loop reads what another one makes in another order or at several places: the
                                        kernel keeps f32[7,300] of model.py:12 (there_and_back) along dimension 0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jaxpr2triton._compat import user_frame
from jaxpr2triton.ir.dtypes import short_name
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Var, equations
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.plan.decisions import (
    Decisions,
    DropRoles,
    KeepLess,
    KeepMore,
    Leave,
    Part,
    Reach,
    Refuse,
    RunOnce,
    Tile,
)
from jaxpr2triton.plan.refusal import body_of
from jaxpr2triton.plan.search import Round

NAMED_AT_MOST = 3


def said(rounds: Iterable[Round], program: Closed) -> tuple[str, ...]:
    """A sentence for each round; `program` is what was to be cut."""
    eqns = list(equations(program.jaxpr))
    makers = {var: eqn for eqn in eqns for var in eqn.outvars}
    loops = {body_of(eqn): eqn for eqn in eqns if eqn.primitive.name in LOOPS}
    return tuple(f"{_obstacle(each)}: {_outcome(each.before, each.after, makers, loops)}" for each in rounds)


def _obstacle(found: Round) -> str:
    match found.obstacle:
        case KeepMore(why=why):
            return why
        case KeepLess():
            return "keeping what a loop makes would take programs away"
        case Tile():
            return "a matrix that a loop multiplies by does not fit a program"
        case RunOnce():
            return "a loop would be part of several kernels"
        case Refuse():
            return str(found.obstacle.why)
        case Leave(loops=loops):
            return "; ".join(dict.fromkeys(map(str, loops.values())))
        case Part(why=why):
            return why
        case DropRoles(mistake=mistake) | mistake:
            return str(mistake)


def _outcome(before: Decisions, after: Decisions, makers: Mapping[Var, Eqn], loops: Mapping[int, Eqn]) -> str:
    """What was decided then."""
    if after.reach is not before.reach:
        return "all loops stay with XLA" if after.reach is Reach.NO_LOOPS else "XLA runs the whole program"
    if after.apart and not before.apart:
        return "what no step waits for is multiplied outside of the loops"
    if refused := after.refused.keys() - before.refused.keys():
        return f"{_names([_place(loops.get(body), 'a loop') for body in refused])} stays with XLA"
    if before.chooses and not after.chooses:
        return "every result of a loop comes into memory where its kernel ends"
    if after.ended - before.ended:
        return "all that is read of it comes into memory where its kernel ends"
    if declined := after.declined - before.declined:
        return f"{_named(declined, makers)} comes into memory where its kernel ends"
    if whole := after.whole - before.whole:
        return f"{_named(whole, makers)} is made at once"
    if more := {var: after.dims_of(var) for var in after.kept if after.kept[var] != before.kept.get(var)}:
        return f"the kernel keeps {_named(more, makers, after)}"
    if tiled := after.tiled.keys() - before.tiled.keys():
        return f"the kernel makes it piece by piece and keeps {_named(tiled, makers, after)}"
    return "the roles that were asked for are dropped"


def _named(variables: Iterable[Var], makers: Mapping[Var, Eqn], kept: Decisions | None = None) -> str:
    """`f32[7,300] of model.py:12 (rollout) along dimension 0`, and how many more there are."""
    return _names([_name(var, makers, kept) for var in variables])


def named(var: Var, maker: Eqn | None) -> str:
    """`f32[7,300] of model.py:12 (rollout)`."""
    shape = ",".join(map(str, var.aval.shape))
    return _place(maker, f"{short_name(var.aval.dtype)}[{shape}]")


def _name(var: Var, makers: Mapping[Var, Eqn], kept: Decisions | None) -> str:
    name = named(var, makers.get(var))
    dims = (kept.dims_of(var) if kept else None) or ()
    if not dims:
        return name
    return f"{name} along {'dimension' if len(dims) == 1 else 'dimensions'} {', '.join(map(str, dims))}"


def _place(eqn: Eqn | None, what: str) -> str:
    frame = user_frame(eqn) if eqn is not None else None
    return f"{what} of {frame}" if frame else what


def _names(names: list[str]) -> str:
    shown, more = names[:NAMED_AT_MOST], names[NAMED_AT_MOST:]
    return ", ".join(shown) + (f" and {len(more)} more" if more else "")
