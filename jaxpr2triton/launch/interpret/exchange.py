"""Who wrote and who read each element of an exchanged buffer last: what tells a race between programs.

Two accesses of different programs to one element, at least one of them a write, need a meeting between. A meeting is of
all programs, so it is enough to know in which phase an access was, between which meetings. It does not matter which of
the two programs the interpreter runs first: a read looks for writes, and a write for reads as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NOBODY = -1


@dataclass(frozen=True)
class Conflict:
    """What another program does with an element in this very phase."""

    access: str  # reads or writes
    program: int  # its number


@dataclass
class Exchange:
    """For each element: programs by their numbers, and the phases in which they were there."""

    writer: np.ndarray  # the memory's own
    written_in: np.ndarray
    reader: np.ndarray  # the first one of that phase
    second: np.ndarray  # another one of that phase: so there is one who is not the writer, if there are two
    read_in: np.ndarray

    @classmethod
    def of(cls, writer: np.ndarray) -> Exchange:
        written_in, reader, second, read_in = (np.full(writer.shape, NOBODY, np.int32) for _ in range(4))
        return cls(writer, written_in, reader, second, read_in)

    def read(self, index: np.ndarray, number: int, phase: int) -> Conflict | None:
        """Note that a program reads these elements, or say with whom it is in conflict."""
        conflict = self._written_by_others(index, number, phase)
        if conflict is None:
            is_first = self.read_in[index] != phase
            first = np.where(is_first, number, self.reader[index])
            self.second[index] = np.where(first != number, number, np.where(is_first, NOBODY, self.second[index]))
            self.reader[index] = first
            self.read_in[index] = phase
        return conflict

    def write(self, index: np.ndarray, number: int, phase: int) -> Conflict | None:
        """Note that a program writes these elements, or say with whom it is in conflict."""
        conflict = self._written_by_others(index, number, phase)
        if conflict is not None:
            return conflict
        other = np.where(self.reader[index] != number, self.reader[index], self.second[index])
        read = (self.read_in[index] == phase) & (other != NOBODY)
        if read.any():
            return Conflict("reads", int(other[read].flat[0]))
        self.written_in[index] = phase
        self.writer[index] = number
        return None

    def _written_by_others(self, index: np.ndarray, number: int, phase: int) -> Conflict | None:
        written = (self.written_in[index] == phase) & (self.writer[index] != number)
        return Conflict("writes", int(self.writer[index][written].flat[0])) if written.any() else None
