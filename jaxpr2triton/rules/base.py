"""What a rule is: where a primitive reads, what it computes, what it costs.

A row of a table describes one primitive. There are four sorts of row, by where the primitive reads:

- `Pointwise`: each output element reads the elements of the operands at the same index;
- `Indexing`: an output element IS an operand element, found at another index (`rules/indexing.py`);
- `Reduction`: an output element sums (or multiplies, or takes the largest …) over new axes (`rules/reductions.py`);
- `Sweep`: it combines those of its own axis, which one program has to have whole (`rules/sweeps.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxpr2triton.errors import CompilerBug, WhyNot
from jaxpr2triton.ir.dtypes import kind
from jaxpr2triton.ir.tree import expr


@dataclass(frozen=True)
class Call:
    """One equation as a pointwise rule sees it: dtypes and parameters, no shapes."""

    in_dtypes: tuple[np.dtype, ...]
    out_dtype: np.dtype
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pointwise:
    """`write(call, operands) -> one Triton expression`, of trees: who prints them knows where parentheses are needed.

    Values of f16 and bf16 are held as f32 inside a kernel (see ir/dtypes.py), so `write` sees f32 arithmetic for them.
    """

    write: Callable[[Call, Sequence[ast.expr]], ast.expr]
    flops: int = 1
    refuse: Callable[[Call], WhyNot | None] = lambda call: None
    helpers: tuple[str, ...] = ()  # functions that the expression may call
    words: int = 1  # how many numbers the expression gives; an equation wants the one that its `word` says
    linear_in: tuple[int, ...] = ()  # the operands in each of which it is linear, of floats, while the others are held
    instructions: int | None = None  # of machine code, where they are not as many as operations

    @property
    def weight(self) -> int:
        return self.flops if self.instructions is None else self.instructions

    def called(self, written: ast.expr) -> tuple[str, ...]:
        """The helpers that this expression calls."""
        if not self.helpers:
            return ()
        names = {node.id for node in ast.walk(written) if isinstance(node, ast.Name)}
        return tuple(name for name in self.helpers if name in names)


def pointwise(
    template: str,
    *,
    flops: int = 1,
    linear_in: tuple[int, ...] = (),
    instructions: int | None = None,
    **by_kind: str,
) -> Pointwise:
    """A row from templates such as "{0} + {1}"; `float=`, `int=` … hold for first operands of that kind."""

    def write(call: Call, args: Sequence[ast.expr]) -> ast.expr:
        return expr(by_kind.get(kind(call.in_dtypes[0]), template), *args)

    return Pointwise(write, flops, linear_in=linear_in, instructions=instructions)


def merge_tables(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """One table from several; a primitive with two rows is a bug."""
    merged: dict[str, Any] = {}
    for table in tables:
        for name, row in table.items():
            if name in merged:
                raise CompilerBug(f"two rows for the primitive `{name}`")
            merged[name] = row
    return merged
