"""Short texts of PTX, and what the machine says about them."""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from jaxpr2triton.launch.machine.layout import Kind
from jaxpr2triton.launch.machine.run import At, Block, Program, Ran, Settings, run

_HEAD = """
.version 8.0
.target sm_90
.address_size 64
.file 1 "kernel.py"
.extern .shared .align 16 .b8 memory[];
.visible .entry k(.param .u64 .ptr .global .align 16 k_0, .param .u64 .ptr .global .align 16 k_1)
{
.reg .pred %p<24>;
.reg .b16 %h<24>;
.reg .b32 %r<48>;
.reg .b32 %sh;
.reg .b32 %base;
.reg .b32 %tid;
.reg .b64 %q<24>;
.reg .b64 %in;
.reg .b64 %out;
.reg .b64 %its;
.reg .b64 %mine;
.loc 1 1000 0
ld.param.b64 %in, [k_0];
ld.param.b64 %out, [k_1];
mov.u32 %tid, %tid.x;
mul.wide.u32 %q0, %tid, 4;
add.s64 %its, %in, %q0;
add.s64 %mine, %out, %q0;
shl.b32 %r0, %tid, 2;
mov.b32 %base, memory;
add.s32 %sh, %base, %r0;
"""

WORDS = np.arange(64, dtype=np.uint32) * 2654435761 % 1000  # small numbers, all of them different


def kernel(body: str, before: str = "") -> str:
    """The text around a body. Its lines are the lines of the "source".

    %in, %out   the arguments, an input and an output       %its, %mine   in + 4 tid, out + 4 tid
    %base       where shared memory begins                  %sh           base + 4 tid
    """
    lines = [line.strip() for line in textwrap.dedent(body).strip("\n").split("\n")]
    numbered = [each for number, line in enumerate(lines, 1) for each in (f".loc 1 {number} 0", line)]
    return before + _HEAD + "\n".join(numbered) + "\nret;\n}\n"


@dataclass(frozen=True)
class Launch:
    threads: tuple[int, int, int] = (32, 1, 1)
    grid: tuple[int, int, int] = (1, 1, 1)
    shared: int = 512  # bytes
    x: np.ndarray = field(default_factory=lambda: WORDS)
    out: int = 1024  # bytes
    zeros: bool = False  # what they begin as; else they begin undefined
    control: tuple[int, ...] = ()  # lines that begin with `for`, `while`, or `if`
    granule: int = 4
    settings: Settings = Settings()


@dataclass(frozen=True)
class Seen:
    out: np.ndarray  # bytes
    ran: Ran

    @property
    def words(self) -> np.ndarray:
        return self.out.view(np.uint32)

    @property
    def kinds(self) -> set[Kind]:
        return {finding.kind for finding in self.ran.findings}

    @property
    def says(self) -> list[str]:
        """TWO_VALUES 3/3 out, byte 0, program 0, warp 0, lane 1, the other: warp 0, lane 0 x31."""
        return [f"{f.kind.name} {f.line}/{f.other_line} {f.where} x{f.times}" for f in self.ran.findings]


def program_of(body: str, launch: Launch = Launch()) -> Program:
    return _parsed(body if ".entry" in body else kernel(body), launch.control)


@functools.cache
def _parsed(text: str, control: tuple[int, ...]) -> Program:
    return Program.of(text, frozenset(control))


def see(body: str | Program, launch: Launch = Launch()) -> Seen:
    program = body if isinstance(body, Program) else program_of(body, launch)
    out = np.full(launch.out, 0 if launch.zeros else 0xEE, np.uint8)
    blocks = [
        Block("x", np.ascontiguousarray(launch.x), False),
        Block("out", out, True, launch.zeros, launch.granule),
    ]
    ran = run(program, blocks, [At(0), At(1)], launch.grid, launch.threads, launch.shared, launch.settings)
    return Seen(out, ran)


def results(statements: str, values: Sequence[str], width: int = 32) -> str:
    """Statements, and stores of what they leave: out[k * 32 + tid] = values[k]."""
    lines = re.split(r"\n", textwrap.dedent(statements).strip("\n"))
    if width == 64:
        lines.append("add.s64 %mine, %mine, %q0;")
    at = width // 8 * 32
    return "\n".join([*lines, *(f"st.global.b{width} [%mine+{k * at}], {value};" for k, value in enumerate(values))])
