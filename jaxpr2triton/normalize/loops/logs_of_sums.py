"""Logarithms of sums of exponentials, one in the other → one of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from jaxpr2triton.ir import build
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.once import makers_of, readers_of
from jaxpr2triton.normalize.loops.logs import ADDS, added

Terms = tuple[Atom, ...]


def join_logs(closed: Closed) -> Closed:
    """Take one logarithm of all exponentials in place of one logarithm after the other.

        d = logaddexp (logaddexp a b) c    →    m = max a b c;  d = m + log1p (exp (the two others - m))

    Each would wait for the one before, as where the paths of an alignment come from three places. No digit is lost:
    the exponential of what is largest is 1, and is not added up. Left alone: a sum that anything else reads.
    """
    joined = _joined(closed.jaxpr)
    if not joined:
        return closed
    return build.with_equations(closed, [_of_all(eqn, joined) for eqn in closed.jaxpr.eqns])


def _joined(jaxpr: Jaxpr) -> Mapping[Var, Terms]:
    """The sums of more than two terms, by what they are the logarithms of."""
    makers = {var: jaxpr.eqns[number] for var, number in makers_of(jaxpr).items()}
    readers = readers_of(jaxpr)
    found: dict[Var, Terms] = {}
    inner: set[Var] = set()
    for eqn in jaxpr.eqns:
        if (pair := added(eqn, makers)) is not None:
            own = {each for each in variables(pair) if each in found and _is_for(each, pair, readers)}
            found[eqn.outvars[0]] = tuple(_terms(pair, own, found))
            inner |= own
    return {var: terms for var, terms in found.items() if len(terms) > 2 and var not in inner}


def _terms(pair: Terms, own: set[Var], found: Mapping[Var, Terms]) -> Iterator[Atom]:
    for each in pair:
        yield from found[each] if not isinstance(each, Literal) and each in own else (each,)


def _is_for(value: Var, pair: Terms, readers: Mapping[Var, Sequence[Eqn | None]]) -> bool:
    """Whether all that reads a value is the logarithm of the sum of this pair."""
    names, both = ("max", "sub", *ADDS), set(variables(pair))
    return all(eqn is not None and eqn.primitive.name in names and both >= _read(eqn) for eqn in readers[value])


def _read(eqn: Eqn) -> set[Var]:
    return set(variables(eqn.invars))


def _of_all(eqn: Eqn, joined: Mapping[Var, Terms]) -> Eqn:
    """The equation, or a call that takes its place."""
    (out, *_) = eqn.outvars or (None,)
    if out is None or out not in joined:
        return eqn
    shape, terms = out.aval.shape, joined[out]
    avals = [jax.ShapeDtypeStruct(each.aval.shape, each.aval.dtype) for each in terms]
    function = jax.make_jaxpr(lambda *values: _log_of_sum([jnp.broadcast_to(each, shape) for each in values]))(*avals)
    return build.calling(eqn.replace(invars=list(terms)), function)


def _log_of_sum(values: Sequence[jax.Array]) -> jax.Array:
    """As one by one: NaN stays, and two infinities are no difference."""
    top, others = values[0], list[jax.Array]()
    for each in values[1:]:
        others.append(lax.min(top, each))
        top = lax.max(top, each)
    total = sum((lax.exp(lax.sub(each, top)) for each in others[1:]), lax.exp(lax.sub(others[0], top)))
    found = lax.add(top, lax.log1p(total))
    return lax.select(lax.ne(found, found), top, found)
