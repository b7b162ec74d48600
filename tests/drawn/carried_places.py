"""Loops over carried arrays of one to three dimensions, which a step reads and writes at computed places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import jax

from tests.drawn.generator import Draft, Value
from tests.drawn.loops import Carry, Loop

SIDES = (2, 3, 4, 6, 1, 5)
ELEMENTS_AT_MOST = 48
STEPS = (2, 3, 1, 5)
PLACES_AT_MOST = 12
DEPTH = 2

# What a step makes of a carried array x: elements at computed places, in an array of the same shape.
READS_OF_ANY = (
    "{x}[{places}]",
    "{x}[{places}] * 0.5 + {x}",
    "{x} + 0.5 * {x}[{few}].mean()",
    "{x} * 0.5 + jnp.take_along_axis({x}, {i} % {size}, {n})",
    "jnp.take({x}, {i1}, {n}, mode='clip') * 0.75",
    "{x} - 0.5 * lax.dynamic_index_in_dim({x}, {k}, {n})",
    "{x} + 0.25 * lax.dynamic_slice({x}, {starts}, {sizes}).sum()",
    "jax.scipy.ndimage.map_coordinates({x}, [{displaced}], 1, mode={edge!r})",
)
WRITES_OF_ANY = (
    "{x}.at[{places}].set(jnp.tanh({x}))",
    "{x}.at[{few}].set({x}[{few_too}])",
    "{x}.at[{few}].add({x}[{few_too}] * 0.5)",
    "{x}.at[{few}].{extreme}({x}[{few_too}] * 0.5)",
    "{x}.at[{k} % {first}].set({x}[{k_too} % {first}] * 0.5)",
    "{x}.at[{k}].add({x}[{k_too} % {first}])",
    "{x}.at[..., {k} % {last}].{extreme}({x}[..., {k_too} % {last}])",
    "lax.dynamic_update_slice({x}, lax.dynamic_slice({x}, {starts}, {sizes}) * 0.5, {starts_too})",
    "lax.dynamic_update_index_in_dim({x}, jnp.tanh(lax.dynamic_index_in_dim({x}, {k_too}, {n})), {k}, {n})",
)
CHOICES = (
    "lax.cond({k} > 1, lambda: jnp.roll({x}, {k_too}, {n}), lambda: {x}[{places}])",
    "lax.cond({x}.sum() > 0, lambda: {x}.at[{k}].min({x}.min()), lambda: jnp.roll({x}, 1, {n}))",
    "lax.switch({k} % 3, [lambda: {x}.at[0].set({x}[-1]), lambda: {looped}, lambda: jnp.flip({x}, {n})])",
    "jnp.concatenate([{x}[1:], {x}[:1]], 0).at[{k}].min({x}[{k_too} % {first}])",
    "jnp.where({x} > {x}[{few}].mean(), {x}[{places}], jnp.roll({x}, 1, {n}))",
)
LOOPED = "lax.fori_loop(0, 2, lambda j, y: y * 0.5 + {x}[({k_too} + j) % {first}], {x})"
OF_SQUARES = (
    "{x}.at[jnp.diag_indices({first})].set(jnp.maximum({x}[jnp.diag_indices({first})], 0.25))",
    "{x}.at[jnp.diag_indices({first})].add({x}[{k} % {first}])",
    "{x} * 0.5 + {x}[jnp.diag_indices({first})][:, None] - {x}.T",
    "{x}[{i} % {first}, {j} % {first}] + {x}.T * 0.5",
)
EDGES = ("wrap", "nearest", "constant", "reflect", "mirror")
EXTREMES = ("max", "min")
TAMED = ("jnp.tanh({0})", "{0} * 0.5", "jnp.sin({0}) + 0.25")
BESIDE = ("{y} * 0.5 + {x}.sum()", "jnp.tanh({y} + {x}.reshape(-1)[{k} % {count}])", "{y} + {x}.max()")


def over_places(draft: Draft) -> None:
    """A scan, a `fori` or a `while` that carries one such array or two, and a number or two."""
    kind = draft.pick(("scan", "scan", "fori", "while"))
    starts = [_array(draft) for _ in range(draft.pick((1, 1, 2)))]
    starts += [draft.new_input((), draft.pick(("int32", "int32", "float32"))) for _ in range(draft.number(0, 2))]
    parts = [(start, Value(f"c{next(draft.names)}", start.shape, start.dtype)) for start in starts]
    steps = draft.pick(STEPS if draft.depth == 0 else STEPS[:2])
    counter = Value(f"i{next(draft.names)}", (), jax.numpy.dtype("int64" if kind == "fori" and draft.x64 else "int32"))
    rows = [draft.new_input((steps,), draft.pick(("float32", "int32")))] if kind == "scan" and draft.chance() else []
    xs = [(f"e{next(draft.names)}", row) for row in rows]
    body = draft.inside(_seen(draft))
    for name, row in xs:
        body.new_value(Value(name, (), row.dtype))
    for value in ([counter] if kind != "scan" else []) + [inside for _, inside in parts]:
        body.new_value(value)
    after = [_after(body, inside) for _, inside in parts]
    carries = tuple(
        Carry(inside.name, start.name, last.name, f"v{next(draft.names)}")
        for (start, inside), last in zip(parts, after)
    )
    label = str(next(draft.names))
    if kind == "scan":
        ys = [y for y in body.values[-3:] if y.size <= ELEMENTS_AT_MOST and draft.chance()]
        made = Loop("scan", label, str(steps), carries, tuple(body.lines), xs=tuple((n, row.name) for n, row in xs))
        made = replace(made, ys=tuple((f"v{next(draft.names)}", y.name) for y in ys), reverse=draft.chance())
    elif kind == "fori":
        made = Loop("fori", label, str(steps), carries, tuple(body.lines), counter=counter.name)
    else:
        counts = Carry(counter.name, "jnp.int32(0)", f"{counter.name} + 1", f"v{next(draft.names)}")
        made = Loop("while", label, str(steps), (counts, *carries), tuple(body.lines), counter=counter.name)
    draft.add_statement(made)


def _seen(draft: Draft) -> list[Value]:
    """What a body reads of the values around it."""
    found = [draft.any_value(lambda value: 0 < value.size <= ELEMENTS_AT_MOST) for _ in range(draft.number(0, 2))]
    return list({value.name: value for value in found if value is not None}.values())


def _array(draft: Draft) -> Value:
    found = draft.any_value(lambda value: value.is_float and 0 < value.rank < 4 and 0 < value.size <= ELEMENTS_AT_MOST)
    if found is not None and not found.weak and draft.chance():
        return found
    shape: list[int] = []
    for _ in range(draft.pick((2, 2, 1, 3))):
        shape.append(draft.pick([side for side in SIDES if math.prod(shape) * side <= ELEMENTS_AT_MOST]))
    if len(shape) == 2 and draft.chance():
        shape[1] = shape[0]
    return draft.new_input(tuple(shape), draft.pick(("float32", "float32", "float32", "float16")))


def _after(body: Draft, c: Value) -> Value:
    """What a step makes of what is carried, in a line or a few."""
    if not c.rank:
        return _number_after(body, c)
    x = c
    for _ in range(body.number(1, 2)):
        x = _moved(body, x)
        if body.depth < DEPTH and body.number(0, 3) == 3:
            over_places(body)
        x = _with_another(body, x)
    found = body.add(body.pick(TAMED).format(x.name), x) if body.chance() else x
    return found if found.dtype == c.dtype else body.add(f"{found.name}.astype(jnp.{c.dtype.name})", found)


def _with_another(body: Draft, x: Value) -> Value:
    y = body.any_value(lambda value: (value.shape, value.dtype) == (x.shape, x.dtype) and value is not x)
    return x if y is None or body.chance() else body.add(f"{x.name} * 0.5 + {y.name}", x, y)


def _number_after(body: Draft, c: Value) -> Value:
    x = body.any_value(lambda value: value.is_float and value.rank > 0 and value.size > 0)
    assert x is not None
    if c.is_float:
        k = _index(body)
        text = body.pick(BESIDE).format(y=c.name, x=x.name, k=k.name, count=x.size)
        return body.add(f"({text}).astype(jnp.{c.dtype.name})", c, x, k)
    forms = ("{c} + 1", "({c} * 3 + 1) % 7", "{c} + ({x}.sum() > 0)", "jnp.argmax({x}).astype(jnp.int32)")
    text = body.pick(forms).format(c=c.name, x=x.name)
    return body.add(f"({text}).astype(jnp.int32)", c, *([x] if x.name in text else []))


def _moved(body: Draft, x: Value) -> Value:
    """A line that reads or writes x at computed places; it reads the values whose names are in it."""
    forms = READS_OF_ANY + WRITES_OF_ANY + CHOICES
    square = x.rank == 2 and x.shape[0] == x.shape[1]
    text = body.pick(OF_SQUARES if square and body.chance() else forms).replace("{looped}", LOOPED)
    count = body.number(1, PLACES_AT_MOST)
    sizes = tuple(body.number(1, size) for size in x.shape)
    values: dict[str, Value] = {}
    words: dict[str, object] = {"x": x.name, "n": body.axis(x), "first": x.shape[0], "last": x.shape[-1]}
    words |= {"sizes": sizes, "edge": body.pick(EDGES), "extreme": body.pick(EXTREMES)}
    words["size"] = x.shape[body.number(0, 0) if x.rank == 1 else int(str(words["n"]))]
    kinds = {"places": x.shape, "few": (count,), "few_too": (count,)}
    for name, shape in kinds.items():
        if f"{{{name}}}" in text:
            words[name] = ", ".join(_in_range(body, shape, size, values) for size in x.shape)
    for name in ("starts", "starts_too"):
        if f"{{{name}}}" in text:
            words[name] = f"({' '.join(f'{_named(_index(body), values)}.astype(jnp.int32),' for _ in x.shape)})"
    for name in ("k", "k_too", "i1", "i", "j"):
        if f"{{{name}}}" in text:
            shape = {"i1": (x.shape[int(str(words["n"]))],), "i": x.shape, "j": x.shape}.get(name)
            words[name] = _named(_index(body) if shape is None else _indices(body, shape), values)
    if "{displaced}" in text:
        along = [f"lax.broadcasted_iota(jnp.float32, {x.shape}, {n})" for n in range(x.rank)]
        by = [_named(body.new_input(x.shape, "float32"), values) for _ in along]
        words["displaced"] = ", ".join(f"{place} + {each}" for place, each in zip(along, by))
    return body.add(text.format(**words), x, *values.values())


def _in_range(body: Draft, shape: tuple[int, ...], size: int, values: dict[str, Value]) -> str:
    """Places along one dimension; now and then some may lie outside."""
    text = _named(_indices(body, shape), values)
    return text if body.number(0, 5) == 5 else f"{text} % {size}"


def _named(value: Value, values: dict[str, Value]) -> str:
    values[value.name] = value
    return value.name


def _index(body: Draft) -> Value:
    """A number that says where."""
    found = body.any_value(lambda value: value.is_integer and not value.rank)
    if found is not None and body.number(0, 2):
        return found
    x = body.any_value(lambda value: value.is_float and value.rank == 1 and value.size > 0)
    if x is not None and body.chance():
        return body.add(f"jnp.argmax({x.name}).astype(jnp.int32)", x)
    return body.new_input((), "int32")


def _indices(body: Draft, shape: Sequence[int]) -> Value:
    """As many numbers that say where: given, moved on by one that is computed, or computed each by itself."""
    found = body.any_value(lambda value: value.is_integer and value.shape == tuple(shape))
    x = body.any_value(lambda value: value.is_float and value.shape == tuple(shape))
    match body.number(0, 3):
        case 0 if x is not None:
            return body.add(f"(jnp.abs({x.name}) * 3).astype(jnp.int32)", x)
        case 1:
            given, k = found or body.new_input(tuple(shape), "int32"), _index(body)
            return body.add(f"({given.name} + {k.name}).astype(jnp.int32)", given, k)
        case 2 if found is not None:
            return found
    return body.new_input(tuple(shape), "int32")
