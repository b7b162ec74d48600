"""Nothing that was measured is lost, wherever the process ends; damaged lines are set aside."""

from __future__ import annotations

import multiprocessing
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from bench.device import store
from bench.device.store import Busy, Model, Row, Run

RUN = Run("5e0c", "2026-11-27T05:00:00Z", "a device", "sm_90", "aa3149c", "91be", {"jax": "0.11.2"})
ROWS = tuple(
    Row("5e0c", "time", "loops", name, "forward", "full", way, us=(1.25, 2.0), kernels={"k": 1.0}, hash="12ab")
    for name in ("rnn", "gru")
    for way in ("ours", "jit")
)
MODEL = Model("12ab", "sm_90", 3.5, {"k": 3.5}, {"k": "latency"})


def written(file: Path) -> None:
    everything: list[Run | Row | Model] = [RUN, *ROWS, MODEL]
    for each in everything:
        store.append(file, each)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "device.jsonl"
    written(file)
    found = store.read(file)
    assert found.runs == {"5e0c": RUN} and found.damaged == 0
    assert [rows for rows in found.of_device("a device").values()] == [[row] for row in ROWS]
    assert found.models == {("12ab", "sm_90"): MODEL}


def test_a_process_that_ends_in_the_middle_of_a_line_loses_that_line_alone(tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl"
    written(whole)
    content = whole.read_bytes()
    for end in range(len(content) + 1):
        file = tmp_path / "device.jsonl"
        file.write_bytes(content[:end])
        complete = content[:end].count(b"\n") + content[: end + 1].endswith(b"\n") * (content[:end][-1:] != b"\n")
        store.mend(file)
        assert len(file.read_text().splitlines()) == complete
        store.append(file, RUN)
        assert store.read(file).damaged == 0


def test_damaged_lines_are_set_aside(tmp_path: Path) -> None:
    file = tmp_path / "device.jsonl"
    written(file)
    unknown = store.line_of(ROWS[0]).replace('"5e0c"', '"gone"')
    file.write_text(f"half a li\n{file.read_text()}[1]\n{unknown}\n")
    assert store.mend(file) == 3
    assert file.with_suffix(".damaged").read_text().splitlines() == ["half a li", "[1]", unknown]
    assert store.read(file).damaged == 0 and len(store.read(file).rows) == 4
    assert store.mend(file) == 0


def test_the_file_stays_small(tmp_path: Path) -> None:
    file = tmp_path / "device.jsonl"
    for number in range(5):
        run = Run(f"r{number}", f"2026-11-2{number}", "a device")
        store.append(file, run)
        for name in ("rnn", "gru"):
            store.append(file, Row(run.run, "time", "loops", name, us=(float(number), 9.0), kernels={"k": 1.0}))
    store.append(file, Run("bad", "2026-11-28", "a device"))
    store.append(file, Row("bad", "time", "loops", "rnn", problem="took more than 25 s"))
    store.append(file, MODEL)
    store.compact(file)
    found = store.read(file)
    (rnn,) = [rows for (_, key), rows in found.rows.items() if key[2] == "rnn"]
    assert [(row.run, row.us, dict(row.kernels), row.problem) for row in rnn] == [
        ("r3", (3.0,), {}, ""),
        ("r4", (4.0, 9.0), {"k": 1.0}, ""),
        ("bad", (), {}, "took more than 25 s"),
    ]
    assert set(found.runs) == {"r3", "r4", "bad"} and not found.models  # no row has that hash


def hold(file: Path, held: Event, done: Event) -> None:
    with store.locked(file):
        held.set()
        done.wait(30)


def test_two_do_not_write_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    file = tmp_path / "device.jsonl"
    other = context.Process(target=hold, args=(file, held, done))
    other.start()
    assert held.wait(30)
    with pytest.raises(Busy, match=f"^{other.pid}$"), store.locked(file):
        pass
    done.set()
    other.join()
    with store.locked(file):
        pass
