"""Triton's compiler: a kernel's source in, every stage of its code out.

Also a program, which compiles what it reads from a socket until that is closed: `compile/helper.py` starts it. So it
imports nothing of this package, and JAX least of all.
"""

from __future__ import annotations

import hashlib
import linecache
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import cache

Task = Mapping[str, Any]  # name, source, signature, target, options, lines
Answer = dict[str, Any]  # stages, name, shared, scratch; or the type and the text of Triton's error


def compile_with_triton(task: Task) -> Answer:
    """Errors are Triton's own. With `lines` the code says those of the source, and Triton's paths."""
    signature = task["signature"]
    source = ASTSource(
        fn=_function(task["source"], task["name"]),
        signature=dict(signature),
        constexprs={},
        attrs={(position,): [["tt.divisibility", 16]] for position in range(len(signature))},
    )
    with _private_cache(), knobs.compilation.scope():
        knobs.compilation.disable_line_info = not task["lines"]
        knobs.compilation.always_compile = True
        made = triton.compile(source, target=GPUTarget(*task["target"]), options=dict(task["options"]))
        return {
            "stages": dict(made.asm),
            "name": made.metadata.name,
            "shared": made.metadata.shared,
            "scratch": getattr(made.metadata, "global_scratch_size", 0) or 0,
        }


def answered(task: Task) -> Answer:
    try:
        return compile_with_triton(task)
    except Exception as problem:
        return {"error": type(problem).__name__, "says": str(problem)}


def _function(source: str, name: str) -> Any:
    """The `@triton.jit` function, whose text Triton reads back through `inspect`."""
    filename = f"<triton kernels {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": filename}
    exec(compile(source, filename, "exec"), namespace)
    return namespace[name]


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


def main(descriptor: int) -> None:
    """The alarm ends the process, wherever it is: a pass of the compiler hears nothing else."""
    line = Connection(descriptor)
    while True:
        try:
            seconds, task = line.recv()
        except EOFError:
            return
        signal.alarm(seconds)
        answer = answered(task)
        signal.alarm(0)
        line.send(answer)


if __name__ == "__main__":
    main(int(sys.argv[1]))
