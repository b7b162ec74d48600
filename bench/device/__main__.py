"""Measures on the device that is here, all there is, the oldest knowledge first.

    scripts/device                         until all is done
    scripts/device --minutes 9             stops in time, whatever is running; run again, it goes on where it was
    scripts/device --only loops lstm       groups, or how names begin
    scripts/device --rehearse              without a device: the same, on the stand-in driver
    scripts/device --pages                 without a device: the pages again, and what models say of what was measured

What is found goes into bench/results/device.jsonl, each row as soon as it is measured, and from there into the pages
beside it. The last lines say what is wrong, what is slow and what the models missed. The exit status is 0 if all is
right, 1 if something is wrong, 2 if nothing can be measured, and 3 if the device went away.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.device import store, surroundings

NOTHING = 2
ENDING = 8.0  # seconds that are kept for the last lines and the pages
CACHE = Path(os.environ.get("J2T_CACHE_DIR") or "~/.cache/jaxpr2triton").expanduser() / "device"
REHEARSALS = CACHE / "rehearsed.jsonl"


@dataclass(frozen=True)
class Options:
    minutes: float | None
    only: tuple[str, ...]
    rehearse: bool
    pages: bool
    again: bool
    results: Path
    workers: int
    commit: str
    cache: Path = CACHE


def options_of(words: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        "scripts/device", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=_minutes, help="how long it may take, the last lines included")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="groups, or how names begin")
    parser.add_argument("--rehearse", action="store_true", help="on the stand-in driver, without a device")
    parser.add_argument("--pages", action="store_true", help="measure nothing, and write the pages")
    parser.add_argument("--again", action="store_true", help="also what was measured at this code before")
    parser.add_argument("--results", type=Path, metavar="FILE", help="another file of results")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="processes that compile")
    parser.add_argument("--commit", default="", metavar="NAME", help="the commit that this is, where there is no git")
    found = parser.parse_args(words)
    if found.workers < 1:
        parser.error("--workers: at least 1")
    results = found.results or (REHEARSALS if found.rehearse else store.RESULTS)
    return Options(
        found.minutes, tuple(found.only), found.rehearse, found.pages, found.again, results, found.workers, found.commit
    )


def _minutes(word: str) -> float:
    minutes = float(word)
    if not minutes > 0:
        raise argparse.ArgumentTypeError("more than 0")
    return minutes


def main(words: Sequence[str] | None = None) -> int:
    start = time.monotonic()
    options = options_of(words)
    try:
        with store.locked(options.results):
            damaged = store.mend(options.results)
            if damaged:
                aside = options.results.with_suffix(".damaged").name
                print(f"{damaged} damaged lines of {options.results.name} were set aside in {aside}")
            return again(options) if options.pages else measure(options, start)
    except store.Busy as other:
        print(f"another run measures into {options.results.name} (process {other}): wait for it, or end it")
        return NOTHING


def measure(options: Options, start: float) -> int:
    found = surroundings.asked(options.rehearse)
    print("\n".join([*found.lines, *(f"  {line}" for line in found.missing)]), flush=True)
    if found.problem:
        print(f"nothing is measured: {found.problem}")
        if not options.rehearse:
            print("without a device: scripts/device --rehearse, or bench.cycles, which models one")
        return NOTHING
    session = importlib.import_module("bench.device.session")  # jax is here, as the surroundings say
    left = None if options.minutes is None else options.minutes * 60 - (time.monotonic() - start) - ENDING
    return int(session.run(options, found, left))


def again(options: Options) -> int:
    if importlib.util.find_spec("jax") is None:
        print("the pages are written with jax: pip install jax triton numpy")
        return NOTHING
    return int(importlib.import_module("bench.device.session").pages_alone(options))


if __name__ == "__main__":
    sys.exit(main())
