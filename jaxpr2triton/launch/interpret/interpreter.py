"""Triton's interpreter in a process that also compiles: `triton.language` is patched for one run, and then restored.

Triton's own interpreter is chosen for a whole process by an environment variable and leaves `triton.language` changed.
Here every change is an entry of one plan, which is applied and undone as a whole.
"""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import interpreter as stock
from triton.runtime.jit import JITCallable, JITFunction

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.launch.interpret.builder import stored_dtype
from jaxpr2triton.launch.interpret.meetings import meet, run_programs
from jaxpr2triton.launch.interpret.memory import Memory
from jaxpr2triton.launch.interpret.reduce import associative_scan, reduce, tensor_of
from jaxpr2triton.launch.interpret.rewrite import MEETING, executed
from jaxpr2triton.launch.interpret.semantic import SEMANTIC, block_type_init, tensor_init

_ABSENT = object()


@dataclass(frozen=True)
class Patch:
    """`owner.name` is `replacement` while kernels are interpreted, and `original` otherwise."""

    owner: Any
    name: str
    original: Any
    replacement: Any


# what rewritten device functions call


def _is_tile(value: Any) -> bool:
    return isinstance(value, tl.tensor) and value.type.is_block()


def _truth(value: Any) -> Any:
    tensor = SEMANTIC.to_tensor(value)
    return tensor if tensor.dtype == tl.int1 else SEMANTIC.not_equal(tensor, SEMANTIC.to_tensor(0))


def _and(value: Any, later: Callable[[], Any]) -> Any:
    if _is_tile(value):
        return SEMANTIC.and_(_truth(value), _truth(later()))
    return later() if value else value


def _or(value: Any, later: Callable[[], Any]) -> Any:
    if _is_tile(value):
        return SEMANTIC.or_(_truth(value), _truth(later()))
    return value if value else later()


def _not(value: Any) -> Any:
    return SEMANTIC.not_(_truth(value)) if _is_tile(value) else not value


def _tensor(value: Any) -> Any:
    return SEMANTIC.to_tensor(value, False)


def _loop_range(first: Any, second: Any = None, step: Any = 1, **options: Any) -> Iterator[tl.tensor]:
    """The loop variable of a compiled kernel is an integer tensor: it wraps, and it takes part in type promotion."""
    bounds = [SEMANTIC.to_tensor(bound) for bound in ((0, first) if second is None else (first, second))]
    bounds.append(SEMANTIC.to_tensor(step))
    dtype = functools.reduce(SEMANTIC.integer_promote_impl, [bound.dtype for bound in bounds])
    for index in range(*(int(bound) for bound in bounds)):
        yield SEMANTIC.scalar_constant(index, dtype)


def _map_elementwise(function: Callable[..., Any], *tiles: Any, pack: int = 1) -> Any:
    """What is done to each element, done to whole tiles; with `pack` a call takes several elements of each tile."""
    results = function(*(tile for tile in tiles for _ in range(pack)))
    if pack == 1:
        return results
    flat = np.stack([result.handle.data.reshape(-1) for result in results])
    places = np.arange(flat.shape[1])
    picked = flat[places % pack, places].reshape(results[0].handle.data.shape)
    return (tensor_of(picked, results[0].dtype.scalar),)


_HELPERS = {
    **{"j2t_and": _and, "j2t_or": _or, "j2t_not": _not, "j2t_tensor": _tensor, "range": _loop_range},
    MEETING: meet,
}


# the plan


class _Recorder:
    """Stands in for the stock interpreter's patch scope and only writes down what it would change."""

    def __init__(self) -> None:
        self.changes: list[tuple[Any, str, Any]] = []

    def set_attr(self, owner: Any, name: str, value: Any) -> None:
        self.changes.append((owner, name, value))


def _with_semantic(builtin: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = SEMANTIC
        return builtin(*args, **kwargs)

    return call


def _bound(function: JITCallable) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: function(self, *args, **kwargs)


@functools.cache
def _device_function(python: FunctionType) -> Callable[..., Any]:
    """The interpreted form of a function of Triton's own library.

    Looked up by the Python function: to hash a `JITFunction` is to let Triton compute, and keep, a cache key from what
    it sees at that moment.
    """
    lines, first = inspect.getsourcelines(python)
    source = textwrap.dedent("".join(lines))
    namespace = executed(source, python.__code__.co_filename, python.__globals__, _HELPERS, first)
    return namespace[python.__name__]


@functools.cache
def _plan() -> tuple[Patch, ...]:
    """Every change, in order; built while nothing is patched."""
    recorder = _Recorder()
    for owner in (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base, cuda_libdevice):
        for name, member in inspect.getmembers(owner):
            if tl.core.is_builtin(member):
                recorder.set_attr(owner, name, _with_semantic(member))
            elif owner is tl.tensor and isinstance(member, JITCallable):
                recorder.set_attr(owner, name, _bound(member))
    for module in (tl, tl.core):
        stock._patch_lang_tensor(module.tensor, recorder)
        stock._patch_lang_core(module, recorder)
    for module in (tl, tl.core):
        recorder.set_attr(module, "reduce", reduce)
        recorder.set_attr(module, "associative_scan", associative_scan)
        recorder.set_attr(module, "range", _loop_range)
        recorder.set_attr(module, "map_elementwise", _map_elementwise)
    for name, member in inspect.getmembers(cuda_libdevice, tl.core.is_builtin):
        recorder.set_attr(libdevice, name, _with_semantic(member))
    recorder.set_attr(tl.block_type, "__init__", block_type_init)
    recorder.set_attr(tl.tensor, "__init__", tensor_init)
    recorder.set_attr(stock, "_get_np_dtype", stored_dtype)
    recorder.set_attr(tl.tensor, "__index__", lambda self: int(self.handle.data.item()))
    recorder.set_attr(tl.tensor, "__int__", lambda self: int(self.handle.data.item()))
    recorder.set_attr(JITFunction, "__call__", lambda self, *args, **kwargs: _device_function(self.fn)(*args, **kwargs))
    patches = {(id(owner), name): (owner, name, value) for owner, name, value in recorder.changes}
    return tuple(Patch(owner, name, vars(owner).get(name, _ABSENT), value) for owner, name, value in patches.values())


def restore() -> None:
    """Undo every change; harmless when there is none."""
    for patch in _plan():
        if patch.original is not _ABSENT:
            setattr(patch.owner, patch.name, patch.original)
        elif patch.name in vars(patch.owner):
            delattr(patch.owner, patch.name)


@contextmanager
def _interpreting() -> Iterator[None]:
    """Inside, device functions run in Python. A KeyboardInterrupt in the middle of restoring makes it start over."""
    plan = _plan()
    try:
        for patch in plan:
            setattr(patch.owner, patch.name, patch.replacement)
        yield
    finally:
        try:
            restore()
        except KeyboardInterrupt:
            restore()
            raise


# running a kernel


@functools.lru_cache(maxsize=256)
def _load(source: str, filename: str) -> dict[str, Any]:
    return executed(source, filename, {"__name__": filename}, _HELPERS)


def _pointer(base: int, element: str) -> tl.tensor:
    dtype = tl.pointer_type(tl.str_to_ty(element, None))
    return tl.tensor(stock.TensorHandle(np.array([base], np.uint64), dtype), dtype)


def run(name: str, source: str, elements: tuple[str, ...], memory: Memory) -> None:
    """Run each program on `memory`, whose buffers hold `elements` (Triton's names). The caller locks."""
    filename = f"<triton kernel {name}>"
    builder = SEMANTIC.builder
    with _interpreting(), np.errstate(all="ignore"):
        function = _load(source, filename)[name]
        pointers = [_pointer(region.base, element) for region, element in zip(memory.regions, elements)]
        builder.memory = memory
        builder.set_grid_dim(*memory.grid)
        try:
            run_programs(function, pointers, memory)
        except Exception as problem:
            raise _located(problem, name, source, filename, memory.program) from problem
        finally:
            del builder.memory


def _located(problem: Exception, name: str, source: str, filename: str, program: tuple[int, int, int]) -> CompilerBug:
    """The error with the line of the kernel that it came from."""
    lines, traceback = [], problem.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename:
            lines.append(traceback.tb_lineno)
        traceback = traceback.tb_next
    where = f"program {program}"
    if lines:
        where += f", line {lines[-1]}: {source.splitlines()[lines[-1] - 1].strip()}"
    if isinstance(problem, CompilerBug):
        return CompilerBug(problem.what, where=where, hint=problem.hint)
    return CompilerBug(f"kernel {name} stops with {type(problem).__name__}: {problem}", where=where)
