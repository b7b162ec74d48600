"""Contractions at full size: the kernels they become, what those move, and what they take beside XLA, both modelled.

    python -m bench.contractions
    python -m bench.contractions --markdown bench/results/contractions-sm_90.md

No GPU is needed: nothing is compiled or run. Whoever multiplies is chosen by what it takes, and f32 is multiplied with
TF32, as XLA does.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

import jaxpr2triton as j2t
from bench.loops import markdown_rows
from jaxpr2triton.hardware import DEFAULT_TARGET
from jaxpr2triton.pipeline.xla_time import time_of_xla
from jaxpr2triton.report.table import table
from tests.attention_programs import PROJECTED, VARIANTS
from tests.contraction import Contraction
from tests.contraction_programs import LAST_LAYERS, PROGRAMS, last_layer_of

HEADER = ["program", "pass", "kernels", "left to XLA", "MB moved", "MB at least", "ours µs", "XLA µs", "ratio"]

IMAGES = (("f32 784 32", "f32 32", "f32 32 10", "f32 10"), "f32 1024 784")
POINTS = ("f32 10000 3", "f32 10000 3", "f32 10000")
PROJECTION = ("bf16 4096 1024", "bf16 1024 4096")
HEADS = ("bf16 4 16 1024 64",) * 3
TOKENS = ("bf16 2048 768", "bf16 768 50257", "i32 2048")
GATED = ("bf16 4096 1024", "bf16 1024 2816", "bf16 1024 2816", "bf16 2816 1024")
GROUPS = ("bf16 4096 1024", "bf16 8 1024 1024", "i32 8")
MANY_GROUPS = ("bf16 4096 256", "bf16 128 256 256", "i32 128")
ADAPTED = (*PROJECTION, "bf16 1024 16", "bf16 16 4096")
BILINEAR = ("f32 1024 128", "f32 64 128 128", "f32 1024 128")
ATTENTION = {**VARIANTS, **PROJECTED}
SMALL = ("f32 4096 8 8", "f32 4096 8 8")
CLASSIFIED = {name: last_layer_of(fn, 1024, 768, 50257, "bf16") for name, (fn, _) in LAST_LAYERS.items()}
SIZES: Mapping[str, tuple[Any, ...]] = {
    "linear": ("f32 784 1024", "f32 784 128", "f32 1024"),
    "linear_gradients": ("f32 784 1024", "f32 784 128", "f32 1024"),
    "distances": ("f32 784 1024", "f32 784 128"),
    "farthest_terms": ("f32 784 1024", "f32 784 128"),
    "distances_gradients": ("f32 784 1024", "f32 784 128"),
    "distances_pullback": ("f32 784 1024", "f32 784 128", "f32 1024 128"),
    "perceptron": IMAGES,
    "perceptron_gradients": IMAGES,
    "gaussian_product": POINTS,
    "gaussian_gradients": POINTS,
    "nearest": POINTS[:2],
    "logsumexp_of_distances": POINTS[:2],
    "attention": HEADS,
    "attention_bf16": HEADS,
    "attention_gradients": HEADS,
    "causal_attention": ("bf16 1024 64",) * 3,
    "three_of_one": ("bf16 4096 1024", *["bf16 1024 1024"] * 3),
    "swiglu": GATED,
    "swiglu_gradients": GATED,
    "rms_norm": ("bf16 4096 1024", "bf16 1024", "bf16 1024 1024"),
    "rms_norm_gradients": ("bf16 4096 1024", "bf16 1024", "bf16 1024 1024"),
    "lora": ADAPTED,
    "lora_gradients": ADAPTED,
    "rotated": ("bf16 4096 1024", "bf16 1024 1024"),
    "queries_keys_values": ("bf16 4096 1024", "bf16 1024 3072", "bf16 3072"),
    "dequantised": ("bf16 4096 1024", "i8 1024 4096", "bf16 4096"),
    "bf16": PROJECTION,
    "f16": ("f16 4096 1024", "f16 1024 4096"),
    "eight_bits": ("i8 4096 1024", "i8 1024 4096"),
    "many_terms_of_eight_bits": ("i8 4096 4096", "i8 4096 1024"),
    "integers": ("i32 512 512", "i32 512 512"),
    "batches_of_small_ones": SMALL,
    "gradients_of_small_ones": SMALL,
    "batches": ("f32 64 256 128", "f32 64 128 256"),
    "matrix_and_vector": ("f32 4096 4096", "f32 4096"),
    "three_factors": ("f32 1024 64",),
    "heads": ("bf16 4095 1024", "bf16 1024 1024"),
    "turned": PROJECTION,
    "masked": PROJECTION,
    "joined": ("bf16 4096 512", "bf16 4096 512", "bf16 1024 4096"),
    "rows_of_a_table": ("bf16 50000 1024", "i32 4096", "bf16 1024 4096"),
    "ends_in_zeros": ("f32 1001 1003", "f32 1003 1005"),
    "many_terms": ("f32 65536 64", "f32 65536 64"),
    "many_terms_of_batches": ("bf16 16 4096 64", "bf16 3 4096 16 64"),
    "least_products": ("f32 128 64 1",),
    "losses": TOKENS,
    "losses_gradients": TOKENS,
    "cross_entropy": TOKENS,
    "nothing_summed": ("f32 1024 0", "f32 0 1024"),
    "one_term": ("f32 4096 1", "f32 1 4096"),
    "layer_norm_of_products": ("bf16 4096 1024", "bf16 1024 256", "f32 256"),
    "softmax_of_distances": ("f32 64 1024", "f32 64 256"),
    "softmax_of_products": ("bf16 4096 1024", "bf16 1024 256"),
    "row_sums_of_products": ("bf16 4096 1024", "bf16 1024 256"),
    "column_maxima_of_products": PROJECTION,
    "products_and_their_sums": ("f32 4096 256", "f32 256 256", "f32 256"),
    "loss_of_a_long_layer": ("f32 256 4096", "f32 256 1024", "f32 4096"),
    "loss_of_many_distances": ("f32 7 8192", "f32 7 1024"),
    "around_a_loop": (("f32 64 64", "f32 64 64", "f32 64"), "f32 100 64 64", "f32 64 64"),
    "layers": ("f32 8192 64", "f32 64 64", "f32 64 64", "f32 64 64"),
    "layers_gradients": ("f32 8192 64", "f32 64 64", "f32 64 64"),
    "layers_too_wide": ("bf16 4096 1024", "bf16 1024 4096", "bf16 4096 1024"),
    "layers_of_matrices": ("f32 16 1024 64", "f32 16 64 64", "f32 16 64 64"),
    "normed_rows": ("bf16 4096 1024", "bf16 1024 256", "bf16 256"),
    "normed_rows_gradients": ("bf16 4096 1024", "bf16 1024 256", "bf16 256"),
    "per_example": ("f32 256 128", "f32 32 64 256"),
    "bodies": POINTS[1:],
    "chamfer": POINTS[:2],
    "chamfer_gradients": POINTS[:2],
    "sinkhorn": ("f32 30 3", "f32 25 3"),
    "bilinear": BILINEAR,
    "bilinear_gradients": BILINEAR,
    "scores": HEADS[:2],
    "in_order": ("bf16 4096 1024", "bf16 1024 1024"),
    "in_order_gradients": ("bf16 4096 1024", "bf16 1024 1024"),
    "of_many_groups": MANY_GROUPS,
    "of_many_groups_gradients": MANY_GROUPS,
    "of_groups": GROUPS,
    "of_groups_gradients": GROUPS,
    "training_step": (*[IMAGES[0]] * 3, "f32 1024 784", "f32 1024 10"),
    **CLASSIFIED,
    **{f"{name}_gradients": sizes for name, sizes in CLASSIFIED.items()},
    **{name: tuple(each.full) for name, each in ATTENTION.items()},
    **{f"{name}_gradients": each.with_cotangent(each.full) for name, each in ATTENTION.items()},
}  # fmt: skip


def at_full_size(program: Contraction) -> Contraction:
    return replace(program, shapes=SIZES[program.name])


def rows(programs: Iterable[Contraction]) -> Iterator[list[object]]:
    """What becomes of each program; what is moved is what kernels read and write."""
    for program in map(at_full_size, programs):
        fn, sizes = program.whole(), program.sizes()
        made = j2t.transpile(fn, *sizes, for_target=DEFAULT_TARGET.name)
        policy = made.compiled.policy
        ours = made.compiled.taken.priced(policy.products.launch_after_gap_us).microseconds
        other = time_of_xla(made.compiled.stages["trace"], policy).microseconds
        moved = sum(kernel.bytes_read + kernel.bytes_written for kernel in made.kernels)
        arrays = jax.tree.leaves((sizes, jax.eval_shape(fn, *sizes)))
        least = sum(leaf.size * leaf.dtype.itemsize for leaf in arrays)
        has_gradients = program.grad is not None or program.name.endswith("_gradients")
        yield [
            program.name,
            "with gradients" if has_gradients else "forward",
            len(made.kernels),
            len(made.leftovers),
            f"{moved / 1e6:.1f}",
            f"{least / 1e6:.1f}",
            f"{ours:,.0f}",
            f"{other:,.0f}",
            f"{ours / other:.2f}",
        ]


def page(found: Sequence[Sequence[object]]) -> str:
    today = datetime.date.today().isoformat()
    versions = f"jax {jax.__version__}, triton {version('triton')}, Python {platform.python_version()}"
    lines = [
        "# Contractions as kernels",
        "",
        f"{today}, {versions}; modelled for sm_90, not measured.",
        "",
        "*MB moved* is what kernels read and write, beside what XLA is left; *MB at least* are arguments and results",
        "once. Both times are estimates, those that `explain` prints; a ratio above 1 is a loss.",
        "To make it again: `python -m bench.contractions --markdown bench/results/contractions-sm_90.md`.",
        "",
        *(f"| {' | '.join(words)} |" for words in markdown_rows(HEADER, found)),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="only these of tests/contraction_programs.py")
    options = parser.parse_args(arguments)
    chosen = [program for program in PROGRAMS if not options.programs or program.name in options.programs]
    found = []
    for row in rows(chosen):
        print(*row, file=sys.stderr, flush=True)
        found.append(row)
    print(table(HEADER, found))
    if options.markdown:
        options.markdown.write_text(page(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
