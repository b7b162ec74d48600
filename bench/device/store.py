"""What was measured, on disk: an object of JSON on a line, written when it is known and never later.

    {"what": "run", "run": "5e0c", "device": "NVIDIA H100 …", "commit": "aa3149c", …}   where rows come from
    {"what": "row", "run": "5e0c", "aim": "time", "program": "rnn", "way": "ours", …}   a way of a program, or a figure
    {"what": "model", "hash": "91be…", "us": 83.0, …}                                   what the model says of kernels

A line that cannot be read is set aside in a file of its own; all others count. Whoever writes holds the lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "device.jsonl"
KEPT = 2  # measurements of a row, the newest ones
REPETITIONS = 12  # of a row at most

Key = tuple[str, ...]


class Busy(Exception):
    """Somebody else measures."""


@dataclass(frozen=True)
class Run:
    """Where and with what something was measured."""

    run: str
    date: str  # 2026-11-27T05:40:00Z
    device: str
    target: str = ""  # sm_90
    commit: str = ""
    tree: str = ""  # a hash of the compiler's source
    versions: Mapping[str, str] = field(default_factory=dict)  # jax, triton, python, driver, torch, …
    rehearsed: bool = False  # on the stand-in driver: times mean nothing
    taken_over: str = ""  # the page that it was read from, where nothing else is known


@dataclass(frozen=True)
class Row:
    """One way of doing a program, measured; or a figure of the device."""

    run: str
    aim: str  # right, figure or time
    family: str  # loops, contractions, windows, rest, real, published, drawn, device
    program: str
    kind: str = ""  # forward or with gradients
    sizes: str = ""  # small, full, or in words
    way: str = ""  # ours, all ours, jit, jit with graphs, torch, …
    date: str = ""
    hash: str = ""  # of what is launched, where it is ours
    us: tuple[float, ...] = ()  # microseconds of a call, each repetition; of a figure its values
    unit: str = ""  # of a figure
    said: Mapping[str, float] = field(default_factory=dict)  # what models say of a figure, by name
    busy: float | None = None  # microseconds of a call in which the device computed
    launches: float | None = None  # kernels and copies of a call
    kernels: Mapping[str, float] = field(default_factory=dict)  # microseconds of the longest ones
    error: float | None = None  # against the reference
    allowed: float | None = None  # … and how large it may be
    left: int | None = None  # equations that stayed with XLA
    clock: float | None = None  # MHz of the processors when the row was measured
    published: float | None = None  # microseconds that somebody else's kernel took
    source: str = ""  # … and where that is said
    problem: str = ""  # why there is no number

    @property
    def key(self) -> Key:
        return (self.aim, self.family, self.program, self.kind, self.sizes, self.way)

    @property
    def title(self) -> str:
        words = [self.program, self.kind, "" if self.sizes in ("small", "full") else self.sizes, self.way]
        return ", ".join(word for word in words if word)

    @property
    def wrong(self) -> bool:
        """Whether its numbers are not the right ones."""
        return self.error is not None and self.allowed is not None and not self.error <= self.allowed

    @property
    def best(self) -> float | None:
        return min(self.us, default=None)


@dataclass(frozen=True)
class Model:
    """What the model of cycles says of the kernels of a program."""

    hash: str
    target: str
    us: float | None  # of all kernels, without launches
    kernels: Mapping[str, float] = field(default_factory=dict)
    bound: Mapping[str, str] = field(default_factory=dict)  # of each kernel: issue, memory, latency or tensor
    problem: str = ""
    by: str = ""  # a hash of the model that said so


@dataclass
class Results:
    """All that a file says; rows of one key in the order in which they were measured."""

    runs: dict[str, Run] = field(default_factory=dict)
    rows: dict[tuple[str, Key], list[Row]] = field(default_factory=dict)  # by device
    models: dict[tuple[str, str], Model] = field(default_factory=dict)  # by hash and target
    damaged: int = 0

    def add(self, found: Run | Row | Model) -> None:
        match found:
            case Run():
                self.runs[found.run] = found
            case Row():
                self.rows.setdefault((self.runs[found.run].device, found.key), []).append(found)
            case Model():
                self.models[found.hash, found.target] = found

    def of_device(self, device: str) -> dict[Key, list[Row]]:
        return {key: rows for (where, key), rows in self.rows.items() if where == device}

    @property
    def devices(self) -> list[str]:
        return sorted({device for device, _ in self.rows})


def line_of(found: Run | Row | Model) -> str:
    """Without what has no value."""
    words = {"what": type(found).__name__.lower()}
    for each in dataclasses.fields(found):
        value = getattr(found, each.name)
        if value is not None and value != "" and value != () and value != {} and value is not False:
            words[each.name] = _short(value)
    return json.dumps(words, ensure_ascii=False)


def _short(value: Any) -> Any:
    """Four digits say all that a measurement knows."""
    match value:
        case float():
            return float(f"{value:.4g}")
        case tuple() | list():
            return [_short(each) for each in value[:REPETITIONS]]
        case Mapping():
            return {key: _short(each) for key, each in value.items()}
        case _:
            return value


def parsed(line: str) -> Run | Row | Model:
    """What a line says; ValueError, TypeError or KeyError where it is damaged."""
    words: dict[str, Any] = json.loads(line)
    match words.pop("what"):
        case "run":
            return Run(**words)
        case "row":  # what has no value is not written
            return Row(**{"run": "", **words, "us": tuple(map(float, words.get("us", ())))})
        case "model":
            return Model(**{"us": None, **words})
        case other:
            raise KeyError(other)


def read(file: Path) -> Results:
    """What is there; damaged lines are counted, and rows of a run that is not known are damaged as well."""
    return _sorted(file)[0]


def _sorted(file: Path) -> tuple[Results, list[str], list[str]]:
    """What a file says, the lines that say it, and those that are damaged."""
    results, good, bad = Results(), list[str](), list[str]()
    for line in file.read_text(errors="replace").splitlines() if file.exists() else ():
        try:
            results.add(parsed(line))
        except (ValueError, TypeError, KeyError, AttributeError):
            bad.append(line)
        else:
            good.append(line)
    results.damaged = len(bad)
    return results, good, bad


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Nobody else writes meanwhile; `Busy` if somebody does."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = file.with_name(f".{file.name}.lock")
    with lock.open("a+") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            opened.seek(0)
            raise Busy(opened.read().strip()) from None
        opened.truncate(0)
        opened.write(str(os.getpid()))
        opened.flush()
        yield


def mend(file: Path) -> int:
    """Sets damaged lines aside, in a file beside this one; how many. A last line without an end gets one."""
    _, good, bad = _sorted(file)
    if bad:
        with file.with_suffix(".damaged").open("a") as aside:
            aside.writelines(f"{line}\n" for line in bad)
    if bad or (good and not file.read_bytes().endswith(b"\n")):
        _replace(file, good)
    return len(bad)


def append(file: Path, found: Run | Row | Model) -> None:
    """On disk when this returns."""
    with file.open("a") as opened:
        opened.write(line_of(found) + "\n")
        opened.flush()
        os.fsync(opened.fileno())


def compact(file: Path) -> None:
    """The newest measurement of each row, and in brief the one before it; models of hashes that some row has.

    One that has a problem stands beside the newest one that has none.
    """
    results = read(file)
    kept: list[Row] = []
    for rows in results.rows.values():
        good = [row for row in rows if not row.problem]
        old = [_brief(row) for row in good[-KEPT:-1]]
        kept += old + [row for row in rows if row in good[-1:] or row is rows[-1]]
    runs = [run for name, run in results.runs.items() if any(row.run == name for row in kept)]
    hashes = {row.hash for row in kept}
    models = [model for model in results.models.values() if model.hash in hashes]
    order = {name: n for n, name in enumerate(results.runs)}
    kept.sort(key=lambda row: order[row.run])  # the sort is stable
    found: list[Run | Row | Model] = [*runs, *kept, *models]
    _replace(file, [line_of(each) for each in found])


def _brief(row: Row) -> Row:
    """What a newer measurement is compared with."""
    least = (row.best,) if row.best is not None and row.aim == "time" else row.us
    return dataclasses.replace(row, us=least, kernels={}, said={}, source="", published=None)


def _replace(file: Path, lines: list[str]) -> None:
    new = file.with_name(f".{file.name}.new")
    with new.open("w") as opened:
        opened.writelines(f"{line}\n" for line in lines)
        opened.flush()
        os.fsync(opened.fileno())
    os.replace(new, file)
