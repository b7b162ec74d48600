"""Whether a change leaves the kernels as they are: the sources of all named programs, before and after.

    python -m bench.replay --save before.json        # on the old commit
    python -m bench.replay --against before.json     # on the new one: what differs, and exit 1 if anything does
    python -m bench.replay lstm kalman --against before.json --diff

Programs with and without loops, forward and gradient, and contractions, at the sizes of the tests. Nothing is compiled
or run.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import jaxpr2triton as j2t
from tests.contraction_programs import PROGRAMS as CONTRACTIONS
from tests.loop_programs import PROGRAMS as LOOPS
from tests.programs import PROGRAMS, Program

Sources = dict[str, str]


def sources(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The source of each program whose name begins so, and of its gradient."""
    for program in (*PROGRAMS, *LOOPS):
        if program.name.startswith(tuple(names) or ""):
            yield f"{program.name}:f", _source(program, program.fn)
            if program.grad is not None:
                yield f"{program.name}:g", _source(program, program.gradient())
    for contraction in CONTRACTIONS:
        if contraction.name.startswith(tuple(names) or ""):
            made = j2t.transpile(contraction.whole(), *contraction.args(), contractions="triton")
            yield f"{contraction.name}:c", _text(made)


def _source(program: Program, function: Any) -> str:
    with program.precision():
        return _text(j2t.transpile(function, *program.args(np.random.default_rng(0))))


def _text(made: Any) -> str:
    """All kernels of a function, and the equations that XLA keeps; or why there are none."""
    left = [f"# left over: {leftover.equation}: {leftover.why}" for leftover in made.leftovers]
    return "\n".join([made.source, *left])


def compare(before: Sources, after: Sources, with_diff: bool) -> int:
    """Print what differs; how many programs do."""
    different = [name for name in after if before.get(name) != after[name]]
    for name in different:
        print(f"{name} {'differs' if name in before else 'is new'}")
        if with_diff:
            lines = (text.splitlines(keepends=True) for text in (before.get(name, ""), after[name]))
            sys.stdout.writelines(difflib.unified_diff(*lines, "before", "after"))
    print(f"{len(after)} sources, {len(different)} of them not as before")
    return len(different)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="programs whose names begin so (all of them)")
    parser.add_argument("--save", type=Path, help="write the sources to this file")
    parser.add_argument("--against", type=Path, help="compare with the sources in this file")
    parser.add_argument("--diff", action="store_true", help="show what differs line by line")
    asked = parser.parse_args(words)
    found = dict(sources(asked.names))
    if asked.save:
        asked.save.write_text(json.dumps(found, indent=1))
        print(f"{len(found)} sources in {asked.save}")
    if asked.against:
        return 1 if compare(json.loads(asked.against.read_text()), found, asked.diff) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
