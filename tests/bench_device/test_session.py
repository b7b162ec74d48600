"""What comes first, what is stale, and which numbers of the models a device contradicts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bench.device import __main__, session, store, surroundings
from bench.device.jobs import Job
from bench.device.options import options_of
from bench.device.session import Hashes, Session
from bench.device.store import Results, Row, Run

VERSIONS = {"jax": "0.11.2", "jaxlib": "0.11.2", "triton": "3.6.0"}
BEFORE = Run("b", "2026-11-26T00:00:00Z", "a device", "sm_90", tree="old", versions=VERSIONS)
NOW = Run("n", "2026-11-27T00:00:00Z", "a device", "sm_90", tree="new", versions=VERSIONS)


def timed(name: str) -> Job:
    return Job("time", "loops", name, "forward", "full", ("ours", "jit"))


def measured(run: Run, job: Job, hash: str, day: int = 1) -> list[Row]:
    date = f"2026-11-{day:02}"
    return [Row(run.run, *key[:6], date=date, us=(1.0,), hash=hash if key[-1] == "ours" else "") for key in job.keys]


def begun(tmp_path: Path, rows: Sequence[Row], hashes: Mapping[str, str], again: bool = False) -> Session:
    results = Results()
    for each in (BEFORE, NOW):
        results.add(each)
    for row in rows:
        results.add(row)
    known = Hashes(tmp_path / "hashes.jsonl")
    for name, value in hashes.items():
        known.note(("time", "loops", name, "forward", "full", "ours"), value)
    return Session(tmp_path / "device.jsonl", results, NOW, known, again)


def test_what_was_never_measured_or_has_changed_comes_first_and_the_oldest_before_the_newer(tmp_path: Path) -> None:
    never, done, changed, same, older, unknown = map(timed, ("never", "done", "changed", "same", "older", "unknown"))
    rows = [
        *measured(NOW, done, "h"),
        *measured(BEFORE, changed, "h"),
        *measured(BEFORE, same, "h", 20),
        *measured(BEFORE, older, "h", 10),
        *measured(BEFORE, unknown, "h"),
    ]
    at_work = begun(tmp_path, rows, {"changed": "other", "same": "h", "older": "h"})
    first, rest = at_work.ordered([done, same, changed, never, older, unknown])
    assert [job.name for job in first] == ["changed", "never", "unknown"]  # whose kernels are to be planned first
    assert [job.name for job in rest] == ["older", "same"]
    assert at_work.is_fresh(unknown, {"ours": "h"}) and not at_work.is_fresh(unknown, {"ours": "another"})
    again = begun(tmp_path, rows, {}, again=True)
    assert done in again.ordered([done])[0]


def test_other_versions_make_baselines_stale(tmp_path: Path) -> None:
    graphs = Job("time", "loops", "rnn", "forward", "full", ("jit, graphs",), "--xla_flag")
    at_work = begun(tmp_path, measured(BEFORE, graphs, ""), {})
    assert at_work.ordered([graphs]) == ([], [graphs])
    at_work.run = dataclasses.replace(NOW, versions={**VERSIONS, "jax": "0.12.0"})
    assert at_work.ordered([graphs]) == ([graphs], [])


def test_hashes_are_kept_from_one_run_to_the_next(tmp_path: Path) -> None:
    hashes = Hashes.of(tmp_path, VERSIONS)
    hashes.note(("time", "loops", "rnn"), "12ab")
    hashes.file.write_text(hashes.file.read_text() + '["time", "lo')  # as the process ended
    assert Hashes.of(tmp_path, VERSIONS).found == {("time", "loops", "rnn"): "12ab"}


def test_what_cannot_be_planned_without_a_device_is_told_and_is_no_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at_work = begun(tmp_path, measured(BEFORE, timed("rnn"), "h"), {})
    lost = Row("", "model", "loops", "rnn", "forward", "full", "ours", problem="CompilerBug: a mistake")

    def run(crew: Any, *_: Any) -> None:
        crew.plan.found(lost)

    with mock.patch.object(session.crew.Crew, "run", run):
        session.model(at_work, options_of(["--pages"], ""), tmp_path, None, lambda: None)
    assert not at_work.file.exists()
    assert capsys.readouterr().err == "rnn, forward, ours is not modelled: CompilerBug: a mistake\n"


def test_a_wrong_number_of_the_models_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at_work = begun(tmp_path, [], {})
    store.append(at_work.file, NOW)
    row = Row(NOW.run, "figure", "device", "dependent shuffle", way="measured", us=(24.2, 24.2), unit="cycles")
    store.append(at_work.file, row)
    assert session.told(at_work, "a device", "") == 0
    assert "0 of 1 number of the models off by more than a fifth" in capsys.readouterr().out
    planted = mock.patch.dict("jaxpr2triton.launch.cycles.latencies._LATENCIES", SHFL=60)
    with planted:
        session.told(at_work, "a device", "")
    told = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "dependent shuffle 24.2 cycles latencies.SHFL = 60" in told


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ({"problem": "plugin: jax 0.11.2 sees no device: pip install 'jax[cuda13]'"}, "sees no device"),
        ({"problem": "device: GTX 1080 has compute capability 6.1: kernels need 8.0 or newer"}, "capability 6.1"),
    ],
)
def test_without_a_device_nothing_is_measured_and_a_line_says_why(
    found: dict[str, Any], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mock.patch.object(surroundings, "asked", lambda *how: surroundings.Found(**found)):
        assert __main__.main(["--results", str(tmp_path / "device.jsonl")]) == 2
    told = capsys.readouterr().out.strip().splitlines()
    assert line in told[-2] and told[-2].startswith("nothing is measured: ")
    assert told[-1] == "without a device: scripts/device --rehearse, or bench.cycles, which models one"


def test_two_runs_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "device.jsonl"
    with mock.patch.object(store.fcntl, "flock", side_effect=BlockingIOError):
        assert __main__.main(["--results", str(file)]) == 2
    assert capsys.readouterr().out.startswith("another run measures into device.jsonl")


def test_what_nothing_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = options_of(["--only", "nonsense", "--results", str(tmp_path / "device.jsonl")], "")
    assert session.run(options, surroundings.Found(versions=VERSIONS), None) == 2
    assert capsys.readouterr().out == (
        "nothing is called nonsense; groups are contractions, device, figure, loops, published, real, rest, right, "
        "time, windows\n"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--minutes", "soon"], "argument --minutes: a number of minutes above 0, not soon"),
        (["--minutes", "0"], "argument --minutes: a number of minutes above 0, not 0"),
        (["--workers", "0"], "--workers: at least 1"),
        (["--only"], "argument --only: expected at least one argument"),
    ],
)
def test_words_that_make_no_sense(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^2$"):
        options_of(words, "")
    assert capsys.readouterr().err.splitlines()[-1] == f"scripts/device: error: {told}"
