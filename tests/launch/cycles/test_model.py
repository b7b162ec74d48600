"""Cycles of compiled kernels: what the model must agree with, whatever the figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxpr2triton as j2t
from bench.loops import works
from jaxpr2triton.errors import BackendError, UserError
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.cycles import Cycles
from jaxpr2triton.launch.compile import nvidia_tools
from jaxpr2triton.launch.cycles.model import cycles_of, cycles_of_all
from tests.compiling import kernels_of

SM_90 = TARGETS["sm_90"]


def modelled(
    function: Callable[..., Any], *shapes: tuple[int, ...], target: str = "sm_90", dtype: Any = jnp.float32
) -> Cycles:
    args = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    (kernel,) = j2t.transpile(function, *args, for_target=target).kernels
    return cycles_of(kernel, TARGETS[target])


def chain(operations: int, steps: int) -> Callable[[Any], Any]:
    """As many products and sums in each step as asked for, each of the one before."""

    def step(x: Any, _: None) -> tuple[Any, None]:
        for _ in range(operations):
            x = x * x + 0.1
        return x, None

    return lambda x: lax.scan(step, x, None, length=steps)[0]


def full_size(name: str) -> Cycles:
    (work,) = [work for work in works([name], False) if work.program.name == name]
    with work.program.precision():
        (kernel,) = j2t.transpile(work.function(), *work.arguments()).kernels
        return cycles_of(kernel, SM_90)


pytestmark = pytest.mark.compile


def test_more_operations_take_more_cycles() -> None:
    few, many = (modelled(chain(count, 1000), (32,)).loops[0] for count in (8, 32))
    assert (few.name, few.steps, few.bound) == ("t", 1000, "dependent arithmetic")
    assert 3.5 < many.cycles / few.cycles < 4.5
    assert few.cycles == pytest.approx(8 * 4, rel=0.2), "a product and sum takes four cycles until it is there"


def test_more_steps_take_as_much_more() -> None:
    once, twice = (modelled(chain(8, steps), (32,)).whole for steps in (1000, 2000))
    assert once and twice and twice / once == pytest.approx(2, rel=0.05)


def test_more_warps_share_schedulers() -> None:
    few, many = (modelled(chain(64, 1000), (elements,)) for elements in (1024, 2_000_000))
    assert few.bound == "dependent arithmetic" and many.bound in ("issue", "FMA pipe")
    assert many.loops[0].cycles > 4 * few.loops[0].cycles
    assert many.loops[0].alone == pytest.approx(few.loops[0].alone, rel=0.2)


def test_a100_computes_with_half_the_lanes() -> None:
    newer, older = (modelled(chain(64, 1000), (2_000_000,), target=name).loops[0] for name in ("sm_90", "sm_80"))
    assert older.bound == "FMA pipe" and 1.8 < older.cycles / newer.cycles < 2.8


def test_a_load_in_the_loop_costs_its_latency() -> None:
    """The next one waits for it, since it says where that is."""

    def chased(places: Any, first: Any) -> Any:
        return lax.scan(lambda at, _: (places[at], None), first, None, length=5000)[0]

    def counted(places: Any, first: Any) -> Any:
        return lax.scan(lambda at, _: (at * at + 1, None), first, None, length=5000)[0]

    of_many = [jax.vmap(each, (None, 0)) for each in (chased, counted)]
    inside, before = (modelled(each, (5000,), (32,), dtype=jnp.int32) for each in of_many)
    assert inside.loops[0].cycles > before.loops[0].cycles + 50
    assert inside.bound == "loads (L2)" and inside.trust == "±40 %"
    assert inside.loops[0].from_memory > 1.5 * inside.loops[0].cycles


def test_loads_at_known_places_are_under_way() -> None:
    def steps(x: Any, xs: Any) -> Any:
        return lax.scan(lambda c, x: (c * c + x, c), x, xs)

    assert modelled(steps, (32,), (5000, 32)).loops[0].from_memory < 100


def test_many_bytes_take_their_time() -> None:
    found = modelled(jnp.negative, (1 << 24,))
    assert found.bound == "bytes" and found.whole == found.bytes_alone
    assert found.microseconds == pytest.approx(2 * 4 * 2**24 / 3000 / 1000, rel=0.01)


def test_a_loop_that_the_device_ends_has_no_whole() -> None:
    def halved(x: Any) -> Any:
        return lax.while_loop(lambda s: s.sum() > 1.0, lambda s: s * 0.5, x)

    found = modelled(halved, (32,))
    assert (found.whole, found.microseconds) == (None, None)
    assert [(loop.name, loop.steps) for loop in found.loops] == [("while", None)] and found.loops[0].cycles > 100


def test_what_a_sweep_has_for_rare_cases_is_not_taken() -> None:
    """A tile that is not finite goes step by step: the loop is there, and has no step."""

    def filtered(gains: Any, signal: Any) -> Any:
        return lax.scan(lambda y, now: ((now[0] * y + now[1],) * 2), 0.0, (gains, signal))[1]

    cycles = modelled(filtered, (4096,), (4096,))
    (rare,) = (loop for loop in cycles.loops if loop.name == "while")
    assert rare.steps == 0 and rare.cycles > 0 and cycles.whole is not None
    (tiles,) = (loop for loop in cycles.loops if not loop.depth)
    assert tiles.steps is not None and cycles.whole < 2 * tiles.cycles * tiles.steps


def test_a_slow_sine_is_not_taken() -> None:
    """Large arguments need a table in local memory, and a loop over it."""
    found = modelled(lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=100)[0], (32,))
    assert found.jumped_over and [loop.name for loop in found.loops] == ["t"]
    assert found.loops[0].cycles < 400


# Cycles a step in the model that this one was made after, and in versions of Triton that write other code.
@pytest.mark.parametrize(
    ("name", "low", "high"), [("noisy_chain", 550, 1000), ("lorenz_rk4", 250, 300), ("rnn", 200, 1000)]
)
def test_known_loops(name: str, low: int, high: int) -> None:
    (loop,) = full_size(name).loops
    assert low < loop.cycles < high
    assert loop.steps == {"noisy_chain": 8000, "lorenz_rk4": 1000, "rnn": 512}[name]


SAMPLES = ("kepler", "lstm", "rnn_bf16", "thomas", "value_iteration")


@pytest.mark.parametrize("target", ["sm_90", "sm_80"])
@pytest.mark.parametrize("name", SAMPLES)
def test_every_kernel_has_figures(name: str, target: str) -> None:
    for kernel in kernels_of(name)[:1]:
        found = cycles_of(kernel, TARGETS[target])
        assert (found.whole is None) == any(loop.steps is None for loop in found.loops)
        assert found.bound and found.trust and found.registers
        for loop in found.loops:
            assert loop.name != "a loop" and loop.alone > 0 and loop.cycles <= loop.from_memory * 1.001
            assert sum(each.cycles for each in loop.shares) == pytest.approx(loop.cycles)


def test_other_targets_are_refused() -> None:
    with pytest.raises(UserError, match="cycles are not modelled for gfx942"):
        cycles_of_all((), TARGETS["gfx942"])


def test_a_missing_disassembler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (kernel,) = j2t.transpile(jnp.negative, jax.ShapeDtypeStruct((32,), jnp.float32)).kernels
    cycles_of(kernel, SM_90)
    path = nvidia_tools._tool("cuobjdump")
    monkeypatch.setattr(nvidia_tools.Path, "exists", lambda self: str(self) != path)
    with pytest.raises(BackendError, match="does not bring cuobjdump along"):
        cycles_of(kernel, SM_90)


def test_results_are_values() -> None:
    found = modelled(chain(2, 10), (32,))
    assert dataclasses.is_dataclass(found) and hash(found) == hash(dataclasses.replace(found))
