"""Triton's compiler: a kernel and a target in, every stage of its code out."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import cache

from jaxpr2triton.hardware import Target
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.elements import element_name
from jaxpr2triton.launch.source import load_function


@dataclass(frozen=True)
class Compiled:
    """What Triton made: the code of each stage (text, or bytes for cubin and hsaco) and the facts about the last."""

    stages: Mapping[str, str | bytes]
    name: str
    shared: int
    scratch: int


def compile_with_triton(kernel: Kernel, target: Target, options: Mapping[str, Any], lines: bool = False) -> Compiled:
    """The caller locks. Errors are Triton's own. With `lines` the code says those of the source, and Triton's paths."""
    function = load_function(kernel)
    buffers = kernel.buffers
    parameters = [f"{buffer.name}_ptr" for buffer in buffers]
    source = ASTSource(
        fn=function,
        signature={name: f"*{element_name(buffer.dtype)}" for name, buffer in zip(parameters, buffers)},
        constexprs={},
        attrs={(position,): [["tt.divisibility", 16]] for position in range(len(buffers))},
    )
    with _private_cache(), knobs.compilation.scope():
        knobs.compilation.disable_line_info = not lines
        knobs.compilation.always_compile = True
        device = GPUTarget(target.backend, target.arch, target.warp_size)
        made = triton.compile(source, target=device, options=dict(options))
        return Compiled(
            stages=dict(made.asm),
            name=made.metadata.name,
            shared=made.metadata.shared,
            scratch=getattr(made.metadata, "global_scratch_size", 0) or 0,
        )


@contextmanager
def _private_cache() -> Iterator[None]:
    """Triton's own cache in a folder that lives as long as one compilation.

    It needs a folder that can be written, which a home folder need not be, and its key reads the whole of Triton once
    in each process, which takes seconds. Our cache lies in front of it, so here any key will do.
    """
    stock_key = cache.triton_key
    with tempfile.TemporaryDirectory(prefix="jaxpr2triton-") as folder, knobs.cache.scope():
        knobs.cache.dir = folder
        cache.triton_key = lambda: triton.__version__
        try:
            yield
        finally:
            cache.triton_key = stock_key
