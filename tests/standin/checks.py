"""Compares launches with the kernels that were meant: grid, threads, shared memory, and each argument.

A launch says by name whose it is. Several kernels may share a name; a launch is fine if it fits one of them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.call import bridge
from jaxpr2triton.launch.compile.compile import Binary

SCRATCH = 2  # parameters that jaxlib adds: global and profile scratch memory, which no kernel of ours has
ALIGNMENT = 16  # that PTX may count on


@dataclass
class Meant:
    """Kernels that were lowered for the device, by the names of their entries."""

    kernels: dict[str, dict[Kernel, Binary]] = field(default_factory=lambda: defaultdict(dict))

    def launched(self, launches: Sequence[dict[str, Any]]) -> Counter[str]:
        """How often each of ours was."""
        return Counter(launch["kernel"] for launch in launches if launch["kernel"] in self.kernels)

    def kernel(self, name: str, ptx: str) -> Kernel | None:
        """Whose text it is, if it is of ours."""
        for kernel, binary in self.kernels.get(name, {}).items():
            if isinstance(binary.code, str) and binary.code.strip() == ptx.strip():
                return kernel
        return None

    def problems(self, launches: Sequence[dict[str, Any]]) -> list[str]:
        """Why launches of ours are not what was meant."""
        found = []
        for launch in launches:
            candidates = self.kernels.get(launch["kernel"], {})
            tried = [problems(launch, kernel, binary) for kernel, binary in candidates.items()]
            if tried and min(tried, key=len):
                found.append(f"{launch['kernel']}: {'; '.join(min(tried, key=len))}")
        return found


@contextmanager
def noting_kernels() -> Iterator[Meant]:
    """Every kernel of ours that is lowered for the device in between."""
    meant, call = Meant(), bridge._call

    def noted(binary: Binary, kernel: Kernel, *args: Any) -> Any:
        meant.kernels[binary.name][kernel] = binary
        return call(binary, kernel, *args)

    with mock.patch.object(bridge, "_call", noted):
        yield meant


def problems(launch: dict[str, Any], kernel: Kernel, binary: Binary) -> list[str]:
    """Why this launch is not one of that kernel."""
    threads = [32 * binary.num_warps, 1, 1]
    wanted = {"grid": list(kernel.grid), "block": threads, "shared": binary.shared}
    found = [f"{name} {launch[name]} instead of {want}" for name, want in wanted.items() if launch[name] != want]
    arguments, buffers = launch["arguments"], kernel.buffers
    if len(arguments) != len(buffers) + SCRATCH or any(each != {"value": 0} for each in arguments[len(buffers) :]):
        found.append(f"{len(arguments)} arguments for {len(buffers)} buffers")
    for buffer, argument in zip(buffers, arguments):
        if nbytes(buffer) and (problem := misplaced(argument, nbytes(buffer))):
            found.append(f"{buffer.name} {problem}")
    return found + overlaps(kernel, arguments)


def misplaced(argument: Any, needed: int) -> str:
    if argument is None or "at" not in argument:
        return f"is not in any allocation: {argument}"
    if argument["at"] % ALIGNMENT:
        return f"is at {argument['at']:#x}"
    return f"needs {needed} bytes, and {argument['left']} are left" if argument["left"] < needed else ""


def overlaps(kernel: Kernel, arguments: Sequence[Any]) -> list[str]:
    """Nothing that is written shares memory with anything else."""
    spans = [
        (number, argument["at"], argument["at"] + nbytes(buffer), buffer.name)
        for number, (buffer, argument) in enumerate(zip(kernel.buffers, arguments))
        if argument and "at" in argument and nbytes(buffer)
    ]
    written = [span for span in spans if span[0] >= len(kernel.inputs)]
    return [
        f"{name} overlaps {other}"
        for number, start, end, name in written
        for number2, start2, end2, other in spans
        if number != number2 and start < end2 and start2 < end
    ]


def nbytes(buffer: Any) -> int:
    return math.prod(buffer.shape) * np.dtype(buffer.dtype).itemsize
