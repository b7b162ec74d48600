"""Draws programs for as long as one likes: `python -m tests.drawn.deep --programs 2000 --minutes 60 --seed 1`.

Unlike a test it does not stop at the first failure: every one is made small and printed.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.drawn import generator, loop_families
from tests.drawn.check import check
from tests.drawn.choices import Random
from tests.drawn.families import ALL, COMPARED, CONTRACTIONS, REDUCTIONS, WINDOWS, own_reduction, unary
from tests.drawn.generator import Family, drawn_program
from tests.drawn.known import is_known
from tests.drawn.loop_families import drawn_loop_program, lanes_apart, loop, over_places
from tests.drawn.patience import TooLong, limited
from tests.drawn.program import Program
from tests.drawn.reduce import failure, reduced
from tests.drawn.transforms import TRANSFORMS

SLOW = 20  # seconds
KINDS = {"all": (loop,), "places": (over_places,), "apart": (lanes_apart,)}
FAMILIES = {
    "all": ALL,
    "windows": (*WINDOWS, unary),
    "contractions": (*CONTRACTIONS, unary),
    "compared": (*COMPARED, unary),
    "reductions": (*REDUCTIONS, own_reduction, unary),
}

# Time in parallel, values ahead, sums and rows in chunks: as is drawn, wherever they can be, or nowhere.
MECHANISMS = {"drawn": {}, "forced": {"small": True, "in_order": False}, "off": {"small": False, "in_order": True}}
MECHANISMS["spread"] = {"small": False, "spread": True, "in_order": False}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--first", type=int, default=0, help="the number of the first program")
    parser.add_argument("--transforms", nargs="*", default=list(TRANSFORMS))
    parser.add_argument("--loops", type=float, default=1 / 3, help="the share of programs with loops")
    parser.add_argument("--kind", choices=list(KINDS), default="all", help="of loops")
    parser.add_argument("--lines", choices=list(FAMILIES), default="all", help="of programs without loops")
    parser.add_argument("--sizes", choices=("small", "large"), default="small", help="large: of several programs")
    parser.add_argument("--backend", choices=("interpret", "machine", "triton"), default="interpret")
    parser.add_argument("--mechanisms", choices=list(MECHANISMS), default="drawn", help="what loops and sums become")
    parser.add_argument("--failures", type=Path, help="a folder for the failing programs")
    parser.add_argument("--patience", type=float, default=300, help="seconds for one program")
    parser.add_argument("--at-most", type=int, default=20, help="failures after which to stop")
    parser.add_argument("--reports", type=int, default=2, help="programs to be made small and printed of each sort")
    options = parser.parse_args()
    end = time.monotonic() + options.minutes * 60
    counts: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    left: Counter[str] = Counter()  # why loops stayed with XLA

    for number in range(options.first, options.first + options.programs):
        if time.monotonic() > end or counts["failures"] >= options.at_most:
            break
        families, kinds = FAMILIES[options.lines], KINDS[options.kind]
        large = options.sizes == "large"
        program = drawn(options.seed, number, options.transforms, options.loops, families, kinds, large)
        program = program.replace(**MECHANISMS[options.mechanisms])
        program = program.replace(small=False) if large else program
        if is_known(program):
            continue
        counts["programs"] += 1
        counts[program.transform] += 1
        start = time.monotonic()
        try:
            with limited(options.patience):
                outcome = check(program, backend=options.backend)
        except (Exception, TooLong) as problem:
            kind = failure(problem)
            counts["failures"] += 1
            seen[kind] += 1
            print(f"seed {options.seed}, program {number}: {kind}", flush=True)
            if seen[kind] <= options.reports and not isinstance(problem, TooLong):
                report(program, kind, options.failures, number, options.backend)
            continue
        if time.monotonic() - start > SLOW:
            print(f"seed {options.seed}, program {number}: took {time.monotonic() - start:.0f} s", flush=True)
        counts["kernels"] += len(outcome.kernels)
        counts["kernels whose programs meet"] += sum(kernel.meets for kernel in outcome.kernels)
        counts["fused loops"] += outcome.fused_loops
        counts["loops left"] += outcome.loops_left.total()
        left.update(outcome.loops_left)
        counts["elements compared"] += outcome.compared
        counts["elements decided by rounding"] += outcome.skipped
        counts["programs with nothing to compare"] += outcome.compared == 0
        if counts["programs"] % 50 == 0:
            print(", ".join(f"{count} {what}" for what, count in counts.items()), flush=True)
    print(f"seed {options.seed}:", ", ".join(f"{count} {what}" for what, count in counts.items()))
    for kind, count in seen.most_common():
        print(f"  {count} times {kind}")
    for why, count in left.most_common():
        print(f"  {count} loops left: {why}")
    return 1 if counts["failures"] else 0


def drawn(
    seed: int,
    number: int,
    transforms: list[str],
    loops: float,
    families: Sequence[Family] = ALL,
    kinds: Sequence[Family] = KINDS["all"],
    large: bool = False,
) -> Program:
    if Random(seed, number, 1).number(0, 999) < 1000 * loops:
        scale = loop_families.LARGE if large else loop_families.SMALL
        return drawn_loop_program(Random(seed, number), transforms, kinds, scale)
    return drawn_program(Random(seed, number), families, transforms, generator.LARGE if large else generator.SMALL)


def report(program: Program, kind: str, folder: Path | None, number: int, backend: str) -> None:
    small, why = reduced(program, kind, backend), "(it passes now)"
    try:
        check(small, backend=backend)
    except Exception as problem:
        why = "".join(traceback.format_exception(problem, limit=-3, chain=False))
    text = f"{small}\n{''.join(f'# {line}' + chr(10) for line in why.splitlines())}"
    print(f"{'-' * 100}\n{text}", flush=True)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03}.py").write_text(text)


if __name__ == "__main__":
    raise SystemExit(main())
