"""Gradients that keep few states of a loop: what they are, what they keep, and that their kernels are few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.autodiff.stretches import in_stretches, steps_of_a_stretch
from tests.loop_programs import PROGRAMS as LOOPS

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def recurrent(h: Any, w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ w + x)
        return h, 2 * h

    return lax.scan(step, h, xs)


def downwards(h: Any, xs: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.sin(h + x), h * x), h, xs, reverse=True)


def noisy(x: Any) -> Any:
    def step(carry: Any, key: Any) -> Any:
        own, x = carry
        own, key1 = jax.random.split(own)
        return (own, x * jnp.cos(jax.random.normal(key1, x.shape) + jax.random.normal(key, x.shape))), x.sum()

    (_, x), sums = lax.scan(step, (jax.random.key(1), x), jax.random.split(jax.random.key(3), 10))
    return x, sums


def counted(x: Any) -> Any:
    return lax.fori_loop(0, 11, lambda n, c: jnp.sin(c) * (n + 1) / 12, x)


def nested(x: Any, y: Any) -> Any:
    def step(c: Any, t: Any) -> Any:
        c, ys = lax.scan(lambda c, z: (jnp.sin(c * z), c), c, y)
        return jnp.tanh(c) + t, ys.sum(0)

    return lax.scan(step, x, jnp.arange(9, dtype=np.float32))


def one_after_the_other(x: Any, y: Any) -> Any:
    x, ys = lax.scan(lambda c, z: (jnp.sin(c * z), c * 2), x, y)
    return lax.scan(lambda c, z: (jnp.cos(c + z), c * 2), x, ys, reverse=True)


def in_a_branch(x: Any, y: Any) -> Any:
    def loop(x: Any) -> Any:
        return lax.scan(lambda c, z: (jnp.sin(c * z), None), x, y)[0]

    return lax.cond(x[0] > -9, loop, jnp.tanh, x)


def mixed(x: Any, y: Any) -> Any:
    def step(carry: Any, z: Any) -> Any:
        n, a, b = carry
        return (n + 1, a * jnp.sin(z) + b[:1], jnp.where(n % 2 == 0, b * z, b + 1)), n * 1.0

    return lax.scan(step, (0, x, x[:3]), y)


def checkpointed(x: Any, y: Any) -> Any:
    return lax.scan(jax.checkpoint(lambda c, z: (jnp.sin(jnp.exp(jnp.sin(c * z))), c)), x, y)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "recurrent": (recurrent, (floats(3, 4), floats(4, 4), floats(12, 3, 4))),
    "recurrent with a rest": (recurrent, (floats(3, 4), floats(4, 4), floats(13, 3, 4))),
    "downwards": (downwards, (floats(5), floats(12, 5))),
    "downwards with a rest": (downwards, (floats(5), floats(7, 5))),
    "noisy": (noisy, (floats(5),)),
    "counted": (counted, (floats(9),)),
    "nested": (nested, (floats(6), floats(8, 6))),
    "one after the other": (one_after_the_other, (floats(6), floats(16, 6))),
    "in a branch": (in_a_branch, (floats(6), floats(16, 6))),
    "mixed": (mixed, (floats(6), floats(16, 1))),
    "checkpointed": (checkpointed, (floats(6), floats(16, 6))),
    **{f"no more than {n}": (downwards, (floats(5), floats(n, 5))) for n in range(5)},
}
IN_ONE = ("recurrent", "downwards", "noisy", "counted", "nested")


def pulled_back(f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """All results, and the gradients for one choice of cotangents."""
    results, pull, others = jax.vjp(lambda *args: floating(f(*args)), *args, has_aux=True)
    return results, others, pull([jnp.cos(1 + result) for result in results])


def floating(results: Any) -> tuple[list[Any], list[Any]]:
    leaves = jax.tree.leaves(results)
    moving = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return moving, [leaf for leaf in leaves if not jnp.issubdtype(leaf.dtype, jnp.floating)]


def close(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("checkpoint", ["sqrt", 1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_those_of_jax(name: str, checkpoint: Any) -> None:
    function, args = PROGRAMS[name]
    fused = j2t.fuse(function, backend="interpret", checkpoint=checkpoint)
    close(pulled_back(fused, args), jax.jit(lambda *args: pulled_back(function, args))(*args))


@pytest.mark.parametrize("name", ["recurrent", "downwards with a rest", "noisy", "nested"])
def test_compiled_kernels_are_right_too(name: str) -> None:
    function, args = PROGRAMS[name]
    fused = j2t.fuse(function, backend="machine", checkpoint="sqrt")
    close(pulled_back(fused, args), pulled_back(function, args))


@pytest.mark.parametrize("name", ["recurrent", "one after the other", "nested"])
def test_transformations_of_transformations(name: str) -> None:
    function, args = PROGRAMS[name]
    stacked = tuple(np.stack([arg, arg / 2, arg / 3]) for arg in args)

    def several(f: Callable[..., Any]) -> Any:
        def total(*args: Any) -> Any:
            return sum((leaf**2).sum() for leaf in jax.tree.leaves(f(*args)))

        def bent(*args: Any) -> Any:
            return sum((leaf**2).sum() for leaf in jax.tree.leaves(jax.grad(total)(*args)))

        batched = jax.grad(lambda *args: sum(leaf.sum() for leaf in jax.tree.leaves(jax.vmap(f)(*args))), 1 % len(args))
        return jax.vmap(jax.grad(total))(*stacked), batched(*stacked), jax.grad(bent)(*args), jax.jvp(f, args, args)

    found = several(j2t.fuse(function, backend="interpret", checkpoint="sqrt"))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(several(function)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max())


def kept(program: j2t.GradProgram) -> int:
    return sum(residual.nbytes for residual in program.residuals if residual.source == "new")


@pytest.mark.parametrize("name", IN_ONE)
def test_each_half_is_as_many_kernels_as_without(name: str) -> None:
    function, args = PROGRAMS[name]
    plain, few = (j2t.transpile(function, *args, grad=0, checkpoint=each) for each in (None, "sqrt"))
    assert len(few.backward.kernels) == len(plain.backward.kernels)
    assert not few.backward.leftovers and kept(few) * 2 < kept(plain)
    assert any(kernel.kept for kernel in few.backward.kernels)  # the states of one stretch


def test_a_thousand_steps_keep_few_states() -> None:
    program = next(each for each in LOOPS if each.name == "lorenz_rk4")
    assert program.bench_args is not None
    shapes = [jax.ShapeDtypeStruct(arg.shape, arg.dtype) for arg in program.bench_args(RNG)]
    plain = j2t.transpile(program.bench_fn, *shapes, grad=(0, 1))
    few = j2t.transpile(program.bench_fn, *shapes, grad=(0, 1), checkpoint="sqrt")
    state = 100_000 * 3 * 4
    assert (kept(plain), kept(few)) == (1000 * state, 25 * state)
    (backward,) = few.backward.kernels
    assert [buffer.shape[0] for buffer in backward.kept] == [40] and not few.backward.leftovers
    work = [sum(k.flops for k in (*each.forward.kernels, *each.backward.kernels)) for each in (plain, few)]
    assert work[1] < 1.4 * work[0]
    assert kept(j2t.transpile(program.bench_fn, *shapes, grad=(0, 1), checkpoint=100)) == 100 * state


def test_forward_and_backward_in_one_program_are_one_kernel() -> None:
    """Computing again what was computed before is not taken for the same."""
    function, args = PROGRAMS["downwards"]
    inner = j2t.fuse(function, checkpoint="sqrt")
    program = j2t.transpile(lambda *args: pulled_back(inner, args), *args)
    assert len(program.kernels) == 1 and not program.leftovers
    close(program(*args), pulled_back(function, args))


def test_what_keeps_nothing_stays_as_it_is() -> None:
    def decaying(x: Any, rates: Any) -> Any:
        return lax.scan(lambda c, rate: (c * rate, None), x, rates)[0]

    x, rates = floats(5), floats(16, 5)
    plain, asked = (str(j2t.transpile(decaying, x, rates, grad=0, checkpoint=each).source) for each in (None, "sqrt"))
    assert plain == asked


def test_calls_with_rules_and_what_does_not_move_are_left_alone() -> None:
    @jax.custom_vjp
    def ruled(x: Any) -> Any:
        return lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=16)[0]

    ruled.defvjp(lambda x: (ruled(x), x), lambda x, ct: (ct * x,))

    def function(x: Any, y: Any) -> Any:
        moves = lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=16)[0]
        rests = lax.scan(lambda c, _: (jnp.cos(c), None), y, None, length=16)[0]
        return ruled(moves) + rests

    closed = jax.make_jaxpr(function)(1.0, 2.0)
    made = in_stretches(closed, (True, False), "sqrt")
    lengths = [eqn.params["length"] for eqn in made.jaxpr.eqns if eqn.primitive.name == "scan"]
    assert lengths == [4, 16]
    assert in_stretches(closed, (True, False), None) is closed


@pytest.mark.parametrize(
    ("length", "checkpoint", "steps"),
    [
        *((0, "sqrt", None), (1, "sqrt", None), (3, "sqrt", None), (4, "sqrt", 2), (5, "sqrt", 3), (7, "sqrt", 3)),
        *((16, "sqrt", 4), (512, "sqrt", 32), (1000, "sqrt", 40), (1001, "sqrt", 32), (1009, "sqrt", 32)),
        *((0, 1, None), (1, 1, None), (7, 1, 7), (7, 7, None), (7, 9, None), (7, 2, 4), (16, 3, 8), (1000, 32, 40)),
        *((1009, 32, 32), (10, 3, 5), (8, None, None)),
    ],
)
def test_lengths_of_stretches(length: int, checkpoint: Any, steps: int | None) -> None:
    assert steps_of_a_stretch(length, checkpoint) == steps


def test_a_choice_that_is_none() -> None:
    for wrong in ("cube", 0, -1, True, 2.5):
        with pytest.raises(j2t.UserError) as caught:
            j2t.fuse(jnp.sin, checkpoint=wrong)
        assert str(caught.value) == (
            f'checkpoint={wrong!r} is not a choice\n  try  "sqrt", or of how many steps of a loop the state is kept'
        )


def test_explain_says_what_is_kept() -> None:
    function, args = PROGRAMS["downwards"]
    told = j2t.transpile(function, *args, grad=0, checkpoint="sqrt").explain()
    assert "60 bytes written for it alone" in told and ", 80 bytes in buffers of the kernels' own" in told
    assert "f32[3,5]" in told
