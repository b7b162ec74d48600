"""Kernels that the stand-in driver is given, ours and XLA's, are computed by the machine that runs PTX.

The driver hands over a launch as a device gets it: the text of the kernel, numbers, and memory by address.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxpr2triton.launch.machine.layout import Kind
from jaxpr2triton.launch.machine.run import At, Block, Program, Settings, run
from tests.standin.checks import Meant
from tests.standin.start import started

ADDRESS = 8  # bytes


@dataclass(frozen=True)
class Allocation:
    address: int
    size: int


@dataclass(frozen=True)
class Launched:
    """A launch as the driver sees it; `memory` is whatever its arguments point into."""

    name: str
    ptx: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: tuple[bytes, ...]
    memory: tuple[Allocation, ...]


Execute = Callable[[Launched], Sequence[str]]  # what was wrong with it


@dataclass
class Done:
    """What has been executed, and all that was wrong."""

    kernels: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def on_machine(meant: Meant) -> Execute:
    """Computes in place; each allocation is a block of the machine.

    Kernels of ours are checked in every way. Those of XLA are only kept within their allocations: which of them a
    kernel may write is not known, and they shuffle from lanes that are not there and do not matter.
    """

    def execute(launched: Launched) -> list[str]:
        kernel = meant.kernel(launched.name, launched.ptx)
        arguments = [argument_of(value, launched.memory) for value in launched.arguments]
        pointers = arguments if kernel is None else arguments[len(kernel.inputs) : len(kernel.buffers)]
        written = {each.block for each in pointers if isinstance(each, At)}
        blocks = [Block(hex(each.address), memory_of(each), n in written) for n, each in enumerate(launched.memory)]
        resident = math.prod(launched.grid) if kernel is not None and kernel.meets else 0
        settings = Settings(check=kernel is not None, resident=resident)
        program = program_of(launched.ptx)
        ran = run(program, blocks, arguments, launched.grid, launched.block, launched.shared, settings)
        return [str(finding) for finding in ran.findings if kernel is not None or finding.kind in NEVER]

    return execute


NEVER = (Kind.OUT_OF_BOUNDS, Kind.MISALIGNED, Kind.NO_END, Kind.TRAPPED)


@functools.lru_cache(maxsize=1024)
def program_of(ptx: str) -> Program:
    return Program.of(ptx)


def memory_of(allocation: Allocation) -> np.ndarray:
    return np.frombuffer((ctypes.c_char * allocation.size).from_address(allocation.address), np.uint8)


def argument_of(value: bytes, memory: Sequence[Allocation]) -> At | bytes:
    if len(value) == ADDRESS:
        address = int.from_bytes(value, "little")
        for number, each in enumerate(memory):
            if each.address <= address < each.address + each.size:
                return At(number, address - each.address)
    return value


# the driver's side


class Parameter(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint), ("size", ctypes.c_uint))


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_uint),
    ctypes.c_uint, ctypes.c_int, ctypes.POINTER(Parameter), ctypes.c_void_p,
)  # fmt: skip
_installed: list[Any] = []  # the driver keeps no reference


def compute(execute: Execute) -> Done:
    """From now on every launch is computed; call it before there are arrays, which hold nothing otherwise."""
    done, lock = Done(), threading.Lock()

    def called(
        name: bytes, ptx: bytes | None, grid: Any, block: Any, shared: int, count: int, at: Any, values: int
    ) -> int:
        kernel = name.decode()
        try:
            if ptx is None:
                raise LookupError("its PTX is not known")
            arguments = tuple(ctypes.string_at(values + at[n].offset, at[n].size) for n in range(count))
            memory = allocations_of(arguments)
            found = execute(
                Launched(kernel, ptx.decode(), tuple(grid[:3]), tuple(block[:3]), shared, arguments, memory)
            )
        except Exception:  # no exception may pass through C: the launch fails, and the reason is kept
            found = [traceback.format_exc(limit=-2)]
        with lock:
            done.kernels[kernel] += 1
            done.wrong += [f"{kernel}: {each}" for each in found]
        return int(bool(found))

    _installed[:] = [_Callback(called)]
    started().standin_set_executor(_installed[0])
    return done


def allocations_of(arguments: Sequence[bytes]) -> tuple[Allocation, ...]:
    """Each that an argument points into, once."""
    driver, start, size = started(), ctypes.c_uint64(), ctypes.c_size_t()
    found = {}
    for value in arguments:
        address = ctypes.c_uint64(int.from_bytes(value, "little") if len(value) == ADDRESS else 0)
        if address.value and driver.standin_block(address, ctypes.byref(start), ctypes.byref(size)):
            found[start.value] = Allocation(start.value, size.value)
    return tuple(found.values())
