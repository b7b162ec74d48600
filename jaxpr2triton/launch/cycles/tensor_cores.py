"""Products of matrices in machine code: their shapes, and what they read of shared memory.

HMMA.16816.F32.BF16      R4, R8, R12, R4              by one warp, which waits for it as for any other result
HGMMA.64x64x16.F32.BF16  R56, R28, gdesc[UR8], R56    by four warps, which go on meanwhile: the first factor comes
                                                      from registers, the second one from shared memory
HGMMA.64x64x16.F32.BF16  R24, gdesc[UR4], R24, gsb0   both do; with gsb0 a group of such products ends
WARPGROUP.DEPBAR.LE      gsb0, 0x0                    waits until no group is under way
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from jaxpr2triton.launch.cycles.sass import Instruction

WARPS_OF_A_GROUP = 4  # that multiply together, one on each scheduler
_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)|(16|8)(8)(\d+)")
_BITS = {"TF32": 32, "F64": 64, "S8": 8, "U8": 8, "E4M3": 8, "E5M2": 8, "S4": 4, "U4": 4}  # of a factor; 16 else
_KINDS = {"D": 64, "I": 8, "Q": 8}  # … where only the kind of the instruction says so


@dataclass(frozen=True)
class Product:
    """One instruction: rows by columns of results, of so many terms each."""

    rows: int
    columns: int
    terms: int
    bits: int  # of a factor
    is_async: bool  # by a group of warps
    is_first_shared: bool  # whether the first factor comes from shared memory; the second one of a group always does
    ends_group: bool

    @property
    def amount(self) -> int:
        """Multiplications."""
        return self.rows * self.columns * self.terms

    @property
    def bytes_shared(self) -> int:
        """Of shared memory, read once for the whole group."""
        read = (self.rows if self.is_first_shared else 0) + self.columns
        return read * self.terms * self.bits // 8 if self.is_async else 0


def product_of(each: Instruction) -> Product | None:
    """What an instruction multiplies, if it does."""
    return _product(each.name, each.operands) if "MMA" in each.kind else None


@cache
def _product(name: str, operands: str) -> Product | None:
    kind, *parts = name.split(".")
    shapes = [found for part in parts if (found := _SHAPE.fullmatch(part))]
    if not kind.endswith("MMA") or not shapes:
        return None
    rows, columns, terms = (int(size) for size in shapes[0].groups() if size)
    bits = next((_BITS[part] for part in parts if part in _BITS), _KINDS.get(kind[0], 16))
    first = operands.split(",")[1].strip() if "," in operands else ""
    return Product(rows, columns, terms, bits, kind.endswith("GMMA"), first.startswith("gdesc"), "gsb" in operands)


def multiplies_async(each: Instruction) -> bool:
    product = product_of(each)
    return product is not None and product.is_async


def groups_left(each: Instruction) -> int | None:
    """How many groups may be under way behind an instruction that waits for the others; None of all else."""
    if not each.name.startswith("WARPGROUP.DEPBAR"):
        return None
    return int(each.operands.split(",")[1], 16)
