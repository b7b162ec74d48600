"""Run PTX on arrays: what it computes, what is wrong with it, and what it did."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from jaxpr2triton.launch.machine import layout
from jaxpr2triton.launch.machine.encode import Encoded, Value, as_array, encode
from jaxpr2triton.launch.machine.findings import Finding, in_words
from jaxpr2triton.launch.machine.layout import BUFFER_SHIFT, LANES, WARPGROUP, Kind
from jaxpr2triton.launch.machine.library import core, operation_functions
from jaxpr2triton.launch.machine.ptx import NotUnderstood, parse

MOST_FINDINGS = 64
CELL = np.dtype((np.void, ctypes.sizeof(layout.Cell)))


@dataclass(frozen=True)
class Program:
    """A kernel's PTX, ready to run."""

    encoded: Encoded
    users: Mapping[int, str] = field(default_factory=dict)  # the user's line for each line of the kernel's source

    @staticmethod
    def of(ptx: str, control_lines: frozenset[int] = frozenset(), users: Mapping[int, str] | None = None) -> Program:
        return Program(encode(parse(ptx), control_lines), users or {})


@dataclass(frozen=True)
class Block:
    """Memory that a kernel is handed."""

    name: str
    data: np.ndarray  # contiguous; what the kernel writes is written here
    writable: bool = True
    defined: bool = True  # holds something from the beginning
    granule: int = 0  # bytes of an element; 0 if that is not known


@dataclass(frozen=True)
class At:
    """An argument that points into a block."""

    block: int
    offset: int = 0


@dataclass(frozen=True)
class Settings:
    check: bool = True
    count: bool = False  # sectors, wavefronts
    noise: bool = False  # approximate functions are off by up to two units in the last place
    seed: int = 1  # of the order of warps
    quantum: int = 0  # instructions until another warp may go on; 0: only at barriers
    budget: int = 10**9  # instructions of warps
    programs: range | None = None  # which of the grid; all of them if None
    resident: int = 0  # programs that are there at once, and take turns; 0: they run one after the other
    turn: int = 2000  # instructions of warps that a program executes in one, at most
    patience: int = 256  # turns of each program, in which none does anything but wait, until that is a deadlock


EVERYTHING = Settings()


@dataclass(frozen=True)
class Ran:
    findings: tuple[Finding, ...]
    executed: int  # instructions of warps
    counts: np.ndarray  # for each instruction: warps, lanes, sectors, least
    unwritten: Mapping[str, int]  # bytes of each writable block that nothing wrote


def prepare(program: Program) -> None:
    """What it takes to run a program is compiled, if it is not there."""
    core()
    operation_functions(program.encoded.opcodes.values())


def run(
    program: Program,
    blocks: Sequence[Block],
    arguments: Sequence[At | bytes],
    grid: tuple[int, int, int],
    threads: tuple[int, int, int],
    shared: int = 0,
    settings: Settings = EVERYTHING,
) -> Ran:
    """`arguments` are the kernel's: pointers into blocks, or bytes as they are; parameters without one are null."""
    encoded = program.encoded
    module = encoded.module
    if module.threads not in (0, math.prod(threads)):
        raise NotUnderstood(f"{module.entry} wants {module.threads} threads, and is launched with {math.prod(threads)}")
    if encoded.lists and math.prod(threads) % WARPGROUP:
        raise NotUnderstood(
            f"{module.entry} has products of warpgroups, and is launched with {math.prod(threads)} threads"
        )
    tables = [Block(name, np.frombuffer(table.content, np.uint8), False) for name, table in module.tables.items()]
    every = [*blocks, *tables]
    cells = [_cells(block, encoded, settings.check) for block in every]
    buffers = (layout.Buffer * max(1, len(every)))(*(_buffer(b, c, encoded) for b, c in zip(every, cells)))
    code, keep_alive = _linked(encoded, settings.noise)
    counts = np.zeros((len(encoded.code), 4), np.uint64)
    findings = (layout.Finding * MOST_FINDINGS)()
    programs = range(math.prod(grid)) if settings.programs is None else settings.programs
    resolved = [
        layout.Constant(value=_resolved(value, width, arguments, len(blocks)), slot=slot, width=width)
        for (value, width), slot in encoded.constants.items()
    ]
    machine = layout.Machine(
        code=code,
        constants=(layout.Constant * max(1, len(resolved)))(*resolved),
        buffers=buffers,
        findings=findings,
        lists=(ctypes.c_int32 * max(1, len(encoded.lists)))(*encoded.lists),
        counts=ctypes.cast(counts.ctypes.data, ctypes.POINTER(layout.Counts)),
        budget=settings.budget,
        seed=settings.seed,
        instructions=len(encoded.code),
        controls=encoded.controls,
        constant_count=len(resolved),
        buffer_count=len(every),
        file=encoded.file + LANES * 8,
        threads=threads,
        grid=grid,
        programs=math.prod(grid),
        first=programs.start,
        end=min(programs.stop, math.prod(grid)),
        step=programs.step,
        resident=min(settings.resident, len(programs)),
        turn=settings.turn,
        patience=settings.patience,
        shared=encoded.static_shared + shared,
        shared_granule=encoded.shared_granule,
        local=encoded.local,
        check=settings.check,
        count=settings.count,
        quantum=settings.quantum,
        most_findings=MOST_FINDINGS,
        special=tuple(encoded.special),
    )
    core().run_machine(ctypes.byref(machine))
    del keep_alive
    names = [block.name for block in every]
    texts, lines = [each.text for each in module.body], [each.line for each in module.body]
    users = dict(program.users)
    return Ran(
        findings=tuple(
            in_words(each, names, texts, lines, users, _said(each, every)) for each in findings[: machine.finding_count]
        ),
        executed=machine.executed,
        counts=counts,
        unwritten={b.name: _unwritten(b, c, encoded) for b, c in zip(blocks, cells) if c is not None},
    )


def _said(found: layout.Finding, blocks: Sequence[Block]) -> str:
    """The message of an assertion, which ends at the first zero."""
    if found.kind != Kind.ASSERTION_FAILS or not 0 <= found.buffer < len(blocks):
        return ""
    return blocks[found.buffer].data.tobytes()[found.offset :].partition(b"\0")[0].decode(errors="replace")


def _granule(block: Block, encoded: Encoded) -> int:
    return block.granule or encoded.global_granule


def _cells(block: Block, encoded: Encoded, check: bool) -> np.ndarray | None:
    """An empty past for each granule."""
    if not check or not block.writable:
        return None
    empty = layout.Cell()
    empty.wrote.program = empty.read.program = -1
    count = -(-block.data.nbytes // _granule(block, encoded)) + 1
    return np.full(count, np.frombuffer(bytes(empty), CELL)[0], CELL)


def _buffer(block: Block, cells: np.ndarray | None, encoded: Encoded) -> layout.Buffer:
    return layout.Buffer(
        data=block.data.ctypes.data,
        size=block.data.nbytes,
        cells=None if cells is None else cells.ctypes.data,
        granule=_granule(block, encoded),
        writable=block.writable,
        defined=block.defined,
    )


def _unwritten(block: Block, cells: np.ndarray, encoded: Encoded) -> int:
    granule = _granule(block, encoded)
    writers = cells.view(np.uint8).reshape(-1, CELL.itemsize)[: block.data.nbytes // granule, :4]
    return granule * int((np.ascontiguousarray(writers).view(np.int32) < 0).sum())


def _linked(encoded: Encoded, noise: bool) -> tuple[ctypes.Array[layout.Instruction], dict[str, int]]:
    functions = operation_functions(encoded.opcodes.values(), noise)
    code = as_array(encoded.code)
    for place, opcode in encoded.opcodes.items():
        code[place].run = functions[opcode]
    return code, functions


def _resolved(value: Value, width: int, arguments: Sequence[At | bytes], blocks: int) -> int:
    if isinstance(value, int):
        return value % 256**width
    if value.what == "table":
        return (blocks + value.number + 1) << BUFFER_SHIFT
    if value.number >= len(arguments):
        return 0
    argument = arguments[value.number]
    if isinstance(argument, At):
        return ((argument.block + 1) << BUFFER_SHIFT) + argument.offset
    return int.from_bytes(argument[value.offset : value.offset + width], "little")
