"""The coefficients of what a loop carries, of the equations from one step to the next.

    e = mul c x;  f = add e d;  g = add f y        →    x of c, 1 of d, and y
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxpr2triton._compat import source_of
from jaxpr2triton.ir.jaxprs import Atom, Literal, Var
from jaxpr2triton.normalize.loops.affine import Carried
from jaxpr2triton.normalize.loops.rings import Array, Ring

Full = Callable[[Any], Array]  # an array of one number


@dataclass(frozen=True)
class Form:
    """How much of each carried value, by its number, and what besides; what is not there is the ring's zero."""

    scales: Mapping[int, Array | None]  # None: the ring's one
    offset: Array | None = None


def coefficients(carried: Carried, env: Mapping[Var, Array]) -> list[Array]:
    """The matrix of a step, row by row, and what is added, where `env` has what the links read besides."""
    aval, ring = carried.befores[0].aval, carried.ring

    def full(number: Any) -> Array:
        return lax.full(aval.shape, number, aval.dtype)

    def of(atom: Atom) -> Array:
        value = atom.val if isinstance(atom, Literal) else env[atom]
        if atom.aval.dtype != aval.dtype:  # a flag
            return jnp.asarray(value, atom.aval.dtype)
        return full(value) if isinstance(atom, Literal) or not atom.aval.shape else value

    known = {var: Form({n: None}) for n, var in enumerate(carried.befores)}
    through = partial(_through if ring is Ring.SUMS else _through_join, ring, full)
    for link in carried.steps:
        forms = [None if isinstance(atom, Literal) else known.get(atom) for atom in link.invars]
        values = [of(atom) if form is None else None for atom, form in zip(link.invars, forms)]
        with source_of(link.eqn):
            known[link.outvars[0]] = through(link.name, forms, values)
    ends = [known[after] for after in carried.afters if not isinstance(after, Literal)]
    scales = [_scale(form, n, ring, full) for form in ends for n in range(len(ends))]
    return [*scales, *(_offset(form, ring, full) for form in ends)]


def _scale(form: Form, number: int, ring: Ring, full: Full) -> Array:
    """With what changes nothing in place of nothing."""
    if number not in form.scales:
        return full(ring.zero)
    scale = form.scales[number]
    return full(ring.one) if scale is None else scale


def _offset(form: Form, ring: Ring, full: Full) -> Array:
    return full(ring.zero) if form.offset is None else form.offset


def _through(ring: Ring, full: Full, name: str, forms: Sequence[Form | None], values: Sequence[Array]) -> Form:
    """What becomes of forms, and of values that are no forms, in an equation."""
    form: Form = next(each for each in forms if each is not None)
    other: Array = next((value for value in values if value is not None), None)
    match name:
        case "neg":
            return _changed(form, full, ring, lax.neg)
        case "mul":
            scales = {n: other if scale is None else lax.mul(scale, other) for n, scale in form.scales.items()}
            return Form(scales, None if form.offset is None else lax.mul(form.offset, other))
        case "div":
            return _changed(form, full, ring, lambda x: lax.div(x, other))
        case "sub" if forms[1] is None:
            return Form(form.scales, lax.neg(other) if form.offset is None else lax.sub(form.offset, other))
        case "sub":
            first, second = _both(forms, values)
            return _joined(ring, full, lax.add, first, _changed(second, full, ring, lax.neg))
        case "add" | "add_any":
            return _joined(ring, full, lax.add, *_both(forms, values))
        case "select_n":
            return _chosen(ring, full, values[0], _both(forms[1:], values[1:]))
        case _:  # the same number in another place
            return form


def _through_join(ring: Ring, full: Full, name: str, forms: Sequence[Form | None], values: Sequence[Array]) -> Form:
    """The same where numbers are added, and compared with others."""
    form: Form = next(each for each in forms if each is not None)
    other: Array = next((value for value in values if value is not None), None)
    match name:
        case "add" | "add_any" | "sub":
            change = lax.sub if name == "sub" else lax.add
            first = lax.neg(other) if name == "sub" else other
            scales = {n: first if scale is None else change(scale, other) for n, scale in form.scales.items()}
            return Form(scales, None if form.offset is None else change(form.offset, other))
        case "max" | "min" | "logaddexp":
            return _joined(ring, full, ring.plus, *_both(forms, values))
        case "select_n":
            return _chosen(ring, full, values[0], _both(forms[1:], values[1:]))
        case _:  # the same number in another place
            return form


def _both(forms: Sequence[Form | None], values: Sequence[Array]) -> list[Form]:
    return [Form({}, value) if form is None else form for form, value in zip(forms, values)]


def _changed(form: Form, full: Full, ring: Ring, change: Callable[[Array], Array]) -> Form:
    scales = {n: change(_scale(form, n, ring, full)) for n in form.scales}
    return Form(scales, None if form.offset is None else change(form.offset))


def _joined(ring: Ring, full: Full, join: Callable[[Array, Array], Array], first: Form, second: Form) -> Form:
    """The ring's sum of two; what only one of them has is as it is."""

    def scale(number: int) -> Array | None:
        if number in first.scales and number in second.scales:
            return join(_scale(first, number, ring, full), _scale(second, number, ring, full))
        return first.scales[number] if number in first.scales else second.scales[number]

    scales = {number: scale(number) for number in {**first.scales, **second.scales}}
    offsets = [each.offset for each in (first, second) if each.offset is not None]
    return Form(scales, join(*offsets) if len(offsets) == 2 else next(iter(offsets), None))


def _chosen(ring: Ring, full: Full, which: Array, forms: Sequence[Form]) -> Form:
    numbers = dict.fromkeys(number for form in forms for number in form.scales)
    scales = {n: lax.select_n(which, *(_scale(form, n, ring, full) for form in forms)) for n in numbers}
    return Form(scales, lax.select_n(which, *(_offset(form, ring, full) for form in forms)))
