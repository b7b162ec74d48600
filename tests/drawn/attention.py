"""A family of lines: rows that look at keys, more of them than one program holds at once, with masks of all kinds."""

from __future__ import annotations

from tests.drawn.generator import Draft

WORK = 16  # pairs for each element that a program may have
KEYS = (20, 129, 150, 200, 300)  # the first of them are held at once
SCORES = (
    "{s}",
    "0.35 * {s}",
    "{s} / 3",
    "5 * jnp.tanh({s} / 5)",
    "{s} - 0.01 * jnp.abs(jnp.arange({rows})[:, None] - jnp.arange({n})).astype({s}.dtype)",
    "({s}).astype(jnp.float32)",
    "2 * {s} - ({x} ** 2).sum(1)[:, None] - ({k} ** 2).sum(1)",
)
MASKS = (
    "jnp.arange({rows})[:, None] + {c} >= jnp.arange({n})",
    "jnp.abs(jnp.arange({rows})[:, None] + {c} - jnp.arange({n})) < 70",
    "jnp.arange({n}) < {c}",
    "{k}[:, 0] > 0",
    "(jnp.arange({rows})[:, None] + {c} >= jnp.arange({n})) & ({k}[:, 0] > 0)",
)
FILLS = ("-jnp.inf", "jnp.finfo({s}.dtype).min", "jnp.finfo({s}.dtype).min * 0.7")
RESULTS = (
    "jax.nn.softmax({s}, -1) @ {v}",
    "jax.nn.softmax({s}, -1) @ {v}",
    "helpers.softmax({s}, -1) @ {v}",
    "helpers.logsumexp({s}, -1)",
    "(jnp.exp({s} - jnp.max({s}, -1, keepdims=True)) @ {v}) / 7",
    "jnp.where({s} > 0, {s}, 0) @ {v}",
)
UNDER_A_MASK = "jax.nn.softmax({s}, -1, where={m}) @ {v}"


LONG = (600, 1100)  # of few queries: programs share out the keys
OF_ONE = (
    "jax.nn.softmax({s}, -1) @ v",
    "helpers.logsumexp({s}, -1)",
    "(jnp.exp({s} - jnp.max({s})) @ v) / 7",
    "jnp.where(jnp.arange({n}) % 3 > 0, jax.nn.softmax({s}, -1), 0) @ v",
)


def one_query(draft: Draft) -> None:
    """A query of each row, which has keys of its own."""
    x = draft.float_value(lambda value: value.rank == 2 and value.size > 0)
    n, c = draft.pick((*KEYS, *LONG)), draft.pick((0, 3, 100))
    if x.rank != 2 or not x.size or x.size * n > WORK * draft.most:
        return
    rows, depth = x.shape
    k = draft.new_input((rows, n, depth), x.dtype.name)
    v = draft.new_input((rows, n, draft.pick((1, 3, 5))), x.dtype.name)
    scores = draft.pick(("k @ q", "(k @ q) / 3", "5 * jnp.tanh((k @ q) / 5)", "(k @ q).astype(jnp.float32)"))
    mask = draft.pick(("", f"jnp.arange({n}) < {c}", "k[:, 0] > 0"))
    hidden = f"jnp.where(({mask}) | (jnp.arange({n}) == 0), {scores}, -jnp.inf)" if mask else scores
    made = f"(lambda s: {draft.pick(OF_ONE).format(s='s', n=n)})({hidden})"
    draft.add(f"jax.vmap(lambda q, k, v: {made})({x.name}, {k.name}, {v.name})", x, k, v)


def attention(draft: Draft) -> None:
    """Scores of rows and keys, perhaps hidden from each other, and what is made of them."""
    if not draft.number(0, 3):
        one_query(draft)
        return
    x = draft.float_value(lambda value: value.rank == 2 and value.size > 0)
    few = x.rank == 2 and x.shape[0] <= 8
    n, c = draft.pick((*KEYS, *LONG) if few else KEYS), draft.pick((0, 3, 100))
    if x.rank != 2 or not x.size or x.shape[0] * n > WORK * draft.most:
        return
    rows, depth = x.shape
    k, v = draft.new_input((n, depth), x.dtype.name), draft.new_input((n, draft.pick((1, 3, 5))), x.dtype.name)
    of_heads = not draft.number(0, 3)
    one = "q" if of_heads else x.name
    names = {"rows": rows, "n": n, "c": c, "k": k.name, "v": v.name, "x": one}
    scores = draft.pick(SCORES).format(s=f"({one} @ {k.name}.T)", **names)
    mask = f"({draft.pick(MASKS).format(**names)}) | (jnp.arange({n}) == 0)" if draft.chance() else ""
    if mask and not draft.number(0, 3):
        made = UNDER_A_MASK.format(s=f"({scores})", m=mask, v=v.name)
    else:
        if mask:
            scores = f"jnp.where({mask}, {scores}, {draft.pick(FILLS).format(s=f'({scores})')})"
        made = f"(lambda s: {draft.pick(RESULTS).format(s='s', v=v.name)})({scores})"
    if of_heads:  # that look at the same keys
        made = f"jax.vmap(lambda q: {made})(jnp.stack([{x.name}, {x.name} / 2, -{x.name}]))"
    draft.add(made, x, k, v)
