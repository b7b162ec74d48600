"""A compiled kernel as one call inside a JAX trace.

On CUDA the call is jaxlib's `triton_kernel_call_ffi`: it takes the PTX, works inside CUDA graphs, and needs no plugin
to be lowered. On ROCm jaxlib has no such call that takes a finished binary, so the package jax-triton is needed there;
it compiles the same source again. Both hide behind `ffi_call`.
"""

from __future__ import annotations

import importlib
import zlib
from typing import Any

import jax

from jaxpr2triton.errors import BackendError
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.call.proto import encode_kernel_call
from jaxpr2triton.launch.compile.compile import Binary
from jaxpr2triton.launch.source import load_function

CALL_TARGET = "triton_kernel_call_ffi"


def ffi_call(binary: Binary, kernel: Kernel, *args: Any) -> list[Any]:
    """The outputs of `kernel`, as a call for the device that `binary` was compiled for; traceable."""
    return _call(binary, kernel, *args)[: len(kernel.outputs)]


def _call(binary: Binary, kernel: Kernel, *args: Any) -> list[Any]:
    results = [jax.ShapeDtypeStruct(buffer.shape, buffer.dtype) for buffer in (*kernel.outputs, *kernel.kept)]
    if isinstance(binary.code, bytes):
        return _jax_triton_call(kernel, results, args)
    capability = target_arch(binary)
    zeroed = [buffer.nbytes if buffer.is_flag else 0 for buffer in kernel.buffers]
    message = encode_kernel_call(
        binary.name, binary.code, binary.num_warps, binary.shared, capability, kernel.grid, zeroed
    )
    call = jax.ffi.ffi_call(CALL_TARGET, results, custom_call_api_version=4)
    return list(call(*args, opaque=zlib.compress(message)))


def target_arch(binary: Binary) -> int:
    """sm_90 → 90."""
    return int(binary.target.removeprefix("sm_"))


def _jax_triton_call(kernel: Kernel, results: list[jax.ShapeDtypeStruct], args: tuple[Any, ...]) -> list[Any]:
    try:
        jax_triton = importlib.import_module("jax_triton")
    except ImportError as problem:
        raise BackendError(
            f"kernels cannot be launched on ROCm without jax-triton ({problem})",
            hint="pip install 'jaxpr2triton[rocm]', or backend='xla'",
        ) from problem
    flags = tuple(number for number, buffer in enumerate(kernel.outputs) if buffer.is_flag)
    outputs = jax_triton.triton_call(
        *args,
        kernel=load_function(kernel),
        out_shape=results,
        grid=kernel.grid,
        num_warps=kernel.num_warps,
        num_stages=kernel.num_stages,
        **({"zeroed_outputs": flags} if flags else {}),
    )
    return list(outputs)
