"""Sums over lanes as a butterfly of shuffles makes them, with and without a product fused into the first addition.

Of 32 lanes, lane i adds what lane i ^ 16 holds, then what i ^ 8 holds, and so on. Rounded each by itself, all lanes
have one total. Fused, lane i begins with fma(a[i], b[i], a[i ^ 16] * b[i ^ 16]), and lanes 0 to 15 have another total
than lanes 16 to 31.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

HALF = 16


def rounded_total(a: np.ndarray, b: np.ndarray) -> np.generic:
    return _butterfly(a * b)


def fused_totals(a: np.ndarray, b: np.ndarray) -> tuple[np.generic, np.generic]:
    """Of the lower lanes and of the upper ones."""
    products, other = a * b, np.arange(2 * HALF) ^ HALF
    first = [fma(p, q, products[o]) for p, q, o in zip(a, b, other)]
    lower, upper = np.array(first[:HALF], a.dtype), np.array(first[HALF:], a.dtype)
    return _butterfly(lower), _butterfly(upper)


def fma(a: np.generic, b: np.generic, c: np.generic) -> float:
    """a * b + c, rounded once."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    near = float(exact)
    if a.dtype == np.float64 or Fraction(near) == exact:
        return near
    # to odd, so that rounding it once more is as if it had been rounded once
    if np.float64(near).view(np.int64) % 2 == 0:
        near = float(np.nextafter(near, np.inf if exact > Fraction(near) else -np.inf))
    return near


def _butterfly(values: np.ndarray) -> np.generic:
    while len(values) > 1:
        half = len(values) // 2
        values = values[:half] + values[half:]
    return values[0]
