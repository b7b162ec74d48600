"""The machine's operations as functions of C, and its core, compiled once.

    operation_functions(["fma.rn.f32", "xor.b32"])   →   the addresses of two functions of C

Each function does its operation in the 32 lanes of a warp:

    void f(uint8_t *const results[4], const uint8_t *const operands[4], uint32_t *carry)

Results and operands are rows of 32 lanes: predicates as u32 that are 0 or 1, bytes in the u16 that they live in, all
else as long as its type. A result may be the row of an operand. `carry` is a row of u32, the carry flags, which may be
null for operations that have none. Floats are only right in the default floating-point environment: whoever calls these
functions from a thread that flushes denormals, as XLA's do, sets it (`fesetenv(FE_DFL_ENV)`) and restores it.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.launch.machine.build import HERE, built, opened
from jaxpr2triton.launch.machine.families.spelling import C_TYPES, Operation
from jaxpr2triton.launch.machine.layout import LANES, header
from jaxpr2triton.launch.machine.operations import operation, usual_operations
from jaxpr2triton.progress import working

PARTS = 2  # of the usual operations, compiled at the same time

_lock = threading.RLock()
_functions: dict[tuple[str, bool], int] = {}
_libraries: list[ctypes.CDLL] = []  # never closed: the addresses stay


def operation_functions(opcodes: Iterable[str], noise: bool = False) -> dict[str, int]:
    """The address of the C function of each; with `noise`, approximations are off by up to two units in the last place.

    The usual operations are one library (of two halves), whatever else is asked for is one more.
    """
    noisy = {each: noise and "NOISY" in _known(each).body for each in opcodes}
    with _lock:
        for with_noise in (False, True):
            _load([each for each, its in noisy.items() if its == with_noise], with_noise)
        return {each: _functions[each, its] for each, its in noisy.items()}


@functools.cache
def core(source: Path = HERE / "core.c") -> ctypes.CDLL:
    """The interpreter itself, which calls those functions."""
    with _lock:
        text = source.read_text("utf-8").replace('#include "layout.h"\n', header())
        return opened(*built([text]))


def function_of(symbol: str, operation: Operation) -> str:
    """The C function of an operation: all 32 lanes, one after the other, for the compiler to do them together.

    A lane reads what it needs before it writes, and no lane reads another: a result may be the row of an operand.
    """
    results, operands = operation.results, operation.operands
    rows = [f"  {C_TYPES[t]} *const r{i} = (void *)results[{i}];" for i, t in enumerate(results)]
    rows += [f"  const {C_TYPES[t]} *const o{i} = (const void *)operands[{i}];" for i, t in enumerate(operands)]
    lane = [f"    const {C_TYPES[t]} {name} = o{i}[lane];" for i, (t, name) in enumerate(zip(operands, "abce"))]
    lane += [f"    {C_TYPES[t]} d{i};" for i, t in enumerate(results)]
    kept = [f"    r{i}[lane] = d{i};" for i in range(len(results))]
    if "carry" in operation.body:
        lane, kept = [*lane, "    u32 carry = carries[lane];"], [*kept, "    carries[lane] = carry;"]
    head = f"void {symbol}(uint8_t *const results[4], const uint8_t *const operands[4], uint32_t *carries) {{"
    loop = ["#pragma GCC ivdep", f"  for (int lane = 0; lane < {LANES}; lane++) {{"]
    return "\n".join([head, *rows, *loop, *lane, f"    {operation.body}", *kept, "  }", "}", ""])


def _known(opcode: str) -> Operation:
    found = operation(opcode)
    if found is None:
        raise CompilerBug(f"there is no operation {opcode}")
    return found


def _load(opcodes: Sequence[str], noise: bool) -> None:
    missing = [each for each in opcodes if (each, noise) not in _functions]
    usual = frozenset(usual_operations())
    rare = sorted(each for each in missing if each not in usual)
    parts = _usual_parts(noise) if len(rare) < len(missing) else []
    parts = [*parts, rare] if rare else parts
    if not parts:
        return
    defines = ["NOISE"] if noise else []
    title = "compiling the PTX simulator's operations, once for this computer"
    with working(title):
        paths = built([*map(_text_of, parts)], defines)
    for part, path in zip(parts, paths):
        library = opened(path)
        _libraries.append(library)
        for opcode in part:
            address = ctypes.cast(library[_symbol(opcode)], ctypes.c_void_p).value
            assert address is not None
            _functions[opcode, noise] = address


def _usual_parts(noise: bool) -> list[list[str]]:
    """Few operations are noisy; the others are the same with noise as without."""
    usual = [each for each in usual_operations() if not noise or "NOISY" in _known(each).body]
    return [usual[part::PARTS] for part in range(PARTS)]


def _symbol(opcode: str) -> str:
    return "do_" + opcode.replace(".", "_")


def _text_of(opcodes: Sequence[str]) -> str:
    functions = (function_of(_symbol(each), _known(each)) for each in opcodes)
    return '#include "arithmetic.h"\n' + "\n".join(functions)
