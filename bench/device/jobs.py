"""What there is to do, in the order of importance: is it right, what is the device, how long does everything take.

A job is what one worker does at a time, and gives a row for each of its ways. Jobs of one worker share XLA's flags.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.device import ways
from bench.device.cases import DRAWN, FORWARD, Case, small_cases, timed_cases
from bench.device.figures import FIGURES
from bench.device.store import Key

RIGHT, FIGURE, TIME = "right", "figure", "time"
MODEL = "model"  # what the model of cycles says, which needs no device
WITH_PRODUCTS = ("contractions", "windows")  # families of which all is measured as kernels, too
WITH_LOOPS = ("loops", "real", "published")  # families that may have some
MEASURED, IN_GRAPHS = "measured", "measured, in CUDA graphs"
LAUNCHES = ("launch in a program", "step of a while loop of XLA")  # figures that are others where XLA makes graphs
PROGRAM = "program"
SEED = 34


@dataclass(frozen=True)
class Job:
    """A program and the ways in which it is done."""

    aim: str
    family: str
    name: str
    kind: str = ""
    sizes: str = ""
    ways: tuple[str, ...] = (ways.OURS,)
    flags: str = ""  # XLA's

    @property
    def place(self) -> tuple[str, str, str, str]:
        return (self.family, self.name, self.kind, self.sizes)

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple((self.aim, *self.place, way) for way in self.ways)

    @property
    def ours(self) -> bool:
        """Whether kernels of ours are in it, so that it is measured again when they change."""
        return self.aim != FIGURE and bool({ways.OURS, ways.ALL} & {*self.ways})

    @property
    def title(self) -> str:
        words = [self.name, self.kind, self.sizes if self.sizes not in ("small", "full") else ""]
        return ", ".join(word for word in words if word)


def all_jobs(torch: bool, hypothesis: bool) -> list[Job]:
    """In the order in which they are done, as long as nothing is known of them; what needs a library, where it is."""
    timed = [(case, plain(case)) for case in timed_cases()]
    named = [Job(RIGHT, case.family, case.name, case.kind, case.sizes) for case in small_cases()]
    drawn = [Job(RIGHT, "drawn", f"{PROGRAM} {SEED}.{n}", FORWARD, "small") for n in range(DRAWN)]
    figures = [Job(FIGURE, "device", figure.name, ways=(MEASURED,)) for figure in FIGURES]
    if flags := ways.flags_of(ways.GRAPHS):
        figures += [Job(FIGURE, "device", name, ways=(IN_GRAPHS,), flags=flags) for name in LAUNCHES]
    found = [*named, *(drawn if hypothesis else ()), *figures, *(job for _, job in timed)]
    for more in (of_graphs, of_unrolled, lambda case: of_others(case, torch), of_unrolled_graphs, of_concurrent_graphs):
        found += [job for case, _ in timed for job in more(case)]
    return found


def model_jobs() -> list[Job]:
    """One for each program that is timed, in the ways that are ours."""
    timed = [(case, [way for way in plain(case).ways if way != ways.JIT]) for case in timed_cases()]
    return [Job(MODEL, *case.place, ways=tuple(some)) for case, some in timed]


def _job(case: Case, some: Sequence[str], flags: str = "") -> Job:
    return Job(TIME, *case.place, ways=tuple(some), flags=flags)


def plain(case: Case) -> Job:
    everything = (ways.ALL,) if case.family in WITH_PRODUCTS else ()
    return _job(case, (ways.OURS, *everything, *(() if case.endless else (ways.JIT,))))


def of_graphs(case: Case) -> Iterator[Job]:
    if not case.endless and (flags := ways.flags_of(ways.GRAPHS)):
        yield _job(case, [ways.GRAPHS], flags)


def of_unrolled_graphs(case: Case) -> Iterator[Job]:
    if case.family in WITH_LOOPS and not case.endless and (flags := ways.flags_of(ways.UNROLLED_GRAPHS)):
        yield _job(case, [ways.UNROLLED_GRAPHS], flags)


def of_concurrent_graphs(case: Case) -> Iterator[Job]:
    """Not of what has loops only, where XLA's graphs have no concurrent regions."""
    if case.family != "loops" and (flags := ways.flags_of(ways.CONCURRENT_GRAPHS)):
        yield _job(case, [ways.CONCURRENT_GRAPHS], flags)


def of_unrolled(case: Case) -> Iterator[Job]:
    if case.family in WITH_LOOPS and not case.endless:
        yield _job(case, [ways.UNROLLED])


def of_others(case: Case, torch: bool) -> Iterator[Job]:
    if case.others:
        yield _job(case, list(case.others))
    if torch and case.family in WITH_PRODUCTS:
        yield _job(case, [ways.TORCH])
