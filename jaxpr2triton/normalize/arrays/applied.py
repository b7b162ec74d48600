"""Scatters that apply a function to what they replace → a choice between old and new values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import primitives

from jaxpr2triton import policy
from jaxpr2triton.ir.dtypes import unsupported
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.arrays.affine_windows import Places, evenly, scattered
from jaxpr2triton.normalize.arrays.pulled import Found, one_by_one
from jaxpr2triton.normalize.calls.inline import inline_call
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, constant, rewrite
from jaxpr2triton.rules.writes import OPERATIONS, is_usual


def apply_functions(closed: Closed) -> Closed:
    """Write out what a scatter computes of the old value at each place.

        b = scatter[update_jaxpr={ lambda ; old new. c = sin old in (c,) }] x [[i]] u
            →   hit = scatter (broadcast_in_dim false) [[i]] true;  b = select_n hit x (sin x)

    An index that may be there twice is applied twice: several indices are written out one after the other, in the order
    in which they stand, and many in a loop over them. A function of nothing but the update is a plain `scatter` of its
    results. Left alone: functions with effects, and more indices than `looked_through` that may be alike.
    """
    if all(eqn.primitive.name not in OPERATIONS or _is_usual(eqn) for eqn in closed.jaxpr.eqns):
        return closed
    return rewrite(closed, _write_out)


def _is_usual(eqn: Any) -> bool:
    return is_usual(eqn.primitive.name, eqn.params)


def _write_out(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    if node.name not in OPERATIONS:
        return inline_call(node, rewriter)
    if is_usual(node.name, node.params) or any(unsupported(jax.typeof(arg).dtype) for arg in node.args):
        return None
    result = _applied(node, rewriter)
    return None if result is None else [result]


def _applied(node: Node, rewriter: Rewriter) -> Value | None:
    """The scatter's result, if its function can be written out; None if it is left alone."""
    operand, indices, updates = node.args
    inner = _function_of(node)
    if inner is None or 0 in (operand.size, updates.size):
        return None

    def written(old: Value, new: Value) -> Value:
        function = _elementwise(inner, node.params["update_consts"], jnp.ndim(old))
        (result,) = rewriter.expand(function, (old, new))
        return result

    reads_old, reads_new = _reads(inner)
    if not reads_old:
        return _scattered(node, operand, indices, written(updates, updates))

    rounds = _rounds(node, rewriter)
    if rounds is None:
        return _in_a_loop(node, inner)
    result = operand
    for index, update in rounds:
        hit = _scattered(node, lax.full(result.shape, False), index, lax.full(update.shape, True))
        new = _scattered(node, lax.full_like(result, 0), index, update) if reads_new else result
        result = lax.select(hit, written(result, new), result)
    return result


def _function_of(node: Node) -> Any:
    """The jaxpr of what the scatter computes; None if nothing can be written in its place."""
    function, consts = node.params["update_jaxpr"], node.params["update_consts"]
    inner = getattr(function, "jaxpr", function)
    if inner.effects or any(constant(const) is None for const in consts):
        return None
    dtype = jax.typeof(node.args[0]).dtype
    return inner if all(var.aval.dtype == dtype for var in inner.outvars) else None


def _reads(inner: Any) -> tuple[bool, bool]:
    """Whether a function of an old and a new value reads the one, and the other."""
    read = {id(atom) for eqn in inner.eqns for atom in eqn.invars} | {id(atom) for atom in inner.outvars}
    reads_old, reads_new = (id(var) in read for var in inner.invars)
    return reads_old, reads_new


def _scattered(node: Node, target: Value, index: Value, update: Value) -> Value:
    """A plain scatter to the places of this one."""
    params = {**node.params, "update_jaxpr": None, "update_consts": ()}
    return primitives.scatter_p.bind(target, index, update, **params)


def _rounds(node: Node, rewriter: Rewriter) -> Iterable[tuple[Value, Value]] | None:
    """Indices and updates, in rounds of which none comes to a place twice; None if that would be too many.

    [[i], [j]], u    →    [[i]], u[:1]   and   [[j]], u[1:]      unless it is known that i is not j
    """
    operand, indices, updates = node.args
    places = scattered(node.params, *map(jnp.shape, node.args))

    few = places.count * operand.size <= policy.COMMON.scattered_in_a_step
    if (node.params["unique_indices"] and few) or evenly(places, indices, rewriter) is not None:
        return [(indices, updates)]
    return _one_by_one(node, places) if places.count <= policy.COMMON.few else None


def _in_a_loop(node: Node, inner: Any) -> Value | None:
    operand, indices, updates = node.args
    places = scattered(node.params, *map(jnp.shape, node.args))
    if places.count > policy.COMMON.looked_through or places.count * operand.size > policy.COMMON.pairs:
        return None
    found = Found(places, tuple(map(int, node.params["dimension_numbers"].update_window_dims)))
    function = _elementwise(inner, node.params["update_consts"], jnp.ndim(operand))
    laid_out = found.operand(operand), found.indices(indices), found.updates(updates)
    return found.back(one_by_one(found, *laid_out, node.params["mode"], function))


def _one_by_one(node: Node, places: Places) -> Iterator[tuple[Value, Value]]:
    """Each index of all batches alone, with its update."""
    _, indices, updates = node.args
    windows = set(map(int, node.params["dimension_numbers"].update_window_dims))
    slots = [d for d in range(updates.ndim) if d not in windows]  # dimensions of the index array → of the updates
    for place in itertools.product(*(range(places.lead[free]) for free in places.free)):
        index, update = indices, updates
        for free, at in zip(places.free, place):
            index = lax.slice_in_dim(index, at, at + 1, axis=free)
            update = lax.slice_in_dim(update, at, at + 1, axis=slots[free])
        yield index, update


def _elementwise(jaxpr: Any, consts: Sequence[Any], rank: int) -> Callable[[Value, Value], Value]:
    """The function for each element of two arrays."""

    def function(old: Value, new: Value) -> Value:
        (result,) = jax.core.eval_jaxpr(jaxpr, consts, old, new)
        return result

    for _ in range(rank):
        function = jax.vmap(function)
    return function
