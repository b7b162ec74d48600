"""A library's solver beside the same one written by hand: kernels, and the modelled cycles of their steps.

    python -m bench.by_hand                                      # needs what the extra `gallery` installs
    python -m bench.by_hand --markdown bench/results/by-hand.md

Both solve the Lorenz system for 1,024 trajectories, by Tsit5 with a controller of the size of the steps. By hand that
is `vmap` of one `lax.while_loop`, with its stages written out one after the other. No GPU is needed: kernels are
compiled for sm_90 and disassembled, never run (`jaxpr2triton/launch/cycles/`).
"""

from __future__ import annotations

import argparse
import datetime
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpr2triton as j2t
from bench.loops import markdown_rows
from bench.planning import beside_jax
from examples.libraries.diffrax_odes import adaptive_ensemble, lorenz
from jaxpr2triton.hardware import DEFAULT_TARGET
from jaxpr2triton.ir.cycles import LoopCycles
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.cycles.model import cycles_of
from jaxpr2triton.report.cycles import shown_shares
from jaxpr2triton.report.table import table

HEADER = ["solver", "kernel", "programs x warps", "cycles of a step", "beside by hand", "bound by"]
A = (
    (161 / 1000,),
    (-0.008480655492356989, 0.335480655492357),
    (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
    (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
    (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
    (
        0.09646076681806523,
        0.01,
        0.4798896504144996,
        1.379008574103742,
        -3.290069515436081,
        2.324710524099774,
    ),
)
ERROR = (
    0.00178001105222577714,
    0.0008164344596567469,
    -0.007880878010261995,
    0.1447110071732629,
    -0.5823571654525552,
    0.45808210592918697,
    -1 / 66,
)


def written_by_hand(y0: jax.Array, parameters: jax.Array) -> jax.Array:
    """What `adaptive_ensemble` computes, without a library."""
    return jax.vmap(lambda y: _solve(y, parameters))(y0)


SOLVERS: Mapping[str, Callable[..., Any]] = {"by hand": written_by_hand, "diffrax": adaptive_ensemble}


def _solve(y0: jax.Array, parameters: jax.Array) -> jax.Array:
    def right(y: jax.Array) -> jax.Array:
        return lorenz(jnp.zeros(()), y, parameters)

    def step(state: Any) -> Any:
        t, end, y, f, steps = state
        dt = end - t
        slopes = [dt * f]
        for row in A:
            new = y + sum(a * k for a, k in zip(row, slopes))
            f_new = right(new)
            slopes.append(dt * f_new)
        wrong = sum(e * k for e, k in zip(ERROR, slopes))
        wrong = jnp.where(jnp.isnan(wrong), jnp.inf, wrong)
        scaled = wrong / (1e-6 + jnp.maximum(jnp.abs(y), jnp.abs(new)) * 1e-4)
        norm = jnp.sqrt(jnp.mean(scaled**2))
        kept = norm < 1
        factor = jnp.clip(0.9 * (1 / norm) ** 0.2, jnp.where(kept, 1.0, 0.2), jnp.where(kept, 10.0, 0.9))
        t_new = jnp.minimum(jnp.where(kept, end, t), 1.0)
        end_new = t_new + dt * factor
        clipped = jnp.where(kept, 1.0, t_new + 0.5 * (1.0 - t_new))
        end_new = jnp.where(end_new > 1.0 - 6e-6, clipped, end_new)
        return t_new, end_new, jnp.where(kept, new, y), jnp.where(kept, f_new, f), steps + 1

    start = jnp.float32(0), jnp.float32(0.01), y0, right(y0), 0
    return jax.lax.while_loop(lambda state: (state[0] < 1.0) & (state[-1] < 4096), step, start)[2]


def steps_of(function: Callable[..., Any], args: Sequence[Any]) -> list[tuple[Kernel, LoopCycles]]:
    """The kernels with a loop, and what a step of it takes; a loop in a step would not be counted, so there is none."""
    found = []
    for kernel in j2t.transpile(function, *args).kernels:
        cycles = cycles_of(kernel, DEFAULT_TARGET)
        if cycles.loops:
            (loop,) = cycles.loops
            found.append((kernel, loop))
    return found


def rows(args: Sequence[Any]) -> list[list[object]]:
    found = {solver: steps_of(function, args) for solver, function in SOLVERS.items()}
    ((_, usual),) = found["by hand"]
    return [
        [
            solver,
            kernel.name,
            f"{math.prod(kernel.grid):,} x {kernel.num_warps}",
            f"{loop.cycles:,.0f}",
            f"{loop.cycles / usual.cycles:.2f}",
            shown_shares(loop.shares),
        ]
        for solver, steps in found.items()
        for kernel, loop in steps
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.by_hand", description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", type=Path, help="write the table as a page")
    asked = parser.parse_args(arguments)
    args = jax.random.normal(jax.random.key(0), (1024, 3)), jnp.array([10.0, 28.0, 8 / 3])
    *_, seconds = beside_jax(adaptive_ensemble, args)
    planned = (
        f"To plan diffrax's takes {seconds['plan']:.1f} s of a processor's time; JAX traces, lowers and compiles it in"
        f" {seconds['jax']:.1f} s."
    )
    ours, theirs = (np.asarray(jax.jit(function)(*args)) for function in SOLVERS.values())
    far = f"The two answers are {np.abs(ours - theirs).max():.0e} apart, of numbers up to {np.abs(ours).max():.0f}."
    found = rows(args)
    if asked.markdown is None:
        print(table(HEADER, found))
        print(far)
        print(planned)
        return
    versions = ", ".join(f"{name} {version(name)}" for name in ("jax", "triton", "diffrax"))
    lines = [
        "# A library's solver beside one written by hand",
        "",
        f"{datetime.date.today()}, {versions}, Python {platform.python_version()}.",
        "Modelled for sm_90, without a device.",
        "To make it again: `python -m bench.by_hand --markdown bench/results/by-hand.md`; `bench/by_hand.py` says what",
        "is compared.",
        "",
        *(f"| {' | '.join(row)} |" for row in markdown_rows(HEADER, found)),
        "",
        "The first of diffrax's two goes on only until each trajectory has had its first step accepted, one or two",
        "steps as a rule: as long as there is one that has not, diffrax computes the first stage of all of them anew.",
        far,
        planned,
        "",
    ]
    asked.markdown.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
