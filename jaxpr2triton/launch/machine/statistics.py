"""What a kernel did on the machine, by kind of instruction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxpr2triton.launch.machine.ptx import ASSERTION, Instruction

_CONTROL = ("bra", "ret", "exit", "trap", ASSERTION)
_BARRIERS = ("bar", "barrier")
_LANES = ("shfl", "redux", "vote", "match")
_APPROXIMATE = ("ex2", "lg2", "sin", "cos", "tanh", "rcp", "sqrt", "rsqrt", "div")
_FLOATS = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")


@dataclass(frozen=True)
class Statistics:
    instructions: Mapping[str, int]  # of warps, by kind, the commonest first
    sectors: int  # of 32 bytes of global memory
    least_sectors: int  # that would hold as many bytes
    wavefronts: int  # rounds of shared memory
    least_wavefronts: int  # without bank conflicts

    @property
    def executed(self) -> int:
        return sum(self.instructions.values())

    @property
    def bank_conflicts(self) -> int:
        return self.wavefronts - self.least_wavefronts


def statistics(body: Sequence[Instruction], counts: np.ndarray) -> Statistics:
    """`counts` of a run: warps, lanes, sectors and the least for each instruction."""
    kinds: Counter[str] = Counter()
    memory = {"global memory": [0, 0], "shared memory": [0, 0]}
    for instruction, (warps, _, sectors, least) in zip(body, counts.tolist()):
        if not instruction.opcode or not warps:
            continue
        kind = kind_of(instruction)
        kinds[kind] += warps
        if kind in memory:
            memory[kind][0] += sectors
            memory[kind][1] += least
    return Statistics(dict(kinds.most_common()), *memory["global memory"], *memory["shared memory"])


def kind_of(instruction: Instruction) -> str:
    name, words = instruction.name, [word.partition("::")[0] for word in instruction.modifiers]
    if name in _CONTROL:
        return "control"
    if name in _BARRIERS:
        return "barriers"
    if name in _LANES:
        return "between lanes"
    if name == "mma" or (name == "wgmma" and "mma_async" in words):
        return "products of matrices"
    if name in ("fence", "wgmma"):
        return "fences and waits"
    if name in ("ld", "st", "atom", "red", "ldu", "ldmatrix", "stmatrix", "cp"):
        return next((f"{space} memory" for space in ("shared", "global", "local") if space in words), "arguments")
    if name in ("mov", "cvt", "selp", "prmt", "cvta"):
        return "moves and conversions"
    if name in _APPROXIMATE:
        return "functions"
    return "floats" if any(word in _FLOATS for word in words) and name != "setp" else "integers and choices"
