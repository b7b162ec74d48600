"""Sums that keep what they lose, drawn at random: each step takes some terms of what is read and of other sums.

All is added, negated, halved or chosen, so that there is one right answer, to the last bit: that of the steps in their
order. Zeros may have either sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

TERMS = ("x", "-x", "0.5 * x", "jnp.where(x > 0, x, -x)", "x - 0.25 * p", "2 * p", "-q", "jnp.maximum(x, p)", "p + q")
LINES = (  # of a sum s with what it has lost, e, to which t is added
    "y = t - e; n = s + y; e = (n - s) - y; s = n",
    "n = s + t; e = e + jnp.where(jnp.abs(s) >= jnp.abs(t), (s - n) + t, (t - n) + s); s = n",
    "n = s + t; b = n - s; e = e + ((s - (n - b)) + (t - b)); s = n",
    "n = s + t; b = n - s; e = ((s - (n - b)) + (t - b)) + e; s = n + e; e = e - (s - n)",
    "n = s + t; e = -((n - t) - s) * 0.5; s = n",
)
LOOPS = ("scan", "reverse", "while", "vmap", "straight")
LENGTH = 40


@dataclass(frozen=True)
class Compensated:
    """Two sums, s and e and p and q, of which each step makes some lines."""

    lines: tuple[tuple[str, str], ...]  # (a line, its term)
    loop: str
    dtype: str
    lanes: tuple[int, ...]
    seed: int

    def __str__(self) -> str:
        text = "\n".join(f"    t = {term}; {line}; s, e, p, q = p, q, s, e" for line, term in self.lines)
        return f"{self.loop} of {self.dtype}{list(self.lanes)}, seed {self.seed}\n{text}"

    def step(self, state: Any, x: Any) -> Any:
        """The sums change places after each line."""
        known = {"jnp": jnp, "x": x, **dict(zip("sepq", state))}
        for line, term in self.lines:
            exec(f"t = {term}; {line}; s, e, p, q = p, q, s, e", known)
        return tuple(known[name] for name in "sepq")

    def __call__(self, xs: jax.Array) -> Any:
        """The sums; what they have lost may have more digits than 16 bits until it is stored, and is added up so."""
        (s, e, p, q), shown = self._summed(xs)
        return (s, e, p, q, *shown) if self.dtype == "float32" else (s, p, *shown[:1])

    def _summed(self, xs: jax.Array) -> Any:
        if self.loop == "vmap":
            return jax.vmap(self._scanned, 1)(xs)
        if self.loop == "while":
            first = (0, *self._first(xs))
            _, *state = lax.while_loop(lambda s: s[0] < len(xs), partial(self._counted, xs), first)
            return state, ()
        if self.loop == "straight":
            state = tuple(xs[n] for n in range(4))
            for n in range(4, 7):
                state = self.step(state, xs[n])
            return state, ()
        return self._scanned(xs)

    def _counted(self, xs: jax.Array, counted: Any) -> Any:
        number, *state = counted
        return number + 1, *self.step(state, xs[number])

    def _scanned(self, xs: jax.Array) -> Any:
        def step(state: Any, x: Any) -> Any:
            after = self.step(state, x)
            return after, after[:2]

        return lax.scan(step, self._first(xs), xs, reverse=self.loop == "reverse")

    def _first(self, xs: jax.Array) -> Any:
        return (jnp.zeros(xs.shape[1:], xs.dtype),) * 4

    def argument(self) -> np.ndarray:
        shape = (LENGTH, *(self.lanes or ((2,) if self.loop == "vmap" else ())))
        rng = np.random.default_rng(self.seed)
        return np.asarray(rng.normal(size=shape) * 2.0 ** rng.integers(-4, 5, size=shape)).astype(jnp.dtype(self.dtype))


def sums() -> st.SearchStrategy[Compensated]:
    lines = st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(TERMS)), min_size=1, max_size=3)
    return st.builds(
        Compensated,
        lines.map(tuple),
        st.sampled_from(LOOPS),
        st.sampled_from(("float32", "float32", "float16", "bfloat16")),
        st.sampled_from(((), (), (3,))),
        st.integers(0, 99),
    )
