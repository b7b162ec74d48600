"""Why kernels end where they do, each in one short sentence, as `explain` prints it."""

from __future__ import annotations

from collections.abc import Iterable

from jaxpr2triton.ir.jaxprs import Eqn
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.policy import COMMON

WORDS = {
    "reduce_sum": ("a sum", "sums"),
    "reduce_prod": ("a product", "products"),
    "reduce_max": ("a maximum", "maxima"),
    "reduce_min": ("a minimum", "minima"),
    "argmax": ("the place of a maximum", "places of maxima"),
    "dot_general": ("a contraction", "contractions"),
    "argmin": ("the place of a minimum", "places of minima"),
}
CONTRACTED = "a loop does not share the tiling of a matrix product"
BLOCKS = "the other output does not share the tiling of the matrix product"
COMPARED = "what is compared or looked up is one of its elements: it is one number wherever it is read"
LINKS = f"a kernel chains at most {COMMON.few} matrix products"
FACTORS = "parts are put together before they are multiplied by several kernels"
JOINED = "matrix products of other rows are put together"
SHARED = "kernels before and after what stays with XLA would each make it from much"
MUCH_BESIDE_STEPS = "the few programs of a loop would reduce much that is not part of its steps"
FLAG = "a flag is set by all programs first"
WRITTEN = "another kernel writes it anyway, and it is less than what it is made of"
READ_INSTEAD = "an earlier kernel has made from much what this one reads"


def needed_first(eqn: Eqn) -> str:
    """Of a reduction: a sum over the whole array is needed first; 8,192 sums are needed first."""
    one, many = words(eqn)
    results = eqn.outvars[0].aval.size
    return f"{one} over the whole array is needed first" if results == 1 else f"{results:,} {many} are needed first"


def made_again(eqn: Eqn) -> str:
    return f"{words(eqn)[1]} would be made again and again, wherever they are wanted"


def computed_again(eqn: Eqn) -> str:
    size = eqn.outvars[0].aval.size
    return f"{size:,} values would be computed again and again, for each window that they are in"


def in_parts(eqn: Eqn) -> str:
    return f"parts of {words(eqn)[0]} are made first, by many programs"


def left_to_xla(primitives: Iterable[str]) -> str:
    *others, last = (f"`{name}`" for name in primitives)
    if others:
        return f"{', '.join(others)} and {last} stay with XLA and come first"
    return f"{last} stays with XLA and comes first"


def too_long(steps: int, most: int) -> str:
    return f"one kernel would be {steps:,} computations long, and {most:,} are the most"


def wanted_often(eqn: Eqn) -> str:
    """Of what an equation makes and kernels read at many places; a loop is not run again for each."""
    if eqn.primitive.name in LOOPS:
        return "the loop has to be over first"
    return "a value has too many consumers to be recomputed for each"


def not_held(carried: int, read: int, most_carried: int, most_read: int) -> str:
    """Of a loop that stays with XLA, by the numbers that one program would carry, and read in each step."""
    numbers = f"carries {carried:,} numbers, and {most_carried:,} fit"
    if carried <= most_carried:
        numbers = f"carries {carried:,} numbers and reads {read:,} in each step, and {most_read:,} fit"
    return f"one program cannot hold the state of the loop: it {numbers}; it would have to be split"


def part_not_held(programs: int, carried: int, read: int, most_carried: int, most_read: int) -> str:
    """Of a loop that stays with XLA although programs could share out what it carries."""
    numbers = f"{carried:,} numbers, and {most_carried:,} fit"
    if carried <= most_carried:
        numbers = f"{carried:,} numbers and read {read:,} in each step, and {most_read:,} fit"
    return f"programs cannot hold their parts of the loop's state: each of {programs} would carry {numbers}"


def words(eqn: Eqn) -> tuple[str, str]:
    return WORDS.get(eqn.primitive.name, ("a reduction", "reductions"))
