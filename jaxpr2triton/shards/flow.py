"""Which dimensions of a program can be split over devices, and what is only a device's part of a sum then.

Dimensions of one class are split together. A loop may add up a device's part of a sum for as long as it only does what
is linear with it; outside of loops the parts are put together at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from jaxpr2triton._compat import called_jaxpr, operands_of_call, scan_counts_of
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.shards.walks import Dim, How, is_known, shape_of, walk_of

Parts = frozenset[Dim]  # the classes over whose parts a value is still to be summed
Path = tuple[int, ...]  # the equations around, by their place
NONE: Parts = frozenset()
CONSTANT = "it is a constant of the program"


class Whole(Exception):
    """A class cannot be split: what would have to be a collective is in a loop."""

    def __init__(self, eqn: Eqn) -> None:
        super().__init__(f"sharding needs a collective in every step of a loop, at `{eqn.primitive.name}`")


class Classes:
    """Union-find over the dimensions of all variables of a program, those in its loops included."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self._parent: dict[Dim, Dim] = {}
        self._whole: list[tuple[Dim, str]] = _all_of(jaxpr.constvars, CONSTANT)
        self._met: list[Dim] = []
        self._met_inside: list[Dim] = []
        seen: list[Var] = []
        self._enter(jaxpr, seen, False)
        self.met = set(map(self.find, self._met))  # along which something is summed or compared
        self.met_inside = set(map(self.find, self._met_inside))  # … in a loop or a branch
        self.why: dict[Dim, str] = {}  # a class has to be whole
        self.granule: dict[Dim, int] = {}  # what the number of parts divides; what a reshape joins is longer
        for dim, why in self._whole:
            self.why.setdefault(self.find(dim), why)
        for var in dict.fromkeys(seen):
            classes = [self.find((var, d)) for d in range(len(shape_of(var)))]
            for kind, size in zip(classes, shape_of(var)):
                self.granule[kind] = math.gcd(self.granule.get(kind, 0), size)
                if classes.count(kind) > 1:
                    self.why.setdefault(kind, "the value would be split along two of its dimensions")
        for kind, size in self.granule.items():
            if size < 2:
                self.why.setdefault(kind, "there is no number of parts that divides it")

    def find(self, dim: Dim) -> Dim:
        root = dim
        while self._parent.get(root, root) != root:
            root = self._parent[root]
        while self._parent.get(dim, dim) != root:
            self._parent[dim], dim = root, self._parent[dim]
        return root

    def of(self, atom: Atom) -> tuple[Dim | None, ...]:
        """The class of each dimension; None where that has to be whole."""
        if not isinstance(atom, Var):
            return (None,) * len(getattr(atom.aval, "shape", ()))
        return tuple(None if kind in self.why else kind for kind in self.all_of(atom))

    def all_of(self, atom: Var) -> tuple[Dim, ...]:
        """The class of each dimension, of those that have to be whole too."""
        return tuple(self.find((atom, d)) for d in range(len(shape_of(atom))))

    def _tie(self, one: Atom, other: Atom, first: int = 0, second: int = 0) -> None:
        """Two values that are the same, but for leading dimensions."""
        if isinstance(one, Var) and isinstance(other, Var):
            for d in range(len(shape_of(one)) - first):
                self._parent[self.find((one, d + first))] = self.find((other, d + second))

    def _enter(self, jaxpr: Jaxpr, seen: list[Var], inside: bool) -> None:
        seen += [*jaxpr.constvars, *jaxpr.invars]
        for eqn in jaxpr.eqns:
            seen += eqn.outvars
            bodies = bodies_of(eqn)
            for body in bodies:
                self._whole += _all_of(body.constvars, CONSTANT)
                self._enter(body, seen, True)
            if bodies:
                self._around(eqn, bodies)
                continue
            walk = walk_of(eqn)
            why = "needs it whole" if inside or is_known(eqn) else "stays with XLA, which splits it as it likes"
            self._whole += [(dim, f"`{eqn.primitive.name}` {why}") for dim in walk.whole]
            self._met += walk.met
            self._met_inside += walk.met if inside else ()
            for (one, d), (other, e) in walk.together:
                self._parent[self.find((one, d))] = self.find((other, e))

    def _around(self, eqn: Eqn, bodies: Sequence[Jaxpr]) -> None:
        match eqn.primitive.name:
            case "scan":
                (body,) = bodies
                consts, carried = scan_counts_of(eqn.params)
                stacked = [*eqn.invars[consts + carried :], *eqn.outvars[carried:]]
                self._whole += [((var, 0), "a loop goes along it") for var in variables(stacked)]
                for place, (outer, inner) in enumerate(zip(eqn.invars, body.invars)):
                    self._tie(inner, outer, 0, int(place >= consts + carried))
                for place, (after, outer) in enumerate(zip(body.outvars, eqn.outvars)):
                    self._tie(after, outer, 0, int(place >= carried))
                self._tie_all(body.invars[consts : consts + carried], eqn.outvars)
            case "while":
                go_on, body = bodies
                ours, theirs = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
                initial = eqn.invars[ours + theirs :]
                self._tie_all(go_on.invars, [*eqn.invars[:ours], *initial])
                self._tie_all(body.invars, eqn.invars[ours:])
                self._tie_all(body.outvars, eqn.outvars)
                self._tie_all(initial, eqn.outvars)
                self._tie_all(body.invars[theirs:], eqn.outvars)
                self._tie_all(go_on.invars[ours:], eqn.outvars)
                lanes = go_on.outvars[0]  # one condition for each lane: those of all that is carried
                for out, d in itertools.product(eqn.outvars, range(len(lanes.aval.shape))):
                    if isinstance(lanes, Var):  # else it is the same for all of them
                        self._parent[self.find((lanes, d))] = self.find((out, d))
            case "cond":
                for branch in bodies:
                    self._tie_all(branch.invars, eqn.invars[1:])
                    self._tie_all(branch.outvars, eqn.outvars)
            case name:
                self._tie_all(bodies[0].invars, operands_of_call(name, eqn.params, eqn.invars))
                self._tie_all(bodies[0].outvars, eqn.outvars)

    def _tie_all(self, ones: Sequence[Atom], others: Sequence[Atom]) -> None:
        for one, other in zip(ones, others):
            self._tie(one, other)


def _all_of(variables: Sequence[Var], why: str) -> list[tuple[Dim, str]]:
    return [((var, d), why) for var in variables for d in range(len(shape_of(var)))]


def bodies_of(eqn: Eqn) -> tuple[Jaxpr, ...]:
    """What a loop, a branch or a call runs; nothing for any other equation, whatever that holds."""
    params = eqn.params
    match eqn.primitive.name:
        case "scan":
            return (params["jaxpr"].jaxpr,)
        case "while":
            return params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
        case "cond" if not params.get("branches_platforms"):
            return tuple(branch.jaxpr for branch in params["branches"])
        case name:
            called = called_jaxpr(name, params)
            return () if called is None else (called[0],)


@dataclass
class Flow:
    """What is a part of a sum where, if the classes of `split` are."""

    classes: Classes
    split: frozenset[Dim]
    # operands and results of equations that only the first device has, the others having 0
    first_only: dict[tuple[Path, str, int], bool] = field(default_factory=dict)

    def after(self, eqn: Eqn, given: Sequence[Parts], path: Path, inside: bool = True) -> list[Parts]:
        """What an equation's results are still to be summed over."""
        bodies = bodies_of(eqn)
        if bodies:
            return self._around(eqn, bodies, given, path)
        walk = walk_of(eqn)
        met = frozenset(kind for kind in self._kinds(walk.met) if kind in self.split)
        if met and inside and walk.how != "sum":
            raise Whole(eqn)
        parts = self._linear(eqn, given, path) if any(given) else NONE
        if eqn.primitive.name == "scatter-add" and met:  # what is added to is there once
            if parts:
                raise Whole(eqn)
            self.first_only[path, "operand", 0] = True
        if parts:
            crossing = {k for atom in (*eqn.invars, *eqn.outvars) for k in self.classes.of(atom)}
            if crossing & parts:
                raise Whole(eqn)
        return [met | parts] * len(eqn.outvars)

    def how(self, eqn: Eqn) -> How:
        return "sum" if bodies_of(eqn) else walk_of(eqn).how

    def _kinds(self, dims: Sequence[Dim]) -> Iterator[Dim]:
        yield from map(self.classes.find, dims)

    def _linear(self, eqn: Eqn, given: Sequence[Parts], path: Path) -> Parts:
        parts = frozenset().union(*given)
        places = [place for place, each in enumerate(given) if each]
        if any(each and each != parts for each in given):
            raise Whole(eqn)
        match eqn.primitive.name:
            case "add" | "add_any" | "sub" | "concatenate" | "stack":
                self._mask(eqn, given, path, range(len(given)))
            case "select_n" if 0 not in places:
                self._mask(eqn, given, path, range(1, len(given)))
            case "dynamic_update_slice" if max(places) < 2:
                self._mask(eqn, given, path, range(2))
            case "mul" | "dot_general" if len(places) == 1:
                pass
            case "div" | "dynamic_slice" if places == [0]:
                pass
            case "neg" | "copy" | "reduce_sum" | "broadcast_in_dim" | "reshape" | "transpose" | "squeeze" | "slice":
                pass
            case "rev" | "cumsum" | "unstack" | "split":
                pass
            case "pad" if places == [0] and _is_zero(eqn.invars[1]):
                pass
            case "scatter-add" if 1 not in places:
                self._mask(eqn, given, path, (0, 2))
            case "convert_element_type" if eqn.outvars[0].aval.dtype == eqn.invars[0].aval.dtype:
                pass
            case _:
                raise Whole(eqn)
        return parts

    def _mask(self, eqn: Eqn, given: Sequence[Parts], path: Path, places: Sequence[int]) -> None:
        for place in places:
            self.first_only[path, "operand", place] = not given[place]

    def _around(self, eqn: Eqn, bodies: Sequence[Jaxpr], given: Sequence[Parts], path: Path) -> list[Parts]:
        match eqn.primitive.name:
            case "scan":
                consts, carried = scan_counts_of(eqn.params)
                return self._loop(eqn, bodies[0], given, consts, carried, path)
            case "while":
                ours = eqn.params["cond_nconsts"]
                results = self._loop(eqn, bodies[1], given[ours:], eqn.params["body_nconsts"], len(eqn.outvars), path)
                if self.within(bodies[0], [*given[:ours], *results], (*path, 0)) != [NONE]:
                    raise Whole(eqn)
                return results
            case "cond":
                found = [self.within(body, given[1:], (*path, n)) for n, body in enumerate(bodies)]
                if given[0] or any(other != found[0] for other in found):
                    raise Whole(eqn)
                return found[0]
            case name:
                return self.within(bodies[0], operands_of_call(name, eqn.params, given), (*path, 0))

    def _loop(
        self, eqn: Eqn, body: Jaxpr, given: Sequence[Parts], consts: int, carried: int, path: Path
    ) -> list[Parts]:
        last = consts + carried
        state = list(given[consts:last])
        while True:
            results = self.within(body, [*given[:consts], *state, *given[last:]], (*path, 1))
            joined = [_joined(eqn, before, after) for before, after in zip(state, results)]
            if joined == state:
                break
            state = joined
        for place, parts in enumerate(state):
            self.first_only[path, "initial", place] = bool(parts) and not given[consts + place]
            self.first_only[path, "carried", place] = bool(parts) and not results[place]
        return [*state, *results[carried:]]

    def within(self, jaxpr: Jaxpr, given: Sequence[Parts], path: Path) -> list[Parts]:
        env: dict[Var, Parts] = dict(zip(jaxpr.invars, given))
        for number, eqn in enumerate(jaxpr.eqns):
            operands = [known(env, atom) for atom in eqn.invars]
            env.update(zip(eqn.outvars, self.after(eqn, operands, (*path, number))))
        return [known(env, atom) for atom in jaxpr.outvars]


def known(env: Mapping[Var, Parts], atom: Atom) -> Parts:
    return env.get(atom, NONE) if isinstance(atom, Var) else NONE


def _joined(eqn: Eqn, before: Parts, after: Parts) -> Parts:
    if before and after and before != after:
        raise Whole(eqn)
    return before | after


def _is_zero(atom: Atom) -> bool:
    return isinstance(atom, Literal) and bool(np.all(np.asarray(atom.val) == 0))


def can_split(jaxpr: Jaxpr, classes: Classes, split: frozenset[Dim]) -> bool:
    return not why_not_split(jaxpr, classes, split)


def why_not_split(jaxpr: Jaxpr, classes: Classes, split: frozenset[Dim]) -> str:
    """Empty if these classes can be split: nothing can be a part of a sum in a loop but what the loop adds up."""
    if not split & classes.met_inside:
        return ""
    try:
        flow = Flow(classes, split)
        for number, eqn in enumerate(jaxpr.eqns):
            flow.after(eqn, [NONE] * len(eqn.invars), (number,), inside=False)
    except Whole as problem:
        return str(problem)
    return ""
