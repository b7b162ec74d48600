"""Attention in plain JAX: one kernel, without any array of all pairs; its gradients; and what is left out."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from examples import attention
from examples.attention import scores, weighed
from jaxpr2triton.hardware import target_named
from jaxpr2triton.launch.compile.compile import asm, compile_kernel, resources
from jaxpr2triton.launch.compile.nvidia_tools import machine_code
from jaxpr2triton.normalize.passes import normalize
from jaxpr2triton.plan.library import estimates_of
from jaxpr2triton.policy import DEFAULT_POLICY
from tests.attention_programs import PROGRAMS, PROJECTED, VARIANTS, masked, of_rotated
from tests.contraction import sized

RNG = np.random.default_rng(11)
TIMES = 2048
EVERY = pytest.mark.parametrize("name", PROGRAMS)


def arrays(dtype: Any = jnp.float32, shape: tuple[int, ...] = (1, 2, 150, 16)) -> list[Any]:
    return [jnp.asarray(RNG.normal(size=shape), dtype) for _ in range(3)]


def sizes(dtype: Any = jnp.bfloat16, features: int = 64) -> list[Any]:
    return [jax.ShapeDtypeStruct((4, 16, TIMES, features), dtype)] * 3


def with_gradients(program: Callable[..., Any]) -> Callable[..., Any]:
    def value_and_pullback(q: Any, k: Any, v: Any) -> Any:
        out, pull = jax.vjp(program, q, k, v)
        return out, pull(jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size)).reshape(x.shape).astype(x.dtype), out))

    return value_and_pullback


def assert_close(found: Any, expected: Any, tolerance: float) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        one, other = np.asarray(one, np.float32), np.asarray(other, np.float32)
        largest = np.nanmax(np.abs(other), initial=1.0)
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * largest)


def assert_values_and_gradients(name: str, args: list[Any]) -> None:
    """In one program, and in one for each."""
    program = with_gradients(PROGRAMS[name])
    with jax.default_matmul_precision("highest"):
        expected = jax.jit(program)(*args)
        found = j2t.fuse(program, backend="interpret", contractions="triton", strict=True)(*args)
        alone = with_gradients(j2t.fuse(PROGRAMS[name], backend="interpret", contractions="triton"))(*args)
    assert_close(found, expected, 1e-5)
    assert_close(alone, expected, 1e-5)


@EVERY
def test_values_and_gradients(name: str) -> None:
    assert_values_and_gradients(name, arrays())


LONG = "causal", "causal, hidden by a number", "window", "later ones", "rows without keys", "masked softmax", "lengths"


@pytest.mark.parametrize("name", LONG)
def test_what_is_hidden_is_left_out_of_gradients(name: str) -> None:
    """Also where no key is seen at all: what such rows give is not left out."""
    assert_values_and_gradients(name, arrays(shape=(1, 2, 400, 16)))


@pytest.mark.parametrize("fill", [-jnp.inf, -1e38])
def test_rows_that_are_no_numbers(fill: float) -> None:
    """A query that is no number, and queries without keys: gradients are numbers where JAX's are."""

    def program(q: Any, k: Any, v: Any) -> Any:
        i, j = jnp.arange(q.shape[2])[:, None], jnp.arange(k.shape[2])
        return weighed(jnp.where(i - 70 >= j, scores(q, k), fill), v)

    args = arrays(shape=(1, 2, 400, 16))
    args[0] = args[0].at[0, 1, 250, 3].set(jnp.nan)
    with jax.default_matmul_precision("highest"):
        expected = jax.jit(with_gradients(program))(*args)
        found = j2t.fuse(with_gradients(program), backend="interpret", contractions="triton", strict=True)(*args)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (jnp.isnan(one) == jnp.isnan(other)).all()
    assert_close(found, expected, 1e-5)


@pytest.mark.parametrize("low", [-jnp.inf, float(np.finfo(np.float32).min), -1e9])
def test_scores_that_data_hides(low: float) -> None:
    """A mask is added that is read, and hides all keys of a row: numbers near the largest are not multiplied."""

    def program(q: Any, k: Any, bias: Any) -> Any:
        scores = jnp.dot(q, k.T, preferred_element_type=jnp.float32) / 4 + bias
        return jax.nn.softmax(scores).astype(q.dtype) @ k, jax.nn.logsumexp(scores, -1)

    q, k = (jnp.asarray(RNG.normal(size=(400, 16)), jnp.bfloat16) for _ in range(2))
    bias = jnp.where(jnp.arange(400) > jnp.arange(400)[:, None], low, 0).at[5].set(low).astype(jnp.float32)
    cotangents = jnp.ones((400, 16), jnp.bfloat16), jnp.ones(400)

    def pulled(q: Any, k: Any, bias: Any) -> Any:
        out, pull = jax.vjp(lambda q, k: program(q, k, bias), q, k)
        return out, pull(cotangents)

    expected = jax.jit(pulled)(q, k, bias)
    found = j2t.fuse(pulled, backend="interpret", contractions="triton")(q, k, bias)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        one, other = np.asarray(one, np.float32), np.asarray(other, np.float32)
        np.testing.assert_array_equal(np.isfinite(one), np.isfinite(other))
        np.testing.assert_allclose(one, other, rtol=0.03, atol=0.06)


@pytest.mark.parametrize("low", [-1e6, -1e30])
def test_rows_without_keys_on_the_machine(low: float) -> None:
    """All elements are one large number, which is not multiplied before the largest of them is subtracted."""

    def program(q: Any, k: Any, v: Any, mask: Any) -> Any:
        scores = jnp.where(mask, jnp.dot(q, k.T, preferred_element_type=jnp.float32) / 4, low)
        return jax.nn.softmax(scores).astype(q.dtype) @ v

    q, k, v = (jnp.asarray(RNG.normal(size=(rows, 32)), jnp.bfloat16) for rows in (64, 256, 256))
    mask = jnp.asarray(RNG.random((64, 256)) < 0.5).at[3].set(False)

    def pulled(q: Any, k: Any, v: Any) -> Any:
        out, pull = jax.vjp(lambda q, k, v: program(q, k, v, mask), q, k, v)
        return out, pull(out)

    found = j2t.fuse(pulled, backend="machine", contractions="triton", strict=True)(q, k, v)
    assert_close(found, jax.jit(pulled)(q, k, v), 0.02)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_large_scores_of_16_bits(dtype: Any) -> None:
    """What is subtracted from them is one of them, in all kernels: none is above it, by whatever its rounding left."""
    args = [scale * each for scale, each in zip((4, 4, 1), arrays(dtype, (200, 64)))]

    def program(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.T) @ v

    expected = jax.jit(with_gradients(program))(*args)
    found = j2t.fuse(with_gradients(program), backend="interpret", contractions="triton", strict=True)(*args)
    assert_close(found, expected, 0.1 if dtype == jnp.bfloat16 else 0.02)


ROUGH = "plain", "causal", "causal, hidden by a number", "rows without keys", "library, causal"


@pytest.mark.parametrize("name", ROUGH)
def test_what_is_rough_is_as_exact_as_its_factors(name: str) -> None:
    """bf16 is multiplied: exponentials are powers of two then, and what hides nothing has a loop of its own."""
    args, program = arrays(jnp.bfloat16), with_gradients(PROGRAMS[name])
    expected = jax.jit(program)(*(x.astype(jnp.float32) for x in args))
    assert_close(j2t.fuse(program, backend="interpret", contractions="triton")(*args), expected, 3e-2)


@pytest.mark.parametrize("name", ["causal", "lengths", "library, causal"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_compiled(name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_TARGET", "sm_90")
    args = arrays(dtype, (1, 2, 140, 16))
    expected = jax.jit(PROGRAMS[name])(*(x.astype(jnp.float32) for x in args))
    found = j2t.fuse(PROGRAMS[name], backend="machine", contractions="triton", strict=True)(*args)
    assert_close(found, expected, 3e-2 if dtype == jnp.bfloat16 else 1e-2)


def test_all_limits_tell_whether_a_row_has_keys() -> None:
    """That the last keys are hidden spares few steps, but the last queries have no others: all keys are theirs."""

    def program(q: Any, k: Any, v: Any) -> Any:
        i, j = jnp.arange(512)[:, None], jnp.arange(512)
        shown = (j >= i - 5) & (j < 500)
        return jax.nn.softmax(jnp.where(shown, q @ k.swapaxes(-1, -2), -1e38)) @ v

    args = arrays(shape=(1, 2, 512, 16))
    with jax.default_matmul_precision("highest"):
        expected = jax.jit(program)(*args)
        found = j2t.fuse(program, backend="interpret", contractions="triton", strict=True)(*args)
    assert_close(found, expected, 1e-5)


def all_pairs(made: Any) -> list[str]:
    return [b.name for kernel in made.kernels for b in kernel.buffers if math.prod(b.shape) >= 64 * TIMES**2]


@EVERY
def test_one_kernel_and_nothing_of_all_pairs(name: str) -> None:
    """As long as people have them; whoever multiplies is chosen by what it takes."""
    made = j2t.transpile(PROGRAMS[name], *sizes(), for_target="sm_90")
    assert len(made.kernels) == 1 and not made.leftovers and not all_pairs(made)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "library, grouped"])
def test_few_kernels_for_gradients_and_nothing_of_all_pairs(name: str) -> None:
    """The first one reads q, k, v and writes o; the others read those and a cotangent, and write d_q or d_k, d_v."""
    made = j2t.transpile(with_gradients(PROGRAMS[name]), *sizes(), for_target="sm_90", contractions="triton")
    assert len(made.kernels) <= 3 and not made.leftovers and not all_pairs(made)
    least = (4 + 5 + 6) * 4 * 16 * TIMES * 64 * 2
    assert sum(kernel.bytes_read + kernel.bytes_written for kernel in made.kernels) <= 1.3 * least


def moved(made: Any) -> int:
    return sum(kernel.bytes_read + kernel.bytes_written for kernel in made.kernels)


def nbytes(arrays: Any) -> int:
    return sum(each.size * each.dtype.itemsize for each in jax.tree.leaves(arrays))


def written_of_all_pairs(made: Any, times: int) -> list[str]:
    return [b.name for kernel in made.kernels for b in kernel.outputs if math.prod(b.shape) >= 16 * times**2]


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_are_one_kernel_and_three_for_gradients(name: str) -> None:
    """Each kernel reads what it is given once; of each row one number has to be known by all three."""
    variant = VARIANTS[name]
    args, given = [*map(sized, variant.full)], [*map(sized, variant.full[: variant.operands])]
    made = j2t.transpile(variant.fn, *args, for_target="sm_90")
    outs = jax.eval_shape(variant.fn, *args)
    assert len(made.kernels) == 1 and not made.leftovers
    assert moved(made) <= 1.05 * nbytes((args, outs))

    made = j2t.transpile(variant.pulled, *args, outs, for_target="sm_90")
    assert len(made.kernels) <= 3 and not made.leftovers and not written_of_all_pairs(made, TIMES)
    rows = jax.tree.leaves(outs)[0].size // 64
    assert moved(made) <= 1.3 * (nbytes((3 * [args, outs], given)) + 3 * 4 * rows)


@pytest.mark.parametrize("name", PROJECTED)
def test_queries_keys_and_values_of_projections(name: str) -> None:
    """Beside the products that a library makes: one kernel, three with gradients, and what puts those together."""
    variant = PROJECTED[name]
    args = [*map(sized, variant.full)]
    made = j2t.transpile(variant.fn, *args, for_target="sm_90")
    assert len(made.kernels) == 1 and {left.primitive for left in made.leftovers} == {"dot_general"}
    both = j2t.transpile(variant.pulled, *args, jax.eval_shape(variant.fn, *args), for_target="sm_90")
    assert len(both.kernels) == 4 and {left.primitive for left in both.leftovers} == {"dot_general"}
    one = name != "of_three_projections"
    assert ("matrix products of other rows are put together" in " ".join(both.explain().split())) == one
    assert not written_of_all_pairs(both, TIMES)


def test_queries_and_keys_that_are_rotated() -> None:
    """What gradients multiply is put together first, and each program has blocks of it, not a row."""
    args = [*map(sized, VARIANTS["heads_in_the_middle"].full)]
    assert len(j2t.transpile(of_rotated, *args, for_target="sm_90").kernels) == 1
    made = j2t.transpile(with_gradients(of_rotated), *args, for_target="sm_90")
    assert len(made.kernels) <= 8 and not made.leftovers and not written_of_all_pairs(made, TIMES)
    assert "parts are put together before they are multiplied by several kernels" in " ".join(made.explain().split())
    assert max(math.prod(kernel.grid) for kernel in made.kernels if "tl.dot" in kernel.source) <= 64 * TIMES // 32
    assert sum("tl.dot" in kernel.source for kernel in made.kernels) <= 4

    few = arrays(shape=(1, 200, 2, 16))
    with jax.default_matmul_precision("highest"):
        expected = jax.jit(with_gradients(of_rotated))(*few)
        found = j2t.fuse(with_gradients(of_rotated), backend="interpret", contractions="triton", strict=True)(*few)
    assert_close(found, expected, 1e-5)


FILLS = (-1e4, -65504.0, -1e9, -1e30, -0.7 * float(np.finfo(np.float32).max), float(np.finfo(np.float32).min), -jnp.inf)


@pytest.mark.parametrize("fill", FILLS)
def test_numbers_that_hide(fill: float) -> None:
    """All that is in use; of masks that are arrays."""
    mask = jax.ShapeDtypeStruct((4, 1, TIMES, TIMES), jnp.bool)
    made = j2t.transpile(masked(fill), *sizes(jnp.float32), mask, for_target="sm_90")
    assert len(made.kernels) == 1 and not made.leftovers
    args = arrays(shape=(1, 2, 70, 16))
    shown = jnp.asarray(RNG.random((70, 70)) < 0.6).at[:, 0].set(True)
    with jax.default_matmul_precision("highest"):
        expected = jax.jit(with_gradients(lambda *args: masked(fill)(*args, shown)))(*args)
        program = with_gradients(lambda *args: masked(fill)(*args, shown))
        found = j2t.fuse(program, backend="interpret", contractions="triton", strict=True)(*args)
    assert_close(found, expected, 1e-5)


@pytest.mark.parametrize("features", [16, 32, 80, 96, 128])
def test_gradients_of_few_and_many_features(features: int) -> None:
    made = j2t.transpile(with_gradients(PROGRAMS["causal"]), *sizes(features=features), for_target="sm_90")
    assert len(made.kernels) == 3 and not made.leftovers and not all_pairs(made)


@pytest.mark.parametrize("times", [100, 500, 1000, 8192, 100_000])
def test_of_all_lengths(times: int) -> None:
    shape = jax.ShapeDtypeStruct((1, 16, times, 64), jnp.bfloat16)
    made = j2t.transpile(PROGRAMS["plain"], *[shape] * 3, for_target="sm_90")
    assert len(made.kernels) == 1 and not made.leftovers
    assert moved(made) <= 1.05 * nbytes([shape] * 4)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_heads_that_look_at_the_same_keys(heads: int, causal: bool) -> None:
    """Gradients of keys and values are sums over those heads and over queries: kernels walk along both."""

    def program(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal)

    shapes = [(4, TIMES, 16, 64), (4, TIMES, heads, 64), (4, TIMES, heads, 64)]
    many = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes)
    made = j2t.transpile(with_gradients(program), *many, for_target="sm_90", contractions="triton")
    assert len(made.kernels) <= 3 and not made.leftovers and not all_pairs(made)

    shapes = [(1, 150, 4, 16), (1, 150, heads // 2 + 1, 16), (1, 150, heads // 2 + 1, 16)]
    args = [jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in shapes] if heads == 1 else []
    if args:
        with jax.default_matmul_precision("highest"):
            expected = jax.jit(with_gradients(program))(*args)
            found = j2t.fuse(with_gradients(program), backend="interpret", contractions="triton", strict=True)(*args)
        assert_close(found, expected, 1e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_gradients_of_what_is_made_of_the_result(dtype: Any) -> None:
    """The result is put aside for the kernel that multiplies it again, and not the scores for one of its features."""

    def loss(q: Any, k: Any, v: Any) -> Any:
        return jnp.sum((jax.nn.softmax(q @ k.T / 8) @ v).astype(jnp.float32) ** 2)

    args = [jax.ShapeDtypeStruct((32768, 64), dtype)] * 3
    made = j2t.transpile(jax.grad(loss, (0, 1, 2)), *args, for_target="sm_90")
    assert len(made.kernels) == 3 and not made.leftovers
    assert sum(kernel.bytes_read + kernel.bytes_written for kernel in made.kernels) < 2e8


@pytest.mark.parametrize("name", ["plain", "causal", "library, causal"])
def test_residuals_are_no_pairs(name: str) -> None:
    made = j2t.transpile(PROGRAMS[name], *sizes(), for_target="sm_90", grad=(0, 1, 2))
    assert not all_pairs(made.forward) and not all_pairs(made.backward)
    assert len(made.forward.kernels) == 1 and len(made.backward.kernels) <= 3


@pytest.mark.parametrize("missing", [("flax", "equinox"), ("equinox",), ()])
def test_the_examples(missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is one kernel, and three with its gradients; a library that is missing is named."""
    found = importlib.util.find_spec
    for library in {"flax", "equinox"} - {*missing}:
        pytest.importorskip(library)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else found(name))
    lines = {name.strip(): text for name, text in (line.split("  ", 1) for line in map(padded, attention.lines()))}
    for library in missing:
        assert f"{library} is not installed: pip install {library}" in lines
    made = {name: text.strip() for name, text in lines.items() if "not installed" not in name}
    beside = {"of_one_projection": "1 kernel, 4 with gradients", "equinox: attention": "2 kernels, 5 with gradients"}
    assert len(made) == 9 + 2 * ("flax" not in missing) + ("equinox" not in missing)
    assert all(text == beside.get(name, "1 kernel, 3 with gradients") for name, text in made.items())


def padded(line: str) -> str:
    return f"{line}  "


def loops_of(kernel: Any) -> list[list[str]]:
    """The operations of each loop of a kernel for an H100."""
    target = target_named("sm_90")
    used = resources(compile_kernel(kernel, target))
    assert not used.spill_stores and not used.spill_loads
    code, _ = machine_code(asm(kernel, target, "ptx"), 90)
    lines = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\d+ )?([A-Z0-9_.]+)([^;]*);", code)
    found = []
    for place, name, rest in lines:
        back = re.search(r"0x([0-9a-f]+)", rest) if name.startswith("BRA") else None
        if back and int(back[1], 16) < int(place, 16):
            found.append([n for at, n, _ in lines if int(back[1], 16) <= int(at, 16) <= int(place, 16)])
    return [loop for loop in found if len(loop) > 50]


@pytest.mark.parametrize(("features", "most"), [(64, 320), (128, 380)])
def test_instructions_of_a_step(features: int, most: int) -> None:
    (kernel,) = j2t.transpile(PROGRAMS["library"], *sizes(features=features), for_target="sm_90").kernels
    (loop,) = loops_of(kernel)
    assert len(loop) <= most
    assert any(name.startswith("HGMMA") for name in loop) and any(name.startswith("LDGSTS") for name in loop)


def test_instructions_of_a_step_of_gradients() -> None:
    """A row is one number to them, the logarithm of its sum of exponentials; no product is rounded on its way."""

    def program(q: Any, k: Any, v: Any, g: Any) -> Any:
        out, pull = jax.vjp(PROGRAMS["library"], q, k, v)
        return out, pull(g)

    cotangent = jax.ShapeDtypeStruct((4, TIMES, 16, 64), jnp.bfloat16)
    made = j2t.transpile(program, *sizes(), cotangent, for_target="sm_90").kernels
    most = {2: 350, 1: 290}  # d_k with d_v, or d_q (Triton 3.6: 313 and 229)
    for kernel in made[1:]:
        assert all(kernel.source.count(f"tl.load({each.name}_ptr") == 1 for each in kernel.inputs)
        assert not re.search(r"dot\w*\.to\(tl\.bfloat16\)\.to\(tl\.float32\) -", kernel.source)
        (loop,) = loops_of(kernel)
        assert len(loop) <= most[len(kernel.outputs)]
        assert any(name.startswith("HGMMA") for name in loop) and any(name.startswith("LDGSTS") for name in loop)


def test_steps_that_hide_nothing_do_not_ask() -> None:
    (kernel,) = j2t.transpile(PROGRAMS["library, causal"], *sizes(), for_target="sm_90").kernels
    whole, last = loops_of(kernel)
    assert len(whole) <= 320 < len(last)
    assert "for k_start in range(0, k_edge, 64):" in kernel.source
    assert "for k_start in range(k_edge, k_last, 64):" in kernel.source


def test_what_hides_nothing_is_known_of_all_rows() -> None:
    """Of a window steps at both ends ask; of scores that data hides as well all do, and none is left out."""
    (window,) = j2t.transpile(PROGRAMS["window"], *sizes(), for_target="sm_90").kernels
    assert window.source.count("for k_start in range(") == 3 and "range(k_whole, k_edge, 64)" in window.source

    def by_data(q: Any, k: Any, v: Any) -> Any:
        i, j = jnp.arange(q.shape[2])[:, None], jnp.arange(k.shape[2])
        scores = jnp.where((i >= j) & (v[0, 0, :, 0] > 0), jnp.einsum("bhqd,bhkd->bhqk", q, k), -1e38)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)

    (kernel,) = j2t.transpile(by_data, *sizes(jnp.float32), for_target="sm_90").kernels
    assert "for k_start in range(0, 2048, 64):" in kernel.source


def test_the_longest_rows_come_first() -> None:
    """Of keys the first ones are seen by most queries; of queries the last ones see most keys."""
    first, *others = j2t.transpile(with_gradients(PROGRAMS["library, causal"]), *sizes(), for_target="sm_90").kernels
    assert "m = (15 - tl.program_id(0)) * 128" in first.source
    of_queries, of_keys = "m = (31 - tl.program_id(0)) * 64", "m = tl.program_id(0) * 64"
    assert all((of_keys if len(each.outputs) == 2 else of_queries) in each.source for each in others)


@pytest.mark.parametrize("features", [160, 256])
def test_many_features(features: int) -> None:
    (kernel,) = j2t.transpile(PROGRAMS["library"], *sizes(features=features), for_target="sm_90").kernels
    assert loops_of(kernel)


@pytest.mark.parametrize("features", [16, 64])
def test_short_ones_are_one_kernel_as_well(features: int) -> None:
    """Whole rows of all pairs fit into a program; whoever multiplies is chosen by what it takes."""
    few = [jax.ShapeDtypeStruct((4, 16, 100, features), jnp.bfloat16)] * 3
    made = j2t.transpile(PROGRAMS["library"], *few, for_target="sm_90")
    assert len(made.kernels) == 1 and not made.leftovers


def normalizers(q: Any, k: Any) -> Any:
    return jax.nn.logsumexp(q @ k.T, -1)


def most_likely(x: Any, w: Any) -> Any:
    return jnp.argmax(x @ w.T, -1)


def clusters(x: Any, c: Any) -> Any:
    """To which of them each point is next: a step of k-means."""
    return jnp.argmin((x**2).sum(1)[:, None] + (c**2).sum(1) - 2 * x @ c.T, -1)


@pytest.mark.parametrize(("program", "kernels"), [(normalizers, 1), (most_likely, 1), (clusters, 3)])
def test_what_is_reduced_of_products(program: Callable[..., Any], kernels: int) -> None:
    """Nothing of all pairs is written; sums of squares are made before, as each program would make them for itself."""
    many = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((100_000, 64), (1024, 64)))
    made = j2t.transpile(program, *many, for_target="sm_90")
    assert len(made.kernels) == kernels and not made.leftovers
    assert all(math.prod(b.shape) < 100_000 * 1024 for kernel in made.kernels for b in kernel.buffers)
    args = [jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in ((300, 16), (200, 16))]
    with jax.default_matmul_precision("highest"):
        expected = jax.jit(program)(*args)
        found = j2t.fuse(program, backend="interpret", contractions="triton", strict=True)(*args)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_few_rows_do_not_walk_alone() -> None:
    """One program of few rows would go through all keys, while the others of a device had nothing to do."""
    few, many = ((rows, 64) for rows in (16, 65536))
    made = j2t.transpile(
        lambda q, k, v: jax.nn.softmax(q @ k.T) @ v,
        *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (few, many, many)),
        for_target="sm_90",
        contractions="triton",
    )
    assert all("65536 by" not in kernel.source or math.prod(kernel.grid) >= 64 for kernel in made.kernels)


def test_a_library_is_weighed_against_a_whole_chain() -> None:
    """What lies between its products is as large as all pairs, and passes through memory twice."""
    program = jax.make_jaxpr(PROGRAMS["plain"])(*sizes())
    first, last = estimates_of(normalize(program).jaxpr, DEFAULT_POLICY).values()
    assert first == last and first.is_ours and first.library > 1.5 * first.kernel and first.saved > first.kernel
