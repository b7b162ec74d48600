"""The memory of a kernel under the interpreter: its buffers, far apart, every access checked.

A pointer is a made-up address; no address of this process ever reaches a kernel. What would be a crash, a race or
undefined on a GPU is a `CompilerBug` here: an access outside the buffers, a store into an input, a read of what this
program has not written, two programs that store different values in one place, an output element never written. In an
exchanged buffer programs do read what others have written, but with a meeting between (`exchange.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.kernel import Buffer
from jaxpr2triton.launch.elements import poison
from jaxpr2triton.launch.interpret.exchange import NOBODY, Conflict, Exchange

_SPAN_BITS = 44  # each buffer lies in the middle of its own span of addresses


@dataclass
class Region:
    """One buffer: its elements as unsigned integers, and for an output the program that last wrote each element."""

    buffer: Buffer
    base: int
    bits: np.ndarray
    writer: np.ndarray | None
    exchange: Exchange | None = None


@dataclass
class Memory:
    """The buffers of one run of a kernel; `program` is the program that is running.

    A phase is what programs do between two meetings, which are of all programs: so its number is one for all.
    """

    kernel: str
    regions: list[Region]
    grid: tuple[int, int, int]
    program: tuple[int, int, int] = (0, 0, 0)
    number: int = 0
    phase: int = 0

    @property
    def programs(self) -> int:
        return math.prod(self.grid)

    def enter(self, number: int) -> None:
        self.program, self.number = self.program_of(number), number

    def program_of(self, number: int) -> tuple[int, int, int]:
        rest, x = divmod(number, self.grid[0])
        z, y = divmod(rest, self.grid[1])
        return x, y, z

    def meet(self, address: int, programs: int) -> None:
        """Check what a program comes to a meeting with."""
        region = self._region(address, "meets")
        if not region.buffer.is_met or address != region.base:
            self._bug(f"meets by an element of {region.buffer.name} that is no counter")
        if programs != self.programs:
            self._bug(f"meets as if it had {programs} programs, but it has {self.programs}")

    def load(
        self, addresses: np.ndarray, mask: np.ndarray | None, other: np.ndarray | None, dtype: np.dtype
    ) -> np.ndarray:
        """The elements at `addresses`; masked lanes get `other`, or a conspicuous number if there is none."""
        result = np.full(addresses.shape, poison(dtype)) if other is None else other
        for region, lanes, index in self._split(addresses, mask, "reads", dtype):
            if region.exchange is not None:
                self._read_exchanged(region, region.exchange, index if lanes is None else index[lanes])
            elif region.writer is not None:
                mine = region.writer[index] == self.number
                if not (mine if lanes is None else mine | ~lanes).all():
                    self._bug(f"reads an element of its output {region.buffer.name} that this program has not written")
            loaded = region.bits[index].view(dtype)
            result = loaded if lanes is None else np.where(lanes, loaded, result)
        return result

    def store(self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray | None) -> None:
        for region, lanes, index in self._split(addresses, mask, "writes", values.dtype):
            if region.writer is None:
                self._bug(f"writes into its input {region.buffer.name}")
            assert region.writer is not None
            bits = np.broadcast_to(values, addresses.shape).view(region.bits.dtype)
            if lanes is not None:
                index, bits = index[lanes], bits[lanes]
            if region.buffer.is_flag and not _is_one(bits, region.buffer.dtype).all():
                self._bug(f"writes something else than one into its flag {region.buffer.name}")
            if region.exchange is None:
                owner = region.writer[index]
                foreign = (owner != NOBODY) & (owner != self.number)
                if foreign.any() and (region.bits[index] != bits)[foreign].any():
                    self._bug(f"writes an element of {region.buffer.name} that another program has written differently")
            else:
                self._check_conflict("writes", region, region.exchange.write(index, self.number, self.phase))
            region.bits[index] = bits
            if (region.bits[index] != bits).any():
                self._bug(f"writes two different values to one element of {region.buffer.name} in one store")
            region.writer[index] = self.number

    def accumulate(self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray, combine: np.ufunc) -> None:
        """Combine values with what this program has written; what lanes have for one place, one after the other."""
        for region, lanes, index in self._split(addresses, mask, "adds to", values.dtype):
            if region.writer is None or (region.writer[index][lanes] != self.number).any():
                self._bug(f"adds to an element of {region.buffer.name} that this program has not written")
            if region.exchange is not None:
                self._check_conflict("adds to", region, region.exchange.write(index[lanes], self.number, self.phase))
            each = np.broadcast_to(values, addresses.shape)
            combine.at(region.bits.view(values.dtype), index[lanes], each[lanes])

    def check_all_written(self, outputs: Sequence[Buffer]) -> None:
        for region in self.regions:
            if region.writer is None or region.buffer not in outputs or region.buffer.is_flag:
                continue
            forgotten = np.flatnonzero(region.writer == NOBODY)
            if not forgotten.size:
                continue
            where = [int(i) for i in np.unravel_index(int(forgotten[0]), region.buffer.shape)]
            raise CompilerBug(
                f"kernel {self.kernel} leaves {forgotten.size} of the {region.writer.size} elements of its output "
                f"{region.buffer.name} unwritten, the first of them {where}"
            )

    def _split(
        self, addresses: np.ndarray, mask: np.ndarray | None, verb: str, dtype: np.dtype
    ) -> Iterator[tuple[Region, np.ndarray | None, np.ndarray]]:
        """For each buffer that is touched: the buffer, the lanes that touch it (None for all), and element numbers."""
        if not addresses.size or (mask is not None and not mask.any()):
            return
        first = int(addresses.flat[0 if mask is None else int(mask.argmax())])
        region = self._accessed(first, verb)
        if dtype.itemsize != region.bits.dtype.itemsize:
            self._bug(f"{verb} {region.buffer.name} through a pointer to {dtype}")
        index = _element_numbers(addresses, region)
        if mask is not None:
            index = np.where(mask, index, 0)
        if region.bits.size and index.min() >= 0 and index.max() < region.bits.size:
            yield region, mask, index
            return
        yield from self._split_slowly(addresses, np.ones(addresses.shape, bool) if mask is None else mask, verb)

    def _split_slowly(
        self, addresses: np.ndarray, mask: np.ndarray, verb: str
    ) -> Iterator[tuple[Region, np.ndarray, np.ndarray]]:
        spans = addresses >> np.uint64(_SPAN_BITS)
        for span in np.unique(spans[mask]):
            lanes = mask & (spans == span)
            region = self._accessed(int(span) << _SPAN_BITS, verb)
            index = _element_numbers(addresses, region)
            outside = lanes & ((index < 0) | (index >= region.bits.size))
            if outside.any():
                wild, size = int(index[outside].flat[0]), region.bits.size
                self._bug(f"{verb} element {wild} of {region.buffer.name}, which has {size}")
            yield region, lanes, np.where(lanes, index, 0)

    def _accessed(self, address: int, verb: str) -> Region:
        region = self._region(address, verb)
        if region.buffer.is_met:
            self._bug(f"{verb} its counter {region.buffer.name} outside of a meeting")
        return region

    def _read_exchanged(self, region: Region, exchange: Exchange, index: np.ndarray) -> None:
        if (exchange.writer[index] == NOBODY).any():
            self._bug(f"reads an element of {region.buffer.name} that no program has written before")
        self._check_conflict("reads", region, exchange.read(index, self.number, self.phase))

    def _check_conflict(self, verb: str, region: Region, conflict: Conflict | None) -> None:
        if conflict is not None:
            other = f"program {self.program_of(conflict.program)} {conflict.access}"
            self._bug(f"{verb} an element of {region.buffer.name} that {other} with no meeting between")

    def _region(self, address: int, verb: str) -> Region:
        span = (address >> _SPAN_BITS) - 1
        if not 0 <= span < len(self.regions):
            self._bug(f"{verb} at {address:#x}, which is far from all of its buffers")
        return self.regions[span]

    def _bug(self, what: str) -> None:
        raise CompilerBug(f"kernel {self.kernel} {what}", where=f"program {self.program}")


def _element_numbers(addresses: np.ndarray, region: Region) -> np.ndarray:
    offsets = (addresses - np.uint64(region.base)).view(np.int64)
    return offsets >> np.int64(region.bits.dtype.itemsize.bit_length() - 1)


def _is_one(bits: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return bits == np.ones((), dtype).view(bits.dtype)


def make_memory(
    kernel: str,
    inputs: Sequence[tuple[Buffer, np.ndarray]],
    outputs: Sequence[tuple[Buffer, np.ndarray]],
    grid: tuple[int, int, int],
) -> Memory:
    """Inputs, then what is written, outputs and buffers of the kernel's own: dense arrays, changed in place."""
    regions = []
    for number, (buffer, array) in enumerate([*inputs, *outputs]):
        bits = array.reshape(-1).view(f"u{array.dtype.itemsize}")
        writer = np.full(bits.shape, NOBODY, np.int32) if number >= len(inputs) else None
        exchange = Exchange.of(writer) if buffer.is_exchanged and writer is not None else None
        regions.append(Region(buffer, (2 * number + 3) << (_SPAN_BITS - 1), bits, writer, exchange))
    return Memory(kernel, regions, grid)
