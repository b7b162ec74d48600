"""Matrices that are held in part, while the rest is read in every step."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.launch.cycles.model import cycles_of
from tests.emit.test_compiling import SM_90
from tests.policies import planned_with
from tests.test_recurrent import NETWORKS, drawn, loss, shapes, states

ALL_HELD, FEW_HELD, NONE_HELD = 400, 80, 40


@contextlib.contextmanager
def room(registers: int, resident: int = 128) -> Iterator[None]:
    """What fits into no program is walked through in pieces of 64 numbers; a thread has so many registers."""
    blocks, cost = {"resident": resident}, {"room_of_a_thread": registers}
    with planned_with(loops={"kept_by_program": 64}, blocks=blocks, cost=cost):
        yield


def in_a_while(network: str) -> Callable[..., Any]:
    """As many steps as a lane likes."""

    def steps(weights: Any, xs: Any, h: Any) -> Any:
        def step(carry: Any) -> Any:
            n, h = carry
            return n + 1, jnp.tanh(h @ weights["u"][:, : h.shape[-1]] + xs[0])

        return lax.while_loop(lambda carry: carry[0] < 3, step, (0, h))[1]

    return steps


def in_a_loop(network: str) -> Callable[..., Any]:
    """A loop of steps in the step of another."""

    def steps(weights: Any, xs: Any, h: Any) -> Any:
        def several(h: Any, x: Any) -> Any:
            return lax.scan(lambda h, _: (jnp.tanh(h @ weights["u"][:, : h.shape[-1]] + x),) * 2, h, None, length=3)

        return lax.scan(several, h, xs)

    return steps


MADE = {"states": states, "loss": loss, "in a while": in_a_while, "in a loop": in_a_loop}


def holds(kernel: Any) -> bool:
    return re.search(r"_held(_\d+)? = ", kernel.source) is not None


def close(found: Any, wanted: Any, tolerance: float) -> None:
    for mine, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        mine, other = (np.asarray(each, np.float64) for each in (mine, other))
        np.testing.assert_allclose(mine, other, rtol=0, atol=tolerance * max(1e-2, np.abs(other).max()))


@pytest.mark.parametrize("registers", [ALL_HELD, FEW_HELD, NONE_HELD])
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("network", NETWORKS)
def test_values(network: str, made: str, registers: int) -> None:
    """Of 13 numbers, the last piece has one."""
    fn, args = MADE[made](network), drawn(shapes(network, 4, 3, 13, jnp.float32))
    with room(registers), jax.default_matmul_precision("highest"):
        program = j2t.transpile(fn, *args, contractions="triton")
        close(program(*args), jax.jit(fn)(*args), 1e-5)
    assert not program.leftovers
    assert any(map(holds, program.kernels)) == (registers != NONE_HELD)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.bfloat16], ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("made", [states, loss])
def test_values_of_other_widths(made: Callable[[str], Any], dtype: Any) -> None:
    """Three rows are too few for units that multiply matrices; a loss is in f32."""
    tolerance = 4e-2 if dtype == jnp.bfloat16 else 1e-10 if made is states else 1e-6
    is_wide = dtype == jnp.float64  # whose numbers take twice the room
    with jax.enable_x64(is_wide), room(ALL_HELD, 256) if is_wide else room(FEW_HELD):
        args = drawn(shapes("gru", 4, 3, 13, dtype))
        program = j2t.transpile(made("gru"), *args, contractions="triton")
        assert any(map(holds, program.kernels))
        widened = jax.tree.map(lambda each: each.astype(jnp.promote_types(dtype, jnp.float32)), args)
        close(program(*args), jax.jit(made("gru"))(*widened), tolerance)


@pytest.mark.parametrize("made", [states, loss])
def test_values_of_what_is_compiled(made: Callable[[str], Any]) -> None:
    args = drawn(shapes("lstm", 4, 2, 12, jnp.float32))
    with room(FEW_HELD), jax.default_matmul_precision("highest"):
        fused = j2t.fuse(made("lstm"), backend="machine", contractions="triton", strict=True)
        close(fused(*args), jax.jit(made("lstm"))(*args), 1e-5)


def loops(program: Any) -> Iterator[Any]:
    return (kernel for kernel in program.kernels if kernel.choice is not None)


@pytest.mark.parametrize(("network", "hidden"), [("lstm", 128), ("gru", 128), ("rnn", 256)])
def test_half_of_a_matrix_is_read_again(network: str, hidden: int) -> None:
    """Which keeps the way to the cache busy for half of the time."""
    args = shapes(network, 512, 64, hidden, jnp.float32)
    (kernel,) = loops(j2t.transpile(states(network), *args, for_target="sm_90"))
    with planned_with(cost={"kept_beside": 255}):
        (other,) = loops(j2t.transpile(states(network), *args))
    assert holds(kernel) and not holds(other)
    mine, slower = cycles_of(kernel, SM_90), cycles_of(other, SM_90)
    assert mine.spills == 0 and mine.whole is not None and slower.whole is not None
    assert mine.whole < 0.75 * slower.whole


@pytest.mark.parametrize(("network", "hidden"), [("lstm", 128), ("gru", 128), ("rnn", 256)])
def test_gradients_spill_nothing(network: str, hidden: int) -> None:
    """Where lanes meet for each piece, little is held."""
    found = [*loops(j2t.transpile(loss(network), *shapes(network, 512, 64, hidden, jnp.float32), for_target="sm_90"))]
    assert found and all(map(holds, found))
    assert [cycles_of(kernel, SM_90).spills for kernel in found] == [0] * len(found)


def test_how_a_matrix_is_held() -> None:
    """Four pieces of eight, as many as there are registers for; the others are neighbours in the text."""
    (kernel,) = loops(j2t.transpile(states("lstm"), *shapes("lstm", 512, 64, 128, jnp.float32), for_target="sm_90"))
    before, step = kernel.source.split("for t in range(512):")
    assert len(re.findall(r"tl\.load\(args_0_u_ptr", before)) == 4
    assert "for piece in tl.static_range(4):" in step and "for k1_start in range(64, 128, 16):" in step
