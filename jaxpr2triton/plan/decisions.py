"""What is decided about a program before it is cut into kernels, and what a stage may wish to be decided otherwise.

A stage that finds out that it cannot go on well with the decisions there are gives back a `Wish` in place of its
result. What that leads to are other decisions, with which the stages begin again:

    Decisions()   + KeepMore(((states, (0,)),), otherwise=None)  →  Decisions(kept={states: Kept(STEPS, (0,), True)})
    Decisions(…)  + Refuse({body: "it is 9000 computations long"})  →  Decisions(…, refused={body: "it is 9000 …"})

Each has a larger `measure` than the ones before, so that there is an end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from jaxpr2triton.errors import CompilerBug, Mistake, Reason
from jaxpr2triton.ir.jaxprs import Var

Dims = tuple[int, ...]


class Extent(IntEnum):
    """How much of a result is kept, and for whom; each step is tried when the one before it does not suffice."""

    STEPS = 1  # along the steps of its loop, for all that reads it but what the body gives out
    STEPS_FOR_ALL = 2
    WHOLE = 3  # along all of its dimensions


class Reach(IntEnum):
    """What kernels are made of."""

    ALL = 0
    NO_LOOPS = 1
    NOTHING = 2


@dataclass(frozen=True)
class Kept:
    """A result of a loop that its kernel writes into a buffer of its own, to read it again."""

    extent: Extent
    along: Dims = ()  # along which dimensions, if not as usual
    by_choice: bool = False  # a kernel's end could bring it into memory as well

    def dims(self, rank: int) -> Dims:
        if self.along and self.extent is not Extent.WHOLE:
            return self.along
        return tuple(range(rank if self.extent is Extent.WHOLE else min(rank, 1)))


@dataclass(frozen=True)
class Split:
    """How what a loop carries is shared out among programs that run at once."""

    place: tuple[int, int]  # a dimension of the class that is taken apart: which carried value, and which one of it
    size: int
    programs: int


@dataclass(frozen=True)
class Decisions:
    reach: Reach = Reach.ALL
    because: Reason = ""  # why it is not all
    apart: bool = False  # whether products that no step of a loop waits for are made outside of it
    with_roles: bool = True  # whether kernels have the roles that the user asked for
    refused: Mapping[int, Reason] = field(default_factory=dict)  # loops that stay with XLA, by their bodies, and why
    spread: Mapping[int, Split] = field(default_factory=dict)  # … that are spread over programs which run at once
    chooses: bool = True  # whether anything is to be kept by choice
    declined: frozenset[Var] = frozenset()  # what is not
    ended: frozenset[int] = frozenset()  # loops, by their bodies, all of whose results come into memory
    whole: frozenset[Var] = frozenset()  # what is not made piece by piece
    kept: Mapping[Var, Kept] = field(default_factory=dict)
    tiled: Mapping[Var, Dims] = field(default_factory=dict)  # what is made piece by piece, and along which dimensions
    mistakes: tuple[Mistake, ...] = ()  # that led to any of this

    @property
    def measure(self) -> tuple[int, ...]:
        """What grows from one decision to the next, the first number that differs."""
        return (
            self.reach,
            not self.with_roles,
            self.apart,
            len(self.refused) + len(self.spread),
            not self.chooses,
            len(self.declined) + len(self.whole) + len(self.ended),
            sum(kept.extent + len(kept.along) for kept in self.kept.values()),
            len(self.tiled),
        )

    @property
    def keeps_by_choice(self) -> bool:
        """Whether kernels keep what their ends could bring into memory instead."""
        return any(kept.by_choice for kept in self.kept.values())

    def dims_of(self, var: Var) -> Dims | None:
        """Along which dimensions a variable is kept, if it is."""
        if var in self.kept:
            return self.kept[var].dims(len(getattr(var.aval, "shape", ())))
        return self.tiled.get(var)

    def not_tried(self, dims: Mapping[Var, Dims]) -> dict[Var, Dims]:
        """Those of which it is not known what becomes of them if they are made piece by piece."""
        known = {*self.tiled, *self.whole, *self.kept}
        return {var: along for var, along in dims.items() if var not in known}


UNDECIDED = Decisions()
FIRM = Decisions(chooses=False)  # all that loops make comes into memory where their kernels end


@dataclass(frozen=True)
class Refuse:
    """No kernel can hold these loops. They are known by the identity of their bodies; each has its reason."""

    loops: Mapping[int, Reason]

    @property
    def why(self) -> Reason:
        mistakes = self.mistakes
        return mistakes[0] if mistakes else "; ".join(dict.fromkeys(map(str, self.loops.values())))

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        return tuple(reason for reason in dict.fromkeys(self.loops.values()) if isinstance(reason, Mistake))


@dataclass(frozen=True)
class Leave:
    """XLA takes less time for these loops than a kernel. They are known by the identity of their bodies."""

    loops: Mapping[int, Reason]
    multiply: bool = True  # whether they might take less time where products leave them


@dataclass(frozen=True)
class Spread:
    """These loops, known by their bodies, are spread over programs that run at once; else they would stay with XLA."""

    loops: Mapping[int, Split]
    instead: Refuse | Leave

    @property
    def why(self) -> Reason:
        return "; ".join(dict.fromkeys(map(str, self.instead.loops.values())))


@dataclass(frozen=True)
class Part:
    """What loops multiply and no step waits for takes less time all at once."""

    why: str


@dataclass(frozen=True)
class KeepMore:
    """These variables, made by loops or in their steps, are read elsewhere: a kernel has to keep them in memory."""

    wanted: tuple[tuple[Var, Dims], ...]  # each with the dimensions along which it is, where those are known
    otherwise: Refuse | None  # None: kernels can end there instead
    why: str = "a loop reads what another one makes in another order or at several places"


@dataclass(frozen=True)
class Tile:
    """These variables of loops' bodies are better made piece by piece, along these dimensions, in memory."""

    dims: Mapping[Var, Dims]


@dataclass(frozen=True)
class KeepLess:
    """These results of loops had better come into memory at the end of a kernel: keeping them takes programs away."""

    variables: tuple[Var, ...]


@dataclass(frozen=True)
class RunOnce:
    """These loops, known by their bodies, would be part of several kernels, each of which would run them."""

    loops: frozenset[int]


@dataclass(frozen=True)
class DropRoles:
    """With the roles that a user asked for, a kernel cannot be made because of a mistake; without them it can."""

    mistake: Mistake


Wish = KeepMore | Tile | KeepLess | RunOnce | Refuse | Leave | Spread | Part | DropRoles
WISHES = (KeepMore, Tile, KeepLess, RunOnce, Refuse, Leave, Spread, Part, DropRoles)


def granted(decisions: Decisions, wish: Wish) -> Decisions:
    match wish:
        case KeepMore():
            return _keeping_more(decisions, wish)
        case Tile():
            return replace(decisions, tiled={**decisions.tiled, **wish.dims})
        case KeepLess():
            kept = {var: kept for var, kept in _by_choice(decisions).items() if var not in wish.variables}
            return replace(decisions, kept=kept, declined=decisions.declined.union(wish.variables))
        case RunOnce():
            if decisions.keeps_by_choice:
                return _without_choices(decisions)
            return replace(decisions, ended=decisions.ended | wish.loops)
        case Refuse():
            return _refusing(decisions, wish)
        case Leave():
            return _leaving(decisions, wish)
        case Spread():
            return _spreading(decisions, wish)
        case Part():
            return _parted(decisions)
        case DropRoles():
            return replace(decisions, with_roles=False, mistakes=(*decisions.mistakes, wish.mistake))


def retreated(decisions: Decisions, mistake: Mistake, to: Reach) -> Decisions:
    """After a mistake that no single loop is to blame for."""
    mistakes = (*decisions.mistakes, mistake)
    return replace(decisions, reach=to, because=mistake, with_roles=False, mistakes=mistakes)


def _keeping_more(decisions: Decisions, wish: KeepMore) -> Decisions:
    """KeepMore more; if there is no more to be kept, do as the wish says otherwise."""
    found = decisions
    for var, dims in wish.wanted:
        if var in found.tiled:
            found = _whole(found, var)
            continue
        now = found.kept.get(var)
        extent = now.extent if now else 0
        along = now.along if now else ()
        wider = not set(dims) <= set(found.dims_of(var) or ())
        if wider:
            along = tuple(sorted({*dims, *along}))
        if not (wider and extent) and extent < Extent.WHOLE:
            extent += 1
        by_choice = wish.otherwise is None or (now is not None and now.by_choice)
        found = replace(found, kept={**found.kept, var: Kept(Extent(extent), along, by_choice)})
    if found.measure > decisions.measure:
        return found
    if wish.otherwise is None or any(decisions.kept[var].by_choice for var, _ in wish.wanted):
        return _without_choices(decisions)
    return _refusing(decisions, wish.otherwise)


def _refusing(decisions: Decisions, wish: Refuse) -> Decisions:
    if not wish.loops:
        raise CompilerBug("a part of a program was refused that has no loops")
    if wish.mistakes:  # roles may have been asked for axes of these loops
        mistakes = (*decisions.mistakes, *wish.mistakes)
        decisions = replace(decisions, mistakes=mistakes, with_roles=False)
    if decisions.tiled:
        return _whole(decisions, *decisions.tiled)
    if decisions.keeps_by_choice:
        return _without_choices(decisions)
    if wish.loops.keys() <= decisions.refused.keys():
        return replace(decisions, reach=Reach.NO_LOOPS, because=wish.why)
    return replace(decisions, refused={**decisions.refused, **wish.loops})


def _parted(decisions: Decisions) -> Decisions:
    """Loops do less, and all else is undecided; their bodies are others then."""
    return replace(_undecided(decisions), apart=True)


def _leaving(decisions: Decisions, wish: Leave) -> Decisions:
    """Once loops do as little as they can, and keep nothing that takes programs away.

    Loops are known by their bodies, with what is made piece by piece in them: without that they would be others.
    """
    if wish.multiply and not decisions.apart:
        return _parted(decisions)
    if decisions.keeps_by_choice:
        return _without_choices(decisions)
    refused = {**decisions.refused, **wish.loops}
    return replace(
        _undecided(decisions), refused=refused, spread=decisions.spread, tiled=decisions.tiled, whole=decisions.whole
    )


def _spreading(decisions: Decisions, wish: Spread) -> Decisions:
    """Their bodies are others then, so what is kept is undecided."""
    spread = {**decisions.spread, **wish.loops}
    return replace(_undecided(decisions), refused=decisions.refused, spread=spread)


def _undecided(decisions: Decisions) -> Decisions:
    """Again, with as much in loops as now."""
    return Decisions(
        decisions.reach, decisions.because, decisions.apart, decisions.with_roles, mistakes=decisions.mistakes
    )


def _whole(decisions: Decisions, *variables: Var) -> Decisions:
    """Make these at once, not piece by piece."""
    tiled = {var: dims for var, dims in decisions.tiled.items() if var not in variables}
    return replace(decisions, tiled=tiled, whole=decisions.whole.union(variables))


def _without_choices(decisions: Decisions) -> Decisions:
    """Keep nothing that a kernel's end could bring into memory."""
    return replace(decisions, kept={}, chooses=False)


def _by_choice(decisions: Decisions) -> dict[Var, Kept]:
    """What is left where less is kept by choice: what other kernels have to keep is found out anew."""
    return {var: kept for var, kept in decisions.kept.items() if kept.by_choice}
