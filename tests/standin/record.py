"""What the stand-in driver was asked to do.

with recording() as record:
    jax.block_until_ready(step(x))
record.launches          each kernel with its grid, warps, shared memory and arguments
record.counts            how many kernels, graphs, copies, synchronisations, ...
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.standin.start import started


@dataclass(frozen=True)
class Counts:
    """What one part of a program took. Kernels and copies in graphs are counted beside the graphs that hold them."""

    kernels: int
    graphs: int
    kernels_in_graphs: int
    copies: int  # and fills
    copies_in_graphs: int
    synchronisations: int
    captures: int
    updates: int  # of nodes of graphs
    modules: int
    missing: int  # entries that the driver does not have
    wrong: int  # what no driver would have let pass
    guesses: int  # of conditions that nobody computed

    @property
    def calls(self) -> int:
        """What the host asks the device to do, each some microseconds."""
        return self.kernels + self.graphs + self.copies

    @property
    def launched(self) -> int:
        """What the device starts."""
        return self.kernels + self.kernels_in_graphs + self.copies + self.copies_in_graphs


@dataclass
class Record:
    """Filled when the `with` is left. `counts` is exact even where there were more events than are kept."""

    events: list[dict[str, Any]] = field(default_factory=list)
    counts: Counts = Counts(*[0] * 12)
    lost: int = 0

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    @property
    def launches(self) -> list[dict[str, Any]]:
        return self.of("launch")

    @property
    def refusals(self) -> list[str]:
        """Whatever the driver did not do, and what it has no entry for."""
        found = [event for event in self.events if "refused" in event or event["kind"] in ("wrong", "missing")]
        return [str(each.get("refused") or each.get("what") or f"no {each.get('call')}") for each in found]


@contextmanager
def recording(events: bool = True) -> Iterator[Record]:
    """Everything in between, of all threads; without events the counts alone, which is quick for long loops."""
    driver = started()
    record = Record()
    driver.standin_keep_lines(int(events))
    _taken_lines()
    before, lost = _totals(), driver.standin_lost()
    try:
        yield record
    finally:
        after = _totals()
        record.events = [json.loads(line) for line in _taken_lines()]
        record.counts = _counts({key: after[key] - before[key] for key in after})
        record.lost = driver.standin_lost() - lost
        driver.standin_keep_lines(1)


def _counts(totals: dict[tuple[str, int], int]) -> Counts:
    def alone(*kinds: str) -> int:
        return sum(totals[kind, 0] for kind in kinds)

    def in_graphs(*kinds: str) -> int:
        return sum(totals[kind, 1] for kind in kinds)

    return Counts(
        kernels=alone("launch"),
        graphs=alone("graph"),
        kernels_in_graphs=in_graphs("launch"),
        copies=alone("copy", "memset"),
        copies_in_graphs=in_graphs("copy", "memset"),
        synchronisations=alone("sync"),
        captures=alone("capture"),
        updates=alone("update"),
        modules=alone("module"),
        missing=alone("missing"),
        wrong=alone("wrong"),
        guesses=totals["guess", 0],
    )


def _totals() -> dict[tuple[str, int], int]:
    driver = started()
    driver.standin_kind.restype = ctypes.c_char_p
    driver.standin_total.restype = ctypes.c_long
    kinds = [driver.standin_kind(number).decode() for number in range(driver.standin_kinds())]
    totals = {(kind, part): driver.standin_total(n, part) for n, kind in enumerate(kinds) for part in (0, 1)}
    driver.standin_guesses.restype = ctypes.c_long
    return totals | {("guess", 0): driver.standin_guesses()}


def _taken_lines() -> list[str]:
    driver = started()
    driver.standin_lines.restype = ctypes.c_size_t
    driver.standin_lines.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    while True:
        room = driver.standin_lines(None, 0) + 65536
        buffer = ctypes.create_string_buffer(room)
        used = driver.standin_lines(buffer, room)
        if used <= room:
            return buffer.raw[:used].decode().splitlines()


@dataclass(frozen=True)
class Memory:
    blocks: int
    nbytes: int


def live(kind: str = "device") -> Memory:
    """What is allocated now: of the device, on the host, or for the global variables of modules."""
    driver = started()
    driver.standin_live.restype = ctypes.c_size_t
    blocks = ctypes.c_size_t()
    nbytes = driver.standin_live(kind.encode(), ctypes.byref(blocks))
    return Memory(blocks.value, nbytes)


def peak(start_again: bool = False) -> int:
    """The most bytes of the device that were allocated at one time."""
    driver = started()
    driver.standin_peak.restype = ctypes.c_size_t
    return int(driver.standin_peak(int(start_again)))


def beside_others() -> int:
    """How many nodes of graphs were made that a device may run beside others of their graph."""
    driver = started()
    driver.standin_beside.restype = ctypes.c_long
    return int(driver.standin_beside())


def loops_take(rounds: int) -> None:
    """How often a loop runs, whose condition nobody computes."""
    started().standin_rounds(rounds)
