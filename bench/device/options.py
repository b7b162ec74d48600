"""What `scripts/device` is told."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.device import store

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


def options_of(words: Sequence[str] | None, description: str) -> Options:
    parser = argparse.ArgumentParser(
        "scripts/device", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
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
    try:
        minutes = float(word)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"a number of minutes above 0, not {word}")
    return minutes
