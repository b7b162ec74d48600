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

import importlib
import importlib.util
import math
import sys
import time
from collections.abc import Sequence

from bench.device import NOTHING, store, surroundings
from bench.device.options import Options, options_of

PATIENCE = 120.0  # seconds until a driver that does not answer is given up
ENDING = 8.0  # seconds that are kept for the last lines and the pages


def main(words: Sequence[str] | None = None) -> int:
    start = time.monotonic()
    options = options_of(words, __doc__ or "")
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
    found = surroundings.asked(options.rehearse, min(PATIENCE, 60 * (options.minutes or math.inf)))
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
