"""Workers that hang, crash or hold too much cost their own job; turns; what is done later."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.device.crew import Crew, Limits, Plan, Turns
from bench.device.jobs import Job
from bench.device.store import Model, Row

COMMAND = (sys.executable, "-m", "tests.bench_device.worker")
LIMITS = Limits(start=30, prepare=5, measure=1)


def job(name: str, aim: str = "time", family: str = "loops") -> Job:
    return Job(aim, family, name, ways=("ours", "jit"))


def done(
    jobs: Sequence[Job], folder: Path, seconds: float | None = 60, workers: int = 2, gone: bool = False
) -> tuple[list[Row], bool, float]:
    rows: list[Row] = []

    def found(one: Row | Model) -> None:
        assert isinstance(one, Row)
        rows.append(one)

    def fresh(one: Job, hashes: Mapping[str, str]) -> bool:
        return hashes == {"ours": "old"}

    plan = Plan(list(jobs), fresh, found, lambda one, hashes: None)
    crew = Crew(plan, workers, False, folder, COMMAND, LIMITS)
    start = time.monotonic()
    here = crew.run(seconds, lambda seconds: gone, lambda: None)
    assert not crew.alive or seconds is not None
    return rows, here, time.monotonic() - start


def told(rows: Sequence[Row], name: str) -> list[tuple[str, str]]:
    return [(row.way, row.problem) for row in rows if row.program == name]


def test_what_hangs_or_crashes_costs_itself_alone(tmp_path: Path) -> None:
    rows, here, _ = done([job("a"), job("hangs"), job("crashes"), job("large"), job("b")], tmp_path)
    assert here
    assert all(told(rows, name) == [("ours", ""), ("jit", "")] for name in ("a", "large", "b"))
    assert told(rows, "hangs") == [("ours", ""), ("jit", "took more than 1 s")]
    assert told(rows, "crashes") == [("ours", ""), ("jit", "the process ended by SIGSEGV: the last words")]


def test_it_stops_in_time(tmp_path: Path) -> None:
    limits = Limits(measure=60)
    rows: list[Row | Model] = []
    plan = Plan([job("hangs")], lambda one, hashes: False, rows.append, lambda one, hashes: None)
    start = time.monotonic()
    Crew(plan, 1, False, tmp_path, COMMAND, limits).run(2, lambda seconds: False, lambda: None)
    assert time.monotonic() - start < 5
    assert [getattr(row, "way", "") for row in rows] == ["ours"]  # nothing is said of what was under way


def test_what_was_measured_with_the_same_kernels_comes_last(tmp_path: Path) -> None:
    rows, _, _ = done([job("known"), job("a"), job("b")], tmp_path, workers=1)
    assert [row.program for row in rows] == ["a", "a", "b", "b", "known", "known"]


def test_what_is_known_is_dropped_where_nobody_asks_for_it(tmp_path: Path) -> None:
    rows: list[Row | Model] = []
    plan = Plan([job("known"), job("a")], lambda one, hashes: True, rows.append, lambda one, hashes: None, drops=True)
    Crew(plan, 1, False, tmp_path, COMMAND, LIMITS).run(60, lambda seconds: False, lambda: None)
    assert [row.program for row in rows if isinstance(row, Row)] == ["a", "a"]


def test_a_device_that_is_gone_ends_the_run(tmp_path: Path) -> None:
    names = [job("a"), *(job("crashes", family=f"f{n}") for n in range(9))]
    rows, here, _ = done(names, tmp_path, workers=1, gone=True)
    assert not here
    assert told(rows, "a") == [("ours", ""), ("jit", "")]
    assert not any(row.problem for row in rows)  # the jobs are not to blame, and are done when it is there again
    assert len(rows) == 2 + 3  # what a job had measured stays


def test_one_measures_at_a_time_and_others_share() -> None:
    turns, at_once, most = Turns(), {"alone": 0, "share": 0}, {"alone": 0, "share": 0, "both": 0}
    lock = threading.Lock()

    def work(what: str) -> None:
        for _ in range(30):
            with turns.turn(what):
                with lock:
                    at_once[what] += 1
                    most[what] = max(most[what], at_once[what])
                    most["both"] = max(most["both"], min(at_once.values()))
                time.sleep(0.001)
                with lock:
                    at_once[what] -= 1

    threads = [threading.Thread(target=work, args=(what,)) for what in ("alone", "share") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most["alone"] == 1 and most["share"] > 1 and most["both"] == 0
