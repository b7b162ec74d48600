"""Families of lines: sums that are compared with their own copies, or looked up where a comparison says."""

from __future__ import annotations

import math

from tests.drawn.generator import Draft, Value

# What is rounded by each kernel in its own order: x of rows.
SUMMED = (
    "jnp.einsum('...a,...a->...', {x}, {x})",
    "helpers.softmax({x}, -1)",
    "{x} / jnp.sqrt(jnp.sum(jnp.square({x}), -1, keepdims=True, dtype={x}.dtype) + 0.125)",
    "{x} - jnp.mean({x}, {n}, keepdims=True)",
    "helpers.layer_norm({x}, {n})",
    "lax.cumsum({x}, {n})",
    "jnp.sum({x} * jnp.cos({x}), {n}, keepdims=True, dtype={x}.dtype) + {x}",
    "helpers.total(jnp.tanh({x}), ({n},), keepdims=False)",
)
OF_PAIRS = (  # of matrices
    "{x} @ {x}.T",
    "{x} @ {x}.T - 9 * jnp.eye({rows}, dtype={x}.dtype)",
    "jnp.where(jnp.eye({rows}, dtype=bool), -99, {x} @ {x}.T)",
    "jnp.tanh({x} @ {x}.T) - 2 * jnp.eye({rows}, dtype={x}.dtype)",
    "helpers.similarities({x})",
    "helpers.total(jnp.square({x}[:, None] - {x}[None]), (-1,), keepdims=False)",
    "jnp.sqrt(helpers.total(jnp.square({x}[:, None] - {x}[None]), (-1,), keepdims=False) + 0.125)",
    "jnp.einsum('ab,cb->ac', {x}, {x}) + jnp.einsum('ab,cb->ac', jnp.sin({x}), {x})",
)
DECIDED = (
    "jnp.max({s}, {n})",
    "jnp.min(jnp.abs({s}), {n})",
    "jnp.max(jnp.max({s}, {n}))",
    "jnp.square(jnp.max({s}, {n}))",
    "jnp.where({s} == jnp.max({s}, {n}, keepdims=True), {s}, 0)",
    "jnp.where({s} < jnp.max({s}, {n}, keepdims=True), {s}, 9)",
    "jnp.maximum(1 + {s} - jnp.max({s}, {n}, keepdims=True), 0)",
    "jnp.diff(jnp.sort({s}.reshape(-1))) < 0",
    "jnp.sort({s}, {n})",
    "jnp.diff(jnp.sort({s}, {n}), axis={n})",
    "helpers.largest_mask({s}, {k})",
    "helpers.at_its_largest({s}, {n})",
    "helpers.by_its_places({s}, {n})",
    "jnp.max({s}, {n}) * jnp.cumsum(jnp.argmax({s}, {n}), -1)",
    "helpers.places_of_its_largest({s}, {n})",
    "lax.cummax({s}, {n}) == {s}",
)


def compared(draft: Draft) -> None:
    """A sum, and what a comparison with its own copy makes of it; both may be put out."""
    x = draft.float_value(lambda value: 0 < value.rank < 3 and value.size > 0)
    if not 0 < x.rank < 3 or not x.size:
        return
    of_pairs = x.rank == 2 and x.shape[0] ** 2 * x.shape[1] <= 4 * draft.most
    text = draft.pick(OF_PAIRS if of_pairs and draft.chance() else SUMMED)
    s = draft.add(text.format(x=x.name, n=draft.number(0, x.rank - 1), rows=x.shape[0]), x)
    _decided(draft, s)
    if draft.chance():
        _decided(draft, s)


def _decided(draft: Draft, s: Value) -> None:
    if not s.rank or math.prod(s.shape) == 0:
        return
    n = draft.number(0, s.rank - 1)
    text = draft.pick(DECIDED)
    if "cumsum" in text and s.rank < 2:
        text = DECIDED[0]
    draft.add(text.format(s=s.name, n=n, k=draft.number(1, s.shape[-1])), s)


def routed(draft: Draft) -> None:
    """Rows go where their largest weight says, as far as there is room."""
    x = draft.float_value(lambda value: value.rank == 2 and value.size > 0)
    if x.rank == 2 and x.size and x.shape[0] * x.size <= 4 * draft.most:
        w = draft.new_input((x.shape[0], draft.number(2, 5)), x.dtype.name)
        draft.add(f"helpers.routed({x.name}, {w.name}, {draft.number(1, 4)})", x, w)
