"""Families of lines: each function adds one line, or a few, to a draft."""

from __future__ import annotations

import math

from tests.drawn.attention import attention
from tests.drawn.compared import compared, routed
from tests.drawn.contractions import einsum, pairs
from tests.drawn.generator import DTYPES, Draft, Family, Value, dtype_text
from tests.drawn.streams import streamed
from tests.drawn.windows import convolution, pool

UNARY = (
    "jnp.exp(-jnp.abs({0}))",
    "jnp.tanh({0})",
    "lax.logistic({0})",
    "jnp.sin({0})",
    "jnp.cos({0})",
    "-{0}",
    "jnp.abs({0})",
    "jnp.sign({0})",
    "lax.square({0})",
    "jnp.sqrt(jnp.abs({0}) + 0.5)",
    "lax.rsqrt(jnp.abs({0}) + 0.5)",
    "jnp.log(jnp.abs({0}) + 0.5)",
    "jnp.log1p(lax.square({0}))",
    "jnp.expm1(jnp.tanh({0}))",
    "jnp.exp2(jnp.sin({0}))",
    "jnp.log2(jnp.abs({0}) + 0.5)",
    "lax.erf({0})",
    "lax.erfc({0})",
    "lax.erf_inv(jnp.tanh({0}) * 0.75)",
    "lax.lgamma(jnp.abs({0}) + 1.5)",
    "lax.digamma(jnp.abs({0}) + 1.5)",
    "lax.cbrt({0})",
    "jnp.tan(jnp.sin({0}))",
    "jnp.arcsin(jnp.sin({0}) * 0.75)",
    "jnp.arccos(jnp.sin({0}) * 0.75)",
    "jnp.arctan({0})",
    "jnp.sinh(jnp.tanh({0}))",
    "jnp.cosh(jnp.tanh({0}))",
    "jnp.arcsinh({0})",
    "jnp.arccosh(jnp.abs({0}) + 1.5)",
    "jnp.arctanh(jnp.sin({0}) * 0.75)",
    "jnp.floor({0})",
    "jnp.ceil({0})",
    "lax.round({0}, lax.RoundingMethod.AWAY_FROM_ZERO)",
    "lax.round({0}, lax.RoundingMethod.TO_NEAREST_EVEN)",
    "lax.integer_pow({0}, 3)",
    "lax.integer_pow({0}, -2)",
    "{0} ** 1.5",
    "(lax.abs({0}) + 0.5) ** -2.5",
    "lax.reduce_precision({0}, 5, 7)",
    "lax.stop_gradient({0})",
    "lax.copy_p.bind({0})",
    "jnp.exp({0})",
    "jnp.log({0})",
    "jnp.sqrt({0})",
    "1 / {0}",
    "{0} * 0.5 + 0.25",
    "1 - {0}",
)
BINARY = (
    "{0} + {1}",
    "{0} - {1}",
    "{0} * {1}",
    "{0} / (jnp.abs({1}) + 0.5)",
    "{0} / {1}",
    "jnp.maximum({0}, {1})",
    "jnp.minimum({0}, {1})",
    "jnp.arctan2({0}, {1})",
    "jnp.power(jnp.abs({0}) + 0.5, {1})",
    "jnp.where({0} > {1}, {0}, {1} * 0.5)",
    "jnp.clip({0}, -0.5, {1})",
)
SAME_SHAPE = ("lax.rem({0}, {1})", "helpers.nextafter({0}, {1})", "lax.clamp({0}, {1}, {0} + 1)", "lax.pow({0}, {1})")
COMPARISONS = ("{0} == {1}", "{0} != {1}", "{0} < {1}", "{0} <= {1}", "{0} > {1}", "{0} >= {1}")
INTEGER_UNARY: tuple[str, ...] = (
    "lax.neg({0})",
    "lax.sign({0})",
    "lax.bitwise_not({0})",
    "{0} * 3 + 1",
    "lax.integer_pow({0}, 3)",
)
INTEGER_UNARY += ("lax.population_count({0})", "lax.clz({0})", "{0} & 15", "lax.max({0}, {0} ^ 7)")
INTEGER_BINARY: tuple[str, ...] = (
    "lax.add",
    "lax.sub",
    "lax.mul",
    "lax.div",
    "lax.rem",
    "lax.max",
    "lax.min",
    "lax.mulhi",
)
INTEGER_BINARY += ("lax.bitwise_and", "lax.bitwise_or", "lax.bitwise_xor", "lax.shift_left")
INTEGER_BINARY += ("lax.shift_right_logical", "lax.shift_right_arithmetic")
WRITES = ("lax.scatter", "lax.scatter_add", "lax.scatter_sub")
LOGIC = ("{0} & {1}", "{0} | {1}", "{0} ^ {1}", "~{0}", "{0} == {1}", "jnp.where({0}, {1}, ~{0})")


# ------------------------------------------------------------------------------------------------------------ pointwise


def unary(draft: Draft) -> None:
    x = draft.float_value()
    draft.add(draft.pick(UNARY).format(x.name), x)


def binary(draft: Draft) -> None:
    x = draft.float_value()
    y = draft.partner(x)
    if draft.chance():
        x, y = y, x
    draft.add(draft.pick(BINARY).format(x.name, y.name), x, y)


def same_shape(draft: Draft) -> None:
    x = draft.float_value()
    y = draft.equal_partner(x)
    draft.add(draft.pick(SAME_SHAPE).format(x.name, y.name), x, y)


def with_scalar(draft: Draft) -> None:
    """A Python number, which is weakly typed."""
    x = draft.any_value(lambda value: not value.is_bool)
    if x is None:
        return
    if x.is_float:
        draft.add(draft.pick(("{0} * 1.5", "2 - {0}", "{0} / 3", "jnp.maximum({0}, 0)", "{0} ** 2")).format(x.name), x)
    else:
        draft.add(draft.pick(("{0} * 3", "2 - {0}", "{0} // 3", "{0} % 5", "{0} + 0.5", "{0} > 2")).format(x.name), x)


def compare(draft: Draft) -> None:
    x = draft.any_value()
    assert x is not None
    y = draft.partner(x)
    draft.add(draft.pick(COMPARISONS).format(x.name, y.name), x, y)


def is_finite(draft: Draft) -> None:
    x = draft.float_value()
    draft.add(f"lax.is_finite({x.name})", x)


def logic(draft: Draft) -> None:
    x = draft.bool_value()
    y = draft.partner(x)
    draft.add(draft.pick(LOGIC).format(x.name, y.name), x, y)


def integer(draft: Draft) -> None:
    x = draft.integer_value()
    if draft.chance():
        draft.add(draft.pick(INTEGER_UNARY).format(x.name), x)
        return
    y = draft.equal_partner(x)
    draft.add(f"{draft.pick(INTEGER_BINARY)}({x.name}, {y.name})", x, y)


def choose(draft: Draft) -> None:
    which, x = draft.bool_value(), draft.any_value()
    assert x is not None
    y = draft.partner(x)
    if _broadcasts(draft, which, x, y):
        draft.add(f"jnp.where({which.name}, {x.name}, {y.name})", which, x, y)
    else:
        z = draft.equal_partner(x)
        draft.add(f"lax.select_n({x.name} != {z.name}, {x.name}, {z.name})", x, z)


def select_by_number(draft: Draft) -> None:
    x = draft.any_value()
    assert x is not None
    which = draft.new_input(x.shape, "int32")
    y = draft.equal_partner(x)
    text = f"lax.select_n(lax.clamp(jnp.int32(0), {which.name}, jnp.int32(2)), {x.name}, {y.name}, {x.name})"
    draft.add(text, which, x, y)


def _broadcasts(draft: Draft, *values: Value) -> bool:
    shape: list[int] = []
    for value in values:
        rank = max(len(shape), value.rank)
        a, b = [1] * (rank - len(shape)) + shape, [1] * (rank - value.rank) + list(value.shape)
        if any(m != n and 1 not in (m, n) for m, n in zip(a, b)):
            return False
        shape = [n if m == 1 else m for m, n in zip(a, b)]
    return math.prod(shape) <= draft.most


def convert(draft: Draft) -> None:
    x = draft.any_value()
    assert x is not None
    target = draft.pick([*draft.float_dtypes, *draft.integer_dtypes, "bool"])
    draft.add(f"{x.name}.astype({dtype_text(target)})", x)


def bitcast(draft: Draft) -> None:
    x = draft.any_value(lambda value: not value.is_bool)
    if x is None:
        return
    alike = [d for d in (*draft.float_dtypes, *draft.integer_dtypes) if DTYPES[d].itemsize == x.dtype.itemsize]
    draft.add(f"helpers.bits({x.name}, {dtype_text(draft.pick(alike))})", x)


def iota(draft: Draft) -> None:
    x = draft.any_value(lambda value: value.rank > 0 and not value.is_bool)
    if x is not None:
        made = f"lax.broadcasted_iota({dtype_text(x.dtype)}, {x.shape}, {draft.axis(x)})"
        draft.add(draft.pick(("{0} + {1}", "{0} * {1}", "jnp.where({1} < 3, {0}, -{0})")).format(x.name, made), x)


# ------------------------------------------------------------------------------------------------------------- indexing


def broadcast(draft: Draft) -> None:
    x = draft.any_value()
    assert x is not None
    size = draft.pick(draft.dims)
    if size * x.size > draft.most or x.rank > 3:
        return
    place = draft.number(0, x.rank)
    shape = (*x.shape[:place], size, *x.shape[place:])
    dims = tuple(n for n in range(x.rank + 1) if n != place)
    draft.add(f"lax.broadcast_in_dim({x.name}, {shape}, {dims})", x)


def transpose(draft: Draft) -> None:
    x = draft.any_value(lambda value: value.rank > 1)
    if x is not None:
        draft.add(f"lax.transpose({x.name}, {tuple(_permutation(draft, x.rank))})", x)


def _permutation(draft: Draft, size: int) -> list[int]:
    left, found = list(range(size)), []
    while left:
        found.append(left.pop(draft.number(0, len(left) - 1)))
    return found[::-1]


def reshape(draft: Draft) -> None:
    """To other factors of the same number of elements."""
    x = draft.any_value()
    assert x is not None
    if x.size == 0:
        draft.add(f"{x.name}.reshape({tuple(reversed(x.shape))})", x)
        return
    rest, shape = x.size, []
    for _ in range(draft.number(0, 3)):
        factor = draft.pick([n for n in range(1, rest + 1) if rest % n == 0])
        shape.append(factor)
        rest //= factor
    draft.add(f"{x.name}.reshape({tuple([*shape, rest])})", x)


def merge_or_split(draft: Draft) -> None:
    """Two neighbouring dimensions become one, or one becomes two."""
    x = draft.any_value(lambda value: value.rank > 0)
    if x is None:
        return
    n, shape = draft.axis(x), x.shape
    if n + 1 < x.rank and draft.chance():
        draft.add(f"{x.name}.reshape({(*shape[:n], shape[n] * shape[n + 1], *shape[n + 2 :])})", x)
    elif x.rank < 4 and shape[n]:
        first = draft.pick([k for k in range(1, shape[n] + 1) if shape[n] % k == 0])
        draft.add(f"{x.name}.reshape({(*shape[:n], first, shape[n] // first, *shape[n + 1 :])})", x)


def expand_or_squeeze(draft: Draft) -> None:
    x = draft.any_value()
    assert x is not None
    ones = [n for n, size in enumerate(x.shape) if size == 1]
    if ones and draft.chance():
        draft.add(f"lax.squeeze({x.name}, ({draft.pick(ones)},))", x)
    elif x.rank < 4:
        draft.add(f"lax.expand_dims({x.name}, ({draft.number(0, x.rank)},))", x)


def slicing(draft: Draft) -> None:
    x = draft.any_value(lambda value: value.rank > 0)
    if x is None:
        return
    starts, stops, strides = [], [], []
    for size in x.shape:
        start = draft.number(0, size)
        starts.append(start)
        stops.append(draft.number(start, size) if draft.chance() else size)
        strides.append(draft.number(1, 3))
    draft.add(f"lax.slice({x.name}, {tuple(starts)}, {tuple(stops)}, {tuple(strides)})", x)


def pad(draft: Draft) -> None:
    x = draft.any_value(lambda value: value.rank > 0)
    if x is None:
        return
    config, total = [], 1
    for size in x.shape:
        low, high, interior = draft.number(-2, 3), draft.number(-2, 3), draft.number(0, 2)
        if size + max(size - 1, 0) * interior + low + high < 0:
            low = high = 0
        total *= size + max(size - 1, 0) * interior + low + high
        config.append((low, high, interior))
    if total <= draft.most:
        filling = f"jnp.asarray({draft.pick((0, 1))}, {dtype_text(x.dtype)})"
        draft.add(f"lax.pad({x.name}, {filling}, {tuple(config)})", x)


def concatenate(draft: Draft) -> None:
    x = draft.any_value(lambda value: value.rank > 0)
    if x is None:
        return
    n = draft.axis(x)

    def fits(other: Value) -> bool:
        rest = other.shape[:n] + other.shape[n + 1 :]
        return other.dtype == x.dtype and other.rank == x.rank and rest == x.shape[:n] + x.shape[n + 1 :]

    pieces = [x]
    for _ in range(draft.number(1, 3)):
        other = draft.any_value(fits)
        assert other is not None
        pieces.append(other)
    if draft.chance():
        pieces.reverse()
    if sum(piece.size for piece in pieces) <= draft.most:
        draft.add(f"lax.concatenate([{', '.join(piece.name for piece in pieces)}], {n})", *pieces)


def stack(draft: Draft) -> None:
    x = draft.any_value(lambda value: value.rank < 4)
    if x is None:
        return
    y = draft.equal_partner(x)
    if x.size * 3 <= draft.most:
        draft.add(f"jnp.stack([{x.name}, {y.name}, {x.name}], {draft.number(0, x.rank)})", x, y)


def split(draft: Draft) -> None:
    x = draft.any_value(lambda value: value.rank > 0)
    if x is None:
        return
    n = draft.axis(x)
    first = draft.number(0, x.shape[n])
    pieces = f"lax.split({x.name}, ({first}, {x.shape[n] - first}), axis={n})"
    draft.add(f"{pieces}[{draft.number(0, 1)}]", x)


def reverse(draft: Draft) -> None:
    x = draft.any_value(lambda value: value.rank > 0)
    if x is not None:
        draft.add(f"lax.rev({x.name}, {_axes(draft, x)})", x)


def _axes(draft: Draft, x: Value) -> tuple[int, ...]:
    found = tuple(n for n in range(x.rank) if draft.chance())
    return found or ((draft.axis(x),) if x.rank else ())


def pick_one(draft: Draft) -> None:
    """x[..., 2, :], with a number that is known."""
    x = draft.any_value(lambda value: value.rank > 0 and value.size > 0)
    if x is not None:
        n = draft.axis(x)
        place = draft.number(0, x.shape[n] - 1)
        draft.add(f"lax.index_in_dim({x.name}, {place}, {n}, keepdims={draft.chance()})", x)


def written_or_read(draft: Draft) -> None:
    """Scatters and gathers of windows at places that the program computes, which may lie outside."""
    x = draft.float_value(lambda value: value.rank > 0 and value.size > 0)
    if not x.rank or not x.size:
        return
    i = draft.any_value(lambda value: value.dtype == "int32" and value.rank < 2 and value.size in (1, 2, 3))
    i = i or draft.new_input(draft.pick(((), (3,), (2,))), "int32")
    mode = draft.pick(("fill", "clip"))
    forms = [f"helpers.narrow({{0}}, {{1}}, {write}, {mode!r})" for write in WRITES]
    forms += ["helpers.applied({0}, {1})", "helpers.window({0}, {1}, 'clip')"]
    draft.add(draft.pick(forms).format(x.name, i.name), x, i)


# ----------------------------------------------------------------------------------------------------------- reductions


def reduce_floats(draft: Draft) -> None:
    x = draft.float_value()
    axes = _axes(draft, x)
    keep = draft.chance()
    name = draft.pick(("helpers.total", "jnp.max", "jnp.min", "helpers.product", "jnp.mean", "jnp.var"))
    if name in ("jnp.max", "jnp.min", "jnp.mean", "jnp.var") and math.prod(x.shape[n] for n in axes) == 0:
        name = "helpers.total"
    source = f"jnp.tanh({x.name})" if name == "helpers.product" else x.name
    draft.add(f"{name}({source}, {axes}, keepdims={keep})", x)


def reduce_integers(draft: Draft) -> None:
    x = draft.integer_value()
    axes = _axes(draft, x)
    if draft.chance():
        draft.add(f"{draft.pick(('helpers.total', 'helpers.product'))}({x.name}, {axes}, keepdims={draft.chance()})", x)
    else:
        name = draft.pick(("reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor"))
        draft.add(f"lax.{name}({x.name}, {axes})", x)


def reduce_bools(draft: Draft) -> None:
    x = draft.bool_value()
    draft.add(f"lax.{draft.pick(('reduce_and', 'reduce_or', 'reduce_xor'))}({x.name}, {_axes(draft, x)})", x)


def place_of_extreme(draft: Draft) -> None:
    x = draft.any_value(lambda value: value.rank > 0 and not value.is_bool and value.size > 0)
    if x is not None:
        draft.add(f"lax.{draft.pick(('argmax', 'argmin'))}({x.name}, {draft.axis(x)}, jnp.int32)", x)


NUMBERS = (
    "lax.dot_general({number}, {x}, (((), ()), ((), ())))",
    "lax.dot_general({x}, {number}, (((), ()), ((), ())))",
    "{x} * lax.dot_general({number}, {number}, (((), ()), ((), ())))",
    "{x} + lax.reduce_max({number}, ())",
    "{x} * helpers.mean(lax.full({shape}, {number}))",
    "{x} - jnp.max(lax.full({shape}, {number}))",
    "jax.grad(lambda x: jnp.vdot(x, x))({x})",
)


def with_number(draft: Draft) -> None:
    """A number, or an array of one number, where a product or a reduction has an array mostly."""
    x = draft.float_value(lambda value: value.size > 0)
    if x.size:
        number = f"{dtype_text(x.dtype)}(0.5)"
        draft.add(draft.pick(NUMBERS).format(x=x.name, number=number, shape=x.shape), x)


# --------------------------------------------------------------------------------------------------------------- idioms

ROW_IDIOMS = (
    "helpers.softmax({0}, {1})",
    "helpers.layer_norm({0}, {1})",
    "helpers.logsumexp({0}, {1})",
    "jax.nn.softmax({0}, {1})",
    "jax.nn.log_softmax({0}, {1})",
    "{0} - jnp.max({0}, {1}, keepdims=True)",
    "{0} / (1 + jnp.sum(jnp.abs({0}), {1}, keepdims=True, dtype={0}.dtype))",
    "jnp.flip({0}, {1}) - {0}",
    "{0} * (lax.broadcasted_iota(jnp.int32, {0}.shape, {1}) % 2)",
    "{0} == jnp.max({0}, {1}, keepdims=True)",
)


def row_idiom(draft: Draft) -> None:
    x = draft.float_value(lambda value: value.rank > 0 and value.size > 0)
    if x.rank and x.size:
        draft.add(draft.pick(ROW_IDIOMS).format(x.name, draft.axis(x)), x)


def several_places(draft: Draft) -> None:
    """The same value read at two or three places of one axis."""
    x = draft.any_value(lambda value: value.rank > 0 and not value.is_bool and min(value.shape) > 1)
    if x is None:
        return
    n, size = draft.axis(x), 0
    size = x.shape[n]

    def part(start: int, stop: int, stride: int = 1) -> str:
        return f"lax.slice_in_dim({x.name}, {start}, {stop}, {stride}, {n})"

    forms = [f"{part(1, size)} - {part(0, size - 1)}"]
    forms.append(f"{x.name} + lax.concatenate([{part(1, size)}, {part(0, 1)}], {n})")
    if size % 2 == 0:
        forms.append(f"{part(0, size, 2)} * {part(1, size, 2)}")
        forms.append(f"{part(0, size // 2)} + {part(size // 2, size)}")
    if x.rank >= 2 and x.shape[-1] == x.shape[-2]:
        forms.append(f"{x.name} + jnp.swapaxes({x.name}, -1, -2)")
        forms.append(f"jnp.where(jnp.tril(jnp.ones({x.shape}, bool)), {x.name}, 0)")
    if x.is_float and x.rank < 4 and x.size * size <= draft.most:
        forms.append(f"jnp.expand_dims({x.name}, {n}) - jnp.expand_dims({x.name}, {n + 1})")
    if x.is_float and x.shape[-1] % 2 == 0:
        forms += [f"helpers.rotate_half({x.name})", f"helpers.interleave({x.name})"]
    draft.add(draft.pick(forms), x)


def call(draft: Draft) -> None:
    x = draft.float_value()
    forms = ["helpers.clipped_log({0})", "helpers.straight_through({0})", "helpers.remat_block({0})"]
    forms += ["helpers.nested_calls({0})", "jax.nn.silu({0})", "jax.nn.gelu({0})", "jax.nn.relu({0})"]
    forms += ["jax.nn.softplus({0})"]
    if x.size:
        forms.append("helpers.jitted_block({0})")
    draft.add(draft.pick(forms).format(x.name), x)


def leftover(draft: Draft) -> None:
    """Something without a rule."""
    x = draft.float_value(lambda value: value.rank > 0 and value.size > 0)
    if not x.rank or not x.size:
        return
    n = draft.axis(x)
    forms = [f"lax.sort({x.name}, dimension={n})", f"lax.cumsum({x.name}, {n})"]
    forms.append(f"jnp.take({x.name}, jnp.array([0, {x.shape[n] - 1}, 0]), {n})")
    if x.rank > 1:
        forms.append(f"jnp.matmul({x.name}, jnp.swapaxes({x.name}, -1, -2))")
    text = draft.pick(forms)
    if "matmul" not in text or x.size * x.shape[-2] <= draft.most:
        draft.add(text, x)


def contraction(draft: Draft) -> None:
    """What two sides make together: a value with itself, along any of its dimensions, or with its turned self."""
    x = draft.float_value(lambda value: 2 <= value.rank <= 3 and value.size > 0)
    if not 2 <= x.rank <= 3 or not x.size:
        return
    letters = "abc"[: x.rank]
    summed = draft.pick(letters)
    shared = draft.pick(("", *letters.replace(summed, "")[1:]))  # of a batch
    other = "".join(letter if letter in (summed, shared) else letter.upper() for letter in letters)
    result = "".join(dict.fromkeys((letters + other).replace(summed, "")))
    sizes = dict(zip(letters.upper(), x.shape))
    if math.prod(sizes[letter.upper()] for letter in result) * sizes[summed.upper()] > 4 * draft.most:
        return
    forms = [f"jnp.einsum('{letters},{other}->{result}', {{0}}, {{0}})"]
    if x.rank == 2:
        along = f"{{0}}[:, None] {draft.pick(('-', '+', '*'))} {{0}}[None]"
        forms += [f"jnp.sum(jnp.square({along}), -1)", f"jnp.max(jnp.abs({along}), -1)"]
        forms += ["jnp.tanh({0}) @ {0}.T + jnp.sum({0}, 1)", f"jnp.argmin(jnp.sum(jnp.square({along}), -1), 1)"]
        if x.shape[0] ** 2 * x.shape[1] > 4 * draft.most:
            forms = forms[:1]
    draft.add(draft.pick(forms).format(x.name), x)


def effect(draft: Draft) -> None:
    """Python is called, or told."""
    x = draft.float_value(lambda value: value.size > 0 and not value.weak)
    if x.size and not x.weak:
        forms = ("helpers.told({0})", "helpers.told({0}, ordered=True)", "helpers.called({0})", "helpers.checked({0})")
        draft.add(draft.pick((*forms, "helpers.called_with_effect({0})")).format(x.name), x)


SCANS = (
    "helpers.scanned({0}, {1}, lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]))",
    "helpers.scanned({0}, {1}, lambda a, b: (a[0] + b[0], jnp.maximum(a[1], b[1])))",
    "helpers.scanned({0}, {1}, lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), reverse=True)",
    "lax.associative_scan(jnp.maximum, {0}, axis={1})",
    "lax.associative_scan(jnp.add, {0}, axis={1}, reverse=True)",
    "lax.associative_scan(jnp.multiply, jnp.tanh({0}), axis={1})",
    "lax.associative_scan(jnp.logaddexp, {0}, axis={1}, reverse=True)",
    "lax.associative_scan(lambda a, b: jnp.where(b > 0.5, b, a), {0}, axis={1})",
)


def associative(draft: Draft) -> None:
    """A scan by an associative function; in 16 bits, what is infinite depends on the order."""
    x = draft.float_value(lambda value: value.rank > 0 and value.size > 0 and value.dtype.itemsize > 2)
    if x.rank and x.size and x.dtype.itemsize > 2:
        draft.add(draft.pick(SCANS).format(x.name, draft.axis(x)), x)


def own_reduction(draft: Draft) -> None:
    """By a function of several parts."""
    x = draft.float_value(lambda value: value.rank > 0 and value.size > 0 and value.dtype.itemsize > 2)
    if not x.rank or not x.size or x.dtype.itemsize <= 2:
        return
    if draft.chance():
        draft.add(f"helpers.first_two({x.name}, {draft.axis(x)})", x)
    else:
        axes = _axes(draft, x) or (0,)
        draft.add(f"helpers.{draft.pick(('weighted_moments', 'sum_and_product'))}({x.name}, {axes})", x)


MATRICES = ("eigenvalues", "root", "orthogonal", "triangular", "factor", "solved")
COLLECTIVES = (
    "x - lax.psum(x, 'i')",
    "x * lax.pmean(x, 'i')",
    "x + lax.pmax(lax.stop_gradient(x), 'i')",
    "x - lax.pmin(lax.stop_gradient(x), 'i')",
    "jnp.where(lax.axis_index('i') % 2 == 0, x, -x)",
    "lax.all_gather(x, 'i').sum(0, dtype=x.dtype) * x",
    "x + helpers.around(x)",
    "lax.psum(jnp.sin(x), 'i') * lax.psum(1, 'i')",
)


def small_matrices(draft: Draft) -> None:
    """Factorisations of a matrix for each row."""
    x = draft.float_value(lambda value: 0 < value.rank < 4 and value.size > 0)
    if x.rank in (1, 2, 3) and x.size and x.size * 5 <= draft.most:
        draft.add(f"helpers.{draft.pick(MATRICES)}({x.name})", x)


def collective(draft: Draft) -> None:
    """Rows that are computed by themselves ask for each other."""
    x = draft.float_value(lambda value: value.rank > 0 and value.size > 0)
    if x.rank and x.size and x.size * x.shape[0] <= 4 * draft.most:
        draft.add(f"helpers.over_batch({x.name}, lambda x: {draft.pick(COLLECTIVES)})", x)


POINTWISE: tuple[Family, ...] = (unary, binary, same_shape, with_scalar, compare, choose)
INTEGER: tuple[Family, ...] = (integer, logic, is_finite, convert, bitcast, iota, select_by_number)
INDEXING: tuple[Family, ...] = (broadcast, transpose, reshape, merge_or_split, expand_or_squeeze, slicing, pad)
INDEXING += (concatenate, stack, split, reverse, pick_one, written_or_read)
REDUCTIONS: tuple[Family, ...] = (reduce_floats, reduce_integers, reduce_bools, place_of_extreme, own_reduction)
IDIOMS: tuple[Family, ...] = (row_idiom, several_places, call, streamed)
LEFTOVERS: tuple[Family, ...] = (leftover,)
WINDOWS: tuple[Family, ...] = (pool, convolution)
CONTRACTIONS: tuple[Family, ...] = (contraction, einsum, pairs, attention)
COMPARED: tuple[Family, ...] = (compared, compared, compared, routed)

# How often each is drawn, by repetition; the first is what hypothesis shrinks to.
ALL: tuple[Family, ...] = (
    *(unary, binary, reduce_floats, row_idiom, several_places) * 3,
    *POINTWISE,
    *INTEGER,
    *INDEXING,
    *INDEXING,
    *REDUCTIONS,
    *IDIOMS,
    *LEFTOVERS,
    with_number,
    effect,
    *CONTRACTIONS * 2,
    small_matrices,
    collective,
    associative,
    *WINDOWS * 2,
    compared,
    routed,
)
