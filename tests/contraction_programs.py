"""Programs with contractions, small: what layers, attention, kernels methods and their gradients are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from examples import contractions, last_layer
from tests.attention_programs import PROJECTED, VARIANTS
from tests.contraction import Contraction


def linear(w: Any, x: Any, b: Any) -> Any:
    return w.T @ x + b[:, None]


def mean_square(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: (fn(*args) ** 2).mean()


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 4
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)


def swiglu(x: Any, a: Any, b: Any, c: Any) -> Any:
    return (jax.nn.silu(x @ a) * (x @ b)) @ c + x


def rms_norm(x: Any, scale: Any, w: Any) -> Any:
    return (x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale) @ w


def lora(x: Any, w: Any, a: Any, b: Any) -> Any:
    return x @ w + (x @ a) @ b


def rotated(x: Any, w: Any) -> Any:
    heads = (x @ w).reshape(len(x), -1, 16)
    one, other = jnp.split(heads, 2, -1)
    angle = jnp.cos(jnp.arange(len(x), dtype=x.dtype))[:, None, None]
    return jnp.concatenate([one * angle - other, other * angle + one], -1)


def dequantised(x: Any, w: Any, scale: Any) -> Any:
    return x @ (w.astype(x.dtype) * scale)


def eight_bits(x: Any, w: Any) -> Any:
    return lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)


def losses(x: Any, w: Any, labels: Any) -> Any:
    logits = x @ w
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


def rows_of_a_table(table: Any, rows: Any, w: Any) -> Any:
    return table[rows] @ w


def ends_in_zeros(x: Any, w: Any) -> Any:
    """Beyond the end of what is summed one factor is infinite: exp of nothing is one, of what lies there anything."""
    return jnp.exp(x) @ jnp.exp(w)


def around_a_loop(params: Any, xs: Any, h: Any) -> Any:
    w, u, b = params
    inputs = xs @ w + b
    last, states = lax.scan(lambda h, z: (jnp.tanh(z + h @ u),) * 2, h, inputs)
    return last, states @ w.T


def logsumexp_of_distances(x: Any, y: Any) -> Any:
    return jax.nn.logsumexp(-((x[:, None] - y[None]) ** 2).sum(-1), axis=1)


def farthest_terms(x: Any, y: Any) -> Any:
    """Of pairs of columns: what threads that share the terms find, and where, met at the end."""
    apart = jnp.abs(x[:, :, None] - y[:, None])
    return apart.max(0), apart.argmax(0), jnp.exp(-apart).sum(0)


def per_example(w: Any, x: Any) -> Any:
    return jax.vmap(jax.grad(lambda w, x: jnp.tanh(x @ w).sum()), (None, 0))(w, x)


def least_products(x: Any) -> Any:
    """The gradient of a minimum goes to the products that are equal to it."""
    return jnp.einsum("abc,AbC->acAC", x, x).min((0, 3)).sum()


def many_terms_of_batches(x: Any, y: Any) -> Any:
    return jnp.einsum("bki,lkbj->bij", x, y)


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.where(jnp.tri(q.shape[0], k.shape[0], dtype=bool), q @ k.T, -jnp.inf)
    return jax.nn.softmax(scores) @ v


def layers(x: Any, *weights: Any) -> Any:
    for weight in weights:
        x = jax.nn.gelu(x @ weight)
    return x


def normed_rows(x: Any, w: Any, b: Any) -> Any:
    y = x @ w + b
    y = y - y.mean(1, keepdims=True)
    return y * jax.lax.rsqrt((y**2).mean(1, keepdims=True) + 1e-6)


def cross_entropy(x: Any, w: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(x @ w), labels[:, None], 1).mean()


def squared_distances(x: Any, y: Any) -> Any:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def pullback_of_distances(w: Any, x: Any, of_result: Any) -> Any:
    _, pullback = jax.vjp(contractions.distances, w, x)
    return pullback(of_result)


def bodies(x: Any, mass: Any) -> Any:
    """How the others attract each body."""
    between = x[None] - x[:, None]
    nearness = ((between * between).sum(-1) + 0.01) ** -1.5
    return (mass[None, :, None] * between * nearness[..., None]).sum(1)


def chamfer(x: Any, y: Any) -> Any:
    apart = squared_distances(x, y)
    return apart.min(1).mean() + apart.min(0).mean()


def sinkhorn(x: Any, y: Any) -> Any:
    """The cost is computed in each step again, and stored in none."""

    def step(_: Any, potentials: Any) -> Any:
        _, g = potentials
        f = -0.5 * jax.nn.logsumexp((g[None] - squared_distances(x, y)) / 0.5, axis=1)
        return f, -0.5 * jax.nn.logsumexp((f[:, None] - squared_distances(x, y)) / 0.5, axis=0)

    return lax.fori_loop(0, 5, step, (jnp.zeros(len(x)), jnp.zeros(len(y))))


def queries_keys_values(x: Any, w: Any, b: Any) -> Any:
    """Queries and keys are turned by an angle that grows with their place."""
    q, k, v = (each.reshape(len(x), -1, 16) for each in jnp.split(x @ w + b, 3, -1))
    angle = (jnp.arange(len(x), dtype=x.dtype)[:, None] / 10.0 ** jnp.arange(8.0))[:, None]

    def turned(heads: Any) -> Any:
        one, other = jnp.split(heads, 2, -1)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        return jnp.concatenate([one * cos - other * sin, other * cos + one * sin], -1)

    return turned(q), turned(k), v


def bilinear(x: Any, w: Any, y: Any) -> Any:
    return jnp.einsum("bi,oij,bj->bo", x, w, y)


def scores(q: Any, k: Any) -> Any:
    return jnp.einsum("bhqd,bhkd->bhqk", q, k)


def of_groups(x: Any, w: Any, sizes: Any) -> Any:
    """Rows behind the last group are in none."""
    return jnp.tanh(lax.ragged_dot(x, w, sizes % 5))


def in_order(x: Any, w: Any) -> Any:
    """Running sums of one side, sorted results, and a running sum beside them."""
    return jnp.sort(jnp.cumsum(x, 1) @ w, 1) + jnp.cumsum(w[0])


def training_step(params: Any, means: Any, squares: Any, x: Any, y: Any) -> Any:
    """Loss, gradient, clipping by the norm of all gradients, and Adam."""

    def loss(params: Any) -> Any:
        w1, b1, w2, b2 = params
        return ((jnp.tanh(x @ w1 + b1) @ w2 + b2 - y) ** 2).mean()

    value, gradients = jax.value_and_grad(loss)(params)
    norm = jnp.sqrt(sum((each * each).sum() for each in gradients))
    gradients = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / norm), gradients)
    means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
    squares = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, squares, gradients)
    params = jax.tree.map(lambda p, m, s: p - 1e-3 * m / (jnp.sqrt(jnp.abs(s)) + 1e-3), params, means, squares)
    return params, means, squares, value


def layer_norm_of_products(x: Any, w: Any, scale: Any) -> Any:
    made = x @ w
    centred = made - made.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale, made.astype(jnp.bfloat16)


def softmax_of_distances(x: Any, y: Any) -> Any:
    return jax.nn.softmax(-contractions.distances(x, y))


def products_and_their_sums(x: Any, w: Any, b: Any) -> Any:
    made = jnp.tanh(x @ w + b)
    return made, made.sum(0), (made**2).max()


def heads(x: Any, w: Any) -> Any:
    return (x @ w).reshape(-1, 5, w.shape[1] // 16, 16).swapaxes(1, 2)


def masked(x: Any, w: Any) -> Any:
    return jnp.where(jnp.tri(len(x), w.shape[1]) > 0, x @ w, 0)


def of_attention() -> Iterator[Contraction]:
    """Each variant, and its gradients with a cotangent of the result."""
    for name, each in {**VARIANTS, **PROJECTED}.items():
        forward, gradients = KERNELS.get(name, (1, 3))
        yield Contraction(name, each.fn, tuple(each.small), forward, tolerance=each.tolerance)
        yield Contraction(
            f"{name}_gradients", each.pulled, each.with_cotangent(each.small), gradients, tolerance=each.tolerance
        )


LAST_LAYERS: Mapping[str, tuple[Callable[..., Any], int]] = {  # and how many kernels its gradients are
    "last_layer_of_16_bits": (last_layer.of_16_bits, 5),
    "last_layer_with_integer_labels": (last_layer.with_integer_labels, 4),
    "last_layer_one_hot": (last_layer.one_hot, 5),
    "last_layer_tied": (last_layer.tied, 5),
    "last_layer_ignoring": (last_layer.ignoring, 5),
    "last_layer_smoothed": (last_layer.smoothed, 4),
    "last_layer_capped": (last_layer.capped, 4),
    "last_layer_next_tokens": (last_layer.next_tokens, 5),
}


def of_last_layer() -> Iterator[Contraction]:
    """Losses of an odd number of classes, and their gradients."""
    for name, (fn, gradients) in LAST_LAYERS.items():
        shapes = last_layer_of(fn, 8, 24, 101, "f32")
        yield Contraction(name, fn, shapes, 2)
        yield Contraction(f"{name}_gradients", fn, shapes, gradients, (0, 1))


def last_layer_of(fn: Callable[..., Any], rows: int, features: int, classes: int, dtype: str) -> tuple[str, str, str]:
    """Features, layer and labels, of four sequences of so many rows."""
    layer = f"{classes} {features}" if fn is last_layer.tied else f"{features} {classes}"
    many = f"4 {rows}" if fn is last_layer.next_tokens else f"{4 * rows}"
    return f"{dtype} {many} {features}", f"{dtype} {layer}", f"i32 {many}"


KERNELS: Mapping[str, tuple[int, int]] = {  # and those of gradients, where not 1 and 3
    "weights_by_themselves": (1, 2),
    "of_one_projection": (2, 7),
    "of_one_reshaped": (2, 8),
    "of_one_by_heads": (2, 7),
    "of_three_projections": (3, 8),
}
PERCEPTRON = (("f32 78 32", "f32 32", "f32 32 10", "f32 10"), "f32 40 78")

PROGRAMS: Sequence[Contraction] = (
    Contraction("linear", linear, ("f32 97 80", "f32 97 40", "f32 80"), 1),
    Contraction("linear_gradients", mean_square(linear), ("f32 97 80", "f32 97 40", "f32 80"), 3, (0, 1, 2)),
    Contraction("distances", contractions.distances, ("f32 97 80", "f32 97 40"), 1),
    Contraction(
        "distances_gradients", mean_square(contractions.distances), ("f32 97 80", "f32 97 40"), 4, (0, 1), 1e-4
    ),
    Contraction("perceptron", contractions.perceptron, PERCEPTRON, 2),
    Contraction("perceptron_gradients", contractions.perceptron, PERCEPTRON, 4, (0, 1)),
    Contraction("gaussian_product", contractions.gaussian_product, ("f32 100 3", "f32 90 3", "f32 90"), 1),
    Contraction("nearest", contractions.nearest, ("f32 100 3", "f32 90 3"), 1),
    Contraction("farthest_terms", farthest_terms, ("f32 97 40", "f32 97 35"), 1),
    Contraction("logsumexp_of_distances", logsumexp_of_distances, ("f32 100 3", "f32 90 3"), 1),
    Contraction("attention", attention, ("f32 2 3 40 16", "f32 2 3 50 16", "f32 2 3 50 16"), 1),
    Contraction("three_of_one", lambda x, a, b, c: (x @ a, x @ b, x @ c), ("f32 20 48", *["f32 48 32"] * 3), 1),
    Contraction("swiglu", swiglu, ("f32 20 48", "f32 48 64", "f32 48 64", "f32 64 48"), 1),
    Contraction("rms_norm", rms_norm, ("f32 20 48", "f32 48", "f32 48 64"), 1),
    Contraction("lora", lora, ("f32 20 48", "f32 48 64", "f32 48 4", "f32 4 64"), 2),
    Contraction("rotated", rotated, ("f32 20 48", "f32 48 64"), 2),
    Contraction("dequantised", dequantised, ("f32 20 48", "i8 48 64", "f32 64"), 1),
    Contraction("bf16", lambda x, w: jax.nn.relu(x @ w), ("bf16 20 48", "bf16 48 64"), 1, None, 1e-2),
    Contraction("f16", lambda x, w: jnp.sin(x @ w), ("f16 20 33", "f16 33 65"), 1, None, 2e-3),
    Contraction("eight_bits", eight_bits, ("i8 20 48", "i8 48 64"), 1, None, 0),
    Contraction("many_terms_of_eight_bits", eight_bits, ("i8 20 200", "i8 200 64"), 1, None, 0),
    Contraction("integers", jnp.matmul, ("i32 20 48", "i32 48 64"), 1, None, 0),
    Contraction("batches_of_small_ones", jnp.matmul, ("f32 70 8 8", "f32 70 8 8"), 1),
    Contraction("batches", jnp.matmul, ("f32 5 33 20", "f32 5 20 40"), 1),
    Contraction("matrix_and_vector", lambda w, x: jnp.tanh(w @ x), ("f32 130 90", "f32 90"), 1),
    Contraction("three_factors", lambda x: x @ x.T @ x, ("f32 40 30",), 1),
    Contraction("heads", heads, ("f32 20 48", "f32 48 64"), 1),
    Contraction("turned", lambda x, w: (x @ w).T + 1, ("f32 20 48", "f32 48 64"), 1),
    Contraction("masked", masked, ("f32 20 48", "f32 48 64"), 1),
    Contraction("joined", lambda x, y, w: jnp.concatenate([x, y], 1) @ w, ("f32 20 24", "f32 20 24", "f32 48 64"), 1),
    Contraction("rows_of_a_table", rows_of_a_table, ("f32 9 48", "i32 20", "f32 48 64"), 1),
    Contraction("ends_in_zeros", ends_in_zeros, ("f32 37 41", "f32 41 43"), 1),
    Contraction("least_products", least_products, ("f32 15 16 1",), 4, 0),
    Contraction("many_terms", lambda x, y: jnp.exp(x.T) @ y, ("f32 2100 16", "f32 2100 20"), 2, None, 1e-4),
    Contraction("many_terms_of_batches", many_terms_of_batches, ("bf16 2 2100 16", "bf16 3 2100 2 20"), 2, None, 1e-2),
    Contraction("losses", losses, ("f32 32 24", "f32 24 100", "i32 32"), 2),
    Contraction("nothing_summed", jnp.matmul, ("f32 20 0", "f32 0 30"), 1),
    Contraction("one_term", lambda x, w: x @ w + 1, ("f32 20 1", "f32 1 30"), 1),
    Contraction("layer_norm_of_products", layer_norm_of_products, ("f32 20 48", "f32 48 70", "f32 70"), 1),
    Contraction("softmax_of_distances", softmax_of_distances, ("f32 30 40", "f32 30 70"), 1),
    Contraction("softmax_of_products", lambda x, w: jax.nn.softmax(x @ w), ("bf16 20 48", "bf16 48 70"), 1, None, 1e-2),
    Contraction("row_sums_of_products", lambda x, w: jnp.tanh(x @ w).sum(1), ("f32 20 48", "f32 48 70"), 1),
    Contraction("column_maxima_of_products", lambda x, w: (x @ w).max(0), ("f32 20 48", "f32 48 70"), 1),
    Contraction("products_and_their_sums", products_and_their_sums, ("f32 1500 24", "f32 24 70", "f32 70"), 3),
    Contraction(
        "loss_of_a_long_layer", mean_square(linear), ("f32 24 1500", "f32 24 70", "f32 1500"), 4, (0, 1, 2)
    ),
    Contraction(
        "loss_of_many_distances", mean_square(contractions.distances), ("f32 7 1500", "f32 7 70"), 4, (0, 1), 1e-4
    ),
    Contraction("around_a_loop", around_a_loop, (("f32 12 16", "f32 16 16", "f32 16"), "f32 20 5 12", "f32 5 16"), 3),
    Contraction("causal_attention", causal_attention, ("f32 40 16", "f32 50 16", "f32 50 24"), 1),
    Contraction("attention_bf16", attention, ("bf16 2 2 24 32", "bf16 2 2 70 32", "bf16 2 2 70 32"), 1, None, 1e-2),
    Contraction("attention_gradients", mean_square(attention), ("f32 2 2 24 16",) * 3, 4, (0, 1, 2)),
    Contraction("layers", layers, ("f32 35 20", "f32 20 40", "f32 40 17", "f32 17 64"), 1),
    Contraction("layers_gradients", mean_square(layers), ("f32 200 20", "f32 20 40", "f32 40 17"), 4, (0, 1, 2)),
    Contraction("layers_too_wide", layers, ("f32 35 20", "f32 20 300", "f32 300 17"), 1),
    Contraction("layers_of_matrices", jax.vmap(layers), ("f32 3 35 20", "f32 3 20 40", "f32 3 40 17"), 1),
    Contraction("normed_rows", normed_rows, ("f32 50 80", "f32 80 70", "f32 70"), 1),
    Contraction("normed_rows_gradients", mean_square(normed_rows), ("f32 50 80", "f32 80 70", "f32 70"), 4, (0, 1, 2)),
    Contraction("cross_entropy", cross_entropy, ("f32 32 24", "f32 24 100", "i32 32"), 2),
    Contraction("per_example", per_example, ("f32 20 30", "f32 5 40 20"), 1),
    Contraction("distances_pullback", pullback_of_distances, ("f32 97 80", "f32 97 40", "f32 80 40"), 2),
    Contraction(
        "gaussian_gradients",
        mean_square(contractions.gaussian_product),
        ("f32 100 3", "f32 90 3", "f32 90"),
        5,
        (0, 1, 2),
        1e-4,
    ),
    Contraction("bodies", bodies, ("f32 60 3", "f32 60"), 1, None, 1e-4),
    Contraction("chamfer", chamfer, ("f32 60 3", "f32 50 3"), 1),
    Contraction("chamfer_gradients", chamfer, ("f32 60 3", "f32 50 3"), 2, (0, 1)),
    Contraction("sinkhorn", sinkhorn, ("f32 30 3", "f32 25 3"), 1),
    Contraction("queries_keys_values", queries_keys_values, ("f32 20 48", "f32 48 96", "f32 96"), 3),
    Contraction("bilinear", bilinear, ("f32 20 12", "f32 9 12 14", "f32 20 14"), 1),
    Contraction(
        "bilinear_gradients", mean_square(bilinear), ("f32 20 12", "f32 9 12 14", "f32 20 14"), 4, (0, 1, 2), 1e-4
    ),
    Contraction("scores", scores, ("f32 2 3 40 16", "f32 2 3 50 16"), 1),
    Contraction(
        "swiglu_gradients", mean_square(swiglu), ("f32 20 48", "f32 48 64", "f32 48 64", "f32 64 48"), 5, (0, 1, 2, 3)
    ),
    Contraction("rms_norm_gradients", mean_square(rms_norm), ("f32 20 48", "f32 48", "f32 48 64"), 4, (0, 1, 2)),
    Contraction("lora_gradients", mean_square(lora), ("f32 20 48", "f32 48 64", "f32 48 4", "f32 4 64"), 4, (2, 3)),
    Contraction("losses_gradients", losses, ("f32 32 24", "f32 24 100", "i32 32"), 5, (0, 1)),
    Contraction("gradients_of_small_ones", mean_square(jnp.matmul), ("f32 70 8 8", "f32 70 8 8"), 4, (0, 1)),
    Contraction("in_order", in_order, ("f32 40 24", "f32 24 30"), 3),
    Contraction("in_order_gradients", mean_square(in_order), ("f32 40 24", "f32 24 30"), 8, (0, 1)),
    Contraction("of_groups", of_groups, ("f32 25 16", "f32 6 16 24", "i32 6"), 2),
    Contraction("of_many_groups", of_groups, ("f32 70 16", "f32 65 16 24", "i32 65"), 3),
    Contraction("of_many_groups_gradients", mean_square(of_groups), ("f32 70 16", "f32 65 16 24", "i32 65"), 6, (0, 1)),
    Contraction("of_groups_gradients", mean_square(of_groups), ("f32 25 16", "f32 6 16 24", "i32 6"), 4, (0, 1)),
    Contraction("training_step", training_step, (*[PERCEPTRON[0]] * 3, "f32 40 78", "f32 40 10"), 9, None, 1e-4),
    *of_attention(),
    *of_last_layer(),
)  # fmt: skip
