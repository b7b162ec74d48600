"""Ways of one program side by side, as measured last: what is slower, what the models missed, what is stale."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.device.store import Key, Model, Results, Row

OURS = ("ours", "all ours")
SHORT = 300.0  # microseconds; of shorter calls the host may be what takes the time
SLOWER = 1.03  # times as long: what is less counts as the same
MISSED = 1.35  # the factor by which a model is off
OFF = 0.2  # of what was measured
BOUNDS = ("issue", "memory", "latency", "tensor")
STALE, UNKNOWN, REMOVED = "stale", "?", "removed"

Rows = Mapping[Key, Sequence[Row]]


@dataclass(frozen=True)
class Standing:
    """What there is today, to hold results against."""

    hashes: Mapping[Key, str]  # of what is launched, by way; "" or nothing: its kernels were not planned
    known: frozenset[Key]  # rows of today's list; none: the list is not known
    run: str = ""  # that has just ended; "": nothing was measured now

    @functools.cached_property
    def programs(self) -> frozenset[Key]:
        return frozenset(key[:-1] for key in self.known)

    def has(self, key: Key) -> bool:
        """Whether the program is still there."""
        return not self.known or key[:-1] in self.programs

    def marker(self, row: Row) -> str:
        """stale, removed, ? where that is not known; or nothing, as for what is not ours."""
        if not self.has(row.key):
            return REMOVED
        if row.way not in OURS:
            return ""
        today = self.hashes.get(row.key, "")
        if not today or not row.hash:
            return UNKNOWN
        return "" if today == row.hash else STALE


@dataclass(frozen=True)
class Beside:
    """Ours and another way, by what can be compared."""

    ours: Row
    other: Row
    mine: float
    its: float
    by: str  # call, or busy

    @property
    def gain(self) -> float:
        return self.its / self.mine

    @property
    def slower(self) -> bool:
        return self.mine > SLOWER * self.its

    @property
    def quicker(self) -> bool:
        return self.its > SLOWER * self.mine


@dataclass(frozen=True)
class Work:
    """One program, in all ways that were measured."""

    ways: Mapping[str, Row]

    @property
    def any_row(self) -> Row:
        """Ours, where there is one, measured or not."""
        others = (self.ways[way] for way in (*OURS, *self.ways) if way in self.ways)
        return self.ours or next(others)

    @property
    def ours(self) -> Row | None:
        return next((self.ways[way] for way in OURS if way in self.ways and self.ways[way].us), None)

    @property
    def best(self) -> Beside | None:
        """Beside the best of jit's variants."""
        found = [self.beside(way) for way in self.ways if way.startswith("jit")]
        return min((each for each in found if each), key=lambda each: each.gain, default=None)

    def beside(self, way: str) -> Beside | None:
        if self.ours is None or way not in self.ways:
            return None
        return beside(self.ours, self.ways[way])


def beside(ours: Row, other: Row) -> Beside | None:
    """Of two short calls how long the device was busy, where that is known; the whole call otherwise."""
    if not ours.best or not other.best:
        return None
    if max(ours.best, other.best) < SHORT and ours.busy and other.busy:
        return Beside(ours, other, ours.busy, other.busy, "busy")
    return Beside(ours, other, ours.best, other.best, "call")


def title_of(row: Row) -> str:
    """Of the program: without the way."""
    words = [row.program, row.kind, "" if row.sizes in ("small", "full") else row.sizes]
    return ", ".join(word for word in words if word)


def newest(rows: Rows, aim: str = "") -> list[Row]:
    """In the order of their names."""
    return [rows[key][-1] for key in sorted(rows) if aim in ("", key[0])]


def works(rows: Rows) -> list[Work]:
    """All programs whose time was measured, whatever became of it."""
    found: dict[Key, dict[str, Row]] = {}
    for row in newest(rows, "time"):
        found.setdefault(row.key[:-1], {})[row.way] = row
    return [Work(ways) for ways in found.values()]


def works_before(rows: Rows) -> list[Work]:
    """Programs of which ours was measured before, as they were then; what was measured once counts then as now."""
    found: dict[Key, list[Row]] = {}
    for key, of_key in rows.items():
        good = [row for row in of_key if row.us]
        if good and (len(good) > 1 or key[-1] not in OURS):
            found[key] = good[-2:][:1]
    return [work for work in works(found) if work.ours]


def mean(gains: Sequence[float]) -> float | None:
    """The geometric one."""
    return statistics.geometric_mean(gains) if gains else None


@dataclass(frozen=True)
class Estimate:
    """What a model says of a program, beside what was measured."""

    row: Row
    bound: str  # of its longest kernel
    modelled: float
    measured: float
    by: str  # busy, or call

    @property
    def ratio(self) -> float:
        return self.modelled / self.measured

    @property
    def factor(self) -> float:
        """By which the model is off, in either direction."""
        return max(self.ratio, 1 / self.ratio)


def estimates(results: Results, rows: Iterable[Row]) -> Iterator[Estimate]:
    """Of all kernels once; not where XLA computes a part."""
    seen: set[Key] = set()
    for row in sorted(rows, key=lambda row: row.way != OURS[0]):
        model = results.models.get((row.hash, results.runs[row.run].target))
        place = (*row.key[:-1], row.hash)
        if row.way not in OURS or not row.best or model is None or not model.us or row.left or place in seen:
            continue
        seen.add(place)
        yield Estimate(row, _bound(model), model.us, row.busy or row.best, "busy" if row.busy else "call")


def of_parts(results: Results, rows: Iterable[Row]) -> int:
    """Programs with a model that XLA computes a part of."""
    models = ((row, results.models.get((row.hash, results.runs[row.run].target))) for row in rows)
    return sum(bool(row.us and row.left and model and model.us) for row, model in models)


def _bound(model: Model) -> str:
    longest = max(model.kernels, key=lambda name: model.kernels[name], default="")
    alone = next(iter(model.bound.values())) if len(model.bound) == 1 else ""
    return model.bound.get(longest, alone)


@dataclass(frozen=True)
class OfBound:
    """Estimates of programs that are bound by the same."""

    bound: str
    all: list[Estimate]  # the worst one first

    @property
    def missed(self) -> int:
        return sum(each.factor > MISSED for each in self.all)

    @property
    def mean_factor(self) -> float:
        """2 to the mean of |log2(modelled / measured)|."""
        return math.exp2(statistics.fmean(abs(math.log2(each.ratio)) for each in self.all))


def by_bound(found: Iterable[Estimate]) -> list[OfBound]:
    every = worst_first(found)
    others = sorted({each.bound for each in every} - set(BOUNDS))
    groups = [OfBound(bound, [each for each in every if each.bound == bound]) for bound in (*BOUNDS, *others)]
    return [group for group in groups if group.all]


def worst_first(found: Iterable[Estimate]) -> list[Estimate]:
    return sorted(found, key=lambda each: (-each.factor, each.row.title))


@dataclass(frozen=True)
class Said:
    """A number of a model beside what was measured."""

    row: Row
    name: str
    value: float

    @property
    def measured(self) -> float:
        return statistics.median(self.row.us)

    @property
    def off(self) -> bool:
        """Also where what was measured is no number."""
        return not abs(self.value - self.measured) <= OFF * abs(self.measured)


def said(rows: Iterable[Row]) -> list[Said]:
    """Of figures of the device."""
    return [
        Said(row, name, value) for row in rows if row.aim == "figure" and row.us for name, value in row.said.items()
    ]
