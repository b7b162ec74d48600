"""How long one warp takes for a step, and what a thread does in it, for some blocks and some warps.

The lanes of a tile are shared out among threads, what lies side by side first. A sum over some of them leaves its
result with all threads that had a part in it, and so they all compute what comes of it: of a 32 x 32 tile that is read
along its rows, 8 threads have a part of each row, so that each sum of a row is there eight times.

    tile [32, 32], 4 neighbours a thread, one warp      8 threads along a row x 4 rows: 8 rows are in each thread
    sum along a row                                     8 results a thread, 3 exchanges
    exp of the 32 sums                                  8 for each thread, where 1 would do
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from jaxpr2triton.ir.index import Axis
from jaxpr2triton.plan.schedule.values import Axes, Kind, Round, Value
from jaxpr2triton.policy import Policy


@dataclass(frozen=True)
class Shape:
    """Blocks of all axes, how many pieces of them a program walks, and the warps of a program."""

    blocks: Mapping[Axis, int]
    pieces: Mapping[Axis, int]
    num_warps: int
    policy: Policy

    @property
    def threads(self) -> int:
        return self.policy.target.warp_size * self.num_warps

    def elements(self, axes: Axes) -> int:
        """Of each thread."""
        return -(-self.lanes(axes) // self.threads) * self.times(axes)

    def lanes(self, axes: Axes) -> int:
        return math.prod(self.blocks[axis] for axis in axes)

    def walked(self, axes: Axes) -> int:
        """Pieces of tiles, one after the other."""
        return math.prod(self.pieces[axis] for axis in axes if self.blocks[axis] > 1)

    def times(self, axes: Axes) -> int:
        return math.prod(self.pieces[axis] for axis in axes)


@dataclass(frozen=True)
class Shared:
    """The threads among which the lanes of a sum's tile are shared out."""

    along_results: int
    lanes: int  # of one warp, that have parts of one sum
    warps: int  # that have


@dataclass(frozen=True)
class Spent:
    """What a step takes: of a thread, and of a warp that is alone."""

    instructions: float = 0.0
    barriers: float = 0.0
    cycles: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.instructions + other.instructions, self.barriers + other.barriers, self.cycles + other.cycles
        )

    def __mul__(self, times: float) -> Spent:
        return Spent(self.instructions * times, self.barriers * times, self.cycles * times)


NOTHING = Spent()


def spent_on(rounds: Sequence[Round], shape: Shape) -> Spent:
    """A step of the longest loop, and its share of the others."""
    return sum((_Walk(each.values, shape).spent() * each.times for each in rounds), NOTHING)


@dataclass(frozen=True)
class _Price:
    issue: float  # instructions
    wait: float = 0.0  # cycles, from when it begins until its result is there
    barriers: int = 0


class _Walk:
    """Through the values of a round, each as soon as what it reads is there."""

    def __init__(self, values: Sequence[Value], shape: Shape) -> None:
        self.values, self.shape, self.cost = values, shape, shape.policy.cost
        self.sizes: dict[Axes, tuple[int, int]] = {}
        self.threads: list[int] = []  # among which the lanes of each value are shared out

    @cached_property
    def pace(self) -> float:
        """Cycles from one instruction of a warp to its next: others of its scheduler begin theirs, or it waits."""
        target = self.shape.policy.target
        return max(math.ceil(self.shape.num_warps / target.schedulers) * target.issue, self.cost.alone)

    @cached_property
    def barrier(self) -> int:
        return self.cost.barrier + self.cost.barrier_of_a_warp * self.shape.num_warps

    def size(self, axes: Axes) -> tuple[int, int]:
        """Lanes along these axes, and how many tiles of them."""
        if axes not in self.sizes:
            self.sizes[axes] = self.shape.lanes(axes), self.shape.times(axes)
        return self.sizes[axes]

    def spent(self) -> Spent:
        prices = [self._in_pieces(value, self._price(value)) for value in self.values]
        ready: list[float] = []
        for value, price in zip(self.values, prices):  # as if a warp could do all at once
            ready.append(max((ready[each] for each in value.reads), default=0.0) + self._takes(price))
        begins = [end - self._takes(price) for end, price in zip(ready, prices)]
        now, there = 0.0, [0.0] * len(prices)
        for number in sorted(range(len(prices)), key=begins.__getitem__):
            price = prices[number]
            begin = max([now, *(there[each] for each in self.values[number].reads)])
            there[number] = begin + self._takes(price)
            now = there[number] if price.barriers else begin + price.issue * self.pace
        instructions, barriers = sum(price.issue for price in prices), sum(price.barriers for price in prices)
        return Spent(instructions, barriers, max([now, *there]))

    def _in_pieces(self, value: Value, price: _Price) -> _Price:
        """Lanes meet anew for each piece of a tile."""
        pieces = self.shape.walked(value.axes | value.over) if price.barriers else 1
        return price if pieces == 1 else _Price(price.issue, price.wait * pieces, price.barriers * pieces)

    def _takes(self, price: _Price) -> float:
        return max(price.wait, price.issue * self.pace)

    def _price(self, value: Value) -> _Price:
        match value.kind:
            case Kind.SUM:
                return self._sum(value)
            case Kind.SWEPT:
                return self._swept(value)
            case Kind.MOVED | Kind.LANES | Kind.LANES_TOO:
                return self._moved(value)
            case Kind.CHOSEN:
                return self._chosen(value)
            case Kind.READ:
                lanes, times = self.size(value.axes)
                self.threads.append(self.shape.threads)
                return _Price(value.weight * times * -(-lanes // self.shape.threads))
            case _:
                return self._made(value)

    def _made(self, value: Value) -> _Price:
        lanes, times = self.size(value.axes)
        alike = [each for each in value.reads if self.size(self.values[each].axes)[0] == lanes]
        threads = min((self.threads[each] for each in alike), default=self.shape.threads)
        move = _Price(0)
        if threads < self.shape.threads and lanes > 1:
            stays = lanes < self.shape.threads or all(self.values[each].kind is not Kind.READ for each in alike)
            if not stays or value.kind is Kind.STORED:
                move, threads = self._exchange(lanes, times), self.shape.threads
        self.threads.append(threads)
        elements = times * -(-lanes // threads)
        wait = self.cost.latency * value.weight
        if value.weight > self.cost.long:
            wait = (self.cost.latency - 1) * value.weight + self.cost.special
        return _Price(value.weight * elements + move.issue, wait + move.wait, move.barriers)

    def _chosen(self, value: Value) -> _Price:
        made = self._made(value)
        is_among_variables = self.size(value.over)[0] == 1
        return _Price(0) if is_among_variables else made

    def _exchange(self, lanes: int, times: int) -> _Price:
        """Through shared memory."""
        cost, elements = self.cost, times * -(-lanes // self.shape.threads)
        return _Price(2 * elements + cost.address, cost.shared + self.barrier, 1)

    def _moved(self, value: Value) -> _Price:
        lanes, times = self.size(value.axes)
        self.threads.append(self.shape.threads)
        elements: float = times * -(-lanes // self.shape.threads)
        along, _ = self.size(value.over)
        if along == 1:  # between variables
            return _Price(value.weight * elements, self.cost.latency)
        if value.kind is Kind.MOVED:
            return self._exchange(lanes, times)
        elements *= value.weight
        if self.shape.num_warps == 1:  # one shuffle for each along the axis
            return _Price(2 * elements * -(-along // self.shape.policy.target.warp_size), self.cost.shuffle)
        if value.kind is Kind.LANES_TOO:  # the tile is in shared memory
            return _Price(elements + (0 if value.beside else self.cost.address), self.cost.latency)
        exchanged = self._exchange(lanes, times)
        return replace(exchanged, issue=exchanged.issue * value.weight)

    def _sum(self, value: Value) -> _Price:
        """Each thread adds its own, then lanes of a warp exchange theirs, then warps do."""
        cost, shared = self.cost, self._shared(value)
        lanes, times = self.size(value.axes)
        tile, all_times = self.size(value.axes | value.over)
        threads = shared.along_results if lanes > 1 else self.shape.threads
        self.threads.append(threads)
        results, terms = times * -(-lanes // threads), all_times * -(-tile // self.shape.threads)
        exchanges = (shared.lanes - 1).bit_length()
        issue = value.weight * terms + 2 * exchanges * results
        own = self._added(terms / results) if value.added else cost.latency * terms / results
        wait = own + exchanges * (cost.shuffle + 2 * (results - 1))
        if shared.warps == 1:
            return _Price(issue, wait)
        among = (shared.warps - 1).bit_length()
        meeting = among * cost.shuffle + cost.barriers_of_a_meeting * (cost.shared + self.barrier)
        return _Price(issue + results * (2 * among + 4), wait + meeting, cost.barriers_of_a_meeting)

    def _added(self, terms: float) -> float:
        """Cycles until a thread has added so many of its own, in as many parts as that is worth (`parted.py`)."""
        latency = self.cost.latency
        parts = min(latency, max(terms // latency, 1))
        return latency * (terms / parts + math.log2(parts))

    def _swept(self, value: Value) -> _Price:
        """Each thread combines its own, then lanes of a warp, then warps; and all that comes before is brought in."""
        cost, shared = self.cost, self._shared(value)
        tile, times = self.size(value.axes)
        self.threads.append(self.shape.threads)
        length, _ = self.size(value.over)
        own = max(length // (shared.lanes * shared.warps), 1)
        terms = times * -(-tile // self.shape.threads)
        rows, exchanges = terms / own, (shared.lanes - 1).bit_length()
        one = value.weight / max((length - 1).bit_length(), 1)
        issue = 2 * one * terms + rows * exchanges * (one + 2)
        wait = cost.latency * 2 * own + exchanges * (cost.shuffle + cost.latency + 2 * (rows - 1))
        if shared.warps == 1:
            return _Price(issue, wait)
        meeting = cost.barriers_of_a_meeting * (cost.shared + self.barrier) + cost.latency * 2 * shared.warps
        return _Price(issue + rows * (one * shared.warps + 4), wait + meeting, cost.barriers_of_a_meeting)

    def _shared(self, value: Value) -> Shared:
        left, own = self.shape.threads, self.shape.policy.target.warp_size
        along, lanes, warps, vector = 1, 1, 1, value.vector
        most = -(-self.size(value.axes | value.over)[0] // left)
        for axis in value.order:
            several = min(vector, most, self.shape.blocks[axis])
            vector = 1
            got = min(left, self.shape.blocks[axis] // several)
            inside = min(own, got)
            left, own = left // got, own // inside
            if axis in value.over:
                lanes, warps = lanes * inside, warps * (got // inside)
            else:
                along *= got
        return Shared(along, lanes, warps)
