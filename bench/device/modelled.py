"""What the model of cycles says of kernels that are launched, and what bounds them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from pathlib import Path

from bench.device.store import Model
from bench.device.ways import Launched
from jaxpr2triton import hardware
from jaxpr2triton.errors import KernelRefused, UserError
from jaxpr2triton.hardware import target_named
from jaxpr2triton.ir.cycles import Cycles
from jaxpr2triton.launch import cycles
from jaxpr2triton.launch.cycles.model import cycles_of

ISSUE, MEMORY, LATENCY, TENSOR = "issue", "memory", "latency", "tensor"
# Stalls by the word that the model has for them; what is not listed is something that a warp waits for.
BOUNDS = {
    **dict.fromkeys(("issue", "FMA pipe", "integer products", "integer pipe", "special functions", "f64 pipe"), ISSUE),
    **dict.fromkeys(("memory pipe",), ISSUE),
    **dict.fromkeys(("bytes", "bytes (L2)"), MEMORY),
    **dict.fromkeys(("tensor cores",), TENSOR),
}


@functools.cache
def this_model() -> str:
    """A hash of the model: what it said before it was changed says nothing about it."""
    digest = hashlib.sha256()
    for file in (Path(hardware.__file__), *sorted(Path(cycles.__file__).parent.glob("*.py"))):
        digest.update(f"{file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def modelled(launched: Launched) -> Model:
    """All kernels of a program, one after the other."""
    return dataclasses.replace(_modelled(launched), by=this_model())


def _modelled(launched: Launched) -> Model:
    target = launched.binaries[0][0].target if launched.binaries else ""
    us: dict[str, float] = {}
    bound: dict[str, str] = {}
    for binary, kernel in launched.binaries:
        try:
            found = cycles_of(kernel, target_named(binary.target))
        except (KernelRefused, UserError) as refusal:
            return Model(launched.hash, target, None, problem=" ".join(str(refusal).split())[:200])
        if found.microseconds is None:
            return Model(launched.hash, target, None, problem=f"how long {kernel.name} runs is not known")
        us[kernel.name] = us.get(kernel.name, 0.0) + found.microseconds
        bound[kernel.name] = bound_of(found)
    return Model(launched.hash, target, sum(us.values()), us, bound)


def bound_of(cycles: Cycles) -> str:
    """By the largest of its shares."""
    return BOUNDS.get(cycles.shares[0].what, LATENCY) if cycles.shares else LATENCY
