"""Long sums that a thread makes by itself are made in several parts, beside each other.

    add.rn.f32 %r6, %r1, %r2;             add.rn.f32 %r6, %r1, %r3;
    add.rn.f32 %r7, %r6, %r3;      →      add.rn.f32 %r9, %r2, %r4;
    add.rn.f32 %r8, %r7, %r4;             add.rn.f32 %r8, %r6, %r9;

Each addition waits for the one before, some cycles in which the scheduler of a warp that is alone has nothing to do. So
there are as many sums at once as a result takes cycles to be there. All threads add in the same order, so that copies
stay equal. A term that is itself a sum of products is several terms; products join the sums that they go into after
that (`join.py`). Left alone: sums of which something is read on the way, and those with terms from other lanes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from jaxpr2triton.launch.compile.join import JUMP, LABEL, PRODUCT, REGISTER, shuffled_in

_SUM = re.compile(r"\s*add\.rn(?:\.ftz)?\.(f32|f64)\s+(%\w+), (%\w+), (%\w+);\s*")
_FUSED = re.compile(r"\s*fma\.rn\.(f32|f64)\s+(%\w+), ([^,;\s]+), ([^,;\s]+), (%\w+);\s*")
_BARRIER = re.compile(r"\s*bar(?:rier)?\.sync\b")
_DECLARED = re.compile(r"(\.reg \.\w+\s+)(%[a-z]+)<(\d+)>")


@dataclass(frozen=True)
class _Made:
    """What an instruction makes for one other."""

    line: int
    dtype: str
    operands: tuple[str, ...]


@dataclass(frozen=True)
class _Chain:
    """Additions one after the other, each of the one before and a term, in a piece of code without jumps."""

    links: tuple[_Made, ...]
    result: str
    terms: tuple[str, ...]  # one more than there are links


def sums_parted(ptx: str, latency: int) -> str:
    """The same code, for a device on which so many cycles pass until a result can be added to."""
    lines = ptx.split("\n")
    code = _Code(ptx, lines)
    chains = [chain for chain in code.chains() if len(chain.terms) >= 2 * latency]
    if not chains:
        return ptx
    between = _numbered(lines, lambda line: code.ends(line) or _BARRIER.match(line) is not None)
    beside = Counter(between[chain.links[-1].line] for chain in chains)
    names = _Names(ptx)
    parted: list[str | None] = [*lines]
    for chain in chains:
        parts = min(-(-latency // beside[between[chain.links[-1].line]]), len(chain.terms) // latency)
        if parts > 1:
            _part(chain, parts, code, names, parted)
    return names.declared("\n".join(line for line in parted if line is not None))


class _Code:
    """What is made in a text, where, and of what."""

    def __init__(self, ptx: str, lines: list[str]) -> None:
        self.lines, self.shuffled = lines, shuffled_in(ptx)
        self.targets = {name for line in lines if JUMP.search(line) for name in re.findall(r"\$\w+", line)}
        self.blocks = _numbered(lines, self.ends)
        times = Counter(REGISTER.findall(ptx))
        self.sums = dict(self._made(_SUM, times))
        self.fused = dict(self._made(_FUSED, times))
        self.products = dict(self._made(PRODUCT, times))

    def ends(self, line: str) -> bool:
        label = LABEL.match(line)
        return JUMP.search(line) is not None or (label is not None and label[1] in self.targets)

    def _made(self, pattern: re.Pattern[str], times: Mapping[str, int]) -> Iterator[tuple[str, _Made]]:
        """By their names, those that are written once, and read once."""
        for number, line in enumerate(self.lines):
            if (found := pattern.fullmatch(line)) and times[found[2]] == 2:
                yield found[2], _Made(number, found[1], found.groups()[2:])

    def chains(self) -> Iterator[_Chain]:
        """The last ones first; what leads to a chain is part of no other one."""
        seen: set[str] = set()
        for number in reversed(range(len(self.lines))):
            if (found := _SUM.fullmatch(self.lines[number])) and found[2] not in seen:
                links, terms = [_Made(number, found[1], found.groups()[2:])], []
                while (before := self._goes_on(links[-1])) is not None:
                    seen.add(before)
                    terms += [term for term in links[-1].operands if term != before]
                    links.append(self.sums[before])
                terms += reversed(links[-1].operands)
                if self.shuffled.isdisjoint(terms):
                    yield _Chain(tuple(reversed(links)), found[2], tuple(reversed(terms)))

    def _goes_on(self, link: _Made) -> str | None:
        """The sum before it that it adds a term to; where both operands are sums, the later one."""
        found = [name for name in link.operands if self._is_near(self.sums.get(name), link)]
        return max(found, key=lambda name: self.sums[name].line, default=None)

    def _is_near(self, made: _Made | None, other: _Made) -> bool:
        return made is not None and made.dtype == other.dtype and self.blocks[made.line] == self.blocks[other.line]

    def products_in(self, term: str, link: _Made) -> list[tuple[str, _Made | None]]:
        """The terms that a term is the sum of: products, each but the first added to those before it."""
        found: list[tuple[str, _Made | None]] = []
        while self._is_near(fused := self.fused.get(term), link):
            assert fused is not None
            found.append((term, fused))
            term = fused.operands[2]
        return [(term, None), *reversed(found)] if found and self._is_near(self.products.get(term), link) else []


def _numbered(lines: list[str], ends: Callable[[str], bool]) -> list[int]:
    """For each line how many, up to it, end something."""
    found, number = [], 0
    for line in lines:
        number += ends(line)
        found.append(number)
    return found


class _Names:
    """Registers that are not used yet."""

    def __init__(self, ptx: str) -> None:
        self.next: dict[str, int] = {}
        for _, stem, number in _DECLARED.findall(ptx):
            self.next[stem] = max(self.next.get(stem, 0), int(number))

    def like(self, register: str) -> str:
        stem = register.rstrip("0123456789")
        self.next[stem] += 1
        return f"{stem}{self.next[stem] - 1}"

    def declared(self, ptx: str) -> str:
        return _DECLARED.sub(lambda found: f"{found[1]}{found[2]}<{self.next[found[2]]}>", ptx)


def _part(chain: _Chain, parts: int, code: _Code, names: _Names, lines: list[str | None]) -> None:
    """Write so many sums in the place of one."""
    last = chain.links[-1]
    terms: list[str] = []
    for term in chain.terms:
        products = code.products_in(term, last)
        for name, fused in products:
            if fused is not None:
                lines[fused.line] = f"\tmul.{last.dtype} {name}, {fused.operands[0]}, {fused.operands[1]};"
        terms += [name for name, _ in products] or [term]
    sums, added = terms[:parts], []
    for number, term in enumerate(terms[parts:]):
        result = names.like(chain.result)
        added.append((result, sums[number % parts], term))
        sums[number % parts] = result
    while len(sums) > 1:
        one, other, *rest = sums
        result = names.like(chain.result) if rest else chain.result
        added.append((result, one, other))
        sums = [*rest, result]
    for link in chain.links:
        lines[link.line] = None
    lines[last.line] = "\n".join(f"\tadd.rn.{last.dtype} {result}, {one}, {other};" for result, one, other in added)
