"""A compiled kernel as one call inside a JAX trace.

The call is jaxlib's `triton_kernel_call_ffi`, which takes the code that was compiled here, works inside CUDA graphs,
and needs no plugin to be lowered. On CUDA the code is PTX. On ROCm jaxlib reads a finished binary from a file, once,
removes it, and keeps what it has read for as long as the process lives: so the file is in a folder of this process, and
what was lowered here cannot be run by another one. (That is how jaxlib's source reads; it was never seen on a device.)
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
import zlib
from pathlib import Path
from typing import Any

import jax

from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.call.proto import encode_kernel_call
from jaxpr2triton.launch.compile.compile import Binary

CALL_TARGET = "triton_kernel_call_ffi"


def ffi_call(binary: Binary, kernel: Kernel, *args: Any) -> list[Any]:
    """The outputs of `kernel`, as a call for the device that `binary` was compiled for; traceable."""
    return _call(binary, kernel, *args)[: len(kernel.outputs)]


def _call(binary: Binary, kernel: Kernel, *args: Any) -> list[Any]:
    results = [jax.ShapeDtypeStruct(buffer.shape, buffer.dtype) for buffer in (*kernel.outputs, *kernel.kept)]
    code = str(_file_of(binary.code)) if isinstance(binary.code, bytes) else binary.code
    zeroed = [buffer.nbytes if buffer.begins_as_zero else 0 for buffer in kernel.buffers]
    message = encode_kernel_call(
        binary.name, code, binary.num_warps, binary.shared, target_arch(binary), kernel.grid, zeroed
    )
    call = jax.ffi.ffi_call(CALL_TARGET, results, custom_call_api_version=4)
    return list(call(*args, opaque=zlib.compress(message)))


def target_arch(binary: Binary) -> int:
    """sm_90 → 90. A binary for ROCm says itself what it is for."""
    return int(binary.target.removeprefix("sm_")) if binary.kind == "ptx" else 0


def _file_of(code: bytes) -> Path:
    """Where jaxlib finds a binary: always in the same place, by which it knows one that it has read before."""
    path = Path(_folder().name) / f"{hashlib.sha256(code).hexdigest()}.hsaco"
    path.write_bytes(code)
    return path


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="jaxpr2triton-")
