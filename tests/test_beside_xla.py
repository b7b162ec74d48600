"""Loops that multiply: kernels, or XLA's where an estimate says so."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from bench.device.large_coupled import ising
from jaxpr2triton.hardware import target_named
from jaxpr2triton.launch.cycles.model import cycles_of
from jaxpr2triton.pipeline.xla_time import time_of_loop, time_of_xla
from jaxpr2triton.plan.decisions import Spread
from jaxpr2triton.policy import DEFAULT_POLICY
from tests.loop_programs import PROGRAMS
from tests.policies import planned_with
from tests.policy.programs import program
from tests.test_recurrent import drawn, loss, shapes, states
from tests.works import both

STEPS = 512
WHY = re.compile(
    r"a kernel of [\d,]+ programs takes about ([\d,]+) µs for 512 steps and XLA about ([\d,]+) µs for [\d,]+ launches "
    r"on all processors"
)
F32, BF16 = jnp.float32, jnp.bfloat16


@functools.cache
def planned(network: str, batch: int, hidden: int, dtype: Any, gradient: bool, contractions: str = "auto") -> Any:
    fn = (loss if gradient else states)(network)
    args = shapes(network, STEPS, batch, hidden, dtype)
    return j2t.transpile(fn, *args, contractions=contractions, for_target="sm_90")


def loops_left(program: Any) -> list[Any]:
    return [each for each in program.leftovers if each.primitive == "scan"]


def test_weights_leave_a_loop_that_would_take_longer_with_them() -> None:
    """What is left in it is modelled below XLA's launches, of which there are six in a step."""
    program = planned("lstm", 64, 128, F32, False)
    (kernel,) = program.kernels
    assert [each.primitive for each in program.leftovers] == ["dot_general"]
    assert "w_ptr" not in kernel.source
    (whole,) = [loop for loop in cycles_of(kernel, target_named("sm_90")).loops if not loop.depth]
    assert whole.cycles / (1000 * DEFAULT_POLICY.target.clock) < 6 * DEFAULT_POLICY.loops.graph_launch_us
    assert "what no step waits for is multiplied outside of the loops" in program.explain(why=True)


@pytest.mark.parametrize(("network", "hidden"), [("rnn", 64), ("gru", 32)])
def test_what_no_step_waits_for_is_multiplied_at_once(network: str, hidden: int) -> None:
    """Before the loop what it reads is multiplied, and after that of the gradient what it writes."""
    (forward,) = planned(network, 64, hidden, F32, False).kernels
    assert "w_ptr" not in forward.source
    stays = j2t.transpile(states(network), *shapes(network, STEPS, 64, hidden, F32), for_target="sm_90", strict=True)
    (strict,) = stays.kernels
    assert "w_ptr" in strict.source and not stays.leftovers
    quicker, slower = (cycles_of(kernel, target_named("sm_90")).whole for kernel in (forward, strict))
    assert quicker is not None and slower is not None and quicker < 0.75 * slower
    gradient = planned(network, 64, hidden, F32, True)
    assert [each.primitive for each in gradient.leftovers] == ["dot_general"] * 4
    assert not any("w_ptr" in kernel.source for kernel in gradient.kernels)
    said = r"what no step waits for takes about [\d.]+ µs of a loop to multiply, and about [\d.]+ µs all at once"
    assert re.search(said, " ".join(gradient.explain(why=True).split()))


@pytest.mark.parametrize(("steps", "dtype"), [(16, F32), (STEPS, BF16)])
def test_products_stay_in_loops_that_take_no_longer_with_them(steps: int, dtype: Any) -> None:
    """As those of few steps, and those that units for matrices make."""
    program = j2t.transpile(states("rnn"), *shapes("rnn", steps, 64, 64, dtype), for_target="sm_90")
    (kernel,) = program.kernels
    assert "w_ptr" in kernel.source and not program.leftovers


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("network", ["rnn", "gru"])
def test_values_of_what_is_multiplied_at_once(network: str, backend: str) -> None:
    specs = shapes(network, 128, 2, 64, F32)
    for fn, products in ((states(network), 1), (loss(network), 4)):
        assert [each.primitive for each in j2t.transpile(fn, *specs).leftovers] == ["dot_general"] * products
        args = jax.tree.map(lambda each: each / 3, drawn(specs))  # of larger weights a network is chaotic
        with jax.default_matmul_precision("highest"):
            expected, found = jax.jit(fn)(*args), j2t.fuse(fn, backend=backend)(*args)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * max(1e-2, np.abs(other).max()))


@pytest.mark.parametrize("gradient", [False, True])
def test_a_loop_of_many_rows_is_left_with_both_estimates(gradient: bool) -> None:
    """Each of 1024 programs would read 256 KB in every step."""
    left = loops_left(planned("lstm", 1024, 128, F32, gradient))
    assert len(left) == 1 + gradient
    for each in left:
        found = WHY.search(each.why)
        assert found is not None
        ours, others = (float(number.replace(",", "")) for number in found.groups())
        assert ours > DEFAULT_POLICY.loops.longer * others
        assert each.takes == 'contractions="triton" makes a kernel of it'
    assert not planned("lstm", 1024, 128, F32, gradient, "triton").leftovers


@pytest.mark.parametrize(
    ("network", "batch", "hidden", "dtype"),
    [("rnn", 1024, 128, F32), ("gru", 64, 32, F32), ("lstm", 64, 128, BF16), ("lstm", 1024, 64, BF16)],
)
def test_what_a_program_holds_is_a_kernel(network: str, batch: int, hidden: int, dtype: Any) -> None:
    assert not loops_left(planned(network, batch, hidden, dtype, True))


@pytest.mark.parametrize("network", ["gru", "lstm"])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_large_networks_stay_with_xla(network: str, dtype: Any) -> None:
    (left,) = loops_left(planned(network, 64, 256, dtype, False))
    assert "one program cannot hold" in left.why or WHY.search(left.why)


def test_a_loop_with_programs_for_all_processors_is_a_kernel() -> None:
    """A hundred sums in a step are as many launches of XLA's, and nothing is multiplied."""

    def smoothed(x: Any) -> Any:
        return lax.fori_loop(0, 100, lambda _, c: jnp.tanh(c - c.mean(-1, keepdims=True)), x)

    made = j2t.transpile(smoothed, jax.ShapeDtypeStruct((5000, 512), F32))
    assert len(made.kernels) == 1 and not made.leftovers


def test_a_while_is_weighed_by_its_steps() -> None:
    """How many there are is not known."""

    def settled(u: Any, h: Any) -> Any:
        return lax.while_loop(lambda h: jnp.any(h > 0.5), lambda h: jnp.tanh(h @ u) * 0.5, h)

    u, h = (jax.ShapeDtypeStruct(shape, F32) for shape in ((384, 384), (4096, 384)))
    (left,) = j2t.transpile(jax.vmap(settled, (None, 0)), u, h).leftovers
    said = (
        r"a kernel of 4,096 programs takes about [\d,]+ µs for 2 steps, if each `while` has 2, and XLA about [\d.]+ µs"
    )
    assert re.search(said, left.why)


@pytest.mark.parametrize("gradient", [False, True])
def test_values_of_a_loop_that_is_left(gradient: bool) -> None:
    """With many rows of few numbers, of which a program reads the matrix again, as it has no room for it."""
    fn = (loss if gradient else states)("gru")
    specs = shapes("gru", 3, 600, 160, F32)
    rng = np.random.default_rng(0)
    args = jax.tree.map(lambda each: jnp.asarray(rng.standard_normal(each.shape) / 8, each.dtype), specs)
    assert loops_left(j2t.transpile(fn, *args))
    with jax.default_matmul_precision("highest"):
        expected, found = jax.jit(fn)(*args), j2t.fuse(fn, backend="interpret")(*args)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def bodies(x: Any, v: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        x, v = carry
        away = x[None, :, :] - x[:, None, :]
        pull = (away * lax.rsqrt((away**2).sum(-1, keepdims=True) + 1e-2) ** 3).sum(1)
        return (x + 1e-3 * v, v + 1e-3 * pull), None

    return lax.scan(step, (x, v), None, 100)[0]


WHY_ALONE = re.compile(
    r"a kernel of one program takes about ([\d,]+) µs for 100 steps and XLA about ([\d,]+) µs for 600 launches on all "
    r"processors"
)


def test_what_one_program_computes_for_long_is_shared_out() -> None:
    """On an H100 the kernel of one program took 14 times as long for 1,024 bodies as `jax.jit`."""
    many = [jax.ShapeDtypeStruct((1024, 3), F32)] * 2
    program = j2t.transpile(bodies, *many, for_target="sm_90")
    (kernel,) = program.kernels
    assert kernel.meets and kernel.grid == (128, 1, 1)
    (first,) = program.compiled.rounds
    assert isinstance(first.obstacle, Spread)
    found = WHY_ALONE.fullmatch(str(first.obstacle.why))
    assert found is not None
    ours, other = (float(number.replace(",", "")) for number in found.groups())
    assert ours > 8 * other and 0.75 < other / 1127 < 1.5  # as measured on an H100
    assert not program.compiled.decisions.apart  # there is nothing to multiply
    assert not j2t.transpile(bodies, *many, for_target="sm_90", contractions="triton").leftovers


def test_what_one_program_computes_soon_is_a_kernel() -> None:
    program = j2t.transpile(bodies, *[jax.ShapeDtypeStruct((64, 3), F32)] * 2, for_target="sm_90")
    assert not program.leftovers and len(program.kernels) == 1


def test_a_step_that_is_a_tile_of_many_is_as_many_launches() -> None:
    """Where launches cost nothing, what one program computes is XLA's."""

    def decayed(xs: Any) -> Any:
        return lax.scan(lambda c, x: (0.9 * c + x, c), jnp.float32(0), xs)

    free = {"loops": {"graph_launch_us": 0.0, "asking": 0.0}, "products": {"launch_after_gap_us": 0.0}}
    with planned_with(**free):
        few = j2t.transpile(bodies, *[jax.ShapeDtypeStruct((64, 3), F32)] * 2, for_target="sm_90")
    assert loops_left(few)
    tiles = j2t.transpile(decayed, jax.ShapeDtypeStruct((4096,), F32), for_target="sm_90")
    assert not tiles.leftovers and "tl.associative_scan(" in tiles.kernels[0].source
    (loop,) = [eqn for eqn in tiles.compiled.stages["normalize"].jaxpr.eqns if eqn.primitive.name == "scan"]
    taken = time_of_loop(loop, DEFAULT_POLICY)
    assert taken.launches >= loop.params["length"] * 2 * (4096 // loop.params["length"]).bit_length()


def test_a_loop_that_does_not_multiply_is_weighed_on_all_processors() -> None:
    """32 programs of 132 processors take twice as long as XLA for large lattices, and not for small ones."""

    def planned_for(size: int) -> Any:
        spins, inverse = jax.ShapeDtypeStruct((32, size, size), F32), jax.ShapeDtypeStruct((32,), F32)
        key = jax.eval_shape(lambda: jax.random.key(0))
        return j2t.transpile(ising(100), spins, inverse, key, for_target="sm_90")

    (left,) = loops_left(planned_for(128))
    said = (
        r"a kernel of 32 programs takes about ([\d,]+) µs for 100 steps and XLA about ([\d,]+) µs for \d+ launches on "
    )
    found = re.fullmatch(said + "all processors; spread over processors, programs cannot hold their parts .*", left.why)
    assert found is not None
    ours, other = (float(number.replace(",", "")) for number in found.groups())
    assert ours > DEFAULT_POLICY.loops.longer * other
    assert not loops_left(planned_for(16))


def test_a_network_and_its_gradients_have_programs_enough() -> None:
    """Nothing that its loops keep is summed over all rows, which one program would have to hold."""
    (rnn,) = [each for each in PROGRAMS if each.name == "rnn"]
    sizes = jax.eval_shape(lambda: rnn.bench_args(np.random.default_rng(0)))
    made = j2t.transpile(both(rnn.bench_fn, rnn.grad), *sizes, for_target="sm_90")
    assert not loops_left(made)
    assert [kernel.grid[0] for kernel in made.kernels if kernel.choice is not None] == [64, 64]
    assert "keeping what a loop makes would take programs away" not in " ".join(made.explain(why=True).split())


def grid_of(steps: int) -> Any:
    """Launches of a step that are too few for a CUDA graph."""

    def heated(u: Any) -> Any:
        return lax.scan(lambda u, _: (u + 0.2 * (jnp.roll(u, 1, 0) - u), None), u, None, length=steps)[0]

    return jax.make_jaxpr(heated)(jax.ShapeDtypeStruct((512, 512), F32))


def test_launches_that_are_no_graph_take_longer() -> None:
    """8,097 µs of 500 steps as measured on an H100: a fusion, and what counts the steps."""
    taken = time_of_xla(grid_of(500), DEFAULT_POLICY)
    assert taken.launches == 2000 and not taken.pending
    assert taken.launching == 2000 * DEFAULT_POLICY.products.launch_after_gap_us
    assert 0.8 < taken.microseconds / 8097 < 1.25


def test_a_sum_reads_what_leads_to_it() -> None:
    """Twice for a softmax of long rows: the maximum, the sum of exponentials, and what is put out."""
    rows = jax.ShapeDtypeStruct((64, 1_000_000), F32)
    taken = time_of_xla(jax.make_jaxpr(jax.nn.softmax)(rows), DEFAULT_POLICY)
    moved = 64_000_000 * 4 * (3 + 1) / DEFAULT_POLICY.target.memory_rate / 1000
    assert moved < taken.working < 1.25 * moved


def test_steps_are_kernels_where_those_take_less_time() -> None:
    """One launch in place of six sums; not on a device where one program reads as slowly as no device does."""
    fn, shapes = program("steps of sums")
    (left,) = loops_left(j2t.transpile(fn, *shapes))
    assert left.step is not None and [kernel.grid for kernel in left.step.kernels] == [(1, 1, 1)]
    with planned_with(cost={"cached_for_one": 1e-3}):
        (other,) = loops_left(j2t.transpile(fn, *shapes))
    assert other.step is None


def test_a_kernel_reads_no_more_of_a_table_than_it_looks_up() -> None:
    def program(x: Any, table: Any, tokens: Any) -> Any:
        return jax.lax.scan(lambda h, token: (jnp.sin(h) + table[token], h), x, tokens)[1]

    args = (jax.ShapeDtypeStruct(size, F32) for size in ((1024,), (1 << 20, 1024)))
    assert not j2t.transpile(program, *args, jax.ShapeDtypeStruct((9,), np.int32), for_target="sm_90").leftovers


def test_a_write_in_place_takes_no_longer_than_what_is_written() -> None:
    def program(cache: Any, row: Any, i: Any) -> Any:
        return lax.dynamic_update_slice(cache, row, (0, i, 0))

    sizes = (jax.ShapeDtypeStruct(size, F32) for size in ((8, 4096, 512), (8, 1, 512)))
    made = j2t.transpile(program, *sizes, jax.ShapeDtypeStruct((), np.int32), for_target="sm_90")
    assert [each.primitive for each in made.leftovers] == ["dynamic_update_slice"]
    assert made.compiled.taken.working < 1  # and 45 µs for the array
