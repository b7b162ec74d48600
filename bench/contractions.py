"""Contractions at full size: the kernels they become, what those move and take of the device, and XLA's launches.

    python -m bench.contractions
    python -m bench.contractions --markdown bench/results/contractions-sm_90.md

No GPU is needed: kernels are compiled for sm_90 and assembled, never run.
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

import jaxpr2triton as j2t
from bench.loops import markdown_rows
from examples import contractions
from jaxpr2triton.hardware import DEFAULT_TARGET
from jaxpr2triton.launch.compile.compile import compile_kernel, resources
from jaxpr2triton.report.table import table
from tests.contraction_programs import linear, mean_square, rms_norm, swiglu

HEADER = ["program", "pass", "kernels", "MB moved", "MB at least", "XLA's launches", "left", "registers", "spills"]
Size = tuple[Any, ...]


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def bf16(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


LAYERS = ((f32(784, 32), f32(32), f32(32, 10), f32(10)), f32(1024, 784))
POINTS = (f32(10_000, 3), f32(10_000, 3), f32(10_000))
PROGRAMS: Sequence[tuple[str, Callable[..., Any], Size, tuple[int, ...] | None]] = (
    ("linear", linear, (f32(784, 1024), f32(784, 128), f32(1024)), None),
    ("linear", mean_square(linear), (f32(784, 1024), f32(784, 128), f32(1024)), (0, 1, 2)),
    ("distances", contractions.distances, (f32(784, 1024), f32(784, 128)), None),
    ("distances", mean_square(contractions.distances), (f32(784, 1024), f32(784, 128)), (0, 1)),
    ("perceptron", contractions.perceptron, LAYERS, None),
    ("perceptron", contractions.perceptron, LAYERS, (0, 1)),
    ("gaussian_product", contractions.gaussian_product, POINTS, None),
    ("nearest", contractions.nearest, POINTS[:2], None),
    ("linear_gelu", contractions.linear_gelu, (bf16(4096, 1024), bf16(1024, 4096), bf16(4096)), None),
    ("swiglu", swiglu, (bf16(4096, 1024), bf16(1024, 2816), bf16(1024, 2816), bf16(2816, 1024)), None),
    ("rms_norm", rms_norm, (bf16(4096, 1024), bf16(1024), bf16(1024, 1024)), None),
)


def rows() -> Iterator[list[object]]:
    """What becomes of each program; f32 is multiplied exactly."""
    for name, function, sizes, grad in PROGRAMS:
        fn = function if grad is None else jax.value_and_grad(function, grad)
        with jax.default_matmul_precision("highest"):
            made = j2t.transpile(fn, *sizes, contractions="triton", for_target=DEFAULT_TARGET.name)
        taken = [resources(compile_kernel(kernel, DEFAULT_TARGET)) for kernel in made.kernels]
        moved = sum(kernel.bytes_read + kernel.bytes_written for kernel in made.kernels)
        arrays = jax.tree.leaves((sizes, jax.eval_shape(fn, *sizes)))
        least = sum(leaf.size * leaf.dtype.itemsize for leaf in arrays)
        yield [
            name,
            "forward" if grad is None else "with gradients",
            len(made.kernels),
            f"{moved / 1e6:.1f}",
            f"{least / 1e6:.1f}",
            made.compiled.alone.in_all,
            len(made.leftovers),
            max(each.registers for each in taken),
            sum(each.spill_stores for each in taken),
        ]


def page(found: Sequence[Sequence[object]]) -> str:
    today = datetime.date.today().isoformat()
    versions = f"jax {jax.__version__}, triton {version('triton')}, Python {platform.python_version()}"
    lines = [
        "# Contractions as kernels",
        "",
        f"{today}, {versions}; compiled for sm_90, without a device.",
        "XLA's launches are those that `explain` estimates.",
        "To make it again: `python -m bench.contractions --markdown bench/results/contractions-sm_90.md`.",
        "",
        *(f"| {' | '.join(words)} |" for words in markdown_rows(HEADER, found)),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    options = parser.parse_args(arguments)
    found = list(rows())
    print(table(HEADER, found))
    if options.markdown:
        options.markdown.write_text(page(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
