"""`kernel_p`: a primitive of JAX that runs one finished kernel.

It carries the kernel and the region that the kernel was made from, an ordinary jaxpr with the same inputs and outputs.
Where kernels cannot run, and where Triton refuses this one, XLA runs the region.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import ad, batching, mlir

from jaxpr2triton.errors import AssemblerTooOld, CompilerBug, KernelFallback, KernelRefused, SourceRefused, warn
from jaxpr2triton.hardware import Target
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.call.assembler import check_assembler
from jaxpr2triton.launch.call.bridge import ffi_call
from jaxpr2triton.launch.call.callbacks import Callbacks, callbacks_here, lower_call
from jaxpr2triton.launch.call.devices import planned_for, target_for
from jaxpr2triton.launch.call.raised import noting
from jaxpr2triton.launch.compile.compile import Binary, compile_kernel
from jaxpr2triton.launch.interpret.interpret import run_interpreted
from jaxpr2triton.launch.machine.kernels import compiled_for_machine, run_on_machine
from jaxpr2triton.mistakes import instead_of
from jaxpr2triton.watching import Watched

Mode = Literal["device", "interpret", "machine"]

kernel_p = Primitive("kernel")
kernel_p.multiple_results = True

_fallen_back: set[Kernel | str] = set()
_fallen_back_lock = threading.Lock()


RUN: Watched[str] = Watched()  # the names of kernels, in the interpreter or on the machine


def _noting_runs(
    kernel: Kernel, run: Callable[[list[np.ndarray]], list[np.ndarray]]
) -> Callable[..., list[np.ndarray]]:
    def noting(arrays: list[np.ndarray]) -> list[np.ndarray]:
        outputs = run(arrays)
        RUN.tell(kernel.name)
        return outputs

    return noting


def launch_kernel(
    kernel: Kernel,
    region: ClosedJaxpr,
    args: Sequence[Any],
    mode: Mode,
    strict: bool,
    alternatives: tuple[Kernel, ...] = (),
) -> list[Any]:
    """The outputs of `kernel`, which computes what `region` computes; traceable.

    With mode "device" the kernel runs on CUDA and ROCm devices, and XLA runs the region on all others; with "interpret"
    Triton's interpreter runs the kernel on any machine; with "machine" it is compiled as for a device, and the machine
    runs its PTX. When Triton refuses the kernel the `alternatives` are tried in order, and then XLA runs the region
    with one `KernelFallback` warning, or `KernelRefused` is raised under `strict`.
    """
    for candidate in (kernel, *alternatives):
        _check_signature(candidate, region)
    params = {"mode": mode, "strict": strict, "alternatives": alternatives, "through": callbacks_here()}
    return kernel_p.bind(*args, kernel=kernel, region=region, **params)


def _check_signature(kernel: Kernel, region: ClosedJaxpr) -> None:
    for role, buffers, avals in (
        ("inputs", kernel.inputs, region.in_avals),
        ("outputs", kernel.outputs, region.out_avals),
    ):
        found = [(buffer.shape, buffer.dtype) for buffer in buffers]
        expected = [(aval.shape, aval.dtype) for aval in avals]
        if found != expected:
            raise CompilerBug(f"kernel {kernel.name}: expected {role} {expected}, but found {found}")


def _abstract_eval(*avals: Any, region: ClosedJaxpr, **params: Any) -> list[Any]:
    return list(region.out_avals)


# running outside of jit


def _impl(*args: Any, kernel: Kernel, mode: Mode, **params: Any) -> list[Any]:
    if mode == "interpret":
        run = _noting_runs(kernel, lambda arrays: run_interpreted(kernel, arrays))
        return [jax.numpy.asarray(output) for output in run([np.asarray(arg) for arg in args])]
    with jax.disable_jit(False):  # without jit this function would call itself
        return _jitted(kernel, mode=mode, **params)(*args)


@functools.lru_cache(maxsize=256)
def _jitted(kernel: Kernel, **params: Any) -> Callable[..., list[Any]]:
    return jax.jit(functools.partial(kernel_p.bind, kernel=kernel, **params))


# lowering


def _lower_region(ctx: Any, *args: Any, region: ClosedJaxpr) -> Any:
    return mlir.lower_fun(jaxpr_as_fun(region), multiple_results=True)(ctx, *args)


def _lower_callback(
    ctx: Any, *args: Any, run: Callable[[list[np.ndarray]], list[np.ndarray]], through: Callbacks | None
) -> Any:
    """A callback that XLA hands NumPy arrays to.

    `jax.pure_callback` would put them on a device again first, which can wait for the very thread that it runs on.
    Results of 64 bits come back as pairs of words: XLA may call from a thread of its own, and there JAX cuts what it
    is given in half, unless `jax_enable_x64` is set for all threads.
    """

    @noting
    def callback(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        outputs = run([np.asarray(array) for array in arrays])
        return tuple(_as_words(array) if array.dtype.itemsize == 8 else array for array in outputs)

    returned = [_words_of(aval) if aval.dtype.itemsize == 8 else aval for aval in ctx.avals_out]
    if through is None:
        inner = ctx.replace(avals_out=returned)
        results, _, _ = mlir.emit_python_callback(
            inner, callback, None, list(args), ctx.avals_in, returned, has_side_effect=False, returns_token=False
        )
    else:
        results = lower_call(ctx, through, callback, args, returned)
    return [
        result if aval is given else _from_words(result, aval)
        for result, aval, given in zip(results, ctx.avals_out, returned)
    ]


def _words_of(aval: Any) -> Any:
    return jax.core.ShapedArray((*aval.shape, 2), np.dtype(np.uint32))


def _from_words(words: Any, aval: Any) -> Any:
    wide = ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype))
    return stablehlo.BitcastConvertOp(wide, words).result


def _as_words(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, order="C")[..., None].view(np.uint32)


def _lower_on_device(
    platform: str | None,
    ctx: Any,
    *args: Any,
    kernel: Kernel,
    region: ClosedJaxpr,
    mode: Mode,
    strict: bool,
    alternatives: tuple[Kernel, ...],
    through: Callbacks | None,
) -> Any:
    if mode == "interpret":
        noting = _noting_runs(kernel, lambda arrays: run_interpreted(kernel, arrays))
        return _lower_callback(ctx, *args, run=noting, through=through)
    if mode == "device" and platform is None:
        return _lower_region(ctx, *args, region=region)
    try:
        if mode == "machine":
            chosen, binary = _first_accepted((kernel, *alternatives), planned_for(), compiled_for_machine)
            run = functools.partial(run_on_machine, chosen, binary)
            return _lower_callback(ctx, *args, run=_noting_runs(chosen, run), through=through)
        target = target_for(platform or "")
        if platform == "cuda":
            check_assembler(target)
        chosen, binary = _first_accepted((kernel, *alternatives), target, compile_kernel)
        return mlir.lower_fun(functools.partial(ffi_call, binary, chosen), multiple_results=True)(ctx, *args)
    except SourceRefused as refusal:
        with instead_of(CompilerBug(refusal.what), kernel.name, strict, "XLA runs what the kernel was made for"):
            return _lower_region(ctx, *args, region=region)
    except KernelRefused as refusal:
        if strict:
            raise
        _warn_once(kernel, refusal)
        return _lower_region(ctx, *args, region=region)
    except Exception as problem:
        with instead_of(problem, kernel.name, strict, "XLA runs what the kernel was made for"):
            return _lower_region(ctx, *args, region=region)


def _first_accepted(
    kernels: Sequence[Kernel], target: Target, compiled: Callable[[Kernel, Target], Binary]
) -> tuple[Kernel, Binary]:
    """The first kernel that compiles; the refusal of the first one if none does."""
    refusals = []
    for kernel in kernels:
        try:
            return kernel, compiled(kernel, target)
        except KernelRefused as refusal:
            refusals.append(refusal)
    raise refusals[0]


def _warn_once(kernel: Kernel, refusal: KernelRefused) -> None:
    """Once for each kernel, but once for all of them where the assembler is to blame."""
    for_all = isinstance(refusal, AssemblerTooOld)
    told = refusal.what if for_all else kernel
    with _fallen_back_lock:
        if told in _fallen_back:
            return
        _fallen_back.add(told)
    subject = "what kernels were" if for_all else f"what kernel {kernel.name} was"
    hint = f"; {refusal.hint}" if refusal.hint else ""
    warn(f"XLA runs {subject} made for: {refusal.what}{hint}", KernelFallback)


# what the primitive that wraps a whole program does instead


def _no_batching(args: Any, dims: Any, *, kernel: Kernel, **params: Any) -> Any:
    raise CompilerBug(f"kernel {kernel.name} was batched; programs are batched before they are cut into kernels")


def _no_derivative(primals: Any, tangents: Any, *, kernel: Kernel, **params: Any) -> Any:
    raise CompilerBug(
        f"kernel {kernel.name} was differentiated; programs are differentiated before they are cut into kernels"
    )


kernel_p.def_impl(_impl)
kernel_p.def_abstract_eval(_abstract_eval)
batching.primitive_batchers[kernel_p] = _no_batching
ad.primitive_jvps[kernel_p] = _no_derivative
mlir.register_lowering(kernel_p, functools.partial(_lower_on_device, None))
mlir.register_lowering(kernel_p, functools.partial(_lower_on_device, "cuda"), platform="cuda")
mlir.register_lowering(kernel_p, functools.partial(_lower_on_device, "rocm"), platform="rocm")
