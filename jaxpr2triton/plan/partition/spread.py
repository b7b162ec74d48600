"""Loops whose state is spread over programs that run at once: what they carry is shared out, the body written again.

    x: f32[512,512]                                        x: f32[128,4,512], rows of 128 programs, 4 of each
    x' = x + roll x 1                                      shown = reshape (exchange[shared=(0,)] x turn)
    s  = sum x'                                     →      x' = reshape (reshape x + roll shown 1)
                                                           s  = sum (exchange[shared=(0,)] (sum[axes=(1, 2)] x') turn)

One class of the dimensions that are carried is taken apart: n = programs x block. A value that is read where it is
made is a program's own. A sum, or a product, along the class is one of each part, which programs show each other; all
add them up in the same order, so that all have the same bits. Whatever else is wanted elsewhere is shown as it is. What
nobody carries, or is made of what is shown, is there for all; so is what is made of that, and each program makes it
where it needs it, unless that is much: then each makes its own part, and shows it.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy as numbers
from jaxpr2triton._compat import bind_equation
from jaxpr2triton.graph.classes import body_classes
from jaxpr2triton.graph.propagate_demands import facts_of
from jaxpr2triton.ir import build
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Literal, Var, made
from jaxpr2triton.ir.region import exchange_p, repeat_p
from jaxpr2triton.ir.scans import LOOPS, Scan, body_of_loop, scan_of, scanned
from jaxpr2triton.plan.decisions import Decisions, Leave, Refuse, Split, Wish
from jaxpr2triton.plan.refusal import body_of
from jaxpr2triton.policy import Policy
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.dims import beside_places, dims_of
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.rows import TABLE

PARTED = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
ALONE = (*LOOPS, "accumulate", "cond")  # what no program makes a part of
DEAR = math.inf  # of what is not made again for each program that wants it

Value = Any


class NotSpread(Exception):
    """A step does something that no program can do a part of."""


def split_of(eqn: Eqn, policy: Policy) -> Split | None:
    """How a loop is best shared out; None where it is not: no class of what it carries is long and held."""
    scan = scan_of(eqn)
    if policy.target.backend != "cuda":
        return None  # what one wave releases need not cover what others have stored
    if scan.conditional and scan.carries[0][1].aval.shape:
        return None  # lanes end one by one, and programs with them
    facts = facts_of(scan)
    carried = [before for _, before, _, _ in scan.carries]
    most = policy.target.processors
    found = []
    for kind in facts.held:
        size = facts.sizes[kind]
        programs = max((p for p in range(1, min(most, size) + 1) if size % p == 0), default=1)
        own = sum(_part(facts.of(var), kind[0], programs, var.aval.size) for var in carried)
        if not kind[1] and programs >= numbers.COMMON.programs_that_meet and own <= policy.carried:
            place = _place(carried, facts.of, kind[0])
            found.append((own, place[1], Split(place, size, programs)))  # rows before columns: neighbours stay together
    return min(found, key=lambda each: each[:2], default=(0, 0, None))[2]


def _part(kinds: Sequence[Any], of_class: Any, programs: int, size: int) -> float:
    return size / programs if any(kind == of_class for kind, _ in kinds) else size


def _place(carried: Sequence[Var], kinds: Any, of_class: Any) -> tuple[int, int]:
    """Which of the carried values has a dimension of this class, and which dimension that is."""
    pairs = ((p, d) for p, var in enumerate(carried) for d, kind in enumerate(kinds(var)) if kind[0] == of_class)
    return next(pairs)


@dataclass
class Spreads:
    """The loops of one program that are spread, each written again once for each way to split it."""

    made: dict[tuple[int, Split], tuple[Eqn, list[Eqn]] | None] = field(default_factory=dict)
    sources: dict[int, int] = field(default_factory=dict)  # bodies of loops that are spread → those they come from
    programs: dict[tuple[int, Any], tuple[Closed, Closed]] = field(default_factory=dict)

    def may_be(self, eqn: Eqn, policy: Policy) -> Split | None:
        """How a loop is shared out, if it can be."""
        split = split_of(eqn, policy)
        return split if split is not None and self._again(eqn, split) is not None else None

    def written_out(self, closed: Closed, decisions: Decisions) -> Closed:
        """The program with these loops written again; those that are refused are as they were."""
        splits = {body: split for body, split in decisions.spread.items() if body not in decisions.refused}
        if not splits:
            return closed
        key = id(closed), tuple(splits.items())
        if key not in self.programs:
            eqns: list[Eqn] = []
            for eqn in closed.jaxpr.eqns:
                split = splits.get(body_of(eqn)) if eqn.primitive.name in LOOPS else None
                again = None if split is None else self._again(eqn, split)
                eqns += [eqn] if again is None else again
            self.programs[key] = closed, build.with_equations(closed, eqns)
        return self.programs[key][1]

    def of_sources(self, wish: Wish) -> Wish:
        """The same wish about the loops of the program as it was."""
        if isinstance(wish, Refuse | Leave):
            return replace(wish, loops={self.sources.get(body, body): why for body, why in wish.loops.items()})
        return wish

    def _again(self, eqn: Eqn, split: Split) -> list[Eqn] | None:
        key = body_of(eqn), split
        if key not in self.made:
            eqns = spread_loop(eqn, split)
            self.made[key] = None if eqns is None else (eqn, eqns)
            for each in eqns or ():
                if each.primitive.name in LOOPS:
                    self.sources[body_of(each)] = body_of(eqn)
        found = self.made[key]
        return None if found is None else found[1]


_SOURCES: weakref.WeakKeyDictionary[Closed, Eqn] = weakref.WeakKeyDictionary()


def source_of(loop: Eqn) -> Eqn:
    """The loop that XLA would run: as it was before it was spread."""
    return _SOURCES.get(loop.params["jaxpr"], loop) if loop.primitive.name in LOOPS else loop


def is_spread(loop: Eqn) -> bool:
    return source_of(loop) is not loop


def spread_loop(eqn: Eqn, split: Split) -> list[Eqn] | None:
    """The equations in place of a loop: it carries parts, which are put together again; None if it cannot be."""
    step = _Step(scan_of(eqn), split)
    try:
        traced = made(jax.make_jaxpr(lambda *args: _loop_again(eqn, step, args))(*(atom.aval for atom in eqn.invars)))
    except NotSpread:
        return None
    standing: dict[Var, Atom] = dict(zip(traced.jaxpr.invars, eqn.invars))
    results = {var: out for var, out in zip(traced.jaxpr.outvars, eqn.outvars) if not isinstance(var, Literal)}
    if traced.consts or len(results) < len(eqn.outvars) or not step.shows or not results.keys().isdisjoint(standing):
        return None
    eqns = []
    for each in traced.jaxpr.eqns:
        outvars = [results.get(var, var) for var in each.outvars]
        eqns.append(build.in_place_of(eqn, each, [build.now(atom, standing) for atom in each.invars], outvars))
        if each.primitive.name in LOOPS:
            _SOURCES[each.params["jaxpr"]] = eqn
    return eqns


def _loop_again(eqn: Eqn, step: _Step, args: Sequence[Value]) -> list[Value]:
    """The loop over parts; its last carried value says whose turn it is of two buffers."""
    body = body_of_loop(eqn)
    starts = [*map(step.apart, step.carried_dims, body.inits(args)), np.int32(0)]
    fixed = body.fixed(args)
    if eqn.primitive.name == "scan":

        def one(carried: Sequence[Value], xs: Sequence[Value]) -> tuple[list[Value], list[Value]]:
            return step.run(fixed, carried, xs)

        after, ys = scanned(eqn.params, one, [jnp.asarray(start) for start in starts], body.stacked(args))
    else:
        consts = args[: body.num_consts]

        def again(*values: Value) -> list[Value]:
            return step.run(body.fixed(values), values[body.num_consts :], ())[0]

        inner = made(jax.make_jaxpr(again)(*map(jax.typeof, (*consts, *starts))))
        after = repeat_p.bind(*consts, *starts, **{**eqn.params, "jaxpr": inner})
        ys = ()
    whole = [step.together(dim, value, 0) for dim, value in zip(step.carried_dims, after)]
    return [*whole, *(step.together(dim, y, 1) for dim, y in zip(step.put_out_dims, ys))]


@dataclass(frozen=True)
class _Made:
    """A value of a step, in its whole shape."""

    value: Value
    dim: int | None  # the dimension of the class that is taken apart; None if there is none
    own: bool = False  # whether a program has only its part along that
    weight: float = 0  # instructions for an element, of what is made anew wherever it is read
    varies: bool = False  # from step to step


class _Step:
    """One step of a loop, written again as it is traced."""

    def __init__(self, scan: Scan, split: Split) -> None:
        self.scan, self.split = scan, split
        self.classes = body_classes(scan)
        position, dim = split.place
        self.kind = self.classes.find((scan.carries[position][1], dim))
        self.carried_dims = [self._dim(before) for _, before, _, _ in scan.carries]
        self.put_out_dims: list[int | None] = []
        self.env: dict[Var, _Made] = {}
        self.shown: dict[Var, _Made] = {}
        self.turn: Value = None
        self.shows = False

    def _dim(self, atom: Atom) -> int | None:
        """The first dimension of the class that is taken apart."""
        if isinstance(atom, Literal):
            return None
        shape = atom.aval.shape
        return next((d for d, n in enumerate(shape) if n == self.split.size and self._is_split((atom, d))), None)

    def _is_split(self, dim: Any) -> bool:
        return bool(self.classes.find(dim) == self.kind)

    # -- shapes -------------------------------------------------------------------------------------------------

    def apart(self, dim: int | None, value: Value) -> Value:
        """One dimension as two: programs, and what each has."""
        if dim is None:
            return value
        shape, programs = jnp.shape(value), self.split.programs
        return lax.reshape(value, (*shape[:dim], programs, shape[dim] // programs, *shape[dim + 1 :]))

    def together(self, dim: int | None, value: Value, offset: int) -> Value:
        if dim is None:
            return value
        shape, at = jnp.shape(value), dim + offset
        return lax.reshape(value, (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]))

    # -- a step -------------------------------------------------------------------------------------------------

    def run(
        self, fixed: Mapping[Var, Value], carried: Sequence[Value], xs: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        """What is carried on, the turn with it, and what is put out."""
        scan, self.shown = self.scan, {}
        *parts, self.turn = carried
        self.env = {var: _Made(value, self._dim(var)) for var, value in fixed.items()}
        self.env |= {inside: _Made(x, self._dim(inside), varies=True) for (_, inside), x in zip(scan.xs, xs)}
        for (_, before, _, _), dim, part in zip(scan.carries, self.carried_dims, parts):
            self.env[before] = _Made(self.together(dim, part, 0), dim, dim is not None, varies=True)
        for eqn in scan.body.eqns:
            self.env.update(zip(eqn.outvars, self._of(eqn), strict=True))
        afters = [
            self.apart(dim, self._at(after, dim)) for (_, _, after, _), dim in zip(scan.carries, self.carried_dims)
        ]
        self.put_out_dims = [self._dim_of(atom) for atom, _ in scan.ys]
        ys = [self.apart(dim, self._at(atom, dim)) for (atom, _), dim in zip(scan.ys, self.put_out_dims)]
        return [*afters, lax.sub(np.int32(1), self.turn)], ys

    def _dim_of(self, atom: Atom) -> int | None:
        return None if isinstance(atom, Literal) else self.env[atom].dim

    def _at(self, atom: Atom, dim: int | None) -> Value:
        """A value that is wanted whole, or where a program has its own part along a dimension."""
        if isinstance(atom, Literal):
            return atom.val
        made = self.env[atom]
        return made.value if made.own and made.dim == dim else self._everywhere(atom).value

    def _everywhere(self, var: Var) -> _Made:
        """A value that can be read anywhere."""
        made = self.env[var]
        if not made.own:
            return made
        if var not in self.shown:
            dim = made.dim
            assert dim is not None  # it is a program's own along it
            value = self._show(self.apart(dim, made.value), dim)
            self.shown[var] = replace(made, value=self.together(dim, value, 0), own=False, weight=0)
        return self.shown[var]

    def _show(self, part: Value, shared: int) -> Value:
        self.shows = True
        return exchange_p.bind(part, self.turn, dims=tuple(range(part.ndim)), shared=(shared,))

    # -- equations ----------------------------------------------------------------------------------------------

    def _of(self, eqn: Eqn) -> list[_Made]:
        operands = variables(eqn.invars)
        varies = any(self.env[var].varies for var in operands)
        if eqn.primitive.name in ALONE and any(self.env[var].dim is not None for var in operands):
            raise NotSpread(eqn.primitive.name)
        if varies and (summed := self._summed(eqn)) is not None:
            return [summed]
        place, exact = self._goes_along(eqn)
        values, weight = [], 0.0
        for number, atom in enumerate(eqn.invars):
            if isinstance(atom, Literal):
                values.append(atom.val)
                continue
            goes = place is not None and (number, place) in exact
            found = self.env[atom] if goes else self._read(eqn, number, atom, place)
            values.append(found.value)
            weight += found.weight
        results = bind_equation(eqn, values)
        if place is not None:
            return [_Made(result, place, True, varies=varies) for result in results]
        weight += _weight(eqn)
        return [_Made(r, self._dim(out), False, weight, varies) for r, out in zip(results, eqn.outvars)]

    def _read(self, eqn: Eqn, number: int, var: Var, place: int | None) -> _Made:
        """An operand that may be read elsewhere; what takes long to make is shown before it is."""
        made = self.env[var]
        if made.own or not _is_dear(made):
            return self._everywhere(var)
        place = self._dim(eqn.outvars[0]) if place is None else place
        if (number, made.dim, place) in ((each.operand, each.dim, each.place) for each in _kept(eqn) if each.exact):
            return made
        self.env[var] = replace(made, own=True)
        return self._everywhere(var)

    def _goes_along(self, eqn: Eqn) -> tuple[int | None, set[tuple[int, int]]]:
        """The dimension of the result along which a program has its own part, and which operands lead there.

        As pairs of an operand and the dimension of the result. Where several disagree, most of them decide.
        """
        owned = {n: made for n, atom in enumerate(eqn.invars) if (made := self._owned(atom)) is not None}
        kept = [each for each in _kept(eqn) if each.operand in owned and each.exact]
        exact = {(each.operand, each.place) for each in kept if each.dim == owned[each.operand].dim}
        if not exact or len(eqn.outvars) != 1:
            return None, set()
        places = [place for _, place in sorted(exact)]
        return max(dict.fromkeys(places), key=places.count), exact

    def _owned(self, atom: Atom) -> _Made | None:
        made = None if isinstance(atom, Literal) else self.env[atom]
        return made if made is not None and made.own else None

    # -- sums in parts ------------------------------------------------------------------------------------------

    def _summed(self, eqn: Eqn) -> _Made | None:
        """What is combined along the class that is taken apart: of each part, and then of those."""
        name = eqn.primitive.name
        if name in PARTED and isinstance(operand := eqn.invars[0], Var):
            made = self.env[operand]
            return self._reduced(eqn, made) if made.dim in eqn.params["axes"] and made.varies else None
        return self._contracted(eqn) if name == "dot_general" else None

    def _reduced(self, eqn: Eqn, made: _Made) -> _Made:
        dim, axes = made.dim, eqn.params["axes"]
        assert dim is not None  # as it is among the axes
        own = tuple(sorted((dim + 1, *(axis + (axis > dim) for axis in axes if axis != dim))))
        place = dim - sum(axis < dim for axis in axes)
        (part,) = bind_equation(eqn.replace(params={**eqn.params, "axes": own}), [self.apart(dim, made.value)])
        whole = {**eqn.params, "axes": (place,)}
        (total,) = bind_equation(eqn.replace(params=whole), [self._show(part, place)])
        return _Made(total, self._dim(eqn.outvars[0]), False, DEAR, True)

    def _contracted(self, eqn: Eqn) -> _Made | None:
        """A product along the class, if its parts are few; else what it is made of is shown, which is less."""
        if len(variables(eqn.invars)) < 2:
            return None
        sides = [self.env[atom] for atom in eqn.invars if isinstance(atom, Var)]
        (contracted, batch), result = eqn.params["dimension_numbers"], eqn.outvars[0].aval
        pairs = list(zip(*contracted))
        along = [
            pair
            for pair in pairs
            if any(made.dim == d and (made.own or _is_dear(made)) for made, d in zip(sides, pair))
        ]
        if not along or any(made.own and made.dim != d for made, d in zip(sides, along[0])):
            return None
        if result.size * self.split.programs > min(
            made.value.size for made, d in zip(sides, along[0]) if made.dim == d
        ):
            return None
        dims = along[0]
        moved = [[d + (d > dim) for d in side] for dim, side in zip(dims, batch)]
        summed = [[d + (d >= dim) for d in side] for dim, side in zip(dims, contracted)]
        batches = tuple((dim, *side) for dim, side in zip(dims, moved))
        is_float = jnp.issubdtype(result.dtype, jnp.floating)
        kind = np.promote_types(result.dtype, np.float32) if is_float else result.dtype
        params = {
            **eqn.params,
            "dimension_numbers": (tuple(map(tuple, summed)), batches),
            "preferred_element_type": np.dtype(kind),
        }
        parts = [self.apart(dim, made.value) for dim, made in zip(dims, sides)]
        (part,) = bind_equation(eqn.replace(params=params), parts)
        total = lax.convert_element_type(lax.reduce_sum(self._show(part, 0), (0,)), result.dtype)
        return _Made(total, self._dim(eqn.outvars[0]), False, DEAR, True)


def _is_dear(made: _Made) -> bool:
    """Whether to meet once more takes less time than to make a value wherever it is wanted."""
    return made.varies and made.dim is not None and made.weight > numbers.COMMON.made_again_elsewhere


def _kept(eqn: Eqn) -> Iterator[Any]:
    """The dimensions of operands that are dimensions of the result."""
    for found in (dims_of(eqn), beside_places(eqn)):
        yield from found.kept if found else ()


def _weight(eqn: Eqn) -> float:
    """Instructions for an element of the result, from what it is made of at once."""
    row = TABLE.get(eqn.primitive.name)
    if isinstance(row, Pointwise):
        return float(row.weight)
    return 0 if isinstance(row, Indexing) or eqn.primitive.name in ("dynamic_slice", "gather", "iota") else DEAR


