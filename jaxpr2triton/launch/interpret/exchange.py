"""Who wrote and who read each element of an exchanged buffer last: what tells a race between programs.

Two accesses of different programs to one element, at least one of them a write, need a meeting between. A meeting is of
all programs, so it is enough to know in which stretch between meetings an access was. Programs of a stretch run one
after the other, in any order, and the result is the same: a read looks for writes, and a write for reads as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NOBODY, SEVERAL = -1, -2


@dataclass(frozen=True)
class Conflict:
    """What another program does with an element in this very stretch."""

    access: str  # read or write
    program: int  # its number, or SEVERAL


@dataclass
class Exchange:
    """Programs by their numbers, and stretches, of the last accesses to each element."""

    writer: np.ndarray  # shared with who asks for it; NOBODY
    written: np.ndarray
    reader: np.ndarray  # SEVERAL: more than one in that stretch
    read_in: np.ndarray

    @classmethod
    def of(cls, writer: np.ndarray) -> Exchange:
        written, reader, read_in = (np.full(writer.shape, NOBODY, np.int32) for _ in range(3))
        return cls(writer, written, reader, read_in)

    def read(self, index: np.ndarray, number: int, stretch: int) -> Conflict | None:
        """Note that a program reads these elements, or say with whom it is in conflict."""
        conflict = self._written_by_others(index, number, stretch)
        if conflict is None:
            others = (self.read_in[index] == stretch) & (self.reader[index] != number)
            self.reader[index] = np.where(others, SEVERAL, number)
            self.read_in[index] = stretch
        return conflict

    def write(self, index: np.ndarray, number: int, stretch: int) -> Conflict | None:
        """Note that a program writes these elements, or say with whom it is in conflict."""
        conflict = self._written_by_others(index, number, stretch)
        if conflict is not None:
            return conflict
        read = (self.read_in[index] == stretch) & (self.reader[index] != number)
        if read.any():
            return Conflict("read", int(self.reader[index][read].flat[0]))
        self.written[index] = stretch
        self.writer[index] = number
        return None

    def _written_by_others(self, index: np.ndarray, number: int, stretch: int) -> Conflict | None:
        written = (self.written[index] == stretch) & (self.writer[index] != number)
        return Conflict("write", int(self.writer[index][written].flat[0])) if written.any() else None
