"""Every analysis of users' programs goes through thousands of equations in a row, and through what is used twice again
and again, in about as many steps as there are equations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.emit.variables import Variable
from jaxpr2triton.graph.bounds import Ranges
from jaxpr2triton.graph.compared import met
from jaxpr2triton.graph.nodes import Compute, Constant, Load, Node, Position, Reduce
from jaxpr2triton.graph.renamed import _Sharing
from jaxpr2triton.graph.signs import has_no_sign
from jaxpr2triton.graph.spans import limits_of
from jaxpr2triton.graph.streams import _says_whether_finite
from jaxpr2triton.ir.dataflow import postorder, reachable
from jaxpr2triton.ir.index import Axis, of_axis
from jaxpr2triton.ir.scans import Body
from jaxpr2triton.normalize.arrays.doubled import double_sums
from jaxpr2triton.normalize.arrays.factors import Factors
from jaxpr2triton.normalize.loops.accumulators import Terms as Added
from jaxpr2triton.normalize.loops.lanes import _sides, _values
from jaxpr2triton.normalize.loops.stored import compute_in_tiles
from jaxpr2triton.normalize.loops.terms import Terms
from jaxpr2triton.normalize.loops.unrolled import _flags, _known
from jaxpr2triton.normalize.numbers.algebra import _negated
from jaxpr2triton.normalize.numbers.static_values import equations_of, static_array
from jaxpr2triton.normalize.rewrite import Rewriter, splat
from jaxpr2triton.plan.library import Around
from jaxpr2triton.policy import DEFAULT_POLICY

IN_A_ROW, DOUBLINGS = 3000, 40
SECONDS = 60  # far more than any takes: what is gone through again for each use would take years
K, ROW = Axis("k", 64), Axis("row", 64)
F32, I32, BOOL = np.dtype(np.float32), np.dtype(np.int32), np.dtype(bool)

Step = Callable[[Any], Any]
times = pytest.mark.parametrize("count", [IN_A_ROW, DOUBLINGS], ids=["in a row", "doubled"])


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < SECONDS


def repeated(step: Step, doubled: Step, count: int) -> Step:
    """One of the two, so many times: in a row, or each time with two of what there was."""

    def fn(x: Any) -> Any:
        for _ in range(count):
            x = (step if count == IN_A_ROW else doubled)(x)
        return x

    return fn


def traced(fn: Callable[..., Any], *avals: Any) -> Any:
    return jax.make_jaxpr(fn)(*avals)


def of(dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def nodes_of(fn: Callable[..., Any], leaf: Node) -> Node:
    """The values of a kernel that computes this of one that it has, element by element."""
    closed = traced(fn, of(leaf.dtype))
    env: dict[Any, Node] = dict.fromkeys(closed.jaxpr.invars, leaf)
    for number, eqn in enumerate(closed.eqns):
        operands = tuple(
            Constant(0, frozenset(), np.dtype(atom.aval.dtype), np.asarray(atom.val, atom.aval.dtype)[()])
            if hasattr(atom, "val")
            else env[atom]
            for atom in eqn.invars
        )
        axes = frozenset().union(*(each.axes for each in operands))
        env[eqn.outvars[0]] = Compute(number, axes, np.dtype(eqn.outvars[0].aval.dtype), eqn, operands)
    return env[closed.jaxpr.outvars[0]]


def load(dtype: np.dtype) -> Load:
    return Load(0, frozenset((K,)), dtype, 0, (of_axis(K),), ())


def looked_at(fn: Callable[..., Any], ask: Callable[[Any, Rewriter], Any], *avals: Any) -> Any:
    """What a rule finds out about the result of a program."""
    closed = traced(fn, *avals)
    found: list[Any] = []

    def run(*args: Any) -> Any:
        rewriter = Rewriter(lambda node, rewriter: None)
        (value,) = rewriter.evaluate(closed.jaxpr, closed.consts, args)
        found.append(ask(value, rewriter))
        return value

    jax.make_jaxpr(run)(*closed.in_avals)
    return found[0]


# graphs


@times
def test_bounds(count: int) -> None:
    node = nodes_of(
        repeated(lambda i: i + 1, lambda i: lax.min(i, i), count), Position(0, frozenset((K,)), I32, of_axis(K))
    )
    more = count if count == IN_A_ROW else 0
    assert Ranges().of(node) == (more, 63 + more)


@times
def test_signs(count: int) -> None:
    fn = repeated(lambda x: lax.max(x, jnp.float32(1)), lambda x: lax.max(x, x), count)
    assert has_no_sign(nodes_of(lambda x: fn(jnp.abs(x)), load(F32)))
    assert not has_no_sign(nodes_of(fn, load(F32)))


@times
def test_limits_of_loops(count: int) -> None:
    """A mask of very many parts, and a place that very many numbers are added to."""
    both = repeated(lambda m: m & (m.astype(np.int32) < 2), lambda m: m & m, count)
    added = repeated(lambda i: i + 1, lambda i: lax.convert_element_type(i, np.int32), count)
    place = Position(0, frozenset((K,)), I32, of_axis(K))
    mask = nodes_of(lambda k: both(added(k) < 3020), place)
    x, zero = load(F32), Constant(0, frozenset(), F32, np.float32(0))
    select = traced(lambda m, x: lax.select_n(m, jnp.float32(0), x), of(bool), of(F32)).eqns[-1]
    chosen = Compute(1, x.axes, F32, select, (mask, zero, x))
    total = traced(lambda x: x.sum(), of(F32, 64)).eqns[-1]
    limits = limits_of(Reduce(2, frozenset(), F32, total, (chosen,), (K,), (of_axis(K),)), K)
    assert [limit.const + limit.is_upper for limit in limits if limit.value is None] or count == IN_A_ROW


def test_denials() -> None:
    finite = traced(lambda x: jnp.isfinite(x), of(F32)).eqns[-1]
    value = load(F32)
    which: Node = Compute(0, value.axes, BOOL, finite, (value,))
    deny = traced(jnp.logical_not, of(bool)).eqns[-1]
    for _ in range(IN_A_ROW):
        which = Compute(0, value.axes, BOOL, deny, (which,))
    assert _says_whether_finite(which, value, True) and not _says_whether_finite(which, value, False)


@times
def test_forms(count: int) -> None:
    node = nodes_of(repeated(lambda x: x + 1, lambda x: x + x, count), load(F32))
    sharing = _Sharing([frozenset((K, ROW))], computed=True)
    assert sharing._form(node, K) == sharing._form(node, K) != sharing._form(node, ROW)


# jaxprs


def spread(x: Any) -> Any:
    """JAX leaves out what changes nothing, so that each time there is a dimension more."""
    for _ in range(DOUBLINGS):
        x = lax.broadcast_in_dim(x, (1, *x.shape), range(1, x.ndim + 1))
    return x


def test_a_number_that_is_spread_again_and_again() -> None:
    asked = traced(lambda y: spread(jnp.float32(1)) == y, of(F32, *(1,) * DOUBLINGS))
    assert len(asked.eqns) >= DOUBLINGS and met(asked.eqns) == set()


def products(count: int) -> Step:
    return repeated(lambda x: x * jnp.float32(1.5), lambda x: x * x, count)


@times
def test_powers_of_two_of_products(count: int) -> None:
    fn = products(count)
    closed = traced(lambda x: (fn(x * jnp.float32(2))).sum(), of(F32, 8))
    assert double_sums(closed).eqns[-1].primitive.name == "mul"  # of the sum


@times
def test_factors_of_contractions(count: int) -> None:
    fn = products(count)
    closed = traced(lambda x, y: fn(x) @ y, of(F32, 256, 256), of(F32, 256, 256))
    ((_, (left, _)),) = Factors(closed.jaxpr).found()
    assert left.rest is not None and len(left.factors) == (count if count == IN_A_ROW else 0)
    x = jnp.ones((256, 256), F32)
    if count == IN_A_ROW:
        np.testing.assert_array_equal(left.rest.of({closed.jaxpr.invars[0]: x}), x)


@times
def test_terms_of_sums(count: int) -> None:
    fn = repeated(lambda x: x + jnp.ones_like(x), lambda x: x + x, count)
    closed = traced(lambda c, x: c + fn(jnp.sin(x)), of(F32, 8), of(F32, 8))
    terms = Added(Body(closed, 0, 1), lambda eqn: eqn.primitive.name == "sin").of(closed.jaxpr.outvars[0])
    assert 1 <= len(terms) <= len(closed.eqns) + 1
    assert any(term.maker is not None for term in terms)


@times
def test_sides_of_conditions(count: int) -> None:
    fn = repeated(lambda m: m & jnp.zeros((), bool), lambda m: m & m, count)
    closed = traced(fn, of(bool))
    makers = {var: eqn for eqn in closed.eqns for var in eqn.outvars}
    sides = _sides(closed.jaxpr.outvars[0], makers.get)
    assert sides.count(closed.jaxpr.invars[0]) >= 1 and len(sides) <= count + 2
    assert len(looked_at(fn, _values, of(bool))) == len(sides)


@times
def test_facts(count: int) -> None:
    terms = Terms()
    flag = whole = terms.opaque("flag")
    for number in range(count):
        other = terms.opaque(number) if count == IN_A_ROW else whole
        whole = terms.made("and", (), whole, other)
    facts = terms.facts(whole, True)
    assert facts[flag] is True
    assert terms.where(whole, {flag: False}) == terms.false


@times
def test_known_numbers(count: int) -> None:
    """Of a program, of a number that is chosen by a flag, and of arrays."""
    fn = repeated(lambda i: i + 1, lambda i: lax.max(i, i), count)
    more = count if count == IN_A_ROW else 0

    def chosen(flag: Any) -> Any:
        return fn(lax.select_n(flag, jnp.int32(3), jnp.int32(5)))

    def ask(value: Any, rewriter: Rewriter) -> Any:
        (flag,) = _flags(value, rewriter)
        return _known(value, {id(flag): True}, rewriter)

    assert looked_at(chosen, ask, of(bool)) == 5 + more

    def counted(_: Any) -> Any:
        return fn(lax.iota(np.int32, 4))

    np.testing.assert_array_equal(looked_at(counted, static_array, of(F32)), np.arange(4) + more)
    again = looked_at(counted, equations_of, of(F32))
    assert again is None if count == IN_A_ROW else len(again) == count + 1  # too many to be written again


def test_negations_that_are_moved_again_and_again() -> None:
    fn = repeated(lambda x: x.T, jnp.sin, IN_A_ROW)
    assert looked_at(lambda x: fn(-x), _negated, of(F32, 2, 3)) is not None
    assert looked_at(lambda x: fn(jnp.sin(x)), _negated, of(F32, 2, 3)) is None


def test_a_constant_that_is_spread_again_and_again() -> None:
    assert looked_at(lambda _: spread(jnp.float32(3)), splat, of(F32)) == 3


def test_what_a_loop_stores_and_is_turned_again_and_again() -> None:
    turned = repeated(lambda x: lax.transpose(x, (1, 0)), jnp.sin, IN_A_ROW)

    def fn(x: Any) -> Any:
        ys = lax.scan(lambda c, x: (c, jnp.sin(x)), 0.0, x)[1]
        return jnp.sin(lax.reshape(turned(ys), (64,)))

    assert compute_in_tiles(traced(fn, of(F32, 8, 8))).eqns


@times
def test_what_products_are_made_of(count: int) -> None:
    spread = repeated(lambda x: x[::-1], lambda x: x[::-1] if x.shape[0] > 64 else jnp.concatenate([x, x])[:64], count)
    closed = traced(lambda x, y: spread(x) @ y, of(F32, 64, 64), of(F32, 64, 64))
    around, eqn = Around(closed.jaxpr, DEFAULT_POLICY), closed.eqns[-1]
    assert not around.is_made(eqn.invars[0]) and not around._is_computed(eqn.invars[0])
    assert not around.has_windows(eqn)
    read = traced(lambda x, y: jnp.sin(spread(x @ y)), of(F32, 64, 64), of(F32, 64, 64))
    assert Around(read.jaxpr, DEFAULT_POLICY).goes_on(read.eqns[0])


def test_variables_that_have_become_one() -> None:
    variables = [Variable(str(number), 0, number) for number in range(IN_A_ROW)]
    for one, other in zip(variables, variables[1:]):
        one.joined = other
    assert variables[0].root is variables[-1]


# the walks, and whole programs


def test_walks() -> None:
    parts = {"d": "bc", "b": "a", "c": "a", "a": ""}
    done: dict[str, int] = {}
    for each in postorder(["d"], lambda each: parts[each], done):
        assert all(part in done for part in parts[each])
        done[each] = len(done)
    assert list(done) == ["a", "b", "c", "d"]
    assert list(postorder(["d", "a"], lambda each: parts[each], done)) == []
    assert list(reachable(["d"], lambda each: parts[each])) == ["d", "b", "a", "c"]


def test_maxima_of_two_places_again_and_again() -> None:
    """The sign of what is reduced is asked for."""
    fn = repeated(jnp.sin, lambda y: jnp.maximum(y, y[::-1]), DOUBLINGS)
    (kernel,) = j2t.transpile(lambda x: fn(jnp.abs(x)).max(), of(F32, 64)).kernels
    assert kernel.source


def test_hundreds_of_sums_of_integers_before_a_comparison() -> None:
    """The range of what is compared is asked for."""

    def fn(x: Any, i: Any) -> Any:
        for number in range(300):
            i = i + number % 3
        return jnp.where(i < 500, x, 0)

    rng = np.random.default_rng()
    x, i = jnp.asarray(rng.standard_normal(64), F32), jnp.asarray(rng.integers(0, 500, 64), I32)
    fused = j2t.fuse(fn, backend="interpret", strict=True)
    np.testing.assert_array_equal(fused(x, i), jax.jit(fn)(x, i))


def rotation(w: Any) -> Any:
    angle = jnp.sqrt((w**2).sum() + 1e-8)
    k = jnp.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])
    return jnp.eye(3) + jnp.sin(angle) / angle * k + (1 - jnp.cos(angle)) / angle**2 * k @ k


def pose_graph(ws: Any, seen: Any) -> Any:
    """How far the rotations between all pairs of poses are from what was seen."""
    poses, loss = [rotation(w) for w in ws], 0.0
    for i, one in enumerate(poses):
        for j, other in enumerate(poses[:i]):
            between = one.T @ other @ rotation(seen[i, j])
            angle = jnp.arccos(jnp.clip((jnp.trace(between) - 1) / 2, -0.999, 0.999))
            loss += (angle / (2 * jnp.sin(angle)) * (between - between.T) ** 2).sum()
    return loss


def test_kernels_of_long_straight_code_are_not_put_together() -> None:
    """A kernel is as long as Triton compiles in some seconds: each by itself, and those that would share one, too."""
    shapes = jax.ShapeDtypeStruct((6, 3), jnp.float32), jax.ShapeDtypeStruct((6, 6, 3), jnp.float32)
    planned = j2t.transpile(jax.grad(pose_graph), *shapes, contractions="triton")
    assert not planned.leftovers and len(planned.kernels) > 3
    assert max(len(kernel.source.splitlines()) for kernel in planned.kernels) < 3000
