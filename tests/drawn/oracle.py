"""What a program may answer: its value with more digits, and how far rounding errors can carry it away.

The program's jaxpr is evaluated in float64, once as it is and some times with noise: every result that its dtype would
round is moved at random by a few units in the last place; in some of these runs it is then rounded as well. Where the
noisy answers lie close together, an implementation has to be close as well; where they jump (a comparison on a rounding
boundary, cancellation), nothing can be asked.

    v0 = x / 3        →    v0 = (x / 3) (1 + 8 eps u)        u random in [-1, 1], another one for each element
    v1 = floor v0          v1 = floor v0                     exact, so not moved
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any
from unittest import mock

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton._compat import called_jaxpr, operands_of_call, scan_counts_of

RUNS = 16  # the program is compiled once; one of four is rounded everywhere
NOWHERE, EVERYWHERE, COMPARED = range(3)  # where values are rounded to their dtype
# XLA takes a fifth of its time, and its answers are still precise enough.
QUICKLY: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
if jax.__version_info__ < (0, 11):  # since then there is nothing but these emitters
    QUICKLY["xla_cpu_use_fusion_emitters"] = False
ROOM = 8.0  # units in the last place
FACTOR = 4.0  # how much further than the furthest noisy answer an answer may be
FACTOR_OF_16_BITS = 16.0  # what is stored in between is rounded, or not, and few runs find the worst of it
TABLE = 1 << 14

# Results that no rounding touches: the operands moved, chosen or compared.
MOVED = "broadcast_in_dim reshape transpose squeeze expand_dims slice dynamic_slice pad concatenate stack split rev"
PLACED = "dynamic_update_slice scatter scatter-min scatter-max"
CHOSEN = "max min select_n clamp gather sort iota reduce_max reduce_min argmax argmin cummax cummin"
CHOSEN_IN_WINDOWS = "reduce_window_max reduce_window_min select_and_gather_add"
LOGICAL = (
    "stop_gradient copy and or xor not reduce_and reduce_or reduce_xor is_finite eq ne lt le gt ge eq_to le_to lt_to"
)
NEAREST = "copy_p unstack neg abs sign floor ceil round rem bitcast_convert_type reduce_precision nextafter"
EXACT = frozenset(" ".join((MOVED, PLACED, CHOSEN, CHOSEN_IN_WINDOWS, LOGICAL, NEAREST)).split())
# Results that are right whenever they can be represented.
RIGHT = frozenset("add sub mul div sqrt square integer_pow convert_element_type add_any dot_general cumsum".split())  # noqa: SIM905  # short
SCATTERS = {"scatter-add": lax.scatter_add, "scatter-sub": lax.scatter_sub, "scatter-mul": lax.scatter_mul}
APPLIED = {**SCATTERS, "scatter-min": lax.scatter_min, "scatter-max": lax.scatter_max}
RIGHT |= {"reduce_sum", "reduce_prod", "one_minus_square", *SCATTERS}
SUMS_OF_WINDOWS = {"conv_general_dilated", "reduce_window_sum", "reduce_window"}
RIGHT |= {*SUMS_OF_WINDOWS, "select_and_scatter_add"}
SUMS = frozenset({"reduce_sum", "reduce_prod", "cumsum", "cumprod", "dot_general", "cumlogsumexp", *SCATTERS})
SUMS |= {*SUMS_OF_WINDOWS, "reduce"}
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "sign", "floor", "ceil", "round", "rem"})
COMPARISONS |= {"select_and_gather_add", "select_and_scatter_add"}
AS_THEY_ARE = frozenset({"bitcast_convert_type", "nextafter", "reduce", "scatter"})
# A compiler may take a sum and the product in it for one operation, and round once.
# What may be one product, of as little as one term.
PRODUCTS = frozenset({"mul", "square", "integer_pow", "div", "dot_general", "conv_general_dilated"})
JOINED = frozenset({"add", "sub", "add_any"})
# Their error does not vanish with the result.
ABSOLUTE = frozenset({"lgamma", "digamma", "erf_inv", "sin", "cos", "tan"})
# Where there is no number among them; XLA's CPU forgets some.
EXTREMES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("reduce_max", "reduce_min"), lambda unknown, params: unknown.any(params["axes"])),
    **dict.fromkeys(
        ("reduce_window_max", "reduce_window_min"),
        lambda unknown, params: lax.reduce_window(unknown, False, lax.bitwise_or, **params),
    ),
}
ROUGH = {"atanh": 16.0}  # XLA's CPU is off by so many times more than others


@dataclass(frozen=True)
class Answer:
    """One output: its value, how far it may be off, and where nothing is known."""

    value: np.ndarray
    allowed: np.ndarray
    unstable: np.ndarray

    @property
    def vague(self) -> int:
        """The number of elements about which this says nothing, or next to nothing."""
        finite = np.abs(self.value[np.isfinite(self.value)], dtype=np.float64)
        return int((self.unstable | (self.allowed > finite.max(initial=0) / 4 + 1e-30)).sum())

    def in_any_order(self, found: np.ndarray, one: np.ndarray, other: np.ndarray) -> Answer:
        """Where an order leads to no number, another one may do so too, or lead to the number that it leads to."""
        if not jnp.issubdtype(one.dtype, jnp.floating):
            return replace(self, unstable=self.unstable | (one != other))
        near = 1000 * float(jnp.finfo(one.dtype).eps)
        with np.errstate(all="ignore"):
            same = np.isclose(found.astype(np.float64), other.astype(np.float64), rtol=near)
        orders = ~np.isfinite(one) | ~np.isfinite(other)
        return replace(self, unstable=self.unstable | (orders & (same | ~np.isfinite(found))))


def one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the elements of its associative scans combined one after the other, as nothing has to."""

    def scanned(combine: Callable[..., Any], elements: Any, reverse: bool = False, axis: int = 0) -> Any:
        def step(before: Any, this: Any) -> Any:
            after = combine(before, this)
            return after, after

        moved = jax.tree.map(lambda x: jnp.moveaxis(x, axis, 0), elements)
        if not jax.tree.leaves(moved)[0].shape[0]:
            return elements
        places = (-1, slice(-1)) if reverse else (0, slice(1, None))
        first, others = (jax.tree.map(lambda x, place=place: x[place], moved) for place in places)
        _, found = lax.scan(step, first, others, reverse=reverse)
        parts = (found, jax.tree.map(lambda x: x[None], first))
        whole = jax.tree.map(lambda *two: jnp.concatenate(two), *(parts if reverse else parts[::-1]))
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, axis), whole)

    @wraps(function)
    def run(*args: Any) -> Any:
        with mock.patch.object(lax, "associative_scan", scanned):
            return function(*args)

    return run


def answers(
    function: Callable[..., Any],
    args: Sequence[np.ndarray],
    seed: int,
    contracted: bool = False,
    regrouped: bool = False,
) -> list[Answer]:
    """An answer for each output of the function at these arguments.

    `contracted` if compilers may join a product and a sum, so that a product is rounded in one place and not in
    another; `regrouped` if sums may have another order, so that one which happens to be exact is rounded in that.
    """
    closed = jax.make_jaxpr(function)(*args)
    narrow = [aval.dtype for aval in closed.out_avals]
    with jax.enable_x64(True):
        wide = [_widened(np.asarray(arg)) for arg in args]
        rng = np.random.default_rng([77, seed])
        nothing = np.zeros(TABLE)

        def widely(table: Any, bounded: Any, rounded: Any, *wide: Any) -> list[Any]:
            return _Wide(table, bounded, rounded, contracted, regrouped).run(closed, wide)

        jitted = jax.jit(widely)
        evaluate = jitted.lower(nothing, True, NOWHERE, *wide).compile(compiler_options=QUICKLY)
        exact = [np.asarray(o) for o in evaluate(nothing, True, NOWHERE, *wide)]
        noisy = [evaluate(nothing, False, NOWHERE, *wide)]
        noisy += [evaluate(nothing, True, where, *wide) for where in (EVERYWHERE, COMPARED)]
        for run in range(RUNS):
            where = EVERYWHERE if run % 4 == 3 else NOWHERE
            noisy.append(evaluate(rng.uniform(-ROOM, ROOM, TABLE), True, where, *wide))
    columns = [[np.asarray(run[n]) for run in noisy] for n in range(len(exact))]
    factor = FACTOR_OF_16_BITS if any(f"{kind}[" in str(closed) for kind in ("bf16", "f16")) else FACTOR
    return [_answer(*parts, factor) for parts in zip(exact, columns, narrow)]


def _answer(exact: np.ndarray, others: list[np.ndarray], dtype: Any, factor: float) -> Answer:
    if not jnp.issubdtype(dtype, jnp.floating):
        unstable = np.zeros(exact.shape, bool)
        for other in others:
            unstable |= other != exact
        return Answer(exact, np.zeros(exact.shape), unstable)
    info = jnp.finfo(dtype)
    with np.errstate(all="ignore"):
        spread, unstable = np.zeros(exact.shape), np.zeros(exact.shape, bool)
        for other in others:
            same = (other == exact) | (np.isnan(other) & np.isnan(exact))
            both = np.isfinite(other) & np.isfinite(exact)
            unstable |= ~same & ~both
            spread = np.maximum(spread, np.where(both, np.abs(other - exact), 0))
        size = np.where(np.isfinite(exact), np.abs(exact), 0)
        allowed = factor * spread + 4 * float(info.eps) * size + 4 * float(info.tiny)
        unstable |= np.isfinite(exact) & (size + allowed >= float(info.max))
    return Answer(exact, allowed, unstable)


def wide_dtype(dtype: Any) -> Any:
    return np.dtype(np.float64) if jnp.issubdtype(dtype, jnp.floating) else dtype


def _widened(x: Any) -> Any:
    return x.astype(wide_dtype(x.dtype))


class _Wide:
    """Evaluates a jaxpr in float64, with noise from a table, with the bounds of its dtypes, and rounded to them."""

    def __init__(self, table: Any, bounded: Any, rounded: Any, contracted: bool, regrouped: bool) -> None:
        self.table, self.bounded, self.rounded, self.count = table, bounded, rounded, 0
        self.contracted, self.regrouped = contracted, regrouped
        self.products: dict[int, Any] = {}  # values that are products, or parts of some, by their identity
        self.step: Any = None  # a number for the steps of the loops around, inside of one

    def run(self, closed: Any, args: Sequence[Any]) -> list[Any]:
        return self.body(closed.jaxpr, [_widened(np.asarray(c)) for c in closed.consts], args)

    def body(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        env: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args]))

        def read(atom: Any) -> Any:
            if isinstance(atom, jex.Literal):
                return _widened(np.asarray(atom.val, jnp.result_type(atom.aval)))
            return env[atom]

        for eqn in jaxpr.eqns:
            values = [read(atom) for atom in eqn.invars]
            called = called_jaxpr(eqn.primitive.name, eqn.params)
            if eqn.primitive.name in LOOPS:
                results = LOOPS[eqn.primitive.name](self, eqn, values)
            elif called is not None:
                inner, inner_consts = called
                values = list(operands_of_call(eqn.primitive.name, eqn.params, values))
                results = self.body(inner, [_widened(np.asarray(c)) for c in inner_consts], values)
            else:
                results = self.equation(eqn, values)
            env.update(zip(eqn.outvars, results))
        return [read(atom) for atom in jaxpr.outvars]

    def closed(self, closed: Any, args: Sequence[Any], step: Any = None) -> list[Any]:
        """The results of a body, with noise of its own for each step."""
        outer, self.step = self.step, self.step if step is None else step
        try:
            return self.run(closed, args)
        finally:
            self.step = outer

    def next_step(self, step: Any) -> Any:
        return step + (0 if self.step is None else self.step * 31)

    def scan(self, eqn: Any, values: list[Any]) -> list[Any]:
        params = eqn.params
        num_consts, num_carry = scan_counts_of(params)
        consts, xs = values[:num_consts], values[num_consts + num_carry :]

        def step(carry: Any, x: Any) -> Any:
            count, *before = carry
            results = self.closed(params["jaxpr"], [*consts, *before, *x], self.next_step(count))
            return (count + 1, *results[:num_carry]), results[num_carry:]

        start = (jnp.int32(0), *values[num_consts : num_consts + num_carry])
        (_, *carried), ys = lax.scan(step, start, xs, length=params["length"], reverse=params["reverse"])
        return [*carried, *ys]

    def while_loop(self, eqn: Any, values: list[Any]) -> list[Any]:
        params = eqn.params
        first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

        def go_on(count: Any, before: Sequence[Any]) -> Any:
            (answer,) = self.closed(params["cond_jaxpr"], [*values[:first], *before], self.next_step(count))
            return answer

        def step(carry: Any) -> Any:
            going, count, *before = carry
            after = self.closed(params["body_jaxpr"], [*values[first:second], *before], self.next_step(count))
            if jnp.ndim(going):  # each member of a batch stops by itself
                after = [jnp.where(_like(going, new), new, old) for new, old in zip(after, before)]
            return (going & go_on(count + 1, after), count + 1, *after)

        start = values[second:]
        going = go_on(jnp.int32(0), start)
        _, _, *carried = lax.while_loop(lambda carry: jnp.any(carry[0]), step, (going, jnp.int32(0), *start))
        return carried

    def cond(self, eqn: Any, values: list[Any]) -> list[Any]:
        branches = [lambda *args, b=branch: tuple(self.closed(b, args)) for branch in eqn.params["branches"]]
        return list(lax.switch(values[0].astype(jnp.int32), branches, *values[1:]))

    def equation(self, eqn: Any, values: list[Any]) -> list[Any]:
        if not self.contracted:
            return self.rounded_by_itself(eqn, values)
        name, are_products = eqn.primitive.name, [id(value) in self.products for value in values]
        if name in JOINED:
            values = [
                self.moved(v, atom.aval, "mul", True) if product else v
                for v, atom, product in zip(values, eqn.invars, are_products)
            ]
        results = self.rounded_by_itself(eqn, values)
        if name in PRODUCTS or (name in MOVED.split() and any(are_products)):
            self.products.update((id(result), result) for result in results)
        return results

    def rounded_by_itself(self, eqn: Any, values: list[Any]) -> list[Any]:
        name = eqn.primitive.name
        if "callback" in name:  # see helpers.py
            return [value * 2 for value in values[: len(eqn.outvars)]]
        if name not in EXACT and name not in RIGHT or name in SUMS:
            values = [self.moved(v, atom.aval, name, True) for v, atom in zip(values, eqn.invars)]
        if name not in EXACT:
            values = [self.held_or_not(v, atom.aval) for v, atom in zip(values, eqn.invars)]
        if name in COMPARISONS:
            values = [
                jnp.where(self.rounded == COMPARED, narrowed(v, atom.aval), v) for v, atom in zip(values, eqn.invars)
            ]
        params = dict(eqn.params)
        if name in AS_THEY_ARE:
            values = [lax.convert_element_type(v, atom.aval.dtype) for v, atom in zip(values, eqn.invars)]
        else:
            for key in ("new_dtype", "dtype", "preferred_element_type"):
                if params.get(key) is not None:
                    params[key] = wide_dtype(params[key])
        if name in APPLIED:  # its parameters hold a function of the narrow dtype
            how = {key: params[key] for key in ("indices_are_sorted", "unique_indices", "mode")}
            written = APPLIED[name](*values, params["dimension_numbers"], **how)
            return [written if name in EXACT else self.moved(written, eqn.outvars[0].aval, name, False)]
        if name == "dynamic_slice":  # XLA's CPU adds up the places of a slice of a slice, and forgets their limits
            last = [whole - size for whole, size in zip(values[0].shape, params["slice_sizes"])]
            values[1:] = [jnp.clip(start, 0, most) for start, most in zip(values[1:], last)]
        if name == "gather" and params["mode"] is lax.GatherScatterMode.CLIP:  # … or of what is such a slice to it
            dims = params["dimension_numbers"].start_index_map
            last = [values[0].shape[dim] - params["slice_sizes"][dim] for dim in dims]
            values[1] = jnp.clip(values[1], 0, np.array(last, values[1].dtype))
        if name == "reduce_window":  # of one array, with a function of the narrow dtype
            combine = jex.jaxpr_as_fun(jex.ClosedJaxpr(params.pop("jaxpr"), params.pop("consts")))
            made = lax.reduce_window(*values, lambda one, other: combine(one, other)[0], **params)
            return [self.moved(made, eqn.outvars[0].aval, name, False)]
        convolves = name == "conv_general_dilated" and jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating)
        results = (self.convolved if convolves else eqn.primitive.bind)(*values, **params)
        results = list(results) if eqn.primitive.multiple_results else [results]
        if name in EXTREMES and jnp.issubdtype(values[0].dtype, jnp.floating):
            results = [jnp.where(EXTREMES[name](jnp.isnan(values[0]), params), jnp.nan, results[0])]
        if name == "bitcast_convert_type":
            results = [self.any_nan(*values, *results)]
        results = [_widened(result) for result in results]
        if name in EXACT:
            return results
        return [self.moved(result, var.aval, name, False) for result, var in zip(results, eqn.outvars)]

    def moved(self, x: Any, aval: Any, name: str, operand: bool) -> Any:
        """The value with noise; infinite where its dtype ends."""
        if not jnp.issubdtype(aval.dtype, jnp.floating) or not math.prod(aval.shape):
            return x
        info = jnp.finfo(aval.dtype)
        size = math.prod(aval.shape)
        self.count += 1
        start = (self.count * 1237) % (TABLE // 2)
        noise = lax.reshape(self.noise(start, size), aval.shape)
        eps, tiny = float(info.eps), float(info.tiny)
        eps *= 1 if operand else ROUGH.get(name, 1)
        if operand and name in SUMS:
            eps *= math.sqrt(size)  # how far a sum of as many terms may wander
        if aval.dtype == np.float16:
            tiny = 2.0**-24
        moved = x * (1 + eps * noise) + (tiny + eps * (name in ABSOLUTE and not operand)) * noise
        if operand and name in SUMS:
            return jnp.where(jnp.all(jnp.round(x) == x) & (jnp.sum(jnp.abs(x)) * eps < 1), x, moved)
        if name in RIGHT and aval.dtype != np.float64 and not (self.regrouped and name in JOINED):
            moved = jnp.where(narrowed(x, aval) == x, x, moved)
        if operand:
            return moved
        moved = jnp.where(self.rounded == EVERYWHERE, narrowed(moved, aval), moved)
        if name in JOINED | SUMS:  # to XLA, -0.0 + 0.0 is -0.0, but the sum of both is 0.0
            moved = jnp.where((self.rounded == EVERYWHERE) & (moved == 0), -moved, moved)
        too_large = self.bounded & (jnp.abs(moved) > float(info.max))
        return jnp.where(too_large, jnp.copysign(jnp.inf, moved), moved)

    def noise(self, start: int, size: int) -> Any:
        if size > TABLE // 2:
            return jnp.resize(self.table, (size,))
        if self.step is None:
            return lax.slice(self.table, (start,), (start + size,))
        return lax.dynamic_slice(self.table, ((start + self.step * 509) % (TABLE // 2),), (size,))

    def held_or_not(self, x: Any, aval: Any) -> Any:
        """A value of 16 bits as one kernel has stored it, or with the digits that another one has."""
        if not jnp.issubdtype(aval.dtype, jnp.floating) or np.dtype(aval.dtype).itemsize > 2:
            return x
        size = math.prod(aval.shape)
        self.count += 1
        start = (self.count * 1237) % (TABLE // 2)
        table = lax.slice(self.table, (start,), (start + size,)) if size <= TABLE // 2 else jnp.resize(self.table, size)
        either = x * (1 + float(jnp.finfo(aval.dtype).eps) * lax.reshape(table, aval.shape) / ROOM)
        return jnp.where(narrowed(x, aval) == x, x, either)

    def convolved(self, x: Any, w: Any, **params: Any) -> Any:
        """XLA's CPU multiplies what is infinite or no number by zeros as well, as those between groups.

        Where such a number meets only zeros around the other operand, a device may multiply it by them.
        """
        convolve = lax.conv_general_dilated_p.bind
        strange_x, strange_w = (jnp.logical_not(jnp.isfinite(each)) for each in (x, w))
        known = convolve(jnp.where(strange_x, 0, x), jnp.where(strange_w, 0, w), **params)
        met = convolve(strange_x.astype(x.dtype), jnp.ones_like(w), **params)
        met += convolve(jnp.ones_like(x), strange_w.astype(w.dtype), **params)
        padded, left = _with_padding(jnp.ones_like(x), 1.0, params)
        near = convolve(padded, strange_w.astype(w.dtype), **left)
        unknown = (near > 0.5) & (self.rounded == EVERYWHERE)
        return jnp.where(met > 0.5, convolve(x, w, **params), jnp.where(unknown, jnp.nan, known))

    def any_nan(self, x: Any, bits: Any) -> Any:
        """The bits of a number, or of some NaN."""
        if not jnp.issubdtype(x.dtype, jnp.floating) or jnp.issubdtype(bits.dtype, jnp.floating):
            return bits
        unknown = jnp.isnan(x)
        if bits.ndim < x.ndim:
            unknown = unknown.any(-1)
        unknown = jnp.broadcast_to(unknown.reshape(unknown.shape + (1,) * (bits.ndim - unknown.ndim)), bits.shape)
        return jnp.where(unknown & (self.rounded == EVERYWHERE), ~bits, bits)


def _with_padding(x: Any, filled: float, params: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """An operand with this between its elements and around them, and what else there is to be done."""
    places = params["dimension_numbers"].lhs_spec[2:]
    around = [(0, 0, 0)] * x.ndim
    for place, (low, high), dilation in zip(places, params["padding"], params["lhs_dilation"]):
        around[place] = (low, high, dilation - 1)
    left = {**params, "padding": ((0, 0),) * len(places), "lhs_dilation": (1,) * len(places)}
    return lax.pad(x, jnp.asarray(filled, x.dtype), around), left


def _like(going: Any, value: Any) -> Any:
    return jnp.reshape(going, (*jnp.shape(going), *(1,) * (jnp.ndim(value) - jnp.ndim(going))))


LOOPS: dict[str, Callable[[_Wide, Any, list[Any]], list[Any]]] = {
    "scan": _Wide.scan,
    "while": _Wide.while_loop,
    "cond": _Wide.cond,
}


def narrowed(x: Any, aval: Any) -> Any:
    """A wide value with the digits of its dtype; XLA would leave out a conversion there and back."""
    if not jnp.issubdtype(aval.dtype, jnp.floating):
        return x
    info = jnp.finfo(aval.dtype)
    return lax.reduce_precision(x, exponent_bits=info.nexp, mantissa_bits=info.nmant)
