"""Losses behind a last layer of many classes, and hidden layers of many rows: made in chunks of rows."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from examples import last_layer
from examples.last_layer import IGNORED, of_labels
from jaxpr2triton import policy
from jaxpr2triton.ir.jaxprs import equations
from jaxpr2triton.pipeline.compiled_program import Compiled
from jaxpr2triton.policy import COMMON
from tests.contraction import widened
from tests.policies import planned_with

ROWS, FEATURES, CLASSES = 24, 8, 70
Fn = Callable[..., Any]


def all_heads_at_once(h: jax.Array, w: jax.Array, labels: jax.Array) -> jax.Array:
    """Of values that are told from each other by their rows, and with a bias."""
    row = jax.lax.broadcasted_iota(jnp.int32, (h.shape[0], w.shape[1]), 0)
    logits = h @ w * (1 + row % 3) + jnp.arange(w.shape[1]) / 100
    return (jax.nn.logsumexp(logits, -1) - of_labels(logits, labels)).mean()


def hidden_layer(h: jax.Array, w: jax.Array, labels: jax.Array) -> jax.Array:
    return ((jax.nn.gelu(h @ w) @ w.T - labels[:, None]) ** 2).mean()


def numbered(h: jax.Array, w: jax.Array, labels: jax.Array) -> jax.Array:
    """Labels that are found by their places."""
    logits = h @ w
    return (jax.nn.logsumexp(logits, -1) - logits[jnp.arange(h.shape[0]), labels]).mean()


LOSSES: tuple[Fn, ...] = (
    last_layer.cross_entropy,
    last_layer.of_16_bits,
    last_layer.with_integer_labels,
    last_layer.one_hot,
    last_layer.tied,
    last_layer.ignoring,
    last_layer.smoothed,
    last_layer.capped,
    last_layer.next_tokens,
    all_heads_at_once,
    hidden_layer,
    numbered,
)


def arguments(fn: Fn, dtype: Any, rows: int = ROWS) -> tuple[jax.Array, ...]:
    rng = np.random.default_rng()
    h, w = rng.standard_normal((rows, FEATURES)), rng.standard_normal((FEATURES, CLASSES))
    labels = rng.integers(0, CLASSES, rows)
    if fn is last_layer.ignoring:
        labels[::3] = IGNORED
    if fn is last_layer.next_tokens:
        h, labels = h.reshape(4, -1, FEATURES), labels.reshape(4, -1)
    w = w.T if fn is last_layer.tied else w
    return jnp.asarray(h, dtype), jnp.asarray(w, dtype), jnp.asarray(labels, jnp.int32)


@contextlib.contextmanager
def in_chunks(stored: int) -> Iterator[None]:
    """Where no more bytes than these are to be stored, however long that takes."""
    with (
        mock.patch.object(policy, "COMMON", dataclasses.replace(COMMON, stored_between=stored)),
        planned_with(loops={"longer": 1e9}),
    ):
        yield


def leftovers(fn: Fn, *args: Any, **options: Any) -> list[str]:
    return [left.primitive for left in j2t.transpile(fn, *args, contractions="xla", **options).leftovers]


def agree(found: Any, expected: Any, digits: float) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        np.testing.assert_allclose(one, other, rtol=0, atol=digits * max(np.abs(other).max(), 1e-3))


def checked(fn: Fn, args: Sequence[Any], stored: int, digits: float) -> None:
    """The loss, its gradients in one program, and in two."""
    both = jax.value_and_grad(fn, (0, 1))
    expected = jax.jit(both)(*map(widened, args))
    with in_chunks(stored):
        assert "chunks" in leftovers(fn, *args) and "chunks" in leftovers(both, *args)
        agree(j2t.fuse(both, backend="interpret", contractions="xla")(*args), expected, digits)
        fused = j2t.fuse(fn, backend="interpret", contractions="xla")
        agree(jax.value_and_grad(fused, (0, 1))(*args), expected, digits)


@pytest.mark.parametrize("fn", LOSSES, ids=lambda fn: fn.__name__)
def test_values(fn: Fn) -> None:
    checked(fn, arguments(fn, jnp.float32), ROWS * CLASSES, 1e-5)


@pytest.mark.parametrize("fn", (last_layer.of_16_bits, last_layer.capped, hidden_layer), ids=lambda fn: fn.__name__)
def test_values_of_16_bits(fn: Fn) -> None:
    checked(fn, arguments(fn, jnp.bfloat16, 2 * ROWS), 2 * ROWS * CLASSES, 2e-2)


def test_values_of_rows_that_no_number_divides() -> None:
    """23 rows are 3 times 6, and 5 in a chunk of their own."""
    fn = last_layer.cross_entropy
    args = arguments(fn, jnp.float32, 23)
    checked(fn, args, 23 * CLASSES, 1e-5)
    with in_chunks(23 * CLASSES):
        made = j2t.transpile(jax.value_and_grad(fn, (0, 1)), *args, contractions="xla")
    lengths = [eqn.params["length"] for eqn in made.compiled.program.jaxpr.eqns if eqn.primitive.name == "chunks"]
    assert lengths == [3, 1]


def test_sums_of_16_bits_are_added_with_all_digits() -> None:
    """Of 2064 ones, 4 at a time: 8 bits of a sum would be 1024 for ever."""
    h, w = jnp.ones((2064, 1), jnp.bfloat16), jnp.zeros((1, 256), jnp.bfloat16)
    slopes = jax.grad(lambda h, w: jnp.sin(h @ w).astype(jnp.float32).sum(), 1)
    with in_chunks(4 * 256 * 2):
        made = j2t.transpile(slopes, h, w, contractions="xla")
    (chunks,) = (eqn for eqn in made.compiled.program.jaxpr.eqns if eqn.primitive.name == "chunks")
    assert chunks.params["length"] == 516
    normal = made.stages["normalize"]
    (found,) = jax.core.eval_jaxpr(normal.jaxpr, normal.consts, h, w)
    np.testing.assert_array_equal(np.asarray(found, np.float32), 2064)


def test_a_chunk_is_all_that_xla_stores() -> None:
    """Of 512 rows 64 at a time, of which XLA has three arrays: logits, exponentials and their gradient."""
    h, w, labels = jnp.ones((512, 32)), jnp.ones((32, 4096)), jnp.zeros(512, jnp.int32)
    with in_chunks(64 * 4096 * 4):
        made = j2t.transpile(jax.value_and_grad(last_layer.cross_entropy, (0, 1)), h, w, labels, contractions="xla")
    normal = made.stages["normalize"]
    run = jax.jit(lambda *args: jax.core.eval_jaxpr(normal.jaxpr, normal.consts, *args))
    taken = run.lower(h, w, labels).compile().memory_analysis().temp_size_in_bytes
    assert taken < 4 * 64 * 4096 * 4 < 512 * 4096 * 4


# ------------------------------------------------------------------------------------------------ at their full size
def shapes(dtype: Any, rows: int, features: int, classes: int) -> list[jax.ShapeDtypeStruct]:
    sizes = (rows, features), (features, classes), (rows,)
    return [jax.ShapeDtypeStruct(size, each) for size, each in zip(sizes, (dtype, dtype, jnp.int32))]


@pytest.mark.parametrize(
    "dtype, rows, features, classes, each",
    [
        (jnp.bfloat16, 4096, 768, 50_257, 2048),
        (jnp.float32, 4096, 768, 50_257, 1024),
        (jnp.float32, 4096, 1024, 32_000, 2048),
        (jnp.bfloat16, 8192, 1024, 65_535, 2048),
    ],
)
@pytest.mark.parametrize("contractions", ["auto", "triton"])
def test_nothing_of_all_rows_is_stored(
    dtype: Any, rows: int, features: int, classes: int, each: int, contractions: Any
) -> None:
    args = shapes(dtype, rows, features, classes)
    fn = jax.value_and_grad(last_layer.of_16_bits, (0, 1))
    made = j2t.transpile(fn, *args, for_target="sm_90", contractions=contractions)
    assert [left.primitive for left in made.leftovers] == ["chunks"]
    (chunk,) = made.compiled.steps_of.values()
    products = [eqn.primitive.name for eqn in chunk.left_to_xla]
    assert products == ["dot_general"] * (3 if contractions == "auto" else 0)
    assert contractions == "triton" or len(chunk.kernels) == 1  # all that is between the products
    assert sizes_of(made.compiled) < rows * classes
    assert sizes_of(chunk) == max(each * classes, features * classes)
    assert sizes_of(j2t.transpile(last_layer.of_16_bits, *args, for_target="sm_90").compiled) < rows * classes


def sizes_of(compiled: Compiled) -> int:
    """Elements of the largest array that kernels, XLA and chunks hand to each other."""
    own = [var.aval.size for eqn in compiled.program.jaxpr.eqns for var in eqn.outvars]
    return max([*own, *map(sizes_of, compiled.steps_of.values())])


@pytest.mark.parametrize("is_whole", [True, False], ids=["value_and_grad is fused", "the loss is"])
def test_xla_is_given_no_array_of_all_rows(is_whole: bool) -> None:
    """Lowered for CUDA: loops with products and kernels in them, and a sum of 32 bits."""
    loss, args = last_layer.cross_entropy, shapes(jnp.bfloat16, 4096, 768, 50_257)
    fused = j2t.fuse(jax.value_and_grad(loss, (0, 1)), backend="triton")
    function = fused if is_whole else jax.value_and_grad(j2t.fuse(loss, backend="triton"), (0, 1))
    text = jax.jit(function).trace(*args).lower(lowering_platforms=("cuda",)).as_text()
    loops = 1 if is_whole else 2
    assert (text.count("stablehlo.while"), text.count("stablehlo.dot_general")) == (loops, 2 + loops)
    types = set(re.findall(r"tensor<[0-9]+x50257x\w+>", text))
    assert types == {"tensor<2048x50257xbf16>", "tensor<768x50257xbf16>", "tensor<768x50257xf32>"}


@pytest.mark.parametrize("fn", [fn for fn in LOSSES if fn not in (hidden_layer, last_layer.next_tokens)])
def test_gradients_make_again_what_is_too_large_to_be_kept(fn: Fn) -> None:
    h, w, labels = shapes(jnp.bfloat16, 4096, 768, 50_257)
    w = jax.ShapeDtypeStruct(w.shape[::-1], w.dtype) if fn is last_layer.tied else w
    pair = j2t.transpile(fn, h, w, labels, grad=(0, 1), for_target="sm_90")
    assert all(value.nbytes <= 4 * 4096 for value in pair.residuals if value.source == "new")
    for half in (pair.forward, pair.backward):
        assert [left.primitive for left in half.leftovers] == ["chunks"]
        assert sizes_of(half.compiled) <= 2048 * 50_257


def test_a_hidden_layer_is_kept() -> None:
    """Making it again would take a fourth more of all products."""
    args = shapes(jnp.bfloat16, 1 << 16, 1024, 4096)
    pair = j2t.transpile(hidden_layer, *args, grad=(0, 1), for_target="sm_90")
    assert max(value.nbytes for value in pair.residuals if value.source == "new") == 2 * 4096 << 16


def told(fn: Fn, *args: Any, **options: Any) -> str:
    (left,) = j2t.transpile(fn, *args, for_target="sm_90", **options).leftovers
    return f"{left.why}; {left.takes}"


def test_the_reason_is_told() -> None:
    args = shapes(jnp.bfloat16, 4096, 768, 50_257)
    assert told(jax.value_and_grad(last_layer.cross_entropy, (0, 1)), *args) == (
        "412 MB would be stored between its products, so 2,048 of 4,096 rows are made at a time, which takes about"
        " 130 µs longer; exact_order=True makes all rows at once"
    )


def is_cut(fn: Fn, *args: Any, **options: Any) -> bool:
    return any(
        eqn.primitive.name == "chunks"
        for eqn in equations(j2t.transpile(fn, *args, for_target="sm_90", **options).stages["normalize"].jaxpr)
    )


def squared(*args: Any) -> jax.Array:
    return last_layer.cross_entropy(*args) ** 2


def with_logits(h: jax.Array, w: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    logits = h @ w
    return last_layer.cross_entropy(h, w, labels), logits


def test_what_is_not_cut() -> None:
    args = shapes(jnp.bfloat16, 4096, 768, 50_257)
    assert is_cut(last_layer.cross_entropy, *args)
    assert not is_cut(last_layer.cross_entropy, *args, exact_order=True)
    assert not is_cut(last_layer.cross_entropy, *shapes(jnp.bfloat16, 2048, 768, 50_257))
    assert not is_cut(with_logits, *args)  # which are to be stored anyway
    assert not is_cut(jax.value_and_grad(squared, (0, 1)), *args)  # gradients wait for the sum of all rows


def beside_others(h: jax.Array, w: jax.Array, labels: jax.Array) -> tuple[jax.Array, ...]:
    return last_layer.cross_entropy(h, w, labels), 2 * labels, jnp.log1p(h)


def test_what_is_beside_it_stays_there() -> None:
    made = j2t.transpile(beside_others, *shapes(jnp.bfloat16, 4096, 768, 50_257), for_target="sm_90")
    (chunk,) = made.compiled.steps_of.values()
    assert [left.primitive for left in made.leftovers] == ["chunks"] and len(chunk.kernels) == 1


def printing(h: jax.Array, w: jax.Array, labels: jax.Array) -> jax.Array:
    """What is printed first is made of some logits, and what is printed then is needed for others."""
    logits = h @ w
    jax.debug.print("{}", logits.sum(), ordered=True)
    scale = jax.experimental.io_callback(lambda: np.float32(2), jax.ShapeDtypeStruct((), jnp.float32), ordered=True)
    return jax.nn.logsumexp(logits * scale, -1).mean()


def test_effects_keep_their_order() -> None:
    assert not is_cut(printing, *shapes(jnp.bfloat16, 4096, 768, 50_257))


def total(h: jax.Array, w: jax.Array, labels: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(h @ w, -1)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.swapaxes(1, 2), -1) @ v


def test_what_kernels_walk_along_is_not_cut() -> None:
    args = shapes(jnp.bfloat16, 4096, 128, 50_257)
    assert not is_cut(total, *args) and is_cut(total, *args, contractions="xla")
    q = jax.ShapeDtypeStruct((16, 4096, 64), jnp.bfloat16)
    assert not is_cut(attention, q, q, q) and is_cut(attention, q, q, q, contractions="xla")


def gradient(q: jax.Array, w: jax.Array, out: jax.Array, g: jax.Array) -> Any:
    """Of a layer of attention, whose queries, keys and values are parts of one product."""

    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        return attention(*jnp.split(x @ w, 3, -1)) @ out

    return jax.vjp(layer, q, w)[1](g)


def perceptron(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.gelu(x @ w) @ v


def thirds(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    a, b, c = jnp.split(x @ w, 3, -1)
    return (jax.nn.silu(a) * b + c) @ v


def normed(x: jax.Array, w: jax.Array) -> jax.Array:
    """Columns, whose means and variances are those of all rows."""
    made = (x @ w).astype(jnp.float32)
    return jnp.tanh((made - made.mean(0)) / jnp.sqrt(made.var(0) + 1e-5)).mean()


def halves(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (gradient, (halves(4, 4096, 4096), halves(4096, 12288), halves(4096, 4096), halves(4, 4096, 4096))),
        (perceptron, (halves(65536, 4096), halves(4096, 4096), halves(4096, 4096))),
        (thirds, (halves(16384, 4096), halves(4096, 12288), halves(4096, 4096))),
        (lambda a, x, w: a @ (x @ w), (halves(16384, 16384), halves(16384, 4096), halves(4096, 16384))),
        (jax.value_and_grad(normed, (0, 1)), (halves(131072, 1024), halves(1024, 2048))),
        (jax.value_and_grad(last_layer.of_16_bits, (0, 1)), shapes(jnp.bfloat16, 4096, 4096, 128_256)),
    ],
    ids=["attention", "perceptron", "thirds", "two products", "normed columns", "few rows of many features"],
)
def test_sums_or_results_as_large_as_what_is_saved_are_not_worth_it(fn: Fn, args: Sequence[Any]) -> None:
    assert not is_cut(fn, *args)


@pytest.mark.parametrize("batch", [1, 4])
def test_hidden_layers_and_what_is_put_out_are_kept(batch: int) -> None:
    """They are there anyway, or read by products: to make them again would take a product more."""

    def split(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
        return thirds(x.reshape(-1, x.shape[-1]), w, v)

    def with_logits(h: jax.Array, w: jax.Array, labels: jax.Array) -> Any:
        logits = h @ w
        return (jax.nn.logsumexp(logits, -1) - of_labels(logits, labels)).mean(), logits

    x, w, v = halves(batch, 16384 // batch, 4096), halves(4096, 12288), halves(4096, 4096)
    for fn, args in ((split, (x, w, v)), (with_logits, shapes(jnp.bfloat16, 4096, 768, 50_257))):
        made = j2t.transpile(fn, *args, grad=(0, 1), for_target="sm_90")
        eqns = [*equations(made.backward.compiled.program.jaxpr)]
        assert sum(eqn.primitive.name == "dot_general" for eqn in eqns) <= 4 - (fn is with_logits) * 2


def test_places_of_16_bits_are_rounded_once() -> None:
    def numbered_rows(h: jax.Array, w: jax.Array) -> jax.Array:
        row = jax.lax.broadcasted_iota(jnp.bfloat16, (h.shape[0], w.shape[1]), 0)
        return ((h @ w) + row.astype(jnp.float32)).mean(1)

    h, w = jnp.zeros((2056, 8)), jnp.zeros((8, 140))
    with in_chunks(2056 * 140):
        assert "chunks" in leftovers(numbered_rows, h, w)
        ours = j2t.fuse(numbered_rows, backend="interpret", contractions="xla")(h, w)
    np.testing.assert_allclose(ours, jax.jit(numbered_rows)(h, w), rtol=1e-6)


def test_roles_are_those_of_all_rows() -> None:
    args = shapes(jnp.bfloat16, 4096, 768, 50_257)
    made = j2t.transpile(last_layer.cross_entropy, *args, for_target="sm_90", roles={"row": "grid"})
    assert "chunks" not in [left.primitive for left in made.leftovers]


def test_what_is_narrow_is_not_cut() -> None:
    """Kernels have whole rows of it, and multiply them with the next matrix."""
    x, w = jax.ShapeDtypeStruct((1 << 22, 64), jnp.bfloat16), jax.ShapeDtypeStruct((64, 64), jnp.bfloat16)
    assert not is_cut(lambda x, w: jnp.tanh(jnp.tanh(x @ w) @ w), x, w)
