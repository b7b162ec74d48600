"""A run: what is measured in which order, where it is kept, and what is said at the end."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
import json
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.device import GONE, NOTHING, crew, store, surroundings
from bench.device.ending import ending
from bench.device.figures import FIGURES
from bench.device.jobs import FIGURE, MEASURED, MODEL, Job, all_jobs, model_jobs
from bench.device.modelled import this_model
from bench.device.options import Options
from bench.device.pages import pages
from bench.device.side_by_side import Standing
from bench.device.store import Key, Model, Results, Row, Run
from jaxpr2triton.hardware import target_named

CHECKOUT = Path(__file__).parents[2]
COMPILER = ("jaxpr2triton/**/*.py", "jaxpr2triton/**/*.[ch]")
PROGRAMS: tuple[str, ...] = (
    "tests/*programs.py",
    "tests/contraction.py",
    "tests/loop_programs/*.py",
    "bench/contractions.py",
    "bench/windows.py",
)
PROGRAMS += ("bench/device/cases.py", "bench/device/large*.py", "bench/device/published.py", "bench/device/figure*.py")
EVERY = 20.0  # seconds between two lines that say how far it is
PATIENCE = 30.0  # seconds until a device that loses workers is said to be gone
BASELINES_BY = ("jax", "jaxlib", "triton", "torch")  # packages that decide what others take

Progress = Callable[[], None]


@functools.cache
def tree() -> str:
    """A hash of all that decides what is launched."""
    digest = hashlib.sha256()
    for file in sorted(file for pattern in (*COMPILER, *PROGRAMS) for file in CHECKOUT.glob(pattern)):
        digest.update(f"{file.relative_to(CHECKOUT)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def commit(named: str) -> str:
    """Of the checkout, with a + where it has been changed; what the user says where there is no git."""
    if named:
        return named
    words = [["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"]]
    try:
        head, changed = (
            subprocess.run(["git", *each], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.strip()
            for each in words
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changed else "")


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Hashes:
    """What is launched at this code, as far as it has been planned; kept from one run to the next."""

    file: Path
    found: dict[Key, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, versions: Mapping[str, str]) -> Hashes:
        name = f"hashes-{tree()}-{versions.get('jax', '')}-{versions.get('triton', '')}.jsonl"
        hashes = cls(folder / name)
        for line in hashes.file.read_text().splitlines() if hashes.file.exists() else ():
            try:
                *key, value = json.loads(line)
            except ValueError:  # a line that was being written when the process ended
                continue
            hashes.found[tuple(key)] = value
        return hashes

    def note(self, key: Key, value: str) -> None:
        if self.found.get(key) != value:
            self.found[key] = value
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a") as opened:
                opened.write(json.dumps([*key, value]) + "\n")


@dataclass
class Session:
    """What is known while it runs."""

    file: Path
    results: Results
    run: Run
    hashes: Hashes
    again: bool
    nvml: surroundings.Nvml = field(default_factory=surroundings.Nvml)
    lock: threading.Lock = field(default_factory=threading.Lock)
    count: int = 0
    begun: bool = False

    def keep(self, found: Row | Model) -> None:
        with self.lock:
            if not self.begun:
                store.append(self.file, self.run)
                self.results.add(self.run)
                self.begun = True
            if isinstance(found, Row):
                clock = None if self.run.rehearsed else self.nvml.clock()
                found = dataclasses.replace(found, run=self.run.run, date=now(), clock=clock)
                self.count += 1
            store.append(self.file, found)
            self.results.add(found)

    def hashed(self, job: Job, hashes: Mapping[str, str]) -> None:
        aim = "time" if job.aim == MODEL else job.aim
        with self.lock:
            for way, value in hashes.items():
                self.hashes.note((aim, *job.place, way), value)

    def newest(self, key: Key) -> Row | None:
        rows = self.results.rows.get((self.run.device, key))
        return rows[-1] if rows else None

    def is_fresh(self, job: Job, hashes: Mapping[str, str]) -> bool:
        """Whether the same kernels were measured already, and what stands beside them with the same versions."""
        for way in job.ways:
            row = self.newest((job.aim, *job.place, way))
            if row is None or (way in hashes and row.hash != hashes[way]):
                return False
            if way not in hashes and not self.same_versions(row):
                return False
        return True

    def same_versions(self, row: Row) -> bool:
        before = self.results.runs[row.run].versions
        return all(before.get(name, "") == self.run.versions.get(name, "") for name in BASELINES_BY)

    def is_done(self, job: Job) -> bool:
        """At this very code, and on this device."""
        rows = [self.newest(key) for key in job.keys]
        return all(
            row is not None and self.results.runs[row.run].tree == self.run.tree and self.same_versions(row)
            for row in rows
        )

    def ordered(self, jobs: Iterable[Job]) -> tuple[list[Job], list[Job]]:
        """What was never measured or may have changed, and the rest, the oldest first; not what is done."""
        first, rest = list[Job](), list[Job]()
        for job in jobs:
            rows = [self.newest(key) for key in job.keys]
            if self.is_done(job) and not self.again:
                continue
            known = {key[-1]: self.hashes.found[key] for key in job.keys if key in self.hashes.found}
            fresh = None not in rows and self.is_fresh(job, known) and (bool(known) or not job.ours)
            (rest if fresh else first).append(job)
        rest.sort(key=lambda job: min(row.date for key in job.keys if (row := self.newest(key)) is not None))
        return first, rest


def chosen(jobs: Sequence[Job], words: Sequence[str]) -> list[Job]:
    return [job for job in jobs if not words or _group(job) & {*words} or job.name.startswith(tuple(words))]


def _group(job: Job) -> set[str]:
    return {job.family, job.aim}


def run(options: Options, found: surroundings.Found, seconds: float | None) -> int:
    start = time.monotonic()
    everything = all_jobs("torch" in found.versions, "hypothesis" in found.versions)
    jobs = chosen(everything, options.only)
    if not jobs:
        names = sorted({word for job in everything for word in _group(job)})
        print(f"nothing is called {' or '.join(options.only)}; groups are {', '.join(names)}")
        return NOTHING
    device = f"{found.device}, rehearsed" if options.rehearse else found.device  # no row of it is one of a device
    here = Run(
        uuid.uuid4().hex[:8], now(), device, found.target, commit(options.commit), tree(), found.versions,
        options.rehearse,
    )  # fmt: skip
    session = Session(
        options.results, store.read(options.results), here, Hashes.of(options.cache, found.versions), options.again
    )
    first, rest = session.ordered(jobs)
    rows = sum(len(job.ways) for job in (*first, *rest))
    print(f"{rows} rows to measure of {len(jobs)} programs and figures; {len(first)} of these never or at other code")
    plan = crew.Plan(first, session.is_fresh, session.keep, session.hashed, later=rest, patient={*rest})
    progress = _told_by(session, rows)
    with tempfile.TemporaryDirectory() as folder:
        at_work = crew.Crew(plan, options.workers, options.rehearse, Path(folder))
        left = None if seconds is None else seconds - (time.monotonic() - start)
        there = at_work.run(left, functools.partial(_gone, options.rehearse), progress)
        if there and seconds is None and not options.rehearse:
            model(session, options, Path(folder), None, progress)
    status = told(session, here.device, here.run if session.begun else "")
    if not there:
        print(f"the device does not answer any more; {session.count} rows of this run are kept. Run it again.")
        return GONE
    return status


def model(session: Session, options: Options, folder: Path, seconds: float | None, progress: Progress) -> None:
    """What is launched now of what was measured, and what the models say where it is the same; without a device."""
    wanted = [job for job in chosen(model_jobs(), options.only) if _is_open(session, job)]
    keep = functools.partial(_keep_model, session)
    plan = crew.Plan(wanted, functools.partial(_is_known, session), keep, session.hashed, drops=True)
    crew.Crew(plan, options.workers, False, folder).run(seconds, lambda seconds: False, progress)


def _keep_model(session: Session, found: Row | Model) -> None:
    """Nothing was measured: what cannot be planned is told, and is no row."""
    if isinstance(found, Model):
        session.keep(found)
    else:
        print(f"{found.title} is not modelled: {found.problem}", file=sys.stderr, flush=True)


def _is_open(session: Session, job: Job) -> bool:
    """Whether it was measured, and is not planned at this code, or not modelled."""
    keys = [("time", *job.place, way) for way in job.ways]
    rows = [rows[-1] for (_, key), rows in session.results.rows.items() if key in keys]
    return any(row.hash and (row.key not in session.hashes.found or not _has_model(session, row)) for row in rows)


def _is_known(session: Session, job: Job, hashes: Mapping[str, str]) -> bool:
    """Whether kernels of these hashes were never measured, or have a model."""
    measured = [row for rows in session.results.rows.values() for row in rows if row.hash in hashes.values()]
    return all(_has_model(session, row) for row in measured)


def _has_model(session: Session, row: Row) -> bool:
    found = session.results.models.get((row.hash, session.results.runs[row.run].target))
    return found is not None and found.by == this_model()


def _gone(rehearse: bool, seconds: float) -> bool:
    return bool(surroundings.asked(rehearse, min(seconds, PATIENCE)).problem)


def _told_by(session: Session, rows: int) -> Progress:
    last = [time.monotonic()]

    def progress() -> None:
        if time.monotonic() - last[0] > EVERY:
            last[0] = time.monotonic()
            print(f"  {session.count} of {rows} rows", file=sys.stderr, flush=True)

    return progress


def told(session: Session, device: str, name: str) -> int:
    """The last lines and the pages."""
    known = frozenset(key for job in all_jobs(torch=True, hypothesis=True) for key in job.keys)
    standing = Standing({**of_this_code(session.results, device), **session.hashes.found}, known, name)
    if session.begun:
        store.compact(session.file)
    results = as_said_today(store.read(session.file))
    write_pages(results, standing, session.file.parent)
    lines, status = ending(results, device, standing)
    print("\n".join(lines), flush=True)
    return status


def as_said_today(results: Results) -> Results:
    """Figures that were measured, beside the numbers that the models have now."""
    figures = {figure.name: figure for figure in FIGURES}
    for (_, key), rows in results.rows.items():
        if key[0] == FIGURE and key[2] in figures and key[-1] == MEASURED:
            targets = [target_named(results.runs[row.run].target) for row in rows]
            rows[:] = [
                dataclasses.replace(row, said=figures[key[2]].said(target)) for row, target in zip(rows, targets)
            ]
    return results


def of_this_code(results: Results, device: str) -> dict[Key, str]:
    """What was launched for rows that were measured at this very code."""
    rows = [row for rows in results.of_device(device).values() for row in rows]
    return {row.key: row.hash for row in rows if row.hash and results.runs[row.run].tree == tree()}


def write_pages(results: Results, standing: Standing, folder: Path) -> None:
    for name, text in pages(results, standing).items():
        (folder / name).write_text(text)


def pages_alone(options: Options) -> int:
    """Without a device: models of what was measured, and the pages."""
    results = store.read(options.results)
    if not results.rows:
        print(f"nothing was measured yet: {options.results} has no rows")
        return NOTHING
    versions = surroundings.versions()
    here = Run(uuid.uuid4().hex[:8], now(), "", "", commit(options.commit), tree(), versions)
    session = Session(options.results, results, here, Hashes.of(options.cache, versions), False, begun=True)
    seconds = None if options.minutes is None else options.minutes * 60
    with tempfile.TemporaryDirectory() as folder:
        model(session, options, Path(folder), seconds, _told_by(session, 0))
    return max([told(session, device, "") for device in results.devices], default=0)
