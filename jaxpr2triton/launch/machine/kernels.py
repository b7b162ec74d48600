"""Our kernels on the machine: compiled as for a device, and run with every check."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxpr2triton.errors import CompilerBug, UserError
from jaxpr2triton.hardware import TARGETS, Target
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.compile.compile import Binary, compile_kernel
from jaxpr2triton.launch.elements import poisoned
from jaxpr2triton.launch.machine.findings import Finding
from jaxpr2triton.launch.machine.layout import LANES
from jaxpr2triton.launch.machine.run import EVERYTHING, At, Block, Program, Ran, Settings, prepare, run
from jaxpr2triton.launch.machine.statistics import Statistics, statistics
from jaxpr2triton.watching import Watched

_LOOP = re.compile(r"\s*(?:for|while)\b")
_MATRICES = re.compile(r"tl\.dot\((?!.*'ieee')")
_USERS = re.compile(r"\s*# ([^:\s]+:\d+): ")


@dataclass(frozen=True)
class Examined:
    """One run of one kernel on the machine."""

    kernel: Kernel
    target: str
    outputs: tuple[np.ndarray, ...]
    program: Program
    ran: Ran
    forgotten: tuple[str, ...]  # outputs with elements that nothing wrote

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.ran.findings

    @property
    def statistics(self) -> Statistics:
        return statistics(self.program.encoded.module.body, self.ran.counts)


WITH_TENSOR_MEMORY, NEWEST_WITHOUT = TARGETS["sm_100"], TARGETS["sm_90"]

EXAMINED: Watched[Examined] = Watched()  # while somebody watches, what the machine finds is no error


def compiled_for_machine(kernel: Kernel, target: Target) -> Binary:
    """The kernel as PTX that knows its lines; `KernelRefused` where a device would refuse it.

    The machine knows no products in tensor memory: what multiplies on sm_100 is compiled for sm_90.
    """
    if target.backend != "cuda":
        raise UserError(f"the PTX simulator runs PTX, and {target.name} has none", hint="J2T_TARGET=sm_90")
    known = NEWEST_WITHOUT if target.name == WITH_TENSOR_MEMORY.name and _MATRICES.search(kernel.source) else target
    # Triton gives a call within a map no line, and LLVM refuses it where all else has one
    binary = compile_kernel(kernel, known, lines="tl.map_elementwise(" not in kernel.source)
    assert isinstance(binary.code, str)
    prepare(program_of(binary.code, kernel.source))  # what is missing on this computer is told before anything runs
    return binary


def run_on_machine(kernel: Kernel, binary: Binary, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a compiled kernel; what is wrong with it is a `CompilerBug`, unless somebody watches."""
    examined = examine(kernel, binary, arrays, Settings(count=bool(EXAMINED)))
    EXAMINED.tell(examined)
    wrong = [str(finding) for finding in examined.findings]
    wrong += [f"elements of {name} are never written" for name in examined.forgotten]
    if wrong and not EXAMINED:
        raise CompilerBug(f"kernel {kernel.name} in the PTX simulator ({examined.target}): " + "; ".join(wrong[:3]))
    return list(examined.outputs)


def examine(
    kernel: Kernel,
    binary: Binary,
    arrays: Sequence[np.ndarray],
    settings: Settings = EVERYTHING,
    program: Program | None = None,
) -> Examined:
    """Outputs start poisoned, as in the interpreter; the inputs are never changed. `program` may be a changed one.

    Of a kernel whose programs meet all are resident, unless the settings say how many are.
    """
    inputs = [np.ascontiguousarray(array) for array in arrays]
    made = [poisoned(buffer) for buffer in (*kernel.outputs, *kernel.kept)]
    blocks = [
        Block(buffer.name, array, False, granule=buffer.dtype.itemsize) for buffer, array in zip(kernel.inputs, inputs)
    ]
    blocks += [
        Block(buffer.name, array, True, buffer.begins_as_zero, buffer.dtype.itemsize)
        for buffer, array in zip((*kernel.outputs, *kernel.kept), made)
    ]
    assert isinstance(binary.code, str)
    program = program or program_of(binary.code, kernel.source)
    arguments = [At(number) for number in range(len(blocks))]
    threads = (kernel.num_warps * LANES, 1, 1)
    if kernel.meets:
        settings = replace(settings, resident=settings.resident or math.prod(kernel.grid), programs=None)
    ran = run(program, blocks, arguments, kernel.grid, threads, binary.shared, settings)
    outputs = made[: len(kernel.outputs)]
    whole = settings.programs is None
    forgotten = [each.name for each in kernel.outputs if whole and not each.is_flag and ran.unwritten.get(each.name)]
    return Examined(kernel, binary.target, tuple(outputs), program, ran, tuple(forgotten))


@functools.lru_cache(maxsize=256)
def program_of(ptx: str, source: str) -> Program:
    lines = source.split("\n")
    control = frozenset(number for number, line in enumerate(lines, 1) if _LOOP.match(line))
    return Program.of(ptx, control, _users_lines(lines))


def _users_lines(lines: Sequence[str]) -> dict[int, str]:
    """model.py:12 for each line of the kernel that comes after `# model.py:12: y = f(x)`."""
    found, current = {}, ""
    for number, line in enumerate(lines, 1):
        if match := _USERS.match(line):
            current = match.group(1)
        elif line.startswith(("def ", "@")):
            current = ""
        if current:
            found[number] = current
    return found
