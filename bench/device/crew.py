"""Workers, each a process and the thread that leads it: all compile side by side, one at a time measures.

A job that hangs or ends its process costs its own rows, which say so, and a new process goes on with the next job.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.device import ANSWERS, COMPUTED, REHEARSED
from bench.device.jobs import MODEL, RIGHT, TIME, Job
from bench.device.store import Model, Row, Run, parsed

CHECKOUT = Path(__file__).parents[2]
IN_A_ROW = 8  # turns alone, before those who wait to share the device have theirs
PATIENCE = 10.0  # seconds to wait for those who share; of the rounds that they disturb none is the best
LAST_WORDS = 300  # letters
FEW_LOST = 3  # jobs one after the other, of which each may be to blame itself

Kind = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Limits:
    """Seconds that a worker may take."""

    start: float = 120.0  # to import everything
    prepare: float = 150.0  # to plan and compile
    measure: float = 25.0  # to measure all ways of a job


class Stopped(Exception):
    """There is no more time."""


@dataclass
class Turns:
    """Whose device it is: one that measures, or all that let XLA try kernels on it."""

    condition: threading.Condition = field(default_factory=threading.Condition)
    alone: bool = False
    sharing: int = 0
    wait_alone: int = 0
    wait_sharing: int = 0
    in_a_row: int = 0

    @contextlib.contextmanager
    def turn(self, what: str) -> Iterator[None]:
        if what == "alone":
            with self.condition:
                self.wait_alone += 1
                if not self.condition.wait_for(self._may_be_alone, PATIENCE):
                    self.condition.wait_for(lambda: not self.alone)
                self.wait_alone -= 1
                self.in_a_row += 1
                self.alone = True
        else:
            with self.condition:
                self.wait_sharing += 1
                self.condition.wait_for(self._may_share)
                self.wait_sharing -= 1
                self.in_a_row = 0
                self.sharing += 1
        try:
            yield
        finally:
            with self.condition:
                if what == "alone":
                    self.alone = False
                else:
                    self.sharing -= 1
                self.condition.notify_all()

    def _may_be_alone(self) -> bool:
        return not self.alone and not self.sharing and not (self.in_a_row >= IN_A_ROW and self.wait_sharing)

    def _may_share(self) -> bool:
        return not self.alone and (not self.wait_alone or self.in_a_row >= IN_A_ROW)


@dataclass
class Plan:
    """Jobs in their order; what turns out to be as it was measured before is done after all others."""

    jobs: list[Job]
    fresh: Callable[[Job, Mapping[str, str]], bool]  # whether a job was measured with kernels of these hashes
    found: Callable[[Row | Model], None]
    hashed: Callable[[Job, Mapping[str, str]], None]
    later: list[Job] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    patient: set[Job] = field(default_factory=set)  # that are measured whatever their hashes
    drops: bool = False  # whether nobody asks for what is known, later neither

    def take(self, flags: str, timed_first: bool) -> Job | None:
        """The next job; those of a worker's own flags before those that need another process."""
        with self.lock:
            if not self.jobs and self.later:
                self.jobs, self.later = self.later, []
                self.patient |= {*self.jobs}
            if not self.jobs:
                return None
            some = [job for job in self.jobs if job.aim == TIME] if timed_first else []
            chosen = (some or self.jobs)[0]
            same = [job for job in some or self.jobs if job.flags == flags and _level(job) == _level(chosen)]
            chosen = same[0] if same else chosen
            self.jobs.remove(chosen)
            return chosen

    def answer(self, job: Job, hashes: Mapping[str, str]) -> str:
        self.hashed(job, hashes)
        with self.lock:
            if job in self.patient or not self.fresh(job, hashes):
                return "now"
            self.later += [] if self.drops else [job]
            return "later"


def _level(job: Job) -> tuple[str, str, tuple[str, ...]]:
    """What is done together: jobs of one family and one set of ways."""
    return (job.aim, job.family, job.ways)


@dataclass
class Crew:
    """All workers of a run."""

    plan: Plan
    workers: int
    rehearsed: bool
    folder: Path  # for what workers print
    command: tuple[str, ...] = (sys.executable, "-m", "bench.device.worker")
    limits: Limits = Limits()
    turns: Turns = field(default_factory=Turns)
    stopped: threading.Event = field(default_factory=threading.Event)
    suspects: list[list[Row]] = field(default_factory=list)  # what jobs lost, one after the other: is the device gone?
    guard: threading.Lock = field(default_factory=threading.Lock)  # of the suspects
    alive: set[subprocess.Popen[str]] = field(default_factory=set)
    mistakes: list[Exception] = field(default_factory=list)
    here: bool = True
    is_gone: Callable[[], bool] = lambda: False

    def run(self, seconds: float | None, gone: Callable[[float], bool], progress: Callable[[], None]) -> bool:
        """Until all is done, or there is no more time; false where the device is gone."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        self.is_gone = lambda: gone(end - time.monotonic())
        threads = [threading.Thread(target=self._lead, args=(n,), daemon=True) for n in range(self.workers)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and self.here and time.monotonic() < end:
            time.sleep(0.1)
            progress()
        self.stopped.set()
        for process in list(self.alive):
            _kill(process)
        for thread in threads:
            thread.join(timeout=1)
        for mistake in self.mistakes:
            raise mistake
        if self.here:
            self.found_well()
        return self.here

    def found_well(self) -> None:
        """The device is there, so what was lost is to blame itself."""
        with self.guard:
            for row in (row for rows in self.suspects for row in rows):
                self.plan.found(row)
            self.suspects.clear()

    def lose(self, rows: list[Row]) -> None:
        """A job's rows; of several jobs in a row it may be the device that is gone, and then they say nothing."""
        with self.guard:
            self.suspects.append(rows)
            if self.stopped.is_set() or len(self.suspects) < max(FEW_LOST, self.workers // 2):
                return
            if self.is_gone():
                self.here = False
                self.stopped.set()
                return
        self.found_well()

    def _lead(self, number: int) -> None:
        try:
            self._lead_one(number)
        except Exception as mistake:  # a thread has nobody to tell: it is raised where all of them are waited for
            self.mistakes.append(mistake)
            self.stopped.set()

    def _lead_one(self, number: int) -> None:
        worker: Worker | None = None
        timed_first = number % 4 == 1  # so that the device has something to measure from the beginning
        flags = ""
        while not self.stopped.is_set() and (job := self.plan.take(flags, timed_first)) is not None:
            kind = self._kind(job)
            if worker is None or worker.kind != kind:
                if worker is not None:
                    worker.end()
                worker = Worker(kind, self, number)
            flags = job.flags
            if not worker.did(job):
                worker = None
        if worker is not None:
            worker.end()

    def _kind(self, job: Job) -> Kind:
        """The variables of the environment that a job's worker has for itself."""
        found = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {job.flags}".strip()}
        if job.aim == MODEL:
            return (("JAX_PLATFORMS", "cpu"),)
        if self.rehearsed:
            found |= {REHEARSED: "1"}
        if self.rehearsed and job.aim == RIGHT:
            found |= {COMPUTED: "1", "XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}
        return tuple(found.items())


class Worker:
    """A process, and what it says."""

    def __init__(self, kind: Kind, crew: Crew, number: int) -> None:
        self.kind, self.crew = kind, crew
        self._log = crew.folder / f"worker-{number}-{time.monotonic_ns()}.log"
        environment = {**os.environ, "J2T_RAISE": "1", "TF_CPP_MIN_LOG_LEVEL": "3", **dict(kind)}
        environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        reading, writing = os.pipe()
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                crew.command,
                cwd=CHECKOUT, env={**environment, ANSWERS: str(writing)}, pass_fds=(writing,),
                stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        os.close(writing)
        self._answers = os.fdopen(reading, "rb", buffering=0)
        self._read = b""
        crew.alive.add(self.process)
        self._started = False

    def did(self, job: Job) -> bool:
        """Whether the process is still there after it; a job that it lost has rows that say so."""
        rows: set[str] = set()
        try:
            if not self._started:
                self._hear(self.crew.limits.start)
                self._started = True
            self._tell(json.dumps(asdict(job)))
            full = self._follow(job, rows)
        except Stopped:
            self._forget()
            return False
        except (Lost, OSError) as lost:
            self._forget()
            if self.crew.stopped.is_set():
                return False
            why = str(lost) or type(lost).__name__
            self.crew.lose([Row("", job.aim, *job.place, way, problem=why) for way in job.ways if way not in rows])
            return False
        self.crew.found_well()
        if full:
            self.end()
        return not full

    def _follow(self, job: Job, rows: set[str]) -> bool:
        """Until the job is done; whether the process holds so much of the device that it should end."""
        with contextlib.ExitStack() as turn:
            limits = self.crew.limits
            limit = limits.prepare
            while True:
                said = self._hear(limit)
                match said["say"]:
                    case "alone" | "share":
                        limit = limits.measure if said["say"] == "alone" else limits.prepare
                        turn.enter_context(self.crew.turns.turn(said["say"]))
                        self._tell("go")
                    case "release":
                        limit = limits.prepare
                        turn.pop_all().close()
                    case "hash":
                        self._tell(self.crew.plan.answer(job, said["hashes"]))
                    case "found":
                        found = parsed(said["line"])
                        assert not isinstance(found, Run)
                        rows |= {found.way} if isinstance(found, Row) else set()
                        self.crew.plan.found(found)
                    case "done":
                        return bool(said["full"])

    def _hear(self, seconds: float) -> dict[str, Any]:
        """The next thing that is said; `Lost` if there is none in time, or the process ends."""
        end = time.monotonic() + seconds
        while b"\n" not in self._read:
            if self.crew.stopped.is_set():
                raise Stopped
            left = end - time.monotonic()
            if left <= 0:
                raise Lost(f"took more than {seconds:.0f} s")
            if not select.select([self._answers], [], [], min(left, 0.5))[0]:
                continue
            more = self._answers.read(65536)
            if not more:
                raise Lost(f"the process ended{self._how()}")
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _how(self) -> str:
        code = self.process.wait(timeout=10)
        words = self._log.read_text(errors="replace").split()
        by = f" by {signal.Signals(-code).name}" if code and code < 0 else f" with status {code}"
        return f"{by}: {' '.join(words)[-LAST_WORDS:]}"

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self._say_no_more()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)
        self._forget()

    def _say_no_more(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it may have ended already
            self.process.stdin.close()

    def _forget(self) -> None:
        _kill(self.process)
        self._say_no_more()
        self._answers.close()
        self._log.unlink(missing_ok=True)
        self.crew.alive.discard(self.process)


class Lost(Exception):
    """A worker that is not there any more, and why."""


def _kill(process: subprocess.Popen[str]) -> None:
    """With all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
