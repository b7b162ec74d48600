"""The ways in which a program is done: as kernels of ours, by `jax.jit` as it comes and as it is best, by others."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import mmap
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from jax import lax

import jaxpr2triton as j2t
from bench.device.cases import Case, widest
from jaxpr2triton.front import planning
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.call import bridge
from jaxpr2triton.launch.compile.compile import Binary
from jaxpr2triton.report.equations import name_of

OURS, ALL, JIT, UNROLLED, TORCH = "ours", "all ours", "jit", "jit, unroll 8", "torch"
GRAPHS, UNROLLED_GRAPHS, CONCURRENT_GRAPHS = "jit, graphs", "jit, graphs unrolled", "jit, graphs concurrent"
STEPS_AT_ONCE = 8
# XLA's flags belong to a process: these ways have workers of their own.
COMMAND_BUFFERS = "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL --xla_gpu_graph_min_graph_size=1"
FLAGS = {
    GRAPHS: COMMAND_BUFFERS,
    UNROLLED_GRAPHS: f"{COMMAND_BUFFERS} --xla_gpu_command_buffer_unroll_loops=true",
    CONCURRENT_GRAPHS: f"{COMMAND_BUFFERS} --xla_gpu_command_buffer_scheduling_mode=CONCURRENT_REGIONS",
}
LOOPS = ("scan[", "while[")
PRODUCTS = ("dot_general[", "conv_general_dilated[", "ragged_dot")


@functools.cache
def flags_of(way: str) -> str | None:
    """XLA's flags for a way that needs a process of its own; None where this XLA does not know them, nothing else."""
    wanted = FLAGS.get(way)
    if wanted is None:
        return ""
    needed = [word.partition("=")[0] for word in wanted.split()]
    return wanted if all(map(known_to_xla, needed)) else None


@functools.cache
def known_to_xla(flag: str) -> bool:
    """Whether its name is in the plugin; XLA ends the process at one that it does not know."""
    name = flag.removeprefix("--").encode()
    for package in ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12", "jax_plugins.xla_rocm7"):
        for folder in _folders(package):
            for file in folder.glob("*.so"):
                with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    if content.find(name) >= 0:
                        return True
    return False


def _folders(package: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return []
    return [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []


@dataclass(frozen=True)
class Traits:
    """What a program is made of, as far as it decides which ways there are."""

    loops: bool
    scans: bool
    products: bool


def traits_of(case: Case) -> Traits:
    with case.context():
        text = str(jax.make_jaxpr(case.function)(*case.shapes))
    return Traits(any(word in text for word in LOOPS), "scan[" in text, any(word in text for word in PRODUCTS))


@dataclass
class Launched:
    """What was made for the device while somebody looked."""

    binaries: list[tuple[Binary, Kernel]] = field(default_factory=list)
    compiled: list[Any] = field(default_factory=list)

    @property
    def hash(self) -> str:
        """The same as long as the same kernels are launched, whatever is said beside them."""
        digest = hashlib.sha256()
        for binary, kernel in self.binaries:
            digest.update(repr((binary.name, kernel.grid, binary.num_warps, binary.shared)).encode())
            digest.update(without_remarks(binary.code))
        left = sorted(name_of(eqn) for one in self.compiled for eqn in one.left_to_xla)
        digest.update(repr(left).encode())
        return digest.hexdigest()[:12]

    @property
    def left(self) -> int:
        return sum(len(one.left_to_xla) for one in self.compiled)


def without_remarks(code: str | bytes) -> bytes:
    """Lines and names of files say where code comes from, not what it does."""
    if isinstance(code, bytes):
        return code
    return re.sub(r"//.*|^\s*\.(?:file|loc)\b.*|^\s*$\n", "", code, flags=re.MULTILINE).encode()


@contextmanager
def noting() -> Iterator[Launched]:
    """Whatever is planned and lowered in between."""
    found, call, compile_jaxpr = Launched(), bridge._call, planning.compile_jaxpr

    def noted(binary: Binary, kernel: Kernel, *args: Any) -> Any:
        found.binaries.append((binary, kernel))
        return call(binary, kernel, *args)

    def planned(*args: Any, **options: Any) -> Any:
        found.compiled.append(compile_jaxpr(*args, **options))
        return found.compiled[-1]

    with mock.patch.object(bridge, "_call", noted), mock.patch.object(planning, "compile_jaxpr", planned):
        yield found


def function_of(case: Case, way: str) -> Callable[..., Any]:
    """What is given to `jax.jit`."""
    match way:
        case "ours":
            return j2t.fuse(case.function, backend="triton")
        case "all ours":
            return j2t.fuse(case.function, backend="triton", contractions="triton")
        case "jit, unroll 8":
            return unrolled(case.function)
        case _ if way in case.others:
            return case.others[way]
        case _:
            return case.function


def unrolled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with several steps of each scan written out that says nothing of it itself."""
    scan = lax.scan

    def scanned(*args: Any, **options: Any) -> Any:
        return scan(*args, **{"unroll": STEPS_AT_ONCE, **options})

    def traced(*args: Any) -> Any:
        with mock.patch.object(lax, "scan", scanned):
            return function(*args)

    return traced


def lowered(case: Case, way: str) -> Any:
    return jax.jit(function_of(case, way)).lower(*case.shapes)


def exact(case: Case) -> Any:
    """What all ways are compared with: no product is rounded, and nothing is a number of 16 bits."""
    with jax.default_matmul_precision("highest"):
        return jax.jit(case.function).lower(*jax.eval_shape(widest, case.shapes))


def is_narrow(case: Case) -> bool:
    """Whether some argument is of floats of 16 bits or fewer."""
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(case.shapes)]
    return any(jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 4 for dtype in dtypes)


def torch_call(case: Case) -> Callable[[], Any] | None:
    """What `torch.compile` makes of the same, written for it, and run once; None where nobody wrote it."""
    of_torch = importlib.import_module("bench.of_torch")  # torch is not everywhere
    made: Callable[[], Any] | None = of_torch.compiled(f"{case.name}: {case.kind}", case.family, case.arguments)
    return made
