"""Convolutions and pools at full size: the kernels they become, what those move and take, and XLA's launches.

    python -m bench.windows
    python -m bench.windows lenet
    python -m bench.windows --markdown bench/results/windows-sm_90.md

No GPU is needed: kernels are compiled for sm_90 and assembled, never run; their time is modelled (`bench/cycles.py`).
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpr2triton as j2t
from bench.loops import markdown_rows
from jaxpr2triton.hardware import DEFAULT_TARGET
from jaxpr2triton.launch.compile.compile import compile_kernel, resources
from jaxpr2triton.launch.cycles.model import cycles_of
from jaxpr2triton.report.table import table
from tests.window_programs import layer, lenet, parameters_of_lenet, residual, separable

HEADER = ["program", "pass", "kernels", "MB moved", "MB at least", "MB of XLA", "µs", "XLA's launches", "left"]
HEADER += ["registers", "spills"]
LAUNCH = 1.5  # µs


def shaped(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def block(layout: str, *kernels: tuple[int, ...]) -> tuple[Any, ...]:
    """32 images of 56 by 56 and 64 channels, and for each convolution its kernel and its statistics."""
    sizes = (32, 56, 56, 64) if layout == "NHWC" else (32, 64, 56, 56)
    found: list[Any] = [shaped(*sizes, dtype=jnp.bfloat16)]
    for kernel in kernels:
        found += [shaped(*kernel, dtype=jnp.bfloat16), (shaped(kernel[-1], dtype=jnp.bfloat16),) * 4]
    return tuple(found)


def squared(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: jnp.sum(jnp.square(fn(*args).astype(jnp.float32)))


LENET = jax.tree.map(lambda x: shaped(*x.shape), parameters_of_lenet(np.random.default_rng(0)))
THREES = ((3, 3, 64, 64), (3, 3, 64, 64))
SEPARABLE = ((3, 3, 1, 64), (1, 1, 64, 128))
PROGRAMS: Sequence[tuple[str, Callable[..., Any], tuple[Any, ...]]] = (
    ("lenet, 128 images", lenet, (LENET, shaped(128, 28, 28, 1))),
    *(
        (f"layer, {batch} images", layer, (shaped(batch, 28, 28, 1), shaped(5, 5, 1, 16), shaped(16)))
        for batch in (100, 1000)
    ),
    *((f"residual {layout}", residual(layout), block(layout, *THREES)) for layout in ("NHWC", "NCHW")),
    *((f"separable {layout}", separable(layout), block(layout, *SEPARABLE)) for layout in ("NHWC", "NCHW")),
)


def everything() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Each program, and each with the gradients of all that it is of."""
    for name, function, sizes in PROGRAMS:
        loss = function if function is lenet else squared(function)
        yield f"{name}: forward", function, sizes
        yield f"{name}: with gradients", jax.value_and_grad(loss, tuple(range(len(sizes)))), sizes


def rows(names: Sequence[str]) -> Iterator[list[object]]:
    for title, fn, sizes in everything():
        if not names or any(title.startswith(each) for each in names):
            yield row(*title.split(": "), fn, sizes)


def row(name: str, how: str, fn: Callable[..., Any], sizes: tuple[Any, ...]) -> list[object]:
    made = j2t.transpile(fn, *sizes, contractions="triton", for_target=DEFAULT_TARGET.name)
    taken = [resources(compile_kernel(kernel, DEFAULT_TARGET)) for kernel in made.kernels]
    times = [cycles_of(kernel, DEFAULT_TARGET).microseconds for kernel in made.kernels]
    moved = sum(kernel.bytes_read + kernel.bytes_written for kernel in made.kernels)
    arrays = jax.tree.leaves((sizes, jax.eval_shape(fn, *sizes)))
    least = sum(leaf.size * leaf.dtype.itemsize for leaf in arrays)
    return [
        name,
        how,
        len(made.kernels),
        f"{moved / 1e6:.1f}",
        f"{least / 1e6:.1f}",
        f"{bytes_of_xla(fn, sizes) / 1e6:.1f}",
        "?" if None in times else f"{sum(time + LAUNCH for time in times if time is not None):.0f}",
        made.summary.alone.in_all,
        len(made.leftovers),
        max(each.registers for each in taken),
        sum(each.spill_stores for each in taken),
    ]


def bytes_of_xla(fn: Callable[..., Any], sizes: tuple[Any, ...]) -> float:
    """What XLA says that its program for this machine's CPU accesses."""
    found: float = jax.jit(fn).lower(*sizes).compile().cost_analysis()["bytes accessed"]
    return found


def page(found: Sequence[Sequence[object]]) -> str:
    today = datetime.date.today().isoformat()
    versions = f"jax {jax.__version__}, triton {version('triton')}, Python {platform.python_version()}"
    lines = [
        "# Convolutions and pools as kernels",
        "",
        f"{today}, {versions}; compiled for sm_90, without a device.",
        "Blocks are of 32 images of 56 by 56, in bf16, with 64 channels; gradients are those of all arguments.",
        f"Times are modelled (`bench/cycles.py`), with {LAUNCH} µs for each launch; neighbours that windows share",
        "count once in `MB moved`, as they come from a cache. XLA's launches are those that `explain` estimates.",
        "`MB of XLA` is what XLA says that its program for a CPU accesses, which fuses otherwise than one for a GPU.",
        "To make it again: `python -m bench.windows --markdown bench/results/windows-sm_90.md`.",
        "",
        *(f"| {' | '.join(words)} |" for words in markdown_rows(HEADER, found)),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only programs whose names begin so")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    options = parser.parse_args(arguments)
    found = list(rows(options.names))
    print(table(HEADER, found))
    if options.markdown:
        options.markdown.write_text(page(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
