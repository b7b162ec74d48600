"""What a value is called that no line of the user's gives a name: after what the equation does."""

from __future__ import annotations

import re

_WORDS = {
    "reduce_sum": "total",
    "reduce_max": "peak",
    "reduce_min": "least",
    "reduce_prod": "product",
    "reduce_and": "every",
    "reduce_or": "some",
    "reduce_xor": "parity",
    "argmax": "best",
    "argmin": "best",
    "max": "larger",
    "min": "smaller",
    "abs": "magnitude",
    "pow": "power",
    "integer_pow": "power",
    "round": "rounded",
    "select_n": "chosen",
    "convert_element_type": "cast",
    "bitcast_convert_type": "bits",
    "dot_general": "dot",
    "logistic": "sigmoid",
    "add_any": "add",
    "eq": "equal",
    "ne": "differs",
    "lt": "below",
    "le": "below",
    "gt": "above",
    "ge": "above",
    "and": "both",
    "or": "either",
    "not": "negated",
    "clamp": "clamped",
    "iota": "position",
    "threefry": "word",
    "philox": "word",
    "div": "quotient",
    "rem": "remainder",
    "mul": "scaled",
    "sub": "diff",
    "neg": "minus",
}


def deed(primitive: str) -> str:
    """`total` for `reduce_sum`; the name of the primitive itself where there is no better word."""
    return _WORDS.get(primitive, re.sub(r"\W", "_", primitive))
