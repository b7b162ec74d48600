"""Loops and branches over keys → the same over their words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
from jax.extend.core import primitives

from jaxpr2triton._compat import called_jaxpr, operands_of_call
from jaxpr2triton.ir.scans import body_of, scanned
from jaxpr2triton.ir.tracing import retrace
from jaxpr2triton.normalize.random.keys import Keys, Value, as_array, as_keys, is_key, words_of, written
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Rule


@dataclass(frozen=True)
class Form:
    """Keys of a kind: typed, or as uint32[..., words]."""

    kind: Any
    typed: bool


Kind = Form | None  # None: anything else
Raw = dict[int, Any]  # inputs that are made keys → of which kind


def rewrite_scan(node: Node, rule: Rule) -> list[Value]:
    """Every array of keys among constants, carried values, xs and ys becomes one for each word.

    k:key[] n:f32[8] = scan[jaxpr={ lambda ; k:key[] ...}] k   →
    a:u32[] b:u32[] n:f32[8] = scan[jaxpr={ lambda ; a:u32[] b:u32[] ...}] a b
    """
    body = body_of(node.params)
    num_consts, num_carry = body.num_consts, body.num_carry
    first_x = num_consts + num_carry
    kinds = _kinds(body.jaxpr, range(len(node.args)))
    carried, stacked = kinds[num_consts:first_x], _results(node)[num_carry:]
    consts = _grouped(_flat(node.args[:num_consts], kinds[:num_consts]), kinds[:num_consts])

    def step(carry: Sequence[Any], xs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        args = [*consts, *_grouped(carry, carried), *_grouped(xs, kinds[first_x:])]
        outs = Rewriter(rule).evaluate(body.jaxpr, body.closed.consts, args)
        outs = like(outs, body.closed.out_avals)
        return _flat(outs[:num_carry], carried), _flat(outs[num_carry:], stacked)

    starts, xs = _flat(body.inits(node.args), carried), _flat(body.stacked(node.args), kinds[first_x:])
    final, ys = scanned(node.params, step, starts, xs)
    return [*_grouped(final, carried), *_grouped(ys, stacked)]


def rewrite_while(node: Node, rule: Rule) -> list[Value]:
    """Likewise. The condition may have one result for each lane of a batch, and keeps it."""
    condition, body = node.params["cond_jaxpr"], node.params["body_jaxpr"]
    ours, theirs = node.params["cond_nconsts"], node.params["body_nconsts"]
    split = ours + theirs
    asked = ((_raw(condition.jaxpr), ours), (_raw(body.jaxpr), theirs))
    raw = {theirs + i - before: kind for found, before in asked for i, kind in found.items() if i >= before}
    carried = _kinds(body.jaxpr, [theirs + i for i in range(len(node.args) - split)], raw)
    condition_kinds = [*_kinds(condition.jaxpr, range(ours)), *carried]
    body_kinds = [*_kinds(body.jaxpr, range(theirs)), *carried]
    condition_consts = _flat(node.args[:ours], condition_kinds)
    body_consts = _flat(node.args[ours:split], body_kinds)
    start = _flat(node.args[split:], carried)
    params = {
        **node.params,
        "cond_nconsts": len(condition_consts),
        "body_nconsts": len(body_consts),
        "cond_jaxpr": _retraced(condition, condition_kinds, [None], [*condition_consts, *start], rule),
        "body_jaxpr": _retraced(body, body_kinds, carried, [*body_consts, *start], rule),
    }
    return _grouped(_bound(node, [*condition_consts, *body_consts, *start], params), carried)


def rewrite_branches(node: Node, rule: Rule) -> list[Value]:
    """Likewise."""
    branches = node.params["branches"]
    raw = {i: kind for branch in branches for i, kind in _raw(branch.jaxpr).items()}
    kinds = _kinds(branches[0].jaxpr, range(len(node.args) - 1), raw)
    results = _results(node)
    operands = _flat(node.args[1:], kinds)
    params = {
        **node.params,
        "branches": tuple(_retraced(branch, kinds, results, operands, rule) for branch in branches),
    }
    return _grouped(_bound(node, [node.args[0], *operands], params), results)


LOOPS: Mapping[str, Callable[[Node, Rule], list[Value]]] = {
    "scan": rewrite_scan,
    "while": rewrite_while,
    "cond": rewrite_branches,
}


def like(values: Sequence[Value], avals: Sequence[Any]) -> list[Value]:
    """The values with the weak types that they had before."""
    return [
        value if isinstance(value, Keys) or jax.typeof(value).weak_type == aval.weak_type else _strength(value, aval)
        for value, aval in zip(values, avals, strict=True)
    ]


def _strength(value: Value, aval: Any) -> Value:
    return primitives.convert_element_type_p.bind(value, new_dtype=aval.dtype, weak_type=aval.weak_type, sharding=None)


def _retraced(closed: Any, kinds: Sequence[Kind], results: Sequence[Kind], operands: Sequence[Any], rule: Rule) -> Any:
    def run(*flat: Any) -> list[Any]:
        outs = Rewriter(rule).evaluate(closed.jaxpr, closed.consts, _grouped(flat, kinds))
        return _flat(like(outs, closed.out_avals), results)

    types = iter(map(jax.typeof, operands))
    avals: list[Any] = []
    for var, kind in zip(closed.jaxpr.invars, kinds, strict=True):
        own = [next(types) for _ in range(1 if kind is None else words_of(kind.kind))]
        avals += [var.aval] if kind is None else own
    return retrace(run, *avals)


def _bound(node: Node, operands: Sequence[Any], params: Mapping[str, Any]) -> list[Any]:
    return list(node.primitive.bind(*operands, **node.primitive.get_bind_params(params)))


def _results(node: Node) -> list[Kind]:
    return [Form(aval.dtype, True) if is_key(aval) else None for aval in node.out_avals]


def _kinds(jaxpr: Any, places: Sequence[int], raw: Raw | None = None) -> list[Kind]:
    """What the inputs at these places are."""
    raw = _raw(jaxpr) if raw is None else raw
    typed = {i: jaxpr.invars[i].aval.dtype for i in places if is_key(jaxpr.invars[i].aval)}
    return [Form(typed[i], True) if i in typed else Form(raw[i], False) if i in raw else None for i in places]


def _flat(values: Sequence[Value], kinds: Sequence[Kind]) -> list[Any]:
    flat: list[Any] = []
    for value, kind in zip(values, kinds):
        flat += [as_array(value)] if kind is None else as_keys(value, kind.kind).words
    return flat


def _grouped(flat: Sequence[Any], kinds: Sequence[Kind]) -> list[Value]:
    words = iter(flat)

    def keys(form: Form) -> Keys:
        return written([next(words) for _ in range(words_of(form.kind))], form.kind, typed=form.typed)

    return [next(words) if form is None else keys(form) for form in kinds]


def _raw(jaxpr: Any) -> Raw:
    """The inputs uint32[..., words] that are made keys, here or in what is called from here."""
    wrapped: dict[Any, Any] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "random_wrap" and is_key(eqn.outvars[0].aval):
            wrapped[eqn.invars[0]] = eqn.outvars[0].aval.dtype
        for inner, operands in _inner(eqn):
            asked = ((operands[i], kind) for i, kind in _raw(inner).items())
            wrapped.update((operand, kind) for operand, kind in asked if not isinstance(operand, jex.Literal))
    return {i: wrapped[var] for i, var in enumerate(jaxpr.invars) if var in wrapped}


def _inner(eqn: Any) -> list[tuple[Any, Sequence[Any]]]:
    """The jaxprs that an equation runs, and what it passes to each of them."""
    match eqn.primitive.name:
        case "scan":
            return [(eqn.params["jaxpr"].jaxpr, eqn.invars)]
        case "while":
            ours, theirs = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
            carry = eqn.invars[ours + theirs :]
            condition, body = eqn.params["cond_jaxpr"].jaxpr, eqn.params["body_jaxpr"].jaxpr
            return [(condition, [*eqn.invars[:ours], *carry]), (body, eqn.invars[ours:])]
        case "cond":
            return [(branch.jaxpr, eqn.invars[1:]) for branch in eqn.params["branches"]]
    called = called_jaxpr(eqn.primitive.name, eqn.params)
    return [] if called is None else [(called[0], operands_of_call(eqn.primitive.name, eqn.params, eqn.invars))]
