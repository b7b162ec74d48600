"""The engine of the passes: evaluate a jaxpr into a new one, and let a rule replace equations on the way."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from jax.extend.core import primitives

from jaxpr2triton._compat import source_of, varies_over_mesh, without_empty_sharding
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.tracing import argument_names, avals, retrace

Value = Any  # a tracer of the new program, or a scalar constant
DEEPEST = 100  # calls within calls, and expansions within expansions


@dataclass(frozen=True)
class Node:
    """An equation whose operands are values of the new program."""

    primitive: Any
    params: Mapping[str, Any]
    args: tuple[Value, ...]
    out_avals: tuple[Any, ...]
    effects: frozenset[Any] = frozenset()
    context: Any = None

    @property
    def name(self) -> str:
        return str(self.primitive.name)


class Rewriter:
    """Writes the new program, equation by equation; a rule sees it in order to look back and to write more."""

    def __init__(self, rule: Rule) -> None:
        self.notes: dict[Hashable, Any] = {}  # what a rule remembers; a rule must not keep values anywhere else
        self._rule = rule
        self._makers: dict[int, tuple[Node, Value]] = {}
        self._traced: dict[Hashable, jex.ClosedJaxpr] = {}
        self._depth = 0

    def evaluate(
        self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Value], *, own_lines: bool = True
    ) -> list[Value]:
        """The outputs of a jaxpr, its equations offered to the rule; `own_lines=False` keeps the line around it."""
        env: dict[Any, Value] = {**dict(zip(jaxpr.constvars, consts)), **dict(zip(jaxpr.invars, args))}

        def read(atom: Any) -> Value:
            return atom.val if isinstance(atom, jex.Literal) else env[atom]

        self._depth += 1
        if self._depth > DEEPEST:
            raise CompilerBug(f"a rewrite of `{jaxpr.eqns[0].primitive}` does not come to an end")
        for eqn in jaxpr.eqns:
            node = Node(
                eqn.primitive,
                without_empty_sharding(eqn.params),
                tuple(read(atom) for atom in eqn.invars),
                tuple(var.aval for var in eqn.outvars),
                frozenset(eqn.effects),
                eqn.ctx,
            )
            with source_of(eqn) if own_lines else nullcontext():
                outs = self._rule(node, self)
                if outs is None:
                    outs = self.again(node)
            env.update(zip(eqn.outvars, outs))
        self._depth -= 1
        return [read(atom) for atom in jaxpr.outvars]

    def again(self, node: Node) -> list[Value]:
        """Write the equation as it is."""
        outs = node.primitive.bind(*node.args, **node.primitive.get_bind_params(node.params))
        if node.primitive.multiple_results:
            return list(outs)
        if not any(outs is arg for arg in node.args):  # JAX itself leaves out a conversion to the same type
            self._makers[id(outs)] = (node, outs)
        return [outs]

    def write(self, node: Node, *args: Value, **params: Any) -> Value:
        """Write an equation of the same primitive with one output, other operands and some other parameters."""
        return self.bind(node.primitive, *args, **{**node.params, **params})

    def bind(self, primitive: Any, *args: Value, **params: Any) -> Value:
        """Write an equation with one output."""
        return self.again(Node(primitive, params, args, ()))[0]

    def maker(self, value: Value) -> Node | None:
        """The equation that made a value, if it has one output."""
        found = self._makers.get(id(value))
        return None if found is None else found[0]

    def expand(self, function: Callable[..., Any], args: Sequence[Value], **params: Any) -> list[Value]:
        """Write what a JAX function computes from these values; its equations are offered to the rule."""
        key = function, tuple(map(jax.typeof, args)), frozen(params)
        if key not in self._traced:
            self._traced[key] = jax.make_jaxpr(lambda *traced: jax.tree.leaves(function(*traced, **params)))(*key[1])
        closed = self._traced[key]
        return self.evaluate(closed.jaxpr, closed.consts, args, own_lines=False)


Rule = Callable[[Node, Rewriter], Sequence[Value] | None]


def rewrite(closed: jex.ClosedJaxpr, rule: Rule) -> jex.ClosedJaxpr:
    """Offer every equation to `rule`: it returns the values that replace the outputs, or None to keep the equation.

    Programs that read or write `Ref`s are returned as they are.
    """
    if not all(isinstance(aval, jax.core.ShapedArray) for aval in closed.in_avals):
        return closed

    def run(*args: Value) -> list[Value]:
        outs = Rewriter(rule).evaluate(closed.jaxpr, closed.consts, args)
        return [_typed(value, aval) for value, aval in zip(outs, closed.out_avals)]

    return retrace(run, *avals(closed), names=argument_names(closed))


def _typed(value: Value, aval: Any) -> Value:
    """The value with exactly the shape, dtype and weak type that the output had before."""
    got = jax.typeof(value)
    if (got.shape, got.dtype) != (aval.shape, aval.dtype):
        raise CompilerBug(f"a pass turned an output of type {aval.str_short()} into {got.str_short()}")
    if got.weak_type == aval.weak_type:
        return value
    return primitives.convert_element_type_p.bind(value, new_dtype=aval.dtype, weak_type=aval.weak_type, sharding=None)


def primitive_names(closed: jex.ClosedJaxpr) -> frozenset[str]:
    """The primitives of the outermost equations."""
    return frozenset(eqn.primitive.name for eqn in closed.jaxpr.eqns)


def constant(value: Value) -> np.ndarray | None:
    """The value as a NumPy array of rank 0, if it is known; None for traced values and arrays."""
    if isinstance(value, jax.core.Tracer) or np.ndim(value) != 0:
        return None
    dtype = jax.typeof(value).dtype
    return np.asarray(value, dtype) if is_plain(dtype) else None


def splat(value: Value, rewriter: Rewriter) -> np.ndarray | None:
    """The one constant that every element of the value equals, if it is known."""
    known = constant(value)
    if known is not None:
        return known
    maker = rewriter.maker(value)
    if maker is not None and maker.name in ("broadcast_in_dim", "pvary"):
        return splat(maker.args[0], rewriter)
    return None


def spread(value: Value, shape: tuple[int, ...], rewriter: Rewriter) -> Value:
    """The value in every place of a larger array; its axes of size 1 grow, and one number fills everything."""
    places = tuple(range(len(shape))) if jax.typeof(value).ndim else ()
    return rewriter.bind(primitives.broadcast_in_dim_p, value, shape=shape, broadcast_dimensions=places, sharding=None)


def is_plain(dtype: Any) -> bool:
    """True for dtypes that NumPy arrays can hold and compute with: no keys, no float0."""
    return not jax.numpy.issubdtype(dtype, jax.dtypes.extended) and dtype != jax.dtypes.float0


def has_type_of(value: Value, aval: Any) -> bool:
    """True if the value can stand where one of type `aval` stood: weak types do not matter inside a program."""
    got = jax.typeof(value)
    same = (got.shape, got.dtype) == (aval.shape, aval.dtype)
    return same and varies_over_mesh(got) == varies_over_mesh(aval)


def frozen(value: Any) -> Hashable:
    """A hashable copy of a parameter, in which 1, 1.0 and True differ."""
    match value:
        case Mapping():
            return tuple((key, frozen(value[key])) for key in sorted(value))
        case tuple() | list():
            return type(value), tuple(frozen(item) for item in value)
        case np.ndarray():
            return value.shape, str(value.dtype), value.tobytes()
        case np.integer():
            return int, int(value)
        case _:
            return type(value), value
