"""The engine of the passes: a rule replaces equations of a program, and all others stay the same objects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.extend.core as jex
import numpy as np
from jax.extend.core import primitives

from jaxpr2triton._compat import Here, StandIn, here, source_of, varies_over_mesh, without_empty_sharding
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir import build
from jaxpr2triton.ir.jaxprs import Closed, Eqn, frozen, made

Value = Any  # a value of the new program that JAX functions take, or a scalar constant
Plan = TypeVar("Plan")
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
    equation: Any = None  # whose line it has, if it stood in the program

    @property
    def name(self) -> str:
        return str(self.primitive.name)


class Rewriter:
    """Writes the new program, equation by equation; a rule sees it in order to look back and to write more."""

    def __init__(self, rule: Rule) -> None:
        self.notes: dict[Hashable, Any] = {}  # what a rule remembers; a rule must not keep values anywhere else
        self._rule = rule
        self._makers: dict[int, tuple[Node, Value]] = {}
        self._traced: dict[Hashable, Closed] = {}
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
        around = self._around()
        for eqn in jaxpr.eqns:
            values = tuple(map(read, eqn.invars))
            env.update(zip(eqn.outvars, self._results(eqn, values, own_lines, around)))
        self._depth -= 1
        return list(map(read, jaxpr.outvars))

    def _around(self) -> Any:
        """What the equations of a jaxpr that is written out have in common."""

    def _results(self, eqn: Any, values: tuple[Value, ...], own_lines: bool, around: Any) -> Sequence[Value]:
        node = node_of(eqn, values)
        with source_of(eqn) if own_lines else nullcontext():
            outs = self._rule(node, self)
            return self.again(node) if outs is None else outs

    def again(self, node: Node) -> list[Value]:
        """Write the equation as it is."""
        outs = node.primitive.bind(*node.args, **node.primitive.get_bind_params(node.params))
        if node.primitive.multiple_results:
            return list(outs)
        if not any(outs is arg for arg in node.args):  # JAX itself leaves out a conversion to the same type
            self._makers[id(outs)] = (node, outs)
        return [outs]

    def write(self, node: Node, *args: Value, **params: Any) -> Value:
        """Write an equation of the same primitive and line with one output, other operands and some parameters."""
        with source_of(node.equation) if node.equation is not None else nullcontext():
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
            traced = jax.make_jaxpr(lambda *traced: jax.tree.leaves(function(*traced, **params)))
            self._traced[key] = made(traced(*key[1]))
        closed = self._traced[key]
        return self.evaluate(closed.jaxpr, closed.consts, args, own_lines=False)


Rule = Callable[[Node, Rewriter], Sequence[Value] | None]
Offered = Callable[[Any], bool]  # equation → may the rule have something to say about it?


def node_of(eqn: Any, values: tuple[Value, ...]) -> Node:
    return Node(
        eqn.primitive,
        without_empty_sharding(eqn.params),
        values,
        tuple(var.aval for var in eqn.outvars),
        frozenset(eqn.effects),
        eqn.ctx,
        eqn,
    )


def named(names: Container[str]) -> Offered:
    """Equations of these primitives."""
    return lambda eqn: eqn.primitive.name in names


def rewrite(closed: Closed, rule: Rule, offered: Offered = lambda eqn: True) -> Closed:
    """Let `rule` see the offered equations: it returns values in place of the outputs, or None to keep the equation.

        c = neg b;  d = neg c;  e = sin d;  f = cos b      (the rule replaces d by b)
            →    c = neg b;  e = sin b;  f = cos b         (the first and the last are the objects that they were)

    All that a rule writes is traced; whatever else is there is not. If no equation is replaced, the result is the
    program itself. Programs that read or write `Ref`s are returned as they are.
    """
    if not all(isinstance(aval, jax.core.ShapedArray) for aval in closed.in_avals):
        return closed
    if not any(map(offered, closed.jaxpr.eqns)):
        return closed
    written: list[_Written] = []

    def run() -> list[Value]:  # the draft holds tracers, so it may not outlive the trace
        draft = _Draft(closed, rule, offered)
        written.append(draft.write_program())
        return draft.traced

    traced = made(jax.make_jaxpr(run)())
    return _assembled(closed, written[0], traced) if written[0].changed else closed


def rewrite_planned(
    closed: Closed,
    names: Collection[str],
    plan_of: Callable[[Eqn], Plan | None],
    rebuilt: Callable[[Node, Plan, Rewriter], Sequence[Value]],
) -> Closed:
    """Let equations of these primitives be rebuilt that have a plan; all plans are made before anything is."""
    plans = [plan_of(eqn) for eqn in closed.jaxpr.eqns if eqn.primitive.name in names]
    if not any(plans):
        return closed
    upcoming = iter(plans)

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
        plan = next(upcoming)
        return None if plan is None else rebuilt(node, plan, rewriter)

    return rewrite(closed, rule, named(names))


mark_p = jex.Primitive("mark")  # ends a section of the traced equations
mark_p.multiple_results = True
mark_p.def_abstract_eval(lambda: [])

Reference = Any  # an atom of the new program, or the position of a traced value


@dataclass(frozen=True)
class _Written:
    """The new program: equations, with what they read if that has changed; None stands for a section of traced ones."""

    lines: list[tuple[Any, list[Reference] | None] | None]
    outputs: list[Reference]
    changed: bool


class _Draft(Rewriter):
    """Takes over the equations that no rule replaces, and lets JAX trace what rules write in between."""

    def __init__(self, closed: Closed, rule: Rule, offered: Offered) -> None:
        super().__init__(rule)
        self.traced: list[Value] = []  # values that equations read, and that only the trace knows
        self._positions: dict[int, int] = {}
        self._closed = closed
        self._offered = offered
        self._instead: dict[Any, Value] = {}  # variable → what a rule has put in its place
        self._values: dict[Any, StandIn] = {}
        self._equations: dict[Any, tuple[Any, tuple[Value, ...] | None]] = {}
        self._nodes: dict[Any, Node] = {}
        self._lines: list[tuple[Any, list[Reference] | None] | None] = []
        self._is_behind = False  # whether there are traced equations that belong before the next line
        self._now: tuple[Node, Any] | None = None  # the equation that is being offered, until it is written

    def write_program(self) -> _Written:
        jaxpr = self._closed.jaxpr
        for var, const in zip(jaxpr.constvars, self._closed.consts):
            if constant(const) is not None:
                self._instead[var] = const
        given = len(self._instead)
        for eqn in jaxpr.eqns:
            if not self._offered(eqn):
                self._take_over(eqn)
                continue
            node = node_of(eqn, tuple(map(self._value, eqn.invars)))
            self._now = node, eqn
            with source_of(eqn):
                outs = self._rule(node, self)
            if outs is None:
                self._take_over(eqn)
            else:
                self._replace(eqn, outs)
            self._now = None
        outputs = [self._output(atom) for atom in jaxpr.outvars]
        return _Written(self._lines, outputs, len(self._instead) > given)

    def _replace(self, eqn: Any, outs: Sequence[Value]) -> None:
        for var, out in zip(eqn.outvars, outs):
            if isinstance(out, StandIn) and out.variable is var:  # a rule may have it written as it is
                continue
            self._instead[var] = out
            self._is_behind |= isinstance(out, jax.core.Tracer) and not isinstance(out, StandIn)

    def _take_over(self, eqn: Any) -> None:
        """The equation itself, but for operands that were replaced."""
        instead = self._instead
        operands = None
        if instead and any(not isinstance(atom, jex.Literal) and atom in instead for atom in eqn.invars):
            operands = [self._reference(atom) for atom in eqn.invars]
        self._write_line(eqn, operands)
        if not eqn.primitive.multiple_results:
            self._equations[eqn.outvars[0]] = eqn, None

    def _results(self, eqn: Any, values: tuple[Value, ...], own_lines: bool, around: Here) -> Sequence[Value]:
        """Of an equation of a jaxpr that a rule has written out: it is copied."""
        if self._offered(eqn):
            outs = self._rule_of(eqn, values, own_lines)
            if outs is not None:
                self._is_behind |= any(isinstance(out, jax.core.Tracer) for out in outs)
                return outs
        results = [build.variable(var) for var in eqn.outvars]
        copy = build.copied(eqn, eqn.invars, results, around.inside(eqn) if own_lines else around)
        params = without_empty_sharding(eqn.params)
        copy = copy if params is eqn.params else copy.replace(params=params)
        self._write_line(copy, list(map(self._reference_to, eqn.invars, values)))
        if not eqn.primitive.multiple_results:
            self._equations[results[0]] = copy, values
        return list(map(self._value, results))

    def _rule_of(self, eqn: Any, values: tuple[Value, ...], own_lines: bool) -> Sequence[Value] | None:
        self._now = None
        with source_of(eqn) if own_lines else nullcontext():
            return self._rule(node_of(eqn, values), self)

    def _around(self) -> Here:
        return here()

    def again(self, node: Node) -> list[Value]:
        if self._now is None or self._now[0] is not node:
            return super().again(node)
        _, eqn = self._now
        self._now = None
        self._take_over(eqn)
        return list(map(self._value, eqn.outvars))

    def maker(self, value: Value) -> Node | None:
        if not isinstance(value, StandIn):
            return super().maker(value)
        var = value.variable
        if var not in self._nodes:
            if var not in self._equations:
                return None
            eqn, values = self._equations[var]
            self._nodes[var] = node_of(eqn, tuple(map(self._value, eqn.invars)) if values is None else values)
        return self._nodes[var]

    def _value(self, atom: Any) -> Value:
        if isinstance(atom, jex.Literal):
            return atom.val
        if atom in self._instead:
            return self._instead[atom]
        if atom not in self._values:
            self._values[atom] = StandIn(atom)
        return self._values[atom]

    def _write_line(self, eqn: Any, operands: list[Reference] | None) -> None:
        if self._is_behind:
            mark_p.bind()
            self._lines.append(None)
            self._is_behind = False
        self._lines.append((eqn, operands))

    def _reference(self, atom: Any) -> Reference:
        return self._reference_to(atom, self._value(atom))

    def _reference_to(self, atom: Any, value: Value) -> Reference:
        """What a line reads: the atom itself, if it says the value already."""
        if isinstance(value, StandIn):
            return value.variable
        if isinstance(atom, jex.Literal) and atom.val is value:
            return atom
        if id(value) not in self._positions:
            self._positions[id(value)] = len(self.traced)
            self.traced.append(value)
            self._is_behind |= isinstance(value, jax.core.Tracer)
        return self._positions[id(value)]

    def _output(self, atom: Any) -> Reference:
        value = self._value(atom)
        if isinstance(atom, jex.Literal) or (isinstance(value, StandIn) and value.variable is atom):
            return atom
        return self._reference_to(atom, typed_as(value, atom.aval))


def _assembled(closed: Closed, written: _Written, traced: Closed) -> Closed:
    """The lines, with the traced equations in between."""
    if not all(isinstance(const, StandIn) for const in traced.consts):
        raise CompilerBug("a pass writes an array into a program")
    instead = {var: value.variable for var, value in zip(traced.jaxpr.constvars, traced.consts)}
    found = [build.now(atom, instead) for atom in traced.jaxpr.outvars]

    def atom(reference: Reference) -> Any:
        return found[reference] if isinstance(reference, int) else reference

    upcoming = iter(traced.jaxpr.eqns)
    eqns: list[Any] = []
    for line in written.lines:
        if line is None:
            for eqn in upcoming:
                if eqn.primitive is mark_p:
                    break
                eqns.append(build.reading(eqn, instead))
            continue
        eqn, operands = line
        eqns.append(eqn if operands is None else eqn.replace(invars=list(map(atom, operands))))
    eqns += [build.reading(eqn, instead) for eqn in upcoming]
    return build.with_equations(closed, eqns, list(map(atom, written.outputs)))


def typed_as(value: Value, aval: Any) -> Value:
    """The value with exactly the shape, dtype and weak type that the output had before."""
    got = jax.typeof(value)
    if (got.shape, got.dtype) != (aval.shape, aval.dtype):
        raise CompilerBug(f"a pass turned an output of type {aval.str_short()} into {got.str_short()}")
    if got.weak_type == aval.weak_type:
        return value
    return primitives.convert_element_type_p.bind(value, new_dtype=aval.dtype, weak_type=aval.weak_type, sharding=None)


def without_empty_shardings(closed: Closed) -> Closed:
    """A sharding over no mesh, as derivatives of conversions have it, is none."""
    eqns = [
        eqn if eqn.params.get("sharding") is None else eqn.replace(params=without_empty_sharding(eqn.params))
        for eqn in closed.jaxpr.eqns
    ]
    same = all(new.params is old.params for new, old in zip(eqns, closed.jaxpr.eqns))
    return closed if same else build.with_equations(closed, eqns)


def primitive_names(closed: Closed) -> frozenset[str]:
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
    while (known := constant(value)) is None:
        maker = rewriter.maker(value)
        if maker is None or maker.name not in ("broadcast_in_dim", "pvary"):
            return None
        value = maker.args[0]
    return known


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
