"""A branch that calls Python, has side effects or may not end is computed where it is taken, and nowhere else."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback
from jax.interpreters import mlir

import jaxpr2triton as j2t

X = jnp.asarray(np.linspace(0.1, 0.9, 6, dtype=np.float32))
CALLS: list[str] = []


# ---------------------------------------------------------------------------------------------------- calls to Python
def _called(x: Any) -> np.ndarray:
    CALLS.append("called")
    return np.asarray(x) * 2


def _like(x: Any) -> Any:
    return jax.ShapeDtypeStruct(jnp.shape(x), x.dtype)


@jax.custom_jvp
def pure(x: Any) -> Any:
    return jax.pure_callback(_called, _like(x), x, vmap_method="expand_dims")


pure.defjvp(lambda primals, tangents: (pure(*primals), 2 * tangents[0]))


def io(x: Any) -> Any:
    return io_callback(_called, _like(x), x)


def io_in_order(x: Any) -> Any:
    return io_callback(_called, _like(x), x, ordered=True)


def told(x: Any) -> Any:
    jax.debug.callback(lambda _: CALLS.append("called"), x)
    return x * 2


def told_in_order(x: Any) -> Any:
    jax.debug.callback(lambda _: CALLS.append("called"), x, ordered=True)
    return x * 2


Call = Callable[[Any], Any]


def in_a_branch(call: Call, p: Any, x: Any) -> Any:
    y = jnp.sin(x) / jnp.sin(x).sum()
    z = lax.cond(p > 0, call, lambda v: v + 1, y)
    return jnp.exp(z) / jnp.exp(z).sum()


def in_the_other_branch(call: Call, p: Any, x: Any) -> Any:
    return jnp.cos(lax.cond(p < 0, lambda v: v + 1, call, jnp.sin(x)))


def in_a_switch(call: Call, p: Any, x: Any) -> Any:
    return lax.switch(p.astype(jnp.int32), [lambda v: v, call, lambda v: v / 2], jnp.sin(x)) + 1


def in_calls_of_a_branch(call: Call, p: Any, x: Any) -> Any:
    return lax.cond(p > 0, jax.jit(lambda v: jax.checkpoint(lambda v: jax.jit(call)(v) + 1)(v)), lambda v: v, x * 3)


def in_a_branch_of_a_branch(call: Call, p: Any, x: Any) -> Any:
    inner = lambda v: lax.cond(p < 2, call, lambda v: v * 3, v)  # noqa: E731
    return lax.cond(p > 0, inner, lambda v: v + 1, jnp.sin(x)) * 2


def in_a_loop_of_a_branch(call: Call, p: Any, x: Any) -> Any:
    return lax.cond(p > 0, lambda v: lax.fori_loop(0, 3, lambda _, v: call(v) / 4, v), lambda v: v, jnp.sin(x))


def in_a_scan_of_a_branch(call: Call, p: Any, x: Any) -> Any:
    steps = lambda v: lax.scan(lambda c, _: (c / 2, call(c)), v, None, length=2)[1].sum(0)  # noqa: E731
    return lax.cond(p > 0, steps, lambda v: v, jnp.sin(x))


def in_a_branch_of_a_scan(call: Call, p: Any, x: Any) -> Any:
    return lax.scan(lambda c, t: (jnp.sin(lax.cond(p > t, call, lambda v: v / 3, c)), c.sum()), x, jnp.arange(3.0))


def in_a_branch_of_a_while(call: Call, p: Any, x: Any) -> Any:
    step = lambda s: (s[0] + 1, lax.cond(p > s[0], call, lambda v: v / 3, s[1]))  # noqa: E731
    return lax.while_loop(lambda s: s[0] < 3, step, (0, jnp.sin(x)))[1]


PLACES = (
    *(in_a_branch, in_the_other_branch, in_a_switch, in_calls_of_a_branch, in_a_branch_of_a_branch),
    *(in_a_loop_of_a_branch, in_a_scan_of_a_branch, in_a_branch_of_a_scan, in_a_branch_of_a_while),
)


def counted(function: Callable[..., Any], *args: Any) -> tuple[Any, int]:
    """The results, and how often Python was called."""
    CALLS.clear()
    results = jax.block_until_ready(function(*args))
    jax.effects_barrier()
    return results, len(CALLS)


def same_values_and_calls(function: Callable[..., Any], *args: Any) -> None:
    expected, often = counted(jax.jit(function), *args)
    found, calls = counted(j2t.fuse(function, backend="interpret"), *args)
    jax.tree.map(close, found, expected)
    assert calls == often


ALL = [(place, pure) for place in PLACES]
ALL += [(place, call) for place in PLACES[::4] for call in (io, io_in_order, told, told_in_order)]


@pytest.mark.parametrize("p", [-1.0, 1.0])
@pytest.mark.parametrize("place, call", ALL, ids=lambda each: each.__name__)
def test_a_callback_in_a_branch_that_is_not_taken(place: Any, call: Call, p: float) -> None:
    same_values_and_calls(lambda p, x: place(call, p, x), jnp.float32(p), X)


@pytest.mark.parametrize("p", [-1.0, 1.0])
@pytest.mark.parametrize("place", [in_a_branch, in_a_branch_of_a_branch, in_a_branch_of_a_scan])
def test_the_gradient_of_a_callback_in_a_branch(place: Any, p: float) -> None:
    def gradient(wrap: Any) -> Any:
        function = wrap(lambda p, x: place(pure, p, x))
        return jax.grad(lambda p, x: sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(function(p, x))), 1)

    expected, often = counted(gradient(jax.jit), jnp.float32(p), X)
    found, calls = counted(gradient(lambda f: j2t.fuse(f, backend="interpret")), jnp.float32(p), X)
    close(found, expected)
    assert calls == often


def test_everything_around_such_a_branch_is_fused() -> None:
    program = j2t.transpile(lambda p, x: in_a_branch(pure, p, x), jnp.float32(1), X)
    assert [leftover.primitive for leftover in program.leftovers] == ["cond"]
    assert program.leftovers[0].why == (
        "`pure_callback` in a branch calls Python, so that only the branch that is taken may be computed"
    )
    assert len(program.compiled.kernels) == 2  # before it and after it


def test_a_loop_around_such_a_branch_stays_with_xla_and_says_why() -> None:
    program = j2t.transpile(lambda p, x: in_a_branch_of_a_scan(pure, p, jnp.sin(x)), jnp.float32(1), X)
    (left,) = program.leftovers
    assert left.primitive == "scan"
    assert left.why.startswith("the body of the loop cannot be in a kernel, at test_branches_not_taken.py:")
    assert left.why.endswith(
        "`pure_callback` in a branch calls Python, so that only the branch that is taken may be computed"
    )


def test_good_input_raises_no_error() -> None:
    """What `error_if` and the checks of solvers are: a branch whose callback raises."""

    def refuse(x: Any) -> np.ndarray:
        raise RuntimeError("ts must be increasing")

    def checked(ts: Any) -> Any:
        bad = jnp.any(ts[1:] <= ts[:-1])
        raising = lambda ts: jax.pure_callback(refuse, _like(ts), ts)  # noqa: E731
        return lax.cond(bad, raising, lambda ts: ts, ts)

    def solved(ts: Any, y: Any) -> Any:
        ts = checked(ts)
        return lax.scan(lambda y, dt: (y - dt * jnp.sin(y), y), y, ts[1:] - ts[:-1])[1]

    function = j2t.fuse(solved, backend="interpret")
    close(function(X, X), jax.jit(solved)(X, X))
    assert len(j2t.transpile(solved, X, X).compiled.kernels) >= 1
    with pytest.raises(Exception, match="ts must be increasing"):
        jax.block_until_ready(function(X[::-1], X))


def test_a_primitive_that_nobody_knows_is_left_in_its_branch() -> None:
    """It may be a custom call that does anything at all."""
    unknown = jex.Primitive("tests_unknown")
    unknown.def_abstract_eval(lambda x: x)
    mlir.register_lowering(unknown, lambda ctx, x: [x])  # no JAX function that one could look into
    function = lambda p, x: lax.cond(p > 0, unknown.bind, lambda x: x, jnp.sin(x)) + 1  # noqa: E731
    (left,) = j2t.transpile(function, jnp.float32(1), X).leftovers
    assert left.primitive == "cond" and left.why.startswith("`tests_unknown` in a branch is not known here")
    close(j2t.fuse(function, backend="interpret")(jnp.float32(1), X), jax.jit(function)(jnp.float32(1), X))


def test_a_branch_of_known_work_is_still_a_choice() -> None:
    program = j2t.transpile(lambda p, x: lax.cond(p > 0, jnp.sin, jnp.cos, x), jnp.float32(1), X)
    assert len(program.compiled.kernels) == 1 and not program.leftovers


def test_a_branch_that_subtracts_at_places_is_still_a_choice() -> None:
    def function(p: Any, x: Any) -> Any:
        return lax.cond(p > 0, lambda x: x.at[::2].subtract(1.0), jnp.cos, x)

    assert not j2t.transpile(function, jnp.float32(1), X).leftovers
    close(j2t.fuse(function, backend="interpret")(jnp.float32(1), X), jax.jit(function)(jnp.float32(1), X))


# ---------------------------------------------------------------------------------------------------- loops without end
def down_to_zero(x: Any) -> Any:
    """Never there, if it begins below."""
    return lax.while_loop(lambda c: c != 0, lambda c: c - 1, x)


def same(x: Any) -> Any:
    return x


def endless(x: Any) -> Any:
    return lax.cond(x > 0, down_to_zero, same, x)


def endless_in_a_call(x: Any) -> Any:
    return lax.cond(x > 0, jax.jit(lambda x: jax.jit(down_to_zero)(x) + 1), same, x)


def endless_in_a_branch_of_a_branch(x: Any) -> Any:
    return lax.cond(x > 0, lambda x: lax.cond(x > 1, down_to_zero, lambda x: x + 5, x), same, x)


def endless_in_a_switch(x: Any) -> Any:
    return lax.switch(jnp.where(x > 0, 1, 0), [same, down_to_zero, lambda x: x * 2], x)


def endless_in_a_scan(x: Any) -> Any:
    return lax.scan(lambda c, _: (lax.cond(c > 0, down_to_zero, same, c) + 1, c), x, None, length=4)


def endless_in_a_while(x: Any) -> Any:
    step = lambda s: (s[0] + 1, lax.cond(s[1] > 0, down_to_zero, same, s[1]))  # noqa: E731
    return lax.while_loop(lambda s: s[0] < 3, step, (0, x))


def endless_in_a_condition(x: Any) -> Any:
    return lax.while_loop(lambda c: lax.cond(c > 0, down_to_zero, same, c) > 0, lambda c: c - 1, x)


def endless_in_a_scan_of_a_branch(x: Any) -> Any:
    steps = lambda x: lax.scan(lambda c, _: (down_to_zero(c) + 1, c), x, None, length=2)  # noqa: E731
    return lax.cond(x > 0, steps, lambda x: (x, jnp.zeros(2)), x)


def endless_lanes(x: Any) -> Any:
    return lax.cond(x > 0, jax.vmap(down_to_zero), same, jnp.full(4, x))


def endless_beside_a_sort(x: Any) -> Any:
    return lax.cond(x > 0, lambda v: jnp.sort(jax.vmap(down_to_zero)(v)), jnp.flip, jnp.full(4, x))


ENDLESS = (
    *(endless, endless_in_a_call, endless_in_a_branch_of_a_branch, endless_in_a_switch, endless_in_a_scan),
    *(endless_in_a_while, endless_in_a_condition, endless_in_a_scan_of_a_branch, endless_lanes, endless_beside_a_sort),
)


@pytest.mark.parametrize("x", [-1.0, 2.0])
@pytest.mark.parametrize("function", ENDLESS, ids=lambda function: function.__name__)
def test_a_loop_without_end_in_a_branch_that_is_not_taken(function: Callable[..., Any], x: float) -> None:
    with at_most(60):
        found = jax.block_until_ready(j2t.fuse(function, backend="interpret")(jnp.float32(x)))
    jax.tree.map(close, found, jax.jit(function)(jnp.float32(x)))


def test_a_division_by_zero_in_a_branch_that_is_not_taken() -> None:
    function = lambda n: lax.cond(n != 0, lambda n: 10 // n + 10 % n, same, n)  # noqa: E731
    for n in (0, 3):
        close(j2t.fuse(function, backend="interpret")(n), jax.jit(function)(n))


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """A failure instead of a test that never ends."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# ---------------------------------------------------------------------------------------- effects of derivative rules
def rules_that_tell(ordered: bool) -> tuple[Any, Any]:
    def tell(what: str, x: Any) -> None:
        jax.debug.callback(lambda _: CALLS.append(what), x, ordered=ordered)

    @jax.custom_jvp
    def forwards(x: Any) -> Any:
        return jnp.sqrt(x)

    @forwards.defjvp
    def _jvp(primals: Any, tangents: Any) -> Any:
        tell("jvp", primals[0])
        return forwards(*primals), tangents[0] * 2

    @jax.custom_vjp
    def backwards(x: Any) -> Any:
        return jnp.sqrt(x)

    def forward(x: Any) -> Any:
        tell("forward", x)
        return backwards(x), x

    def backward(x: Any, cotangent: Any) -> Any:
        tell("backward", cotangent)
        return (cotangent * x,)

    backwards.defvjp(forward, backward)
    return forwards, backwards


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("transform", [jax.grad, lambda f: jax.jit(jax.grad(f)), jax.value_and_grad])
def test_what_derivative_rules_do_besides_is_done(transform: Any, ordered: bool) -> None:
    for rule in rules_that_tell(ordered):
        loss = lambda x, rule=rule: jnp.sin(rule(x) * 2).sum()  # noqa: E731
        expected, often = counted(transform(jax.jit(loss)), X)
        told = sorted(CALLS)
        found, calls = counted(transform(j2t.fuse(loss, backend="interpret")), X)
        jax.tree.map(close, found, expected)
        assert calls == often > 0 and sorted(CALLS) == told


def test_strict_derivatives_with_side_effects() -> None:
    for rule in rules_that_tell(False):
        with pytest.raises(
            j2t.NotFusible, match=r"cannot compile `debug_callback\[.*\] a`: `debug_callback` calls Python"
        ):
            jax.grad(j2t.fuse(lambda x, rule=rule: rule(x).sum(), strict=True))(X)
        gradient = j2t.transpile(lambda x, rule=rule: rule(x).sum(), X, grad=True)
        assert {left.primitive for left in gradient.forward.leftovers} == {"debug_callback"}


def test_a_derivative_rule_that_tells_tangents() -> None:
    @jax.custom_jvp
    def rule(x: Any) -> Any:
        return jnp.sqrt(x)

    @rule.defjvp
    def _jvp(primals: Any, tangents: Any) -> Any:
        jax.debug.callback(lambda _: CALLS.append("tangent"), tangents[0])
        return rule(*primals), tangents[0] * 2

    for transform in (jax.grad, lambda f: lambda x: jax.jvp(f, (x,), (x,))):
        loss = lambda x: jnp.sin(rule(x) * 2).sum()  # noqa: E731
        expected, often = counted(transform(jax.jit(loss)), X)
        found, calls = counted(transform(j2t.fuse(loss, backend="interpret")), X)
        jax.tree.map(close, found, expected)
        assert calls == often

    def summed(x: Any) -> Any:
        return rule(x).sum()

    with pytest.raises(j2t.NotFusible) as caught:
        jax.grad(j2t.fuse(summed, strict=True))(X)
    assert str(caught.value) == (
        "the derivative of summed stays with XLA: a derivative rule in it has side effects, or cannot be linearized\n"
        "  try  differentiate outside of the fused function, or leave it to XLA (drop strict=True)"
    )


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
