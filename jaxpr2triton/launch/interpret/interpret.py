"""Run a kernel's source in Triton's interpreter on NumPy arrays: no GPU, no torch, any machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.kernel import Buffer, Kernel
from jaxpr2triton.launch.compile.triton_shim import TRITON_LOCK, triton_side
from jaxpr2triton.launch.elements import element_name, poisoned
from jaxpr2triton.launch.interpret.memory import make_memory


def run_interpreted(kernel: Kernel, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of `kernel` for these inputs.

    Outputs start poisoned: NaN, or bytes of 0xA5. The inputs are never changed. Wild accesses, races between programs,
    forgotten elements, and meetings that some program never comes to, are `CompilerBug`s that name the kernel and its
    line.
    """
    inputs = [_checked(kernel, buffer, array) for buffer, array in zip(kernel.inputs, arrays, strict=True)]
    outputs = poisoned_outputs(kernel)
    kept = [poisoned(buffer) for buffer in kernel.kept]
    writable = list(zip((*kernel.outputs, *kernel.kept), (*outputs, *kept)))
    memory = make_memory(kernel.name, list(zip(kernel.inputs, inputs)), writable, kernel.grid)
    elements = tuple(element_name(buffer.dtype) for buffer in kernel.buffers)
    with TRITON_LOCK:
        triton_side("interpret.interpreter").run(kernel.name, kernel.source, elements, memory)
    memory.check_all_written(kernel.outputs)
    return outputs


def poisoned_outputs(kernel: Kernel) -> list[np.ndarray]:
    """What a kernel finds where it has written nothing yet."""
    return [poisoned(buffer) for buffer in kernel.outputs]


def _checked(kernel: Kernel, buffer: Buffer, array: np.ndarray) -> np.ndarray:
    if array.shape != buffer.shape or array.dtype != buffer.dtype:
        raise CompilerBug(
            f"kernel {kernel.name} expects {buffer.dtype}{list(buffer.shape)} for {buffer.name}, "
            f"but found {array.dtype}{list(array.shape)}"
        )
    return np.ascontiguousarray(array)
