"""The programs that are counted: the gallery, and all with loops at the sizes of the benches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import jax.numpy as jnp

from examples import gallery
from tests import loop_programs
from tests.programs import Program, floats, integers, join
from tests.works import Work

BF16 = jnp.bfloat16
GALLERY = (
    Program("gallery.layer_norm", gallery.layer_norm, floats((1024, 768), (768,), (768,)), (0, 1, 2)),
    Program("gallery.cross_entropy", gallery.cross_entropy, join(floats((512, 1000)), integers((512,), low=0))),
    Program("gallery.gelu_block", gallery.gelu_block, floats((512, 1024), (512, 1024), (1024,), dtype=BF16), (0, 1, 2)),
    Program("gallery.softmax", gallery.softmax, floats((1024, 1000))),
)


def full_size() -> Iterator[Work]:
    """Each program, and then the program with its gradient."""
    loops = (replace(p, fn=p.bench_fn, args=p.bench_args) for p in loop_programs.PROGRAMS if p.bench_args is not None)
    for program in (*GALLERY, *loops):
        yield Work(program, False)
        if program.grad is not None:
            yield Work(program, True)
