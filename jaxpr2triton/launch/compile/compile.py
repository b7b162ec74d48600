"""Kernels become binaries: from memory, from disk, or from Triton's compiler, in that order.

A warm cache never imports Triton. Nothing here needs a GPU.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxpr2triton.errors import KernelRefused, SourceRefused, UserError
from jaxpr2triton.hardware import MOST_PROGRAMS, Target, target_named
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.knobs import read_knobs
from jaxpr2triton.launch.compile.alone import with_all_registers, with_room
from jaxpr2triton.launch.compile.asserted import named_in_errors
from jaxpr2triton.launch.compile.cache import read_entry, write_entry
from jaxpr2triton.launch.compile.helper import compiled_beside
from jaxpr2triton.launch.compile.join import products_joined
from jaxpr2triton.launch.compile.nvidia_tools import Resources, machine_code, ptxas_resources
from jaxpr2triton.launch.compile.parted import sums_parted
from jaxpr2triton.launch.compile.triton_shim import triton_version
from jaxpr2triton.launch.compile.waits import products_awaited
from jaxpr2triton.launch.elements import element_name
from jaxpr2triton.policy import policy_of
from jaxpr2triton.progress import LOGGER, working

_KEPT = 1024  # binaries in memory
_CAME_WITH = {88: 90, 100: 86, 101: 86, 103: 88, 110: 90, 120: 87, 121: 88}  # devices, and their version of PTX
_STAGES = {"cuda": ("ttir", "ttgir", "llir", "ptx", "sass"), "hip": ("ttir", "ttgir", "llir", "amdgcn")}


@dataclass(frozen=True)
class Binary:
    """A kernel compiled for a target; all that a launch needs, and no more."""

    name: str  # of the entry point
    kind: str  # ptx or hsaco
    code: str | bytes  # text for ptx, bytes for hsaco
    shared: int  # bytes of shared memory that one program uses
    num_warps: int
    target: str


@dataclass(frozen=True)
class Compiled:
    """What Triton made: the code of each stage (text, or bytes for cubin and hsaco) and the facts about the last."""

    stages: Mapping[str, str | bytes]
    name: str
    shared: int
    scratch: int


_binaries: OrderedDict[str, Binary | KernelRefused] = OrderedDict()
_binaries_lock = threading.Lock()
_key_locks = tuple(threading.Lock() for _ in range(64))


def compile_kernel(kernel: Kernel, target: Target, lines: bool = False) -> Binary:
    """The binary, or `KernelRefused` with the kernel's name and the reason. Threads never compile a kernel twice.

    With `lines` its code says which line of the source each instruction comes from.
    """
    key = _key(kernel, target, lines)
    with _key_locks[int(key[:8], 16) % len(_key_locks)]:
        with _binaries_lock:
            found = _binaries.get(key)
        if found is None:
            found = _from_disk(key) or _compiled(kernel, target, lines, key)
        with _binaries_lock:
            _binaries[key] = found
            _binaries.move_to_end(key)
            while len(_binaries) > _KEPT:
                _binaries.popitem(last=False)
    if isinstance(found, KernelRefused):
        raise _same(found)
    return found


def asm(kernel: Kernel, target: Target, kind: str) -> str:
    """One stage of the compiled kernel as text: ttir, ttgir, llir, ptx, sass or amdgcn."""
    if kind not in _STAGES[target.backend]:
        raise UserError(f"there is no {kind} for {target.name}", hint="one of " + ", ".join(_STAGES[target.backend]))
    if kind in ("ptx", "sass"):
        code = str(compile_kernel(kernel, target).code)
        return code if kind == "ptx" else machine_code(code, target.arch)[0]
    return str(_stages(kernel, target, False).stages[kind])


def resources(binary: Binary) -> Resources:
    """Registers, spills and shared memory, as ptxas reports them; CUDA only."""
    if binary.kind != "ptx" or not isinstance(binary.code, str):
        raise UserError(f"resources are known for CUDA targets only, not for {binary.target}")
    return ptxas_resources(binary.code, target_named(binary.target).arch)


def _options(kernel: Kernel, target: Target) -> dict[str, Any]:
    options = {"num_warps": kernel.num_warps, "num_stages": kernel.num_stages, "enable_fp_fusion": True}
    if kernel.meets:  # the end of a wait that never ends is an assertion, which Triton drops without `debug`
        options |= {"debug": True, "sanitize_overflow": False}
    return options | {"ptx_version": ptx_version(target.arch)} if isinstance(target.arch, int) else options


def ptx_version(arch: int) -> int:
    """The oldest version of PTX in which Triton's code for the device can be written: sm_90 → 80, which is 8.0.

    Triton would take the newest that its own assembler knows, but the assembler that JAX finds reads the text, and may
    be of an older toolkit. Triton names the device with all its features from sm_90 on: sm_90a came with PTX 8.0, those
    after it with the versions below. What it writes for sm_80 to sm_89 would be 7.x, but for 8-bit floats on sm_89
    (8.1), which stay with XLA; and 8.0 is as far back as JAX's own toolkits go.
    """
    return _CAME_WITH.get(arch, 80 if arch <= 90 else 90)


@functools.cache
def makers() -> str:
    """What a binary comes from besides Triton: all of this folder, whose passes go over what Triton has written."""
    sources = (path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(b"\0".join(sources)).hexdigest()


def _key(kernel: Kernel, target: Target, lines: bool) -> str:
    """All that a binary is made of, as one word."""
    elements = [element_name(buffer.dtype) for buffer in kernel.buffers]
    names = [buffer.name for buffer in kernel.buffers]
    parts: list[Any] = [makers(), triton_version(), target.backend, target.arch, target.warp_size, target.shared_bytes]
    parts += [kernel.name, kernel.source, names, elements, kernel.grid, _options(kernel, target)]
    parts += [_latency(target), _is_alone(kernel, target), _of_a_processor(kernel, target)]
    text = json.dumps(parts + ["lines"] if lines else parts)
    return hashlib.sha256(text.encode()).hexdigest()


def _from_disk(key: str) -> Binary | None:
    knobs = read_knobs()
    entry = read_entry(knobs.cache_dir, key) if knobs.cache else None
    if entry is None:
        return None
    LOGGER.debug("kernel %s for %s: read from disk", entry["name"], entry["target"])
    code = base64.b64decode(entry["code"]) if entry["kind"] == "hsaco" else entry["code"]
    return Binary(**{**entry, "code": code})


def _compiled(kernel: Kernel, target: Target, lines: bool, key: str) -> Binary | KernelRefused:
    try:
        with working(f"Triton compiles {kernel.name} for {target.name}") as work:
            binary = _fresh(kernel, target, lines)
    except KernelRefused as refusal:
        LOGGER.debug("kernel %s for %s: refused after %.2f s", kernel.name, target.name, work.elapsed)
        return _same(refusal)
    LOGGER.debug("kernel %s for %s: compiled in %.2f s", kernel.name, target.name, work.elapsed)
    knobs = read_knobs()
    if knobs.cache:
        code = base64.b64encode(binary.code).decode() if isinstance(binary.code, bytes) else binary.code
        write_entry(knobs.cache_dir, key, {**vars(binary), "code": code})
    return binary


def _fresh(kernel: Kernel, target: Target, lines: bool) -> Binary:
    for axis, programs, most in zip("xyz", kernel.grid, MOST_PROGRAMS):
        if not 1 <= programs <= most:
            raise KernelRefused(f"kernel {kernel.name}: {programs} programs along {axis}, where 1 to {most} can run")
    if kernel.meets and target.backend != "cuda":  # a wave releases what it has stored itself, and no more
        seen = f"on {target.name} not all that one has stored is sure to be seen by the others"
        raise KernelRefused(f"kernel {kernel.name} has programs that wait for each other, and {seen}")
    made = _stages(kernel, target, lines)
    if made.shared > target.shared_bytes:
        limit = f"{target.name} has {target.shared_bytes}"
        raise KernelRefused(f"kernel {kernel.name} needs {made.shared} bytes of shared memory, and {limit}")
    if made.scratch:
        raise KernelRefused(f"kernel {kernel.name} needs {made.scratch} bytes of scratch memory for each program")
    kind = "ptx" if target.backend == "cuda" else "hsaco"
    code = made.stages[kind]
    if isinstance(code, str):
        code = products_awaited(products_joined(sums_parted(code, _latency(target))))
        if kernel.meets:
            code = with_room(named_in_errors(code, kernel.name), _of_a_processor(kernel, target))
            _check_room(kernel, target, ptxas_resources(code, target.arch).registers, made.shared)
        elif _is_alone(kernel, target):
            code = with_all_registers(code)
    return Binary(made.name, kind, code, made.shared, kernel.num_warps, target.name)


def _latency(target: Target) -> int:
    """What sums are parted by."""
    return policy_of(target).cost.latency


def _is_alone(kernel: Kernel, target: Target) -> bool:
    """Whether each program of a loop that carries something has a processor to itself."""
    return kernel.choice is not None and math.prod(kernel.grid) <= target.processors


def _of_a_processor(kernel: Kernel, target: Target) -> int:
    """How many programs have to run at once on some processor; none of those that do not wait for each other."""
    return -(-math.prod(kernel.grid) // target.processors) if kernel.meets else 0


def _check_room(kernel: Kernel, target: Target, registers: int, shared: int) -> None:
    """`KernelRefused` unless all programs run at once: they would wait for those that cannot begin."""
    at_once, programs = target.at_once(registers, shared, kernel.num_warps), math.prod(kernel.grid)
    if at_once < _of_a_processor(kernel, target):
        room = f"{target.name} has room for {at_once} on each of its {target.processors} processors"
        raise KernelRefused(f"kernel {kernel.name} needs all of its {programs} programs to run at once, and {room}")


@functools.lru_cache(maxsize=8)
def _stages(kernel: Kernel, target: Target, lines: bool) -> Compiled:
    answer = compiled_beside(
        {
            "name": kernel.name,
            "source": kernel.source,
            "signature": {f"{buffer.name}_ptr": f"*{element_name(buffer.dtype)}" for buffer in kernel.buffers},
            "target": (target.backend, target.arch, target.warp_size),
            "options": _options(kernel, target),
            "lines": lines,
        }
    )
    if "error" not in answer:
        return Compiled(**answer)
    error, says = answer["error"], answer["says"]
    is_ours = error == "CompilationError" and "numel" not in says  # but for tiles of too many elements
    refused = SourceRefused if is_ours else KernelRefused
    refusal = refused(f"Triton refuses kernel {kernel.name}: {error}: {_telling(says)}")
    refusal.add_note(f"Triton says: {says}"[:4000])
    raise refusal


def _same(refusal: KernelRefused) -> KernelRefused:
    """Without the traceback, which keeps all of Triton's modules alive."""
    copy = type(refusal)(refusal.what, where=refusal.where, hint=refusal.hint)
    for note in getattr(refusal, "__notes__", ()):
        copy.add_note(note)
    return copy


def _telling(says: str) -> str:
    """The telling line of Triton's errors, which quote whole programs."""
    lines = [line.strip() for line in says.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    return (telling or lines[-1:] or ["no message"])[0][:200]
