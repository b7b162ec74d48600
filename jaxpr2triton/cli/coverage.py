"""Writes docs/coverage.md from the rule tables: python -m jaxpr2triton.cli.coverage > docs/coverage.md"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from jaxpr2triton._compat import CALLS
from jaxpr2triton.graph import dynamic
from jaxpr2triton.ir.dtypes import unsupported
from jaxpr2triton.normalize.arrays.scatters import WRITES
from jaxpr2triton.normalize.arrays.structural import BATCHED, STRUCTURAL
from jaxpr2triton.normalize.random.unkey import RANDOM
from jaxpr2triton.policy import COMMON
from jaxpr2triton.rules import indexing, reductions, sweeps
from jaxpr2triton.rules.pointwise import arithmetic, bits, comparison, convert, exponential, rounding, trigonometric
from jaxpr2triton.rules.written import jacobi, linalg, pools, ranks, sorts
from jaxpr2triton.rules.written.convolutions import CONVOLUTION
from jaxpr2triton.rules.written.decompose import DECOMPOSITIONS

POINTWISE = {
    "arithmetic": arithmetic.TABLE,
    "comparison, logic, choice": comparison.TABLE,
    "exponential": exponential.TABLE,
    "trigonometric": trigonometric.TABLE,
    "rounding": rounding.TABLE,
    "conversion": convert.TABLE,
    "shifts, and the hash of random keys": bits.TABLE,
}

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("bfloat16", "float16", "float32", "float64", "complex64", "complex128", "float8_e4m3fn", "int4"),
)

# The primitives that most programs have, those of the most programs first: `python -m bench.frequent` counts them.
FREQUENT = (
    "broadcast_in_dim", "add", "mul", "reduce_sum", "sub", "select_n", "div", "convert_element_type", "neg", "max",
    "add_any", "lt", "eq", "exp", "slice", "transpose", "squeeze", "abs", "reshape", "dot_general", "scan",
    "stop_gradient", "ne", "log", "iota", "gt", "and", "or", "integer_pow", "ge", "concatenate", "reduce_max",
    "gather", "bitcast_convert_type", "min", "random_bits", "log1p", "shift_right_logical", "rem", "pad", "copy",
    "logistic", "sqrt", "split", "cond", "square", "le", "tanh", "random_split", "stack", "while", "triangular_solve",
    "sign", "is_finite", "scatter-add", "lu", "argmax", "dynamic_slice", "lgamma", "erf_inv", "pow", "sin",
    "reduce_or", "not", "sort", "expm1", "cos", "scatter", "floor", "platform_index", "erfc", "cholesky", "cumsum",
    "erf", "rsqrt", "pure_callback", "clamp", "rev", "dynamic_update_slice", "reduce_and", "shift_right_arithmetic",
    "svd", "digamma", "conv_general_dilated", "random_seed", "unstack", "ceil", "random_gamma", "nextafter", "empty2",
    "bessel_i0e", "bessel_i1e", "eigh", "random_unwrap", "xor", "cbrt", "qr", "tile", "atan2", "random_fold_in",
)  # fmt: skip

# JAX lowers them by JAX functions of its own, of which a kernel is made like of any others.
IMPLEMENTED = ("bessel_i0e", "igamma", "igamma_grad_a", "igammac", "random_gamma", "regularized_incomplete_beta")

# Why these stay with XLA.
BY_LAW = {
    "pure_callback": "calls Python",
    "platform_index": "is known only when the program is lowered, and is then a number",
}

LOOPS = ("scan", "while", "cond")
OWN = "reduce"  # JAX's name for it; each of its results is a `reduced`
SMALL = (*linalg.TABLE, *jacobi.TABLE)
RUNNING = tuple(name for name in sweeps.TABLE if name in ranks.TABLE)
SUMS = tuple(name for name in WRITES if name not in dynamic.TABLE)


def covered() -> dict[str, str]:
    """Primitive → how a kernel comes by it."""
    rows = {name: family for family, table in POINTWISE.items() for name in table}
    rows |= {name: "places" for name in indexing.TABLE}
    rows |= {name: "reductions" for name in (*reductions.TABLE, OWN)}
    rows |= {name: "sweeps" for name in (*sweeps.TABLE, *sorts.TABLE)}
    rows |= {name: "computed places" for name in dynamic.TABLE}
    rows |= {name: "loops and branches" for name in LOOPS}
    rewritten = (*DECOMPOSITIONS, *pools.TABLE, *STRUCTURAL, *RANDOM, *SMALL, *SUMS, *BATCHED)
    rows |= {name: "rewritten" for name in rewritten}
    rows |= {name: "JAX's implementation" for name in IMPLEMENTED}
    return {**rows, "iota": "places", "dot_general": "contractions", CONVOLUTION: "contractions"}


def page() -> str:
    """The text of docs/coverage.md."""
    ways = covered()
    missing = [name for name in FREQUENT if name not in ways]
    missed = [name for name in missing if name not in BY_LAW]
    dtypes = {True: [d for d in DTYPES if not unsupported(d)], False: [d for d in DTYPES if unsupported(d)]}
    rows = COMMON.small_state  # of a matrix
    paragraphs = [
        "# What kernels are made of",
        _filled(
            "Generated from the rule tables by `python -m jaxpr2triton.cli.coverage > docs/coverage.md`; a test "
            "compares. "
            "A primitive without a rule stays with XLA, between the kernels: `explain` says which, where and why, and "
            "`strict=True` makes it an error."
        ),
        "## Dtypes",
        _filled(
            f"In kernels: {_names(dtypes[True])}. 16-bit floats are computed as float32 and rounded where they are "
            f"stored or converted. Left to XLA: {_names(dtypes[False])}, and what else JAX has."
        ),
        "## Primitives",
        "\n".join(
            [
                "| family | primitives |",
                "| --- | --- |",
                *(f"| {family} | {_names(table)} |" for family, table in POINTWISE.items()),
                f"| places: they move what is read, and cost nothing | {_names(['iota', *indexing.TABLE])} |",
                f"| places that the program computes | {_names(dynamic.TABLE)} |",
                f"| reductions | {_names([name for name in reductions.TABLE if name != 'reduced'])} |",
                f"| reductions by a function of yours, of several arrays, if it is associative | `{OWN}` |",
                "| contractions: in loops, and elsewhere where a kernel is faster or asked for "
                f"| `dot_general`, `{CONVOLUTION}` |",
                f"| loops and branches, if all that is in them is covered | {_names(LOOPS)} |",
                f"| rewritten as the ones above | {_names(dict.fromkeys([*DECOMPOSITIONS, *STRUCTURAL, *RANDOM]))} |",
                f"| rewritten, over the axis of a `vmap` around | {_names(BATCHED)} |",
                f"| rewritten, where elements times updates are not too many | {_names(SUMS)} |",
                f"| rewritten, for real matrices of up to {rows}x{rows} | {_names(SMALL)} |",
                f"| rewritten; those with choices, of up to {COMMON.one_by_one} elements | {_names(pools.TABLE)} |",
                f"| running sums, along any axis; in bodies, of up to {COMMON.tile} | {_names(RUNNING)} |",
                f"| orders of rows of up to {COMMON.tile // 2} | {_names(sorts.TABLE)} |",
                f"| written out as the JAX functions that JAX lowers them by | {_names(IMPLEMENTED)} |",
                f"| calls, written out | {_names(sorted(CALLS))} |",
            ]
        ),
        _filled(
            "Where a scatter writes at several places that the program computes, each element looks through all "
            "updates, so that results repeat: as long as elements times updates are no more than "
            f"{COMMON.pairs:,}. In a step of a loop, where these are more than {COMMON.scattered_in_a_step:,}, "
            f"one program adds up to {COMMON.worth_a_launch:,} updates in memory, in no fixed order. Where "
            "`x.at[i].set(v)` comes to a place twice, the last one stays; `x.at[i].apply(f)` is covered where no more "
            f"than {COMMON.looked_through:,} places may be alike. Random bits are covered for keys of every kind. "
            "Windows of which one element is chosen, or of a function of the user's, stay with XLA where they have "
            f"more than {COMMON.one_by_one} elements, and those of sums where they have more than "
            f"{COMMON.looked_through:,}: each is read. Every parameter of a convolution is covered; dtypes of no "
            "kernel, and what XLA's library does faster, stay with XLA. The zeros around its operand are multiplied, "
            "as on other devices: where one of them meets an infinity, there is no number. "
            "A loop stays with XLA when one program cannot hold its state, nor several share it out."
        ),
        "## The most frequent primitives of JAX programs",
        _filled(
            f"{len(FREQUENT) - len(missing)} of the {len(FREQUENT)} most frequent ones have a rule. "
            + (f"These do not yet, the most frequent first: {_names(missed)}. " if missed else "")
            + "These never will: "
            + "; ".join(f"`{name}` {why}" for name, why in BY_LAW.items() if name in missing)
            + ". How they were counted, and in how many programs each one is, is in "
            "[bench/results/frequent.md](../bench/results/frequent.md)."
        ),
    ]
    return "\n\n".join(paragraphs) + "\n"


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    print(page(), end="")
