"""How long the parts of a device take, for those whose machine code is modelled.

Cycles of special functions, shuffles, barriers and loads, and the rates of an H100's memories, are as measured
(`bench/results/measured-figures.md`); others are what is generally reported of measurements by small loops.
Instructions whose latency is fixed are not here: ptxas writes that into the code. Widths of pipes come from the numbers
of lanes that the makers publish for each kind of instruction, what else there is from data sheets. The newest of each
family: A100 with 80 GB, H100 SXM.

What tensor cores do with 16, 19 and 8 bits is `Target.products`, measured as well: 2,048 products of 16 bits in a cycle
of an H100's processor, which are the data sheet's 989 TFLOP/s at 1.83 GHz. Its 67 TFLOP/s of f64 are 128 at 1.98 GHz,
and 19.5 of an A100 are 64 at 1.41. An H100 does half of that for products that one warp makes alone, as is reported of
`mma.sync`; `wgmma`, of four warps, has all of it. The latency of an HGMMA is taken to be that of an HMMA.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxpr2triton.errors import UserError
from jaxpr2triton.hardware import TARGETS, Target
from jaxpr2triton.launch.cycles.sass import Instruction
from jaxpr2triton.launch.cycles.tensor_cores import Product, product_of

TENSOR_CORES = "tensor cores"
# What an instruction of each kind makes others wait for.
WAITS: dict[str, str] = {
    **dict.fromkeys(("LDG", "LD", "LDGSTS", "ATOMG", "ATOM"), "loads (L2)"),
    **dict.fromkeys(("STG", "ST", "RED"), "stores"),
    **dict.fromkeys(("LDS", "LDSM", "STS", "STSM", "ATOMS", "LDGDEPBAR", "DEPBAR"), "shared memory"),
    **dict.fromkeys(("SHFL", "REDUX", "VOTE", "VOTEU", "MATCH"), "shuffles"),
    **dict.fromkeys(("BAR", "WARPSYNC"), "barriers"),
    **dict.fromkeys(("MUFU",), "special functions"),
    **dict.fromkeys(("I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV", "I2FP", "F2FP"), "conversions"),
    **dict.fromkeys(("DADD", "DMUL", "DFMA", "DSETP", "DMNMX"), "f64"),
    **dict.fromkeys(("LDC", "LDCU", "ULDC", "S2R", "S2UR", "CS2R", "R2UR"), "constants"),
    **dict.fromkeys(("LDL", "STL"), "local memory"),
    **dict.fromkeys(("HMMA", "DMMA", "IMMA"), TENSOR_CORES),
}
# Cycles until a waiting instruction may begin, of what sets a counter. The same on both, within a few cycles.
_LATENCIES = {
    "MUFU": 17, "I2F": 16, "F2I": 16, "F2F": 16, "FRND": 16, "POPC": 16, "FLO": 16, "BREV": 16, "I2FP": 6, "F2FP": 6,
    "SHFL": 24, "REDUX": 28, "VOTE": 12, "VOTEU": 12, "MATCH": 30,
    "LDS": 30, "LDSM": 33, "STS": 22, "STSM": 24, "ATOMS": 60, "WARPSYNC": 12,
    "LDL": 33, "STL": 20, "STG": 20, "ST": 20, "RED": 20, "ATOMG": 500, "ATOM": 500,
    "DADD": 16, "DMUL": 16, "DFMA": 16, "DSETP": 18, "DMNMX": 16,
    "LDC": 30, "LDCU": 30, "ULDC": 14, "S2R": 24, "S2UR": 24, "CS2R": 12, "R2UR": 12, "HMMA": 33, "DMMA": 26,
    "HGMMA": 33, "IGMMA": 33, "QGMMA": 33,
}  # fmt: skip
BARRIER = 12  # cycles of a barrier, of a warp that is alone …
BARRIER_OF_A_WARP = 2  # … and more for each warp that waits
OTHER = 12  # cycles of what is not listed
READ = 12  # cycles until the operands of a store, or of another slow instruction, may be overwritten at the latest
_QUARTER_RATE = ("MUFU", "I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV", "REDUX")
_F64 = ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX")
_MEMORY = ("LDG", "LD", "STG", "ST", "LDGSTS", "LDS", "STS", "LDSM", "STSM", "LDL", "STL", "SHFL", "ATOMG", "ATOM",
           "ATOMS", "RED")  # fmt: skip
_FLOATS = ("FFMA", "FADD", "FMUL", "HFMA2", "HADD2", "HMUL2")
_CONTROL = ("BRA", "JMP", "EXIT", "NOP", "BSSY", "BSYNC", "BAR", "CALL", "RET", "WARPSYNC", "YIELD", "BREAK", "DEPBAR",
            "ENDCOLLECTIVE", "LDC", "LDCU", "ULDC", "S2R", "S2UR", "LDGDEPBAR", "R2UR", "WARPGROUP", "HGMMA",
            "IGMMA", "QGMMA")  # fmt: skip
SHARED_RATE = 128  # bytes of its shared memory that a processor reads or writes in a cycle
FIRST_LEVEL = "loads (L1)"
MEMORY_PIPE = "memory pipe"  # of a processor, for all of its schedulers
TRAFFIC = ("LDG", "LD", "STG", "ST", "LDGSTS", "ATOMG", "ATOM", "RED")  # what passes the second-level cache


@dataclass(frozen=True)
class Machine:
    """What a model of time has to know of a device."""

    target: Target
    cache_rate: float  # bytes that the second-level cache gives all processors in a cycle
    cache_rate_of_one: float  # … and one of them at most
    first_level: int  # bytes that a processor has for its cache and its shared memory together
    load_again: int  # cycles of a load from the first-level cache
    load: int  # … from the second-level cache
    load_from_memory: int  # … from device memory
    float_cycles: int  # of a scheduler's f32 pipe for one instruction of a warp
    f64_cycles: int
    f64_products: int  # of f64 that a processor's tensor cores add in a cycle
    of_one_warp: float  # the part of `Target.products` that they add where each warp multiplies by itself
    lanes: int = 32

    @property
    def clock(self) -> float:
        return self.target.clock

    @property
    def memory_rate(self) -> float:
        return self.target.memory_rate

    def latency(self, kind: str, from_memory: bool, warps: int = 1) -> int:
        """Cycles until what waits for it may begin; `warps` is how many of a program meet at a barrier."""
        if kind == "BAR":
            return BARRIER + BARRIER_OF_A_WARP * warps
        if WAITS.get(kind) == "loads (L2)" and kind not in _LATENCIES:
            return self.load_from_memory if from_memory else self.load
        return _LATENCIES.get(kind, OTHER)

    def pipes(self, each: Instruction) -> tuple[tuple[str, float], ...]:
        """The pipes that a warp's instruction keeps busy, and for how many cycles."""
        kind = each.kind
        if kind in _FLOATS:
            return (("FMA pipe", self.float_cycles),)
        if kind == "IMAD":
            return (("FMA pipe", self.float_cycles), ("integer products", 2))
        if kind in _QUARTER_RATE:
            return (("special functions", 8),)
        if kind in _F64:
            return (("f64 pipe", self.f64_cycles),)
        product = product_of(each)
        if product is not None and not product.is_async:
            return ((TENSOR_CORES, self.multiplying(product)),)
        if kind in _MEMORY:
            cycles = 1 if kind == "SHFL" else max(1, each.width // 4)
            return ((MEMORY_PIPE, cycles),)
        if kind in _CONTROL or kind.startswith("U"):
            return ()
        return (("integer pipe", 2),)

    def multiplying(self, product: Product) -> float:
        """Cycles of a tensor core; those of a group's four warps multiply together, and read shared memory."""
        if product.bits == 64:
            return product.amount * self.target.schedulers / self.f64_products
        rate = self.target.products * 16 / product.bits
        if product.is_async:
            return max(product.amount / rate, product.bytes_shared / SHARED_RATE)
        return product.amount * self.target.schedulers / rate / self.of_one_warp


MACHINES = {
    "sm_80": Machine(TARGETS["sm_80"], 3600, 64, 196_608, 34, 220, 480, 2, 4, 64, 1.0),
    "sm_90": Machine(TARGETS["sm_90"], 4880, 122, 262_144, 34, 278, 700, 1, 2, 128, 0.5),
}


def machine_of(target: Target) -> Machine:
    """What is known of a target, or an error that lists those that are known."""
    if target.name not in MACHINES:
        raise UserError(f"cycles are not modelled for {target.name}", hint="one of " + ", ".join(MACHINES))
    return MACHINES[target.name]
