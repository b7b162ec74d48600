"""No threshold stands outside of the policy: numbers that have names, and numbers that something is compared with."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.package_files import Trees, assert_none, show

pytestmark = pytest.mark.files

LARGE = 8  # below it a number counts dimensions, bytes of an element, operands, …

TEXT = "of text: how a kernel or a report is laid out"
WORK = "bounds the work of planning, whose result is the same"
LIMIT = "a limit of Triton, of a device or of a format, not ours"
EXACT = "what a number, or a word, can hold"
MODEL = "of a model of time that reports what was planned, and decides nothing"

NAMED = {
    "collector.py": {"NEW_OBJECTS": WORK},
    "emit/layout.py": {"WIDTH": TEXT},
    "emit/powers.py": {"LOG2_E": EXACT},
    "emit/statements.py": {"INLINE_AT_MOST": TEXT},
    "emit/widths.py": {"WORD": "bits"},
    "front/log.py": {"REMEMBERED": "entries of a cache", "SHOWN": TEXT},
    "front/modules.py": {"LINE": TEXT},
    "graph/accumulate.py": {"ENUMERATED": WORK},
    "graph/crowded.py": {"ANY": "beyond any length, and any number of instructions"},
    "graph/dynamic.py": {"FAR": "beyond any array"},
    "graph/simplify.py": {"ROUNDS": WORK},
    "graph/spans.py": {"HUGE": "beyond any sum", "LARGE": "2^-11 of it is what a power of two may be wrong by"},
    "hardware.py": dict.fromkeys(
        ("MOST_PROGRAMS", "SECTOR", "LINE", "ALIGNED", "REGISTERS_AT_ONCE", "SHARED_RESERVED"), LIMIT
    ),
    "ir/reduced.py": {"_TRIED": WORK},
    "ir/digraph.py": dict.fromkeys(("_SOURCE", "_SINK"), "numbers of two nodes"),
    "ir/foreign.py": {"DEEPEST": "what goes deeper goes on for ever"},
    "ir/hashing.py": {"ROTATIONS": "part of a definition"},
    "ir/scans.py": {"UNKNOWN": "stands for a length that is not known"},
    "ir/value_names.py": {"JOINED_AT_MOST": TEXT},
    "launch/call/assembler.py": {"_OLDEST": LIMIT, "_LEFT_OUT": LIMIT, "_SECONDS": "of waiting"},
    "launch/call/raised.py": {"KEPT": "of threads"},
    "launch/call/proto.py": {"_ALIGNMENT": LIMIT},
    "launch/compile/cache.py": {"ABANDONED": "of waiting", "USED_AGAIN": "of waiting"},
    "launch/compile/compile.py": {"_KEPT": "entries of a cache"},
    "launch/compile/helper.py": {"SECONDS": "of waiting"},
    "launch/cycles/concurrent_warps.py": dict.fromkeys(("BEFORE", "MEASURED"), MODEL),
    "launch/cycles/flow.py": {"_END": "stands for no block"},
    "launch/cycles/latencies.py": dict.fromkeys(
        ("BARRIER", "BARRIER_OF_A_WARP", "OTHER", "READ", "SHARED_RATE"), MODEL
    ),
    "launch/cycles/model.py": {"MUCH_OF_IT": MODEL},
    "launch/cycles/reuse.py": {"PROGRAM": "stands for no loop", "_WORDS": "bytes"},
    "launch/cycles/sass.py": {"COUNTERS": LIMIT, "_CONTROL": LIMIT, "_NONE": LIMIT},
    "launch/cycles/sectors.py": {"_BITS": EXACT},
    "launch/cycles/tensor_cores.py": {"WARPS_OF_A_GROUP": LIMIT},
    "launch/cycles/trips.py": {"_WORD": EXACT},
    "launch/cycles/warp.py": {"ROUNDS": MODEL, "WHOLE": "stands for no loop"},
    "launch/interpret/exchange.py": {"NOBODY": "stands for no program"},
    "launch/interpret/memory.py": {"_SPAN_BITS": "of addresses that do not meet"},
    "launch/machine/layout.py": {
        "WARPGROUP": LIMIT,
        **{"LANES": "of a warp, as PTX has them", "RESULTS": LIMIT, "SLOTS": LIMIT},
        **dict.fromkeys(("BUFFER_SHIFT", "SHARED_WINDOW", "LOCAL_WINDOW"), "of addresses that do not meet"),
    },
    "launch/machine/library.py": {"PARTS": WORK},
    "launch/machine/run.py": {"MOST_FINDINGS": WORK},
    "normalize/numbers/algebra.py": {"STEPS_TO_NEGATION": WORK},
    "normalize/numbers/measured.py": {"TERMS": WORK},
    "normalize/random/generators.py": {"PER_BLOCK": EXACT},
    "normalize/random/keys.py": {"MOST_WORDS": LIMIT},
    "normalize/random/threefry.py": {"MOST": EXACT},
    "normalize/rewrite.py": {"DEEPEST": "what goes deeper goes on for ever"},
    "emit/branches.py": {"SIDES": "places of operands"},
    "pipeline/compiled_program.py": {"SHRINKS": "names of smaller schedules: each halves the tiles of the one before"},
    "plan/schedule/products.py": {"LANES": LIMIT, "WIDE": LIMIT, "GROUP": LIMIT},
    "pipeline/large_rows.py": {"SUM_BYTES": EXACT},
    "pipeline/quickest.py": {"COMPILED": "how many the user waits for, no threshold of a device"},
    "plan/schedule/schedule.py": {"SMALLER": "names of smaller schedules: each halves the tiles of the one before"},
    "plan/schedule/values.py": {"WIDEST": LIMIT},
    "rules/products.py": {"LEAST": LIMIT},
    "plan/partition/alike.py": {"WORTH_LOOKING": WORK, "NEARBY": WORK},
    "plan/partition/group.py": {"WORTH_TRYING": WORK},
    "plan/partition/partition.py": {"ROUNDS_AT_MOST": WORK},
    "plan/partition/shared.py": {"NOTED_AT_MOST": WORK},
    "plan/rounds.py": {"NAMED_AT_MOST": TEXT},
    "plan/schedule/replay.py": {"MOST_STAGES": LIMIT},
    "plan/schedule/role_requests.py": {"LANES_AT_MOST": LIMIT},
    "progress.py": {"PATIENCE": TEXT, "PERIOD": TEXT},
    "report/cycles.py": {"SHARES_SHOWN": TEXT, "LEAST_SHARE": TEXT, "KERNELS_NAMED": TEXT},
    "report/explain.py": {"RUNS_SHOWN": TEXT, "LOOPS_SHOWN": TEXT, "AGAIN": TEXT},
    "report/leftovers.py": {"PLACES_SHOWN": TEXT, "OBSTACLES_SHOWN": TEXT},
    "report/residuals.py": {"ROWS_SHOWN": TEXT, "ALIKE": TEXT},
    "report/several.py": {"NAMES_SHOWN": TEXT, "PLACES_SHOWN": TEXT, "AXES_SHOWN": TEXT},
    "report/times.py": {"MANY": TEXT},
    "report/table.py": {"WIDTH": TEXT, "NARROWEST": TEXT, "SHORTEST_CELL": TEXT},
    "rules/literals.py": {"PATTERN_FROM": TEXT},
    "rules/written/decompose.py": {"_STEPS": "of a series", "_BERNOULLI": "of a series"},
}
COMPARED = {
    "cli/options.py": {18: TEXT},
    "cli/terminal.py": {40: TEXT},
    "emit/names.py": {108: TEXT},
    "graph/simplify.py": {2**24: EXACT},
    "ir/dtypes.py": {2**31: EXACT},
    "launch/call/proto.py": {127: LIMIT},
    "launch/compile/compile.py": {90: "an architecture"},
    "launch/compile/nvidia_tools.py": {100: "an architecture"},
    "launch/interpret/arithmetic.py": {64: "bits"},
    "launch/machine/modifiers.py": {32: "bits"},
    "launch/machine/families/conversions.py": {32: "bits", 64: "bits"},
    "normalize/random/threefry.py": {8: "bytes"},
    "rules/literals.py": {2.0**128: EXACT},
    "rules/pointwise/arithmetic.py": {32: "bits"},
    "rules/written/sorts.py": {8: "bytes", 16: "bits"},
}


def value_of(node: ast.expr) -> float | tuple[float, ...] | None:
    """The number, or the numbers, that an expression of numbers is."""
    kinds = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.operator, ast.unaryop, ast.Load)
    if not all(isinstance(each, kinds) for each in ast.walk(node)):
        return None
    numbers = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    if not numbers or not all(isinstance(number, int | float) and number is not True for number in numbers):
        return None
    found: float | tuple[float, ...] = eval(compile(ast.Expression(node), "", "eval"))
    return found


def named(tree: ast.Module) -> Iterator[str]:
    """Constants of a module that are numbers, or tuples of them."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=targets, value=value) if value_of(value) is not None:
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value) if value_of(value) is not None:
                targets = [target]
            case _:
                continue
        yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))


def compared(tree: ast.Module) -> Iterator[float]:
    """Numbers that something is held against: by a comparison of size, or as the least or the most of several."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=right):
                sizes = any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in ops)
                sides = [left, *right] if sizes else []
            case ast.Call(func=ast.Name(id="min" | "max"), args=sides):
                pass
            case _:
                continue
        for side in sides:
            value = value_of(side)
            if isinstance(value, int | float) and value >= LARGE:
                yield value


def check(found: dict[str, set[Any]], listed: Mapping[str, Mapping[Any, str]]) -> None:
    """What is listed is all there is, and all that is listed is there."""
    assert_none(
        f"{file}: {number}; thresholds are fields of the policy; any other number is listed, with what it is"
        for file in sorted(found | listed)
        for number in sorted(found.get(file, set()) ^ set(listed.get(file, {})))
    )


def outside(trees: Trees) -> dict[str, ast.Module]:
    return {show(path): tree for path, tree in trees.items() if show(path).split("/")[0] != "policy"}


def test_numbers_with_names(trees: Trees) -> None:
    check({file: set(named(tree)) for file, tree in outside(trees).items()}, NAMED)


def test_numbers_without_names(trees: Trees) -> None:
    check({file: set(compared(tree)) for file, tree in outside(trees).items()}, COMPARED)


def test_what_is_looked_for_is_found() -> None:
    assert list(named(ast.parse("MOST, LEAST = 64, -1\nOTHER: int = 1 << 14\nNAMES = ('a', 1)"))) == [
        "MOST",
        "LEAST",
        "OTHER",
    ]
    assert list(compared(ast.parse("x > 2 * 8 or 7 < y or z == 99 or min(n, 64)"))) == [16, 64]
