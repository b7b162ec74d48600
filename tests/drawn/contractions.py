"""Families of lines: contractions of two values by drawn einsum strings, and what is computed of pairs and reduced."""

from __future__ import annotations

import math

from tests.drawn.generator import Draft, Value

WORK = 8  # terms for each element that a program may have
LETTERS = "abcdefg"
OF_A_PAIR = (
    "jnp.square({x} - {y})",
    "jnp.abs({x} - {y})",
    "jnp.exp(-jnp.square({x} - {y}))",
    "jnp.tanh({x} + {y})",
    "jnp.maximum({x} - {y}, 0)",
    "jnp.sin({x}) * {y}",
    "jnp.where({x} > {y}, {x} * {y}, {y})",
    "({x} - {y}) * jnp.exp(-jnp.sum(jnp.square({x} - {y}), -1, keepdims=True))",
)
TIMES = (  # what a side is multiplied with; it may be the same for all terms
    "{x}",
    "{x}",
    "{x} * 0.37",
    "{x} * jnp.cos(jnp.sum({x}, {d}, keepdims=True))",
    "{x} / (1 + jnp.abs(jnp.max({x}, {d}, keepdims=True)))",
)
REDUCED = (
    "jnp.sum({f}, {n})",
    "jnp.sum({f}, {n})",
    "jnp.max({f}, {n})",
    "jnp.min({f}, {n})",
    "helpers.logsumexp({f}, {n})",
    "jnp.argmin({f}, {n})",
    "jnp.argmax({f}, {n})",
    "jnp.sum({f} * jnp.cos({f}), {n})",
    "jnp.sum(jnp.sum({f}, {n}), -1)",
)


def einsum(draft: Draft) -> None:
    """Two values, some of whose dimensions are the same; of all of them some are left, in any order."""
    x = draft.float_value(lambda value: 1 <= value.rank <= 3 and value.size > 0)
    if not 1 <= x.rank <= 3 or not x.size:
        return
    of_x = LETTERS[: x.rank]
    sizes = dict(zip(of_x, x.shape))
    of_y = ""
    for _ in range(draft.number(1, 3)):
        old = [letter for letter in of_x if letter not in of_y]
        if old and draft.number(0, 2):
            of_y += draft.pick(old)
        else:
            of_y += (new := LETTERS[len(sizes)])
            sizes[new] = draft.pick([size for size in draft.dims if size] or [1])
    result = _in_any_order(draft, [letter for letter in sizes if draft.chance()])
    shape = tuple(sizes[letter] for letter in of_y)
    made = math.prod(sizes[letter] for letter in result)
    if max(math.prod(shape), made) > draft.most or math.prod(sizes.values()) > WORK * draft.most:
        return
    y = _other(draft, x, shape)
    sides = [(of_x, x), (of_y, y)] if draft.chance() else [(of_y, y), (of_x, x)]
    factors = [draft.pick(TIMES).format(x=value.name, d=draft.number(0, value.rank - 1)) for _, value in sides]
    draft.add(f"jnp.einsum('{sides[0][0]},{sides[1][0]}->{result}', {', '.join(factors)})", x, y)


def pairs(draft: Draft) -> None:
    """Something of each row of one value with each row of another one, reduced along one of the dimensions."""
    x = draft.float_value(lambda value: 1 <= value.rank <= 2 and value.size > 0)
    if not 1 <= x.rank <= 2 or not x.size:
        return
    count = draft.pick([size for size in draft.dims if size] or [1])
    if x.size * count > WORK * draft.most:
        return
    y = _other(draft, x, (count, *x.shape[1:]))
    text = draft.pick(OF_A_PAIR).format(x=f"{x.name}[:, None]", y=f"{y.name}[None]")
    text = draft.pick(REDUCED).format(f=text, n=draft.number(0, x.rank))
    if x.size * count <= draft.most or "jnp.sum(jnp.sum" in text or x.rank == 2:
        draft.add(text, x, y)


def _other(draft: Draft, x: Value, shape: tuple[int, ...]) -> Value:
    """A value of this shape, of the same dtype."""
    found = draft.any_value(lambda value: value.shape == shape and value.dtype == x.dtype)
    return found if found is not None and draft.number(0, 3) else draft.new_input(shape, x.dtype.name)


def _in_any_order(draft: Draft, letters: list[str]) -> str:
    left, found = list(letters), ""
    while left:
        found += left.pop(draft.number(0, len(left) - 1))
    return found
