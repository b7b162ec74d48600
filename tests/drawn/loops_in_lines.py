"""Lines that are loops themselves: of many lanes, and such as have loops or computed places in their steps."""

from __future__ import annotations

from tests.drawn.generator import Draft

LANES = 72  # more than one program has anyway
LANE_STEPS = (
    "{x} * 0.5 + 1.5",
    "{x} + 0.75",
    "{x} + jnp.where({x} > 0.5, 0.5, 1.0)",
    "{x} + 0.25 * {count}",
    "{x} + jnp.where(jnp.any(s[2]), 0.5, 1.0)",
    "{x} + jnp.maximum(jnp.max({x}), 0.5)",
)

SWEEPS = (  # what a step makes of all that a loop in it has put out
    "helpers.swept(helpers.swept(u), True)",
    "helpers.swept(u)[::-1] + 0.5 * helpers.swept(helpers.swept(u), True)",
    "helpers.swept(helpers.swept(u).swapaxes(0, 1)).swapaxes(0, 1)",
    "u - 0.1 * jax.grad(lambda u: helpers.total(helpers.swept(u) ** 2, None))(u)",
    "helpers.swept(u)[jnp.arange(u.shape[0]) * 3 % u.shape[0]]",
)
ADDED = (  # what a step adds up at computed places
    "0.5 * c + jnp.zeros_like(c).at[{i}].add(0.5 * c[{j}])",
    "(0.5 * c).at[{i}].add(jnp.tanh(c[{j}]))",
)


def any_lane(draft: Draft) -> None:
    """A loop that goes on for any of many lanes, of which those that have ended stay as they are, or do not."""
    x = draft.float_value(lambda value: value.size > 0 and value.dtype.itemsize > 2)
    if not x.size or x.dtype.itemsize == 2:
        return
    step = draft.pick(LANE_STEPS).format(x="s[0]", count="s[1]")
    going = f"s[0] < {draft.pick((2, 2, 3))}"
    wish = draft.pick(("s[0] < 2", "s[0] < 2", "s[2]"))
    body = f"jnp.where({going}, {step}, s[0]), s[1] + 1, s[2] & ({going})"
    loop = f"lax.while_loop(lambda s: jnp.any({wish}) & (s[1] < 7), lambda s: ({body}), (x, 0, x < 2))"
    draft.add(f"(lambda x: {loop}[{draft.pick((0, 0, 0, 1))}])(jnp.resize({x.name}, ({LANES},)))", x)


def to_and_fro(draft: Draft) -> None:
    """Loops in the steps of a loop, of which one reads what the other one has put out."""
    x = draft.any_value(lambda value: value.is_float and value.rank == 2 and 0 < value.size <= draft.carried)
    if x is not None:
        draft.add(f"lax.scan(lambda u, _: ({draft.pick(SWEEPS)}, None), {x.name}, None, length=2)[0]", x)


def saved_by_lanes(draft: Draft) -> None:
    x = draft.any_value(lambda value: value.is_float and value.size > 0 and value.dtype.itemsize > 2)
    if x is not None:
        draft.add(f"helpers.saved(jnp.resize({x.name}, ({LANES},)), {draft.pick((1, 3, 4))})", x)


def added_up(draft: Draft) -> None:
    """Several updates at places that may be the same ones, in the steps of a loop."""
    x = draft.any_value(lambda value: value.is_float and value.rank > 0 and 0 < value.size <= draft.carried)
    if x is None:
        return
    count = draft.pick([size for size in draft.dims if size] or [2])
    i, j = (draft.new_input((count,), "int32") for _ in range(2))
    step = draft.pick(ADDED).format(i=f"({i.name} % {x.shape[0]})", j=f"({j.name} % {x.shape[0]})")
    draft.add(f"lax.scan(lambda c, _: ({step}, None), {x.name}, None, length=3)[0]", x, i, j)
