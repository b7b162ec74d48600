"""What a kernel's machine code does inside of its loops, read from the disassembly."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import networkx as nx

_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;")
_TARGET = re.compile(r"\b0x([0-9a-f]+)$")
_PTX_LINE = re.compile(r"\s*(?:@(!?%p\d+)\s+)?([a-z][\w.:]*)\s*([^;]*?)\s*;")
_PTX_NAMES = {
    r"bra\b": "BRA",
    r"ret\b": "EXIT",
    r"ld\.global|ld\.volatile\.global": "LDG",
    r"st\.global": "STG",
    r"cp\.async\.c[ag]": "LDGSTS",
    r"(atom|red)\.": "ATOMG",
    r"fma\..*f\d": "FFMA",
    r"(add|sub)\..*f\d": "FADD",
    r"mul\..*f\d": "FMUL",
    r"(ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh|div)\..*f\d": "MUFU",
    r"(min|max)\..*f\d": "FMNMX",
}
LOADS = frozenset({"LDG", "LD", "LDGSTS", "UBLKCP", "UTMALDG"})
STORES = frozenset({"STG", "ST", "ATOMG", "ATOM", "RED", "UTMASTG"})
FUSED = frozenset({"FFMA", "DFMA", "HFMA2"})
FLOATING = FUSED | {"FADD", "FMUL", "FMNMX", "FSEL", "FSETP", "FSET", "MUFU", "HADD2", "HMUL2", "HMNMX2"}
FLOATING |= {"DADD", "DMUL", "DMNMX", "DSETP", "HMMA", "HGMMA", "DMMA"}


@dataclass(frozen=True)
class Instruction:
    address: int
    guard: str  # the predicate it is executed under, or nothing
    name: str  # with its suffixes
    operands: str

    @property
    def kind(self) -> str:
        return self.name.split(".")[0]

    @property
    def is_floating(self) -> bool:
        """Moves of constants dress up as multiplications: HFMA2.MMA R0, -RZ, RZ, 1, 0."""
        return self.kind in FLOATING and not self.operands.partition(",")[2].strip().startswith("-RZ, RZ")

    @property
    def target(self) -> int | None:
        found = _TARGET.search(self.operands) if self.kind in ("BRA", "JMP", "CALL") else None
        return int(found[1], 16) if found else None

    @property
    def falls_through(self) -> bool:
        leaves = self.kind in ("BRA", "JMP", "EXIT", "RET", "BRX")
        return not leaves or bool(self.guard) or ("BRA" in self.name and "," in self.operands)


@dataclass(frozen=True)
class Loop:
    """The instructions from which its head is reached again."""

    head: int
    instructions: tuple[Instruction, ...]

    def count(self, kinds: frozenset[str]) -> int:
        return sum(each.kind in kinds for each in self.instructions)

    @property
    def floating(self) -> int:
        return sum(each.is_floating for each in self.instructions)

    @property
    def operations(self) -> int:
        """Floating-point operations of a thread; a fused multiplication and addition is two."""
        return sum(each.is_floating * (2 if each.kind in FUSED else 1) for each in self.instructions)


def rounds(machine: Loop, source: Loop | None) -> int:
    """How many rounds of the same loop in PTX are one of machine code: the assembler unrolls."""
    if source is None:
        return 1
    accesses = LOADS | STORES
    for done, asked in (
        (machine.count(accesses), source.count(accesses)),
        (machine.operations, source.operations),
    ):
        if asked:
            return max(1, round(done / asked))
    return 1


def instructions(text: str) -> tuple[Instruction, ...]:
    """Those of a disassembly by cuobjdump."""
    return tuple(Instruction(int(a, 16), guard or "", name, rest) for a, guard, name, rest in _LINE.findall(text))


def ptx_instructions(text: str) -> tuple[Instruction, ...]:
    """Those of PTX that matter here, under the names of machine code."""
    labels: dict[str, int] = {}
    found: list[tuple[str, str, str]] = []
    for line in text.splitlines():
        if label := re.match(r"\s*(\$\w+):", line):
            labels[label[1]] = len(found)
        elif each := _PTX_LINE.match(line):
            found.append((each[1] or "", each[2], each[3]))
    names = (next((name for start, name in _PTX_NAMES.items() if re.match(start, word)), "NOP") for _, word, _ in found)
    targets = (f"0x{labels[rest]:x}" if rest in labels else rest for _, _, rest in found)
    parts = zip(found, names, targets)
    return tuple(Instruction(n, guard, name, target) for n, ((guard, _, _), name, target) in enumerate(parts))


def loops(code: Sequence[Instruction]) -> tuple[Loop, ...]:
    """Natural loops: the head of each dominates the jump back to it. What is never reached is left out."""
    if not code:
        return ()
    graph = nx.DiGraph(_edges(code))
    graph.add_node(code[0].address)
    above = {**nx.immediate_dominators(graph, code[0].address), code[0].address: None}
    bodies: dict[int, set[int]] = {}
    for tail, head in graph.edges:
        if tail in above and head <= tail and _dominates(above, head, tail):
            bodies.setdefault(head, {head}).update(_reaching(graph, tail, head, above))
    return tuple(Loop(head, tuple(i for i in code if i.address in body)) for head, body in sorted(bodies.items()))


def innermost(found: Sequence[Loop], least: int = 0) -> tuple[Loop, ...]:
    """Those with no other loop inside, the longest first; loops inside of others have at least so many instructions."""
    heads = {loop.head: {i.address for i in loop.instructions} for loop in found}
    inside = {head for head in heads for other, body in heads.items() if head != other and head in body}
    kept = [loop for loop in found if loop.head not in inside or len(loop.instructions) >= least]
    inner = [loop for loop in kept if not any(each.head in heads[loop.head] for each in kept if each is not loop)]
    return tuple(sorted(inner, key=lambda loop: -len(loop.instructions)))


def histogram(loop: Loop) -> Counter[str]:
    return Counter(each.kind for each in loop.instructions)


def _edges(code: Sequence[Instruction]) -> Iterator[tuple[int, int]]:
    for number, each in enumerate(code):
        if each.target is not None:
            yield each.address, each.target
        if each.falls_through and number + 1 < len(code):
            yield each.address, code[number + 1].address


def _dominates(above: dict[int, int | None], head: int, place: int | None) -> bool:
    while place is not None and place != head:
        place = above[place]
    return place == head


def _reaching(graph: nx.DiGraph, tail: int, head: int, known: dict[int, int | None]) -> set[int]:
    """What reaches the tail without passing the head."""
    body, waiting = {head}, [tail]
    while waiting:
        place = waiting.pop()
        if place not in body:
            body.add(place)
            waiting += [before for before in graph.predecessors(place) if before in known]
    return body
