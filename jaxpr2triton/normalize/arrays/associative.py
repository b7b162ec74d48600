"""The recursion that `lax.associative_scan` is traced as → one equation for each of its results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton._compat import bind_equation, called_jaxpr
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.dtypes import unsupported
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Jaxpr, Literal, Var, frozen, made
from jaxpr2triton.ir.once import makers_of
from jaxpr2triton.ir.scanned import Combination, combination, combined, is_associative
from jaxpr2triton.ir.scanned_slopes import has_slopes, scanned_parts_p
from jaxpr2triton.ir.tracing import again
from jaxpr2triton.normalize.arrays.scan_parts import write_parts, written
from jaxpr2triton.normalize.calls.dead import remove_dead
from jaxpr2triton.rules.base import Call, Pointwise
from jaxpr2triton.rules.rows import TABLE

OWN_SLOPES = (jnp.logaddexp, jnp.logaddexp2)
JOINS = frozenset({"add", "or"})  # what puts elements of odd and of even places together


def join_scans(closed: Closed, longest: int | None = None) -> Closed:
    """Find the recursions of associative scans, and write what they compute.

        b = slice[0:7:2] a;  c = slice[1:8:2] a;  d = add b c;  … ;  y = add (pad e) (pad f)   →   y = cumsum[axis=0] a

    What combines elements is taken from the first step. The scan is traced with it anew, and has to be the very same
    equations: what differs anywhere from what JAX writes stays as it is. That the function is associative is what
    whoever calls `lax.associative_scan` says; the derivative of one need not be, as that of a maximum where numbers are
    equal, so that it is tried.

    Left alone: elements whose parts have several shapes, functions that are more than elementwise arithmetic of them,
    short axes, and those longer than `longest`.
    """
    closed = write_parts(closed, longest)
    found = dict(_outermost(closed.jaxpr, longest))

    def write(scan: _Scan, values: Sequence[Any]) -> Any:
        return written(values, scan.combine, scan.axis, scan.output, scan.reverse)

    return _replaced(closed, found, write)


def join_parts(closed: Closed) -> Closed:
    """Before a program is differentiated: all results of a scan as one equation, which knows its tangents.

    Left alone: what has parts that all follow each other, or a derivative for which the order of elements matters.
    """
    most = policy.COMMON.following_parts
    known: dict[Combination, bool] = {}
    found: dict[Var, _Scan] = {}
    for var, scan in _outermost(closed.jaxpr, None):
        if scan.combine not in known:
            known[scan.combine] = has_slopes(scan.combine, most)
        if known[scan.combine]:
            found[var] = scan
    made: dict[Hashable, list[Any]] = {}

    def write(scan: _Scan, values: Sequence[Any]) -> Any:
        key = replace(scan, output=0)
        if key not in made:
            how = {"combine": scan.combine, "axis": scan.axis, "reverse": scan.reverse}
            made[key] = scanned_parts_p.bind(*values, **how)
        return made[key][scan.output]

    return _replaced(closed, found, write)


def _replaced(closed: Closed, found: Mapping[Var, _Scan], write: Callable[[_Scan, Sequence[Any]], Any]) -> Closed:
    eqns = closed.jaxpr.eqns
    if not found:
        return closed

    def run(*args: Any) -> list[Any]:
        env: dict[Var, Any] = dict(zip([*closed.jaxpr.constvars, *closed.jaxpr.invars], [*closed.consts, *args]))

        def instead(eqn: Eqn, values: list[Any]) -> list[Any] | None:
            scan = found.get(eqn.outvars[0]) if eqn.outvars else None
            return None if scan is None else [write(scan, [env[var] for var in scan.elements])]

        evaluate.run(eqns, env, instead)
        return [evaluate.read(env, atom) for atom in closed.jaxpr.outvars]

    return remove_dead(again(closed, run))


def join_short_scans(closed: Closed) -> Closed:
    """For bodies of loops: of as many elements as a step combines."""
    return join_scans(closed, policy.COMMON.tile)


@dataclass(frozen=True)
class _Scan:
    elements: tuple[Var, ...]
    combine: Combination
    output: int
    axis: int
    reverse: bool = False


def _outermost(jaxpr: Jaxpr, longest: int | None) -> Iterator[tuple[Var, _Scan]]:
    joins = _joins(jaxpr)
    finder = _Finder(jaxpr)
    inside: set[Var] = set()
    scans: list[_Scan] = []
    turned = _reversals(jaxpr) if joins else {}
    for eqn in reversed(joins):
        (out,) = eqn.outvars
        if out in inside:
            continue
        level = finder.level(out)
        if level is None or level.size < policy.COMMON.few:
            continue
        if longest is not None and level.size > longest:
            continue
        cone = finder.cone(level)
        inside.update(cone.made)
        scan = finder.part_of(level, scans) or finder.as_scan(level, cone)
        if scan is None:
            continue
        scans.append(scan)
        sources = [turned.get(var) for var in scan.elements]
        users = [other for other in jaxpr.eqns if out in other.invars]
        elements = tuple(source[0] for source in sources if source is not None and source[1] == (level.axis,))
        is_turned = len(users) == 1 and _turns(users[0], level.axis) and out not in jaxpr.outvars
        if is_turned and len(elements) == len(sources):
            yield users[0].outvars[0], replace(scan, elements=elements, reverse=True)
        else:
            yield out, scan


def _joins(jaxpr: Jaxpr) -> list[Eqn]:
    """What may put elements of odd and of even places together."""
    if not any(eqn.primitive.name == "pad" for eqn in jaxpr.eqns):
        return []
    return [eqn for eqn in jaxpr.eqns if eqn.primitive.name in JOINS]


def _turns(eqn: Eqn, axis: int) -> bool:
    return eqn.primitive.name == "rev" and tuple(eqn.params["dimensions"]) == (axis,)


def _reversals(jaxpr: Jaxpr) -> dict[Var, tuple[Var, tuple[int, ...]]]:
    return {
        eqn.outvars[0]: (eqn.invars[0], tuple(eqn.params["dimensions"]))
        for eqn in jaxpr.eqns
        if eqn.primitive.name == "rev" and not isinstance(eqn.invars[0], Literal)
    }


@dataclass(frozen=True)
class _Level:
    """One call of the recursion: the result, the elements that it is the scan of, and the scan of half as many."""

    out: Var
    element: Var
    odd: Var
    axis: int
    size: int


@dataclass
class _Cone:
    """What a result is made of: the elements of all parts, and all that is computed of them."""

    elements: dict[Var, None] = field(default_factory=dict)
    made: set[Var] = field(default_factory=set)


@dataclass
class _Finder:
    jaxpr: Jaxpr
    makers: Mapping[Var, int] = field(init=False)

    def __post_init__(self) -> None:
        self.makers = makers_of(self.jaxpr)

    def maker(self, atom: Atom) -> Eqn | None:
        number = None if isinstance(atom, Literal) else self.makers.get(atom)
        eqn = None if number is None else self.jaxpr.eqns[number]
        return eqn if eqn is not None and len(eqn.outvars) == 1 else None

    def made_by(self, atom: Atom, name: str) -> Eqn | None:
        eqn = self.maker(atom)
        return eqn if eqn is not None and eqn.primitive.name == name else None

    def level(self, out: Var) -> _Level | None:
        """The parts of `interleave(concatenate(slice(element), …), odd)`."""
        join = self.maker(out)
        if join is None or join.primitive.name not in JOINS or len(join.invars) != 2:
            return None
        even, odd = (self.made_by(atom, "pad") for atom in join.invars)
        if even is None or odd is None:
            return None
        axes = [axis for axis, (_, _, interior) in enumerate(even.params["padding_config"]) if interior]
        if len(axes) != 1:
            return None
        (axis,) = axes
        both = self.made_by(even.invars[0], "concatenate")
        first = None if both is None else self.made_by(both.invars[0], "slice")
        if first is None or isinstance(first.invars[0], Literal) or isinstance(odd.invars[0], Literal):
            return None
        size = out.aval.shape[axis]
        if first.invars[0].aval.shape != out.aval.shape:
            return None
        return _Level(out, first.invars[0], odd.invars[0], axis, size)

    def cone(self, level: _Level) -> _Cone:
        """All of what the result is made of, back to what is sliced into elements at even and at odd places."""
        found = _Cone()

        def operands(var: Var) -> list[Var]:
            eqn = self.maker(var)
            return [] if eqn is None or is_element(eqn) else evaluate.variables(eqn.invars)

        def is_element(eqn: Eqn) -> bool:
            return eqn.primitive.name == "slice" and _is_whole(eqn.invars[0], level)

        for var in reachable([level.out], operands):
            if (eqn := self.maker(var)) is not None:
                found.made.add(var)
                if is_element(eqn):
                    found.elements.update(dict.fromkeys(evaluate.variables(eqn.invars)))
        return found

    def as_scan(self, level: _Level, cone: _Cone) -> _Scan | None:
        """The scan that the result is, if it is one."""
        inner = self.level(level.odd)
        others = [var for var in cone.elements if var is not level.element]
        if inner is None or len(others) >= policy.COMMON.coupled or level.element not in cone.elements:
            return None
        reduced = [var for var in self.cone(inner).elements if var is not inner.element]
        if len(reduced) != len(others) or any(unsupported(var.aval.dtype) for var in cone.elements):
            return None
        for order in itertools.permutations(others):
            elements = (level.element, *order)
            step = self._step(elements, (inner.element, *reduced), level)
            scan = _Scan(elements, step, 0, level.axis) if step is not None else None
            if scan is not None and self._is_traced_alike(level, scan):
                return scan if is_associative(scan.combine) else None
        return None

    def part_of(self, level: _Level, scans: Sequence[_Scan]) -> _Scan | None:
        """Another part of a scan that was found before; not one of whose elements some are made later."""
        here = self.makers[level.out]
        for scan in scans:
            there = all(self.makers.get(var, -1) < here for var in scan.elements)
            if there and level.element in scan.elements and scan.axis == level.axis:
                other = replace(scan, output=scan.elements.index(level.element))
                if self._is_traced_alike(level, other):
                    return other
        return None

    def _step(self, elements: Sequence[Var], reduced: Sequence[Var], level: _Level) -> Combination | None:
        """What makes one element of two neighbours, as a program of scalars."""
        names: dict[Var, tuple[str, int]] = {}
        eqns: dict[Var, Eqn] = {}
        stack: list[Atom] = list(reduced)
        while stack:
            atom = stack.pop()
            if isinstance(atom, Literal) or atom in names or atom in eqns:
                continue
            eqn = self.maker(atom)
            if eqn is None:
                return None
            if eqn.primitive.name == "slice" and eqn.invars[0] in elements:
                first = eqn.params["start_indices"][level.axis]
                names[atom] = ("left", "right")[min(first, 1)], elements.index(eqn.invars[0])
                continue
            if not _is_filled(eqn) and not _is_elementwise(eqn):
                return None
            eqns[atom] = eqn
            stack.extend(eqn.invars if not _is_filled(eqn) else ())
        ordered = [self.jaxpr.eqns[number] for number in sorted(self.makers[var] for var in eqns)]

        def run(*args: Any) -> list[Any]:
            sides = {"left": args[: len(elements)], "right": args[len(elements) :]}
            env: dict[Var, Any] = {var: sides[side][part] for var, (side, part) in names.items()}
            for eqn in ordered:
                values = [evaluate.read(env, atom) for atom in eqn.invars]
                env.update(zip(eqn.outvars, values if _is_filled(eqn) else _of_scalars(eqn, values)))
            return [env[var] for var in reduced]

        scalars = [jax.ShapeDtypeStruct((), var.aval.dtype) for var in elements]
        return combination(made(jax.make_jaxpr(run)(*scalars, *scalars)))

    def _is_traced_alike(self, level: _Level, scan: _Scan) -> bool:
        """Whether JAX would write these very equations for the scan."""

        def whole(*args: Any) -> Any:
            return lax.associative_scan(partial(combined, scan.combine), list(args), axis=scan.axis)[scan.output]

        traced = jax.make_jaxpr(whole)(*[jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in scan.elements])
        numbers: dict[Hashable, int] = {}
        theirs = _number(traced.jaxpr.outvars[0], _Finder(traced.jaxpr), traced.jaxpr.invars, numbers)
        return _number(level.out, self, scan.elements, numbers) == theirs


def _is_filled(eqn: Eqn) -> bool:
    """Whether it is one known number everywhere."""
    return eqn.primitive.name == "broadcast_in_dim" and isinstance(eqn.invars[0], Literal)


def _is_elementwise(eqn: Eqn) -> bool:
    if eqn.primitive.name == "custom_jvp_call":  # before a program is differentiated
        return _with_own_slopes(eqn) is not None
    row = TABLE.get(eqn.primitive.name)
    dtypes = [atom.aval.dtype for atom in (*eqn.invars, *eqn.outvars)]
    if not isinstance(row, Pointwise) or any(unsupported(dtype) for dtype in dtypes) or eqn.effects:
        return False
    return row.refuse(Call(tuple(dtypes[:-1]), dtypes[-1], eqn.params)) is None


def _with_own_slopes(eqn: Eqn) -> Callable[..., Any] | None:
    """The function of arrays of any shape that is called, if that is known: it has a derivative of its own."""
    avals = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in eqn.invars]
    called = str(jax.make_jaxpr(partial(bind_equation, eqn))(avals))
    return next((each for each in OWN_SLOPES if str(jax.make_jaxpr(lambda x, f=each: [f(*x)])(avals)) == called), None)


def _of_scalars(eqn: Eqn, values: Sequence[Any]) -> list[Any]:
    known = _with_own_slopes(eqn) if eqn.primitive.name == "custom_jvp_call" else None
    return bind_equation(eqn, values) if known is None else [known(*values)]


def _is_whole(atom: Atom, level: _Level) -> bool:
    return bool(atom.aval.shape == level.out.aval.shape)


def _number(out: Var, finder: _Finder, roots: Sequence[Var], numbers: dict[Hashable, int]) -> int:
    """Equal for values that the same equations make of the roots."""
    known: dict[Atom, int] = {}

    def number(key: Hashable) -> int:
        return numbers.setdefault(key, len(numbers))

    def of(atom: Atom) -> int | None:
        if isinstance(atom, Literal):
            return number(("literal", str(atom.aval.dtype), np.asarray(atom.val, atom.aval.dtype).tobytes()))
        if atom in roots:
            return number(("root", roots.index(atom)))
        if not atom.aval.size:  # all of these are equal
            return number(("empty", atom.aval.shape, atom.aval.dtype))
        return known.get(atom)

    stack: list[Var] = [out]
    while stack:
        var = stack[-1]
        eqn = finder.maker(var)
        if of(var) is not None:
            stack.pop()
        elif eqn is None:
            known[var] = number(("other", id(var)))
        elif _is_filled(eqn):
            known[var] = of(eqn.invars[0]) or 0
        else:
            parts = [of(atom) for atom in eqn.invars]
            missing = [atom for atom, part in zip(eqn.invars, parts) if part is None and not isinstance(atom, Literal)]
            if missing:
                stack.extend(missing)
            else:
                called = called_jaxpr(eqn.primitive.name, eqn.params)
                params = {key: value for key, value in eqn.params.items() if value is not None}
                params = params if called is None else {"jaxpr": str(called[0])}
                known[var] = number((eqn.primitive, frozen(params), tuple(parts), var.aval.shape, var.aval.dtype))
    found = of(out)
    assert found is not None
    return found
