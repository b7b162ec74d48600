"""A family of lines: reductions over windows, and convolutions of a value with another one, or with its own numbers."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

from tests.drawn.generator import Draft, Value
from tests.drawn.program import DTYPES

WORK = 12  # products for each element that a program may have
POOLS = (
    "lax.reduce_window({x}, np.asarray(-np.inf, {x}.dtype)[()], lax.max, {how})",
    "lax.reduce_window({x}, np.asarray(np.inf, {x}.dtype)[()], lax.min, {how})",
    "lax.reduce_window({x}, np.zeros((), {x}.dtype)[()], lax.add, {how}, {dilated})",
    "lax.reduce_window({x}, np.zeros((), {x}.dtype)[()], lax.add, {how}, {dilated})",
    "lax.reduce_window(lax.stop_gradient({x}), np.asarray(-np.inf, {x}.dtype)[()], lax.max, {how}, {dilated})",
    "lax.reduce_window(lax.stop_gradient({x}), np.ones((), {x}.dtype)[()], lax.mul, {how}, {dilated})",
    "lax.reduce_window(lax.stop_gradient({x}), np.asarray(0.5, {x}.dtype)[()], helpers.nearer, {how}, {dilated})",
)
PRECISIONS = ("None", "lax.Precision.HIGHEST", "(lax.Precision.HIGHEST, lax.Precision.HIGHEST)")


@dataclass(frozen=True)
class Along:
    """The windows along one dimension."""

    size: int
    stride: int
    padding: tuple[int, int]
    between: int
    dilation: int

    def count(self, size: int) -> int:
        low, high = self.padding
        return ((size - 1) * self.between + 1 + low + high - (self.size - 1) * self.dilation - 1) // self.stride + 1


def along(draft: Draft, size: int, is_window: bool) -> Along:
    """Some windows for which there is a result; those of a size that is not one are mostly beside each other."""
    if is_window and draft.number(0, 7) == 7:  # what is before each element, or behind it
        before = draft.chance()
        return Along(size, 1, (size - 1, 0) if before else (0, size - 1), 1, 1)
    window = draft.pick((2, 3, 1)) if is_window else 1
    stride = draft.pick((1, window, 2, 3))
    low, high = (draft.number(-1, 2) if draft.chance() else 0 for _ in range(2))
    between, dilation = (draft.pick((1, 1, 1, 2)) for _ in range(2))
    high += max((window - 1) * dilation + 1 - (size - 1) * between - 1 - low - high, 0)
    return Along(window, stride, (low, high), between, dilation)


def turned(windows: list[Along]) -> list[tuple[object, ...]]:
    """Of each parameter what it is along each dimension."""
    return [tuple(each) for each in zip(*map(astuple, windows))]


def pool(draft: Draft) -> None:
    x = draft.float_value(lambda value: 0 < value.rank <= 4 and value.size > 0)
    if not 0 < x.rank <= 4 or not x.size:
        return
    chosen = {draft.axis(x), draft.axis(x)}
    windows = [along(draft, size, dim in chosen) for dim, size in enumerate(x.shape)]
    if all(each.size == 1 for each in windows):  # XLA's CPU stops where these are padded by less than nothing
        return
    form = draft.pick(POOLS)
    if "{dilated}" not in form:
        windows = [Along(each.size, each.stride, _positive(each.padding), 1, 1) for each in windows]
    if any(each.count(size) < 0 for each, size in zip(windows, x.shape)):
        return
    if math.prod(each.count(size) for each, size in zip(windows, x.shape)) > draft.most:
        return
    sizes, strides, around, betweens, dilations = turned(windows)
    dilated = f"base_dilation={betweens}, window_dilation={dilations}"
    draft.add(form.format(x=x.name, how=f"{sizes}, {strides}, {around}", dilated=dilated), x)


def _positive(padding: tuple[int, int]) -> tuple[int, int]:
    """JAX's derivative of a maximum takes no others."""
    return max(padding[0], 0), max(padding[1], 0)


def convolution(draft: Draft) -> None:
    x = draft.float_value(lambda value: 0 < value.rank <= 4 and value.size > 0)
    if not 0 < x.rank <= 4 or not x.size:
        return
    rank = max(x.rank - 2, 1)
    seen = (1,) * (rank + 2 - x.rank) + x.shape
    specs = [tuple(draft.choices.pick(_orders(rank + 2))) for _ in range(3)]
    batch, channels, *places = (seen[dim] for dim in specs[0])
    features, rows = draft.pick(((1, 1), (1, 1), (channels, 1), (2, 1), (1, batch)))
    if channels % features or batch % rows:
        features = rows = 1
    windows = [along(draft, size, True) for size in places]
    results = draft.pick((1, 2, 3, 8)) * features * rows
    weights = (results, channels // features, *(each.size for each in windows))
    counts = [each.count(size) for each, size in zip(windows, places)]
    made = math.prod((batch // rows, results, *counts))
    if min(counts) < 0 or made > draft.most or math.prod(weights) > draft.most:
        return
    if made * math.prod(weights[1:]) > WORK * draft.most:
        return
    _, strides, around, betweens, dilations = turned(windows)
    w, text = weights_of(draft, x, tuple(size for _, size in sorted(zip(specs[1], weights))))
    how = f"{strides}, {around}, {betweens}, {dilations}, lax.ConvDimensionNumbers{tuple(specs)}, {features}, {rows}"
    how += f", {draft.pick(PRECISIONS)}, {draft.pick(_wider(draft, x))}"
    draft.add(f"lax.conv_general_dilated(helpers.tame({x.name}).reshape({seen}), {text}, {how})", x, w)


def weights_of(draft: Draft, x: Value, shape: tuple[int, ...]) -> tuple[Value, str]:
    if draft.chance():
        w = draft.new_input(shape, x.dtype.name)
        return w, f"helpers.tame({w.name})"
    w = draft.float_value(lambda value: value.size > 0)
    w = w if w.size else x
    return w, f"jnp.resize(helpers.tame({w.name}), {shape}).astype({x.name}.dtype)"


def _wider(draft: Draft, x: Value) -> list[str]:
    """What the products may be added up in, and the result be."""
    wider = [name for name in draft.float_dtypes if DTYPES[name].itemsize > x.dtype.itemsize]
    return ["None", *(f"jnp.{name}" for name in (x.dtype.name, *wider))]


def _orders(rank: int) -> list[tuple[int, ...]]:
    """Where batch, features and places are: features first, features last, batch last, or turned about."""
    dims = tuple(range(rank))
    return [dims, (0, rank - 1, *dims[1:-1]), (rank - 1, 0, *dims[1:-1]), dims[::-1]]
