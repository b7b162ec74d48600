"""Kernels in the interpreter give what NumPy gives."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import scipy.special

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.interpret.interpret import run_interpreted
from tests.launch.handmade import SOFTMAX, elementwise, make_kernel, random_array

RNG = np.random.default_rng(0)


def run(kernel: Kernel, *arrays: np.ndarray) -> np.ndarray:
    (output,) = run_interpreted(kernel, arrays)
    return output


def equal(have: np.ndarray, want: np.ndarray) -> None:
    assert have.dtype == want.dtype
    np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize(
    ("expression", "reference"),
    [
        ("a + b", np.add),
        ("a - b", np.subtract),
        ("a * b", np.multiply),
        ("a & b", np.bitwise_and),
        ("a ^ b", np.bitwise_xor),
        ("~a | b", lambda a, b: ~a | b),
        ("tl.minimum(a, b)", np.minimum),
        ("tl.maximum(a, b)", np.maximum),
        ("a >> 3", lambda a, b: a >> 3),
        ("a << 3", lambda a, b: a << 3),
        ("tl.where(a < b, a, b)", lambda a, b: np.where(a < b, a, b)),
    ],
)
def test_integers(dtype: str, expression: str, reference: np.ufunc) -> None:
    a, b = (random_array(RNG, (100,), dtype) for _ in range(2))
    equal(run(elementwise(expression, [dtype, dtype], dtype), a, b), reference(a, b).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("expression", "reference"),
    [
        ("a * b + a / b", lambda a, b: a * b + a / b),
        ("tl.exp(a) - tl.log(tl.abs(b))", lambda a, b: np.exp(a) - np.log(np.abs(b))),
        ("tl.sin(a) * tl.cos(b)", lambda a, b: np.sin(a) * np.cos(b)),
        ("tl.rsqrt(tl.abs(a)) + tl.sqrt(tl.abs(b))", lambda a, b: 1 / np.sqrt(np.abs(a)) + np.sqrt(np.abs(b))),
        ("tl.floor(a) + tl.ceil(b)", lambda a, b: np.floor(a) + np.ceil(b)),
        ("tl.erf(a)", lambda a, b: scipy.special.erf(a)),
        ("tl.fma(a, b, a)", lambda a, b: a * b + a),
        ("a % b", np.fmod),
        ("-a", lambda a, b: -a),
        ("libdevice.tanh(a)", lambda a, b: np.tanh(a)),
        ("libdevice.pow(tl.abs(a), b)", lambda a, b: np.abs(a) ** b),
        ("libdevice.atan2(a, b)", np.arctan2),
        ("libdevice.expm1(a) + libdevice.log1p(tl.abs(b))", lambda a, b: np.expm1(a) + np.log1p(np.abs(b))),
        ("libdevice.erfinv(libdevice.tanh(a))", lambda a, b: scipy.special.erfinv(np.tanh(a))),
        ("libdevice.lgamma(tl.abs(a))", lambda a, b: scipy.special.gammaln(np.abs(a))),
        ("libdevice.round(a) + libdevice.rint(b)", lambda a, b: np.trunc(a + np.copysign(0.5, a)) + np.rint(b)),
        ("libdevice.remainder(a, b)", lambda a, b: a - np.rint(a / b) * b),
        ("libdevice.copysign(a, b)", np.copysign),
        ("libdevice.nextafter(a, b)", np.nextafter),
    ],
)
def test_floats(dtype: str, expression: str, reference: np.ufunc) -> None:
    a, b = (random_array(RNG, (100,), dtype) for _ in range(2))
    have = run(elementwise(expression, [dtype, dtype], dtype), a, b)
    want = reference(a, b)
    assert have.dtype == want.dtype == np.dtype(dtype)
    np.testing.assert_allclose(have, want, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("libdevice.pow(a, tl.full((), 0.5, a.dtype))", [0, np.inf, 0, np.inf, 0.5]),  # one exponent, NumPy's root
        ("libdevice.pow(a, tl.full((32,), 0.5, a.dtype))", [0, np.inf, 0, np.inf, 0.5]),
        ("libdevice.lgamma(a)", [np.inf, np.inf, np.inf, np.inf, scipy.special.gammaln(0.25)]),
        ("libdevice.erfinv(a)", [-0.0, np.nan, 0, np.nan, scipy.special.erfinv(0.25)]),
    ],
)
def test_device_functions_where_numpy_and_scipy_differ_from_c(dtype: str, expression: str, result: list[float]) -> None:
    x, want = np.array([-0.0, -np.inf, 0.0, np.inf, 0.25], dtype), np.array(result, dtype)
    have = run(elementwise(expression, [dtype], dtype, size=5), x)
    np.testing.assert_allclose(have, want, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(have) & (have == 0), np.signbit(want) & (want == 0))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_round_after_every_operation(dtype: str) -> None:
    a, b = (random_array(RNG, (100,), dtype) for _ in range(2))
    equal(run(elementwise("a * b + a", [dtype, dtype], dtype), a, b), a * b + a)
    wide = elementwise("(a.to(tl.float32) * b.to(tl.float32) + 1.5)", [dtype, dtype], dtype)
    equal(run(wide, a, b), (a.astype(np.float32) * b.astype(np.float32) + np.float32(1.5)).astype(a.dtype))
    equal(run(elementwise("a > b", [dtype, dtype], "bool"), a, b), a > b)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, -0.0, 3.3895314e38, 1e-40, 65520.0, 65519.0])
def test_conversions_to_narrow_floats(special: float) -> None:
    a = np.full(4, special, np.float32)
    with np.errstate(over="ignore"):
        for dtype, name in (("float16", "float16"), ("bfloat16", "bfloat16")):
            want = a.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
            have = run(elementwise(f"a.to(tl.{name})", ["float32"], dtype, 4), a)
            equal(np.signbit(have), np.signbit(want))
            equal(have.astype(np.float32), want.astype(np.float32))


def test_booleans() -> None:
    a, b = (random_array(RNG, (100,), "bool") for _ in range(2))
    equal(run(elementwise("a & b", ["bool"] * 2, "bool"), a, b), a & b)
    equal(run(elementwise("a ^ b", ["bool"] * 2, "bool"), a, b), a ^ b)
    equal(run(elementwise("a == 0", ["bool"] * 2, "bool"), a, b), ~a)
    equal(run(elementwise("a and not b", ["bool"] * 2, "bool"), a, b), a & ~b)
    equal(run(elementwise("a or b", ["bool"] * 2, "bool"), a, b), a | b)
    equal(run(elementwise("a.to(tl.float32) + b.to(tl.float32)", ["bool"] * 2, "float32"), a, b), a.astype("f4") + b)
    equal(run(elementwise("tl.where(a, 3, 5)", ["bool"], "int32"), a), np.where(a, 3, 5).astype("i4"))


def test_i1_is_an_integer_of_one_bit() -> None:
    a, b = (random_array(RNG, (100,), "bool") for _ in range(2))
    equal(run(elementwise("a + b", ["bool"] * 2, "bool"), a, b), a ^ b)
    equal(run(elementwise("a * b", ["bool"] * 2, "bool"), a, b), a & b)


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint32"])
def test_division_truncates(dtype: str) -> None:
    a = random_array(RNG, (100,), dtype)
    b = np.where(np.arange(100) % 3 == 0, 7, 3).astype(dtype)
    b = -b if dtype.startswith("int") else b
    quotient = np.array([abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a, b)])
    equal(run(elementwise("a // b", [dtype] * 2, dtype), a, b), quotient.astype(dtype))
    equal(run(elementwise("a % b", [dtype] * 2, dtype), a, b), (a - quotient.astype(dtype) * b).astype(dtype))


def test_unguarded_undefined_integers_show() -> None:
    a, zero = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    conspicuous = np.full(4, np.frombuffer(b"\xa5" * 4, np.int32)[0])
    equal(run(elementwise("a // b", ["int32"] * 2, "int32", 4), a, zero), conspicuous)
    equal(run(elementwise("a << b", ["int32"] * 2, "int32", 4), a, zero + 32), conspicuous)


def test_conversion_to_integers_saturates() -> None:
    a = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1.9, -1.9, 2147483520.0], np.float32)
    top, low = 2**31 - 1, -(2**31)
    want = np.array([0, top, low, top, low, 1, -1, 2147483520], np.int32)
    equal(run(elementwise("a.to(tl.int32)", ["float32"], "int32", 8), a), want)
    unsigned = np.array([0, 2**32 - 1, 0, 3_000_000_000, 0, 1, 0, 2147483520], np.uint32)
    equal(run(elementwise("a.to(tl.uint32)", ["float32"], "uint32", 8), a), unsigned)
    wide = np.array([-(2**63), 2**63 - 1, -(2**63), 3e9, -3e9, 1, -1, 2147483520], np.int64)
    equal(run(elementwise("a.to(tl.int64)", ["float32"], "int64", 8), a), wide)


def test_minimum_and_maximum_of_nan() -> None:
    a, b = np.array([np.nan, 1, np.nan, 2], np.float32), np.array([1, np.nan, np.nan, 3], np.float32)
    equal(run(elementwise("tl.maximum(a, b)", ["float32"] * 2, "float32", 4), a, b), np.fmax(a, b))
    keep = "tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)"
    equal(run(elementwise(keep, ["float32"] * 2, "float32", 4), a, b), np.minimum(a, b))
    equal(run(elementwise("tl.clamp(a, 0.0, 1.5)", ["float32"], "float32", 4), a), np.array([0, 1, 0, 1.5], "f4"))


@pytest.mark.parametrize("end", ["", ", propagate_nan=tl.PropagateNan.ALL"])
@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
def test_minimum_and_maximum_of_zeros(kind: str, end: str) -> None:
    a, b = np.array([0, -0.0, 0, -0.0], kind), np.array([0, 0, -0.0, -0.0], kind)
    low = run(elementwise(f"tl.minimum(a, b{end})", [kind] * 2, kind, 4), a, b)
    high = run(elementwise(f"tl.maximum(a, b{end})", [kind] * 2, kind, 4), a, b)
    assert np.signbit(low).tolist() == [False, True, True, True] and not low.any()
    assert np.signbit(high).tolist() == [False, False, False, True] and not high.any()


def test_bits_and_high_products() -> None:
    a, b = (random_array(RNG, (100,), "uint64") for _ in range(2))
    high = np.array([int(x) * int(y) >> 64 for x, y in zip(a, b)], np.uint64)
    equal(run(elementwise("tl.umulhi(a, b)", ["uint64"] * 2, "uint64"), a, b), high)
    n = random_array(RNG, (100,), "int32")
    counts = np.array([int(x & 0xFFFFFFFF).bit_count() for x in n.tolist()], np.int32)
    equal(run(elementwise("libdevice.popc(a)", ["int32"], "int32"), n), counts)
    zeros = np.array([32 - int(x & 0xFFFFFFFF).bit_length() for x in n.tolist()], np.int32)
    equal(run(elementwise("libdevice.clz(a)", ["int32"], "int32"), n), zeros)
    x = random_array(RNG, (100,), "float32")
    equal(run(elementwise("a.to(tl.int32, bitcast=True)", ["float32"], "int32"), x), x.view(np.int32))


def test_softmax() -> None:
    x = random_array(RNG, (5, 300), "float32")
    np.testing.assert_allclose(run(SOFTMAX, x), scipy.special.softmax(x, axis=1), rtol=1e-5)


REDUCTIONS = """
@triton.jit
def keep_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def first_largest(a, i, b, j):
    better = (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(better, a, b), tl.where(better, i, j)


@triton.jit
def reductions(x_ptr, largest_ptr, plain_ptr, where_ptr, product_ptr):
    row = tl.arange(0, 4)
    col = tl.arange(0, 8)
    x = tl.load(x_ptr + row[:, None] * 8 + col[None, :])
    tl.store(largest_ptr + row, tl.reduce(x, 1, keep_nan))
    tl.store(plain_ptr + row, tl.max(x, axis=1))
    at = tl.broadcast_to(col[None, :], (4, 8))
    _, index = tl.reduce((x, at), 1, first_largest)
    tl.store(where_ptr + row, index)
    tl.store(product_ptr + col, x.to(tl.float64).sum(axis=0))
"""


def test_reductions_with_nan_ties_and_functions_of_their_own() -> None:
    x = np.round(random_array(RNG, (4, 8), "float32"))
    x[0, 3] = x[0, 5] = x[2, 0] = np.nan
    outputs = [("largest", (4,), "float32"), ("plain", (4,), "float32"), ("where", (4,), "int32")]
    kernel = make_kernel("reductions", REDUCTIONS, [("x", (4, 8), "float32")], [*outputs, ("product", (8,), "float64")])
    largest, plain, where, product = run_interpreted(kernel, [x])
    equal(largest, x.max(axis=1))
    equal(plain, np.fmax.reduce(x, axis=1))
    equal(where, x.argmax(axis=1).astype(np.int32))
    equal(product, x.astype(np.float64).sum(axis=0))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "bfloat16", "float16", "float32", "bool"])
def test_sums_and_extremes(dtype: str) -> None:
    x = random_array(RNG, (64,), dtype)
    i = "i = tl.arange(0, 64)\nx = tl.load(x_ptr + i)\n"
    if dtype == "bool":
        any_all = i + "tl.store(a_ptr, tl.max(x.to(tl.int32), axis=0) != 0)\ntl.store(b_ptr, tl.min(x, axis=0) != 0)"
        kernel = make_kernel("extremes", any_all, [("x", (64,), dtype)], [("a", (), "bool"), ("b", (), "bool")])
        assert [bool(y) for y in run_interpreted(kernel, [x])] == [x.any(), x.all()]
        return
    total = "float32" if dtype in ("bfloat16", "float16", "float32") else "int64"
    text = i + f"tl.store(a_ptr, tl.sum(x.to(tl.{total}), axis=0))\ntl.store(b_ptr, tl.min(x, axis=0).to(x.dtype))"
    kernel = make_kernel("extremes", text, [("x", (64,), dtype)], [("a", (), total), ("b", (), dtype)])
    a, b = run_interpreted(kernel, [x])
    np.testing.assert_allclose(a, x.astype(total).sum(), rtol=1e-5)
    assert b == x.min()


def test_loops_carry_and_count_in_tensors() -> None:
    text = """
    i = tl.arange(0, 16)
    total = tl.zeros((16,), tl.float32)
    for t in tl.range(0, 10, loop_unroll_factor=1):
        total += tl.load(x_ptr + t * 16 + i) * t
    small = 0
    for u in range(9, 0, -2):
        small = small * 10 + u
    limit = tl.load(n_ptr)
    steps = 0
    while steps * steps < limit:
        steps += 1
    if steps > 3:
        steps = -steps
    tl.store(total_ptr + i, total)
    tl.store(count_ptr, small)
    tl.store(count_ptr + 1, steps)
    wrapped = 0
    for big in range(2147483640, 2147483644):
        wrapped = big + 100
    tl.store(count_ptr + 2, wrapped)
    """
    inputs = [("x", (10, 16), "float32"), ("n", (), "int32")]
    kernel = make_kernel("loops", text, inputs, [("total", (16,), "float32"), ("count", (3,), "int32")])
    x = random_array(RNG, (10, 16), "float32")
    total, count = run_interpreted(kernel, [x, np.array(30, np.int32)])
    np.testing.assert_allclose(total, (x * np.arange(10, dtype="f4")[:, None]).sum(0), rtol=1e-5)
    assert count.tolist() == [97531, -6, 2147483643 + 100 - 2**32]


def test_bounds_that_are_loaded() -> None:
    text = """
    total = 0
    for t in range(tl.load(n_ptr)):
        total += t
    tl.store(out_ptr, total)
    """
    kernel = make_kernel("counted", text, [("n", (), "int32")], [("out", (), "int32")])
    assert run(kernel, np.array(5, np.int32)) == 10


def test_grids_of_three_dimensions() -> None:
    text = "x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)\n"
    text += "tl.store(out_ptr + (z * 3 + y) * 2 + x, 100 * z + 10 * y + x + 1000 * tl.num_programs(1))"
    kernel = make_kernel("places", text, [], [("out", (4, 3, 2), "int32")], (2, 3, 4))
    z, y, x = np.indices((4, 3, 2))
    equal(run(kernel), (100 * z + 10 * y + x + 3000).astype(np.int32))


@pytest.mark.parametrize(("precision", "error"), [("ieee", 1e-6), ("tf32", 1e-3)])
def test_products_of_matrices(precision: str, error: float) -> None:
    text = f"""
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    tl.store(out_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at), input_precision="{precision}"))
    """
    kernel = make_kernel(
        "matmul", text, [("a", (16, 16), "float32"), ("b", (16, 16), "float32")], [("out", (16, 16), "float32")]
    )
    a, b = (random_array(RNG, (16, 16), "float32") for _ in range(2))
    worst = np.abs(run(kernel, a, b) - a.astype("f8") @ b).max()
    assert error / 100 < worst < error * 10


def test_scans_sorts_and_gathers() -> None:
    text = """
    i = tl.arange(0, 32)
    x = tl.load(x_ptr + i)
    tl.store(sums_ptr + i, tl.cumsum(x, axis=0, reverse=True))
    tl.store(sorted_ptr + i, tl.sort(x))
    tl.store(turned_ptr + i, tl.gather(x, 31 - i, axis=0))
    """
    outputs = [(name, (32,), "int32") for name in ("sums", "sorted", "turned")]
    kernel = make_kernel("orders", text, [("x", (32,), "int32")], outputs)
    x = RNG.integers(-100, 100, 32, dtype=np.int32)
    sums, ordered, turned = run_interpreted(kernel, [x])
    equal(sums, np.cumsum(x[::-1], dtype=np.int32)[::-1])
    equal(ordered, np.sort(x))
    equal(turned, x[::-1])


SCAN = """
@triton.jit
def affine(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def recurrence(a_ptr, b_ptr, out_ptr):
    i = tl.arange(0, 16)
    _, y = tl.associative_scan((tl.load(a_ptr + i), tl.load(b_ptr + i)), 0, affine)
    tl.store(out_ptr + i, y)
"""


def test_scans_of_two_operands() -> None:
    kernel = make_kernel(
        "recurrence", SCAN, [("a", (16,), "float64"), ("b", (16,), "float64")], [("out", (16,), "float64")]
    )
    a, b = (random_array(RNG, (16,), "float64") for _ in range(2))
    want, y = [], 0.0
    for factor, term in zip(a, b):
        y = factor * y + term
        want.append(y)
    np.testing.assert_allclose(run(kernel, a, b), want)


def test_masked_lanes_without_a_value_are_undefined() -> None:
    text = "i = tl.arange(0, 8)\ntl.store(out_ptr, tl.sum(tl.load(x_ptr + i, mask=i < 5), axis=0))"
    kernel = make_kernel("careless", text, [("x", (5,), "float32")], [("out", (), "float32")])
    assert np.isnan(run(kernel, np.ones(5, np.float32)))


def test_a_masked_scalar_keeps_its_value() -> None:
    """The stock interpreter takes `other=0.0` for no value at all when the pointer is a scalar."""
    text = "n = tl.load(n_ptr)\ntl.store(out_ptr, tl.load(x_ptr + n, mask=n < 3, other=0.0))"
    kernel = make_kernel("scalar", text, [("x", (3,), "float32"), ("n", (), "int32")], [("out", (), "float32")])
    x = np.array([1, 2, 3], np.float32)
    assert [run(kernel, x, np.array(n, np.int32)) for n in (1, 7)] == [2, 0]


def test_inputs_stay_as_they_are_and_need_not_be_contiguous() -> None:
    kernel = elementwise("a + 1", ["float32"], "float32", 12)
    a = np.arange(24, dtype=np.float32)[::2]
    a.flags.writeable = False
    equal(run(kernel, a), a + 1)
    equal(a, np.arange(0, 24, 2, dtype=np.float32))


def test_arrays_that_do_not_fit() -> None:
    with pytest.raises(CompilerBug) as caught:
        run(elementwise("a", ["float32"], "float32", 12), np.zeros(12))
    assert str(caught.value) == "kernel pointwise expects float32[12] for a, but found float64[12]"


def test_errors_name_the_line() -> None:
    with pytest.raises(CompilerBug) as caught:
        run(elementwise("tl.exp(a)", ["int32"], "int32", 4), np.zeros(4, np.int32))
    first, second = str(caught.value).splitlines()
    assert first.startswith("kernel pointwise stops with ValueError: Expected dtype ['fp32', 'fp64']")
    assert second == "  at   program (0, 0, 0), line 10: tl.store(out_ptr + i, tl.exp(a), mask=i < 4)"


def test_a_product_with_the_constant_minus_one_turns_the_sign_of_everything() -> None:
    x = np.array([np.nan, -np.nan, -0.0, np.inf, 1.5], np.float32)
    turned = (x.view(np.uint32) ^ np.uint32(1 << 31)).view(np.float32)
    for expression in ("-1.0 * a", "a * -1.0"):
        have = run(elementwise(expression, ["float32"], "float32", size=5), x)
        equal(have.view(np.uint32), turned.view(np.uint32))
    equal(run(elementwise("-2.0 * a", ["float32"], "float32", size=5), x), -2 * x)
