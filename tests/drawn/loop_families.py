"""Programs with loops: what a step does is drawn like any other lines, and then made to shrink what is carried."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
from hypothesis import strategies as st

from tests.drawn import families
from tests.drawn.carried_places import over_places
from tests.drawn.choices import Choices, Hypothesis
from tests.drawn.contractions import einsum, pairs
from tests.drawn.generator import Draft, Family, Scale, Value, drawn_outputs, dtype_text, with_transform
from tests.drawn.loops import Branch, Carry, Choice, Loop
from tests.drawn.loops_in_lines import added_up, any_lane, saved_by_lanes, to_and_fro
from tests.drawn.program import Program
from tests.drawn.windows import convolution, pool

SMALL = Scale(sizes=(1, 2, 3, 5, 8), long=(), elements=160, carried=40)
LARGE = Scale(sizes=(64, 3, 100, 256, 1000), long=(), elements=1 << 13, carried=1 << 12)
LENGTHS = (2, 3, 4, 5, 6, 1, 0, 17)  # the last one in rounds of four
DEPTH = 3
LINES_AT_MOST = 4

CARRIED_FLOATS = (
    "0.5 * {c} + jnp.tanh({u})",
    "0.25 * {c} - 0.5 * jnp.sin({u})",
    "jnp.where({u} > 0.1, {c} * 0.5, jnp.tanh({u}))",
    "jnp.maximum({c} * 0.5, jnp.tanh({u}))",
    "lax.logistic({u}) * {c}",
    "jnp.tanh({u}) + {c} * 0",
    "jnp.tanh({c} - {u})",
    "({c} + jnp.tanh({u})) * 0.5",
    "{c} - 0.25 * jnp.tanh({c} * {u})",
    "jnp.cos({u} + 0.5 * {c})",
    "0.75 * {c} + 0.5",
)
CARRIED_NUMBERS = (
    "{c} + 1",
    "jnp.where({u} > 0, {c} + 1, {c})",
    "({c} * 3 + 1) % 7",
    "jnp.where({u} < 0.5, {c}, 2)",
    "({c} + (({u} > 0.25) * 3).astype(jnp.int32)) & 7",
)
CARRIED_BOOLS = ("{c} ^ ({u} > 0)", "~{c}", "{c} | ({u} > 0.5)", "{c} & ({u} < 1)", "{u} > 0.25")
SHIFTED = (
    "jnp.roll({c}, 1, {n})",
    "jnp.roll({c}, -2, {n})",
    "jnp.flip({c}, {n})",
    "lax.concatenate([lax.slice_in_dim({c}, 1, {size}, 1, {n}), lax.slice_in_dim({c}, 0, 1, 1, {n})], {n})",
    "lax.pad(lax.slice_in_dim({c}, 0, {less}, 1, {n}), jnp.zeros((), {c}.dtype), {padding})",
    "{c} - jnp.max({c}, {n}, keepdims=True)",
    "{c} * jnp.mean({c}, {n}, keepdims=True)",
    "jnp.cumsum({c}, {n}) * 0.25",
    "jnp.sort({c}, {n})",
)


TERMS = ("0.4 * {c}", "jnp.sin({u}) * {c} / 2", "jnp.where({u} > 0, {c}, 0) * 0.3", "-{c} / 4")  # of a sum
PATHS = ("({c} + jnp.sin({u}))", "({c} - 0.5)", "jnp.where({u} > 0, {c}, -1.0)")  # of which the best is taken
RECURRENCES = (
    *((TERMS, " + {0}", ""),) * 2,
    *((PATHS, ", {0})", each) for each in ("jnp.maximum(", "jnp.logaddexp(")),
    (PATHS, ", {0}]), 0)", "jax.nn.logsumexp(jnp.stack(["),
)

MEETINGS = (  # of lanes
    *("jnp.sum({c} * {u}, -1)", "jnp.max({c} - {u}, -1)", "jnp.einsum('...i,...i->...', {c}, {u})"),
    *("jnp.mean({c}, -1)", "jnp.any({c} > {u}, -1)", "jnp.sqrt(1 + jnp.sum({c} * {c}, -1)) - jnp.sum({u}, -1)"),
    *("helpers.first_two({c} + {u}, {last})", "helpers.weighted_moments({c} - {u}, ({last},))"),
    *("jnp.sum({u} * {u} * {c}, -1) / (1 + jnp.sum({u} * {u}, -1))", "jnp.max({c}, -1) - jnp.argmax({c} * {u}, -1)"),
)
SLOPES = ("jnp.sin({0})", "jnp.tanh({0}) - {0}", "jnp.sin({0}) - 0.5 * jnp.max({0})", "jnp.cos(jnp.flip({0}) * 0.5)")
LEAPS = (  # what a step computes at its end and the next one at its beginning
    "(lambda y: (y, s[1] - 0.1 * {after}))(s[0] + 0.5 * (s[1] - 0.1 * {before}))",
    "(lambda y: (jnp.where(jnp.sum({after}) > jnp.sum({before}), y, s[0]), s[1] * 0.5))(s[0] * 0.75 + 0.25)",
    "(lambda y: (jnp.where({before} + {after} > 0.25, y, s[0]), {after}))(0.5 - s[0] * s[1])",
)


# -------------------------------------------------------------------------------------------------- lines for bodies


def shifted(draft: Draft) -> None:
    """A value read at other places of one axis."""
    x = draft.any_value(lambda value: value.is_float and value.rank > 0 and value.size > 0)
    if x is None:
        return
    n, padding = draft.axis(x), [(0, 0, 0)] * x.rank
    padding[n] = (1, 0, 0)
    parts = {"c": x.name, "n": n, "size": x.shape[n], "less": x.shape[n] - 1, "padding": tuple(padding)}
    draft.add(draft.pick(SHIFTED[: 7 if draft.number(0, 4) else None]).format(**parts), x)


def index(draft: Draft) -> Value:
    """A number for indexing, which may lie outside."""
    found = draft.any_value(lambda value: value.dtype == "int32" and not value.rank)
    if found is not None and draft.number(0, 3):
        return found
    x = draft.any_value(lambda value: value.rank == 1 and value.size > 0 and not value.is_bool)
    if x is not None and draft.chance():
        return draft.add(f"jnp.argmax({x.name}).astype(jnp.int32)", x)
    return draft.new_input((), "int32")


def lookup(draft: Draft) -> None:
    """x[i], with a number that the program computes."""
    x = draft.any_value(lambda value: value.rank > 0 and value.size > 0)
    if x is None:
        return
    i, n = index(draft), draft.axis(x)
    forms = ["lax.dynamic_index_in_dim({x}, {i}, {n}, keepdims=False)", "jnp.take({x}, {i}, {n}, mode='clip')"]
    forms += [f"lax.dynamic_slice_in_dim({{x}}, {{i}}, {draft.number(1, x.shape[n])}, {{n}})"]
    if n == 0:
        forms += ["{x}[{i}]", "{x}[{i} % {size}]"]
    draft.add(draft.pick(forms).format(x=x.name, i=i.name, n=n, size=x.shape[n]), x, i)


def many_lookups(draft: Draft) -> None:
    """x[indices]."""
    x = draft.any_value(lambda value: value.rank > 0 and value.size > 0)
    if x is None:
        return
    found = draft.any_value(lambda value: value.dtype == "int32" and value.rank == 1)
    i = found or draft.new_input((draft.pick(draft.dims),), "int32")
    if i.size * x.size // x.shape[0] <= draft.most:
        draft.add(f"{x.name}[{i.name} % {x.shape[0]}]", x, i)


def update(draft: Draft) -> None:
    """x.at[i].set(y), with a number that the program computes."""
    x = draft.float_value(lambda value: value.rank > 0 and value.size > 0)
    if not x.rank or not x.size:
        return
    i = index(draft)
    y = draft.any_value(lambda value: value.is_float and value.shape in ((), x.shape[1:])) or x
    new = y.name if y is not x else f"jnp.sum({x.name}, 0, dtype={x.name}.dtype)"
    forms = ["{x}.at[{i} % {size}].set({y})", "{x}.at[{i} % {size}].add(jnp.tanh({y}))", "{x}.at[{i}].set({y})"]
    forms += ["lax.dynamic_update_index_in_dim({x}, {y} + jnp.zeros({rest}, {x}.dtype), {i}, 0)"]
    new = f"{new}.astype({x.name}.dtype)"
    parts = {"x": x.name, "i": i.name, "y": new, "size": x.shape[0], "rest": x.shape[1:]}
    draft.add(draft.pick(forms).format(**parts), x, i, *([y] if y is not x else []))


def product(draft: Draft) -> None:
    """A small matrix product."""
    x = draft.float_value(lambda value: value.rank in (1, 2) and value.size > 0)
    if x.rank not in (1, 2) or not x.size:
        return
    inner = x.shape[-1]
    outer = draft.pick([size for size in draft.dims if size] or [1]) if draft.chance() else inner

    def fits(value: Value) -> bool:
        return value.dtype == x.dtype and value.shape in ((inner, outer), (inner,))

    w = draft.any_value(fits) or draft.new_input((inner, outer), x.dtype.name)
    draft.add(f"{x.name} @ {w.name}", x, w)


def counted(draft: Draft) -> None:
    """Something that depends on a number, as the counter is one."""
    i = index(draft)
    x = draft.float_value()
    forms = ["{x} * {i}", "jnp.where({i} % 2 == 0, {x}, -{x})", "{x} + ({i} > 1)", "{x} / (jnp.abs({i}) % 8 + 1)"]
    if x.rank and x.size:
        forms += ["jnp.where(jnp.arange({size}) < {i}, {x}, 0)", "{x} + (jnp.arange({size}) == {i})"]
    draft.add(draft.pick(forms).format(x=x.name, i=i.name, size=x.shape[-1] if x.rank else 0), x, i)


def tame(draft: Draft) -> None:
    x = draft.float_value()
    text = draft.pick(families.UNARY[:38]).format(x.name)
    draft.add(text, x)


def leaps(draft: Draft) -> None:
    x = draft.float_value(lambda value: value.size > 0)
    slope = draft.pick(SLOPES)
    step = draft.pick(LEAPS).format(before=slope.format("s[0]"), after=slope.format("y"))
    draft.add(f"(lambda x: lax.fori_loop(0, 3, lambda _, s: {step}, (x, x))[{draft.pick((0, 1))}])({x.name})", x)


PLAIN: tuple[Family, ...] = (tame, families.binary, shifted, families.reduce_floats, lookup, update, product, counted)
PLAIN += (einsum, pairs)
RARE: tuple[Family, ...] = (families.with_scalar, families.compare, families.choose, families.row_idiom, families.call)
RARE += (families.several_places, families.place_of_extreme, families.reduce_bools, families.transpose)
RARE += (families.merge_or_split, families.expand_or_squeeze, families.slicing, families.pad, families.concatenate)
RARE += (families.stack, families.reverse, families.pick_one, families.convert, families.broadcast, families.iota)
RARE += (families.reduce_integers, families.integer, families.split, many_lookups, families.written_or_read)
RARE += (families.with_number, families.effect, any_lane, leaps, pool, convolution)
RARE += (to_and_fro, saved_by_lanes, added_up, families.own_reduction)
BODY: tuple[Family, ...] = (*PLAIN * 3, *RARE)


# ------------------------------------------------------------------------------------------------------------- loops


def visible(draft: Draft) -> list[Value]:
    """What a body reads of the values around it: a few of them, those from far outside too."""
    found: list[Value] = []
    for _ in range(draft.number(0, 3)):
        value = draft.any_value(lambda value: value.size <= draft.most)
        if value is not None and value not in found:
            found.append(value)
    return found


def fitted(draft: Draft, value: Value, shape: tuple[int, ...], dtype: Any) -> Value:
    """The value in this shape and dtype, strongly typed."""
    if value.shape != shape:
        rest = shape[len(shape) - value.rank :]
        if value.rank > len(shape) or any(m not in (1, n) for m, n in zip(value.shape, rest)):
            how = "jnp.any({0})" if value.is_bool else draft.pick(("helpers.mean({0})", "helpers.total({0}, None)"))
            value = draft.add(how.format(value.name), value)
        value = draft.add(f"jnp.broadcast_to({value.name}, {shape})", value) if value.shape != shape else value
    if value.dtype != dtype or value.weak:
        value = draft.add(f"{value.name}.astype({dtype_text(dtype)})", value)
    return value


def carried_after(draft: Draft, c: Value) -> Value:
    """What a step makes of a carried value: no larger than before, whatever else is in it."""
    u = draft.any_value(lambda value: not value.is_bool and value is not c) or c
    if not _broadcasts_to(u, c.shape):
        how = ("helpers.mean({0})", "helpers.total({0}, None)") if u.is_float else ("helpers.total({0}, None)",)
        u = draft.add(draft.pick(how).format(u.name), u)
    if c.is_float and u.dtype != c.dtype:
        u = draft.add(f"{u.name}.astype({dtype_text(c.dtype)})", u)
    forms = CARRIED_FLOATS if c.is_float else CARRIED_BOOLS if c.is_bool else CARRIED_NUMBERS
    text = draft.pick(forms).format(c=c.name, u=u.name)
    return fitted(draft, draft.add(text, *(each for each in (c, u) if each.name in text)), c.shape, c.dtype)


def _broadcasts_to(value: Value, shape: tuple[int, ...]) -> bool:
    rest = shape[len(shape) - value.rank :]
    return value.rank <= len(shape) and all(m in (1, n) for m, n in zip(value.shape, rest))


def started(draft: Draft) -> Value:
    """A value to start from, strongly typed."""
    match draft.number(0, 7):
        case 0:
            return draft.new_input((), "int32")
        case 1:
            return draft.new_input(small_shape(draft), draft.pick(("float16", "bfloat16", "bool", "int32", "float32")))
        case 2:
            return draft.new_input(small_shape(draft), "float64" if draft.x64 else "float32")
        case 3:
            return _constant(draft, small_shape(draft))
        case _:
            found = draft.any_value(lambda value: value.size <= draft.carried and value.dtype.kind != "u")
            found = found or draft.new_input(small_shape(draft), "float32")
            return fitted(draft, found, found.shape, found.dtype)


def _constant(draft: Draft, shape: tuple[int, ...]) -> Value:
    forms = ["jnp.zeros({shape}, jnp.float32)", "jnp.zeros({shape}, jnp.float32)", "jnp.ones({shape}, bool)"]
    if shape:
        forms += [
            "lax.broadcasted_iota(jnp.int32, {shape}, {axis})",
            "lax.broadcasted_iota(jnp.float32, {shape}, {axis})",
        ]
    return draft.add(draft.pick(forms).format(shape=shape, axis=draft.number(0, max(len(shape) - 1, 0))))


def small_shape(draft: Draft) -> tuple[int, ...]:
    shape = [draft.pick(draft.dims) for _ in range(draft.pick((1, 1, 2, 0)))]
    return tuple(shape) if math.prod(shape) <= draft.carried else tuple(shape[:1])


def new_name(draft: Draft, stem: str) -> str:
    return f"{stem}{next(draft.names)}"


def carried(draft: Draft, count: int) -> list[tuple[Value, Value]]:
    """(start, in the body); now and then all start alike."""
    alike = draft.number(0, 3) == 1
    starts = [started(draft)] * count if alike else [started(draft) for _ in range(count)]
    return [(start, Value(new_name(draft, "c"), start.shape, start.dtype)) for start in starts]


def fill_body(body: Draft) -> None:
    for _ in range(body.number(1, LINES_AT_MOST)):
        nests = body.depth < DEPTH and body.number(0, 5 * body.depth) == 1
        body.choices.step(partial(loop if nests else _line, body))


def _line(body: Draft) -> None:
    body.pick(BODY)(body)


def finished(body: Draft, parts: Sequence[tuple[Value, Value]]) -> tuple[tuple[Value, str], ...]:
    """What is carried on; of two that start alike, now and then, the one takes what the other one was."""
    after = [(inside, carried_after(body, inside).name) for _, inside in parts]
    if len(parts) > 1 and parts[0][0] is parts[1][0] and body.chance():
        after[0] = after[0][0], after[1][0].name
    return tuple(after)


def body_of(draft: Draft, values: Sequence[Value]) -> Draft:
    body = draft.inside([])
    for value in visible(draft):
        body.values.append(value)
    for value in values:
        body.new_value(value)
    return body


def scan(draft: Draft) -> None:
    length = draft.pick(LENGTHS if draft.depth == 0 else LENGTHS[:2])
    xs = []
    for _ in range(draft.number(0, 2)):
        source = draft.any_value(lambda value: value.rank > 0 and value.shape[0] == length)
        if source is None or draft.chance():
            source = draft.new_input((length, *small_shape(draft)), draft.pick(("float32", "float32", "int32", "bool")))
        xs.append((source, Value(new_name(draft, "e"), source.shape[1:], source.dtype, source.weak)))
    parts = carried(draft, draft.number(0 if xs else 1, 3))
    body = body_of(draft, [*(inside for _, inside in xs), *(inside for _, inside in parts)])
    fill_body(body)
    after = finished(body, parts)
    ys: list[Value] = []
    for _ in range(draft.number(0 if parts else 1, 2)):
        y = body.any_value(lambda value: value.size <= body.most // 4)
        if y is not None and y not in ys:
            ys.append(y)
    if not ys and not parts:
        return
    made = scanned(draft, length, xs, parts, after, body, ys)
    draft.add_statement(replace(made, reverse=draft.pick((False, False, True)), unroll=draft.pick((1, 1, 2, 3))))


def recurrence(draft: Draft) -> None:
    """A scan of values that read each other, in sums of products, or with maxima in place of sums; or of more."""
    length, shape = draft.pick(LENGTHS[:5] if draft.depth == 0 else LENGTHS[:2]), small_shape(draft)
    source = draft.new_input((length, *shape), "float32")
    inside = Value(new_name(draft, "e"), shape, source.dtype)
    starts = [draft.new_input(shape, "float32") for _ in range(draft.number(1, 4))]
    parts = [(start, Value(new_name(draft, "c"), shape, start.dtype)) for start in starts]
    body = body_of(draft, [inside, *(each for _, each in parts)])
    terms, join, opening = draft.pick(RECURRENCES)
    bent = {own.name for _, own in parts if body.number(0, 3) == 3}  # what cannot be combined in tiles
    after = []
    for _, own in parts:
        read = [each for _, each in parts if each is own or body.chance()]
        text = inside.name
        for each in read:
            text = opening + text
            text += join.format(body.pick(terms).format(c=each.name, u=inside.name))
        text = f"jnp.tanh({text})" if own.name in bent else text
        after.append((own, body.add(text, inside, *read).name))
    ys = [value for value in body.values[-len(parts) - 1 :] if body.chance()]
    made = scanned(draft, length, [(source, inside)], parts, after, body, ys)
    draft.add_statement(replace(made, reverse=draft.chance()))


def lanes_apart(draft: Draft) -> None:
    """A scan whose lanes meet nowhere but in what its steps put out."""
    length, lanes = draft.pick(LENGTHS[:5] if draft.depth == 0 else LENGTHS[:2]), draft.pick(draft.dims)
    shape = (draft.pick(draft.dims), lanes) if lanes * max(draft.dims) <= draft.carried and draft.chance() else (lanes,)
    source = draft.new_input((length, *shape), "float32")
    inside = Value(new_name(draft, "e"), shape, source.dtype)
    starts = [draft.new_input(shape, "float32") for _ in range(draft.number(1, 2))]
    parts = [(start, Value(new_name(draft, "c"), shape, start.dtype)) for start in starts]
    body = body_of(draft, [inside, *(each for _, each in parts)])
    after, ys = [], []
    for _, own in parts:
        text = "{u} + " + body.pick(TERMS)
        after.append((own, body.add(text.format(c=own.name, u=inside.name), inside, own).name))
        if body.chance():
            ys.append(body.values[-1])
        met = body.pick(MEETINGS).format(c=own.name, u=inside.name, last=len(shape) - 1)
        ys.append(body.add(met, inside, own))
    made = scanned(draft, length, [(source, inside)], parts, after, body, ys)
    draft.add_statement(replace(made, reverse=draft.chance()))


def scanned(
    draft: Draft,
    length: int,
    xs: Sequence[tuple[Value, Value]],
    parts: Sequence[tuple[Value, Value]],
    after: Any,
    body: Draft,
    ys: Sequence[Value],
) -> Loop:
    return Loop(
        "scan",
        str(next(draft.names)),
        str(length),
        carries_of(draft, parts, after),
        tuple(body.lines),
        xs=tuple((inside.name, source.name) for source, inside in xs),
        ys=tuple((new_name(draft, "v"), y.name) for y in ys),
    )


def carries_of(draft: Draft, parts: Sequence[tuple[Value, Value]], after: Any) -> tuple[Carry, ...]:
    return tuple(
        Carry(inside.name, start.name, last, new_name(draft, "v")) for (start, inside), (_, last) in zip(parts, after)
    )


def steps_of(draft: Draft) -> str:
    """The number of steps: known, or computed."""
    most = 5 if draft.depth == 0 else 2
    if draft.chance():
        return str(draft.number(0, most))
    i = index(draft)
    return draft.add(f"jnp.clip({i.name}, 0, {most})", i).name


def fori(draft: Draft) -> None:
    steps = steps_of(draft)
    parts = carried(draft, draft.number(1, 3))
    counted_by = draft.known[steps].dtype if steps in draft.known else "int64" if draft.x64 else "int32"
    counter = Value(new_name(draft, "i"), (), jax.numpy.dtype(counted_by))
    body = body_of(draft, [counter, *(inside for _, inside in parts)])
    fill_body(body)
    carries = carries_of(draft, parts, finished(body, parts))
    draft.add_statement(
        Loop("fori", str(next(draft.names)), steps, carries, tuple(body.lines), counter=counter.name),
    )


def while_loop(draft: Draft) -> None:
    steps = steps_of(draft)
    parts = carried(draft, draft.number(1, 3))
    counter = Value(new_name(draft, "i"), (), jax.numpy.dtype("int32"))
    test = draft.inside([inside for _, inside in parts])
    test.known.update({inside.name: inside for _, inside in parts})
    for _ in range(draft.number(0, 2)):
        test.pick((tame, families.reduce_floats, shifted, counted))(test)
    decisive = test.values[-1]
    if draft.chance() and (decisive.is_float or decisive.is_bool):
        form = "jnp.any({0})" if decisive.is_bool else draft.pick(("jnp.max(jnp.abs({0})) > 0.3", "{0}.sum() < 2.5"))
        if decisive.size or "max" not in form:
            test.add(form.format(decisive.name), decisive)
    if not (test.lines and test.values[-1].is_bool and not test.values[-1].rank):
        test.lines.clear()
    body = body_of(draft, [counter, *(inside for _, inside in parts)])
    fill_body(body)
    carries = carries_of(draft, parts, finished(body, parts))
    counts = Carry(counter.name, "jnp.int32(0)", f"{counter.name} + 1", new_name(draft, "v"))
    lines, label = tuple(body.lines), str(next(draft.names))
    draft.add_statement(
        Loop("while", label, steps, (counts, *carries), lines, counter=counter.name, test=tuple(test.lines))
    )


def choice(draft: Draft) -> None:
    is_switch = draft.chance()
    if is_switch:
        which = index(draft)
    else:
        x = draft.float_value()
        which = draft.add(f"{x.name}.sum() > 0.25", x)
    models = [started(draft) for _ in range(draft.number(1, 2))]
    branches = []
    for _ in range(draft.number(2, 3) if is_switch else 2):
        body = body_of(draft, [])
        body.values += [model for model in models if model not in body.values]
        fill_body(body)
        gives = tuple(carried_after(body, model).name for model in models)
        branches.append(Branch(tuple(body.lines), gives))
    results = tuple(new_name(draft, "v") for _ in models)
    draft.add_statement(Choice(str(next(draft.names)), which.name, tuple(branches), results, is_switch))


KINDS: tuple[Family, ...] = (scan, scan, scan, fori, fori, while_loop, choice, recurrence, over_places)
KINDS += (lanes_apart,)


def loop(draft: Draft) -> None:
    draft.pick(KINDS)(draft)


@st.composite
def loop_programs(draw: Callable[..., Any], transforms: Sequence[str]) -> Program:
    """A program with loops, drawn by hypothesis."""
    return drawn_loop_program(Hypothesis(draw), transforms)


def drawn_loop_program(
    choices: Choices, transforms: Sequence[str], kinds: Sequence[Family] = (loop,), scale: Scale = SMALL
) -> Program:
    """A program with a loop or two, and some lines before and after."""
    x64 = choices.pick((False, False, True))
    dims = [choices.pick(scale.sizes) for _ in range(choices.number(1, 3))]
    with jax.enable_x64(x64):
        sorts = ("normal", "normal", "whole", "positive")
        draft = Draft(choices, dims, x64, scale.elements, sorts, carried=scale.carried)
        dtypes = ("float32", "float32", "float32", "bfloat16", "float16", "float64" if x64 else "float32", "int32")
        for place in range(choices.number(1, 2)):
            draft.new_input(small_shape(draft), draft.pick(dtypes[: 6 if place == 0 else None]))
        for _ in range(choices.number(0, 2)):
            choices.step(lambda: choices.pick(BODY)(draft))
        for _ in range(choices.pick((1, 1, 2))):
            choices.pick(kinds)(draft)
            for _ in range(choices.number(0, 2)):
                choices.step(lambda: choices.pick(BODY)(draft))
    program = Program(tuple(draft.inputs), tuple(draft.lines), drawn_outputs(draft))
    return with_transform(choices, program, transforms, x64).without_dead_lines()
