"""Products of warpgroups: each layout of factors in shared memory, each type, and what Triton makes of them."""

from __future__ import annotations

import dataclasses
import functools
import re
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.compile import compile as compiling
from jaxpr2triton.launch.compile.compile import Binary, compile_kernel
from jaxpr2triton.launch.compile.triton_shim import triton_version
from jaxpr2triton.launch.machine.kernels import compiled_for_machine, examine
from jaxpr2triton.launch.machine.layout import Kind
from jaxpr2triton.launch.machine.ptx import NotUnderstood
from jaxpr2triton.launch.machine.run import Settings
from jaxpr2triton.launch.machine.statistics import kind_of, statistics
from tests.launch.handmade import make_kernel, random_array
from tests.machine.handwritten import Launch, program_of, see
from tests.machine.test_mma import DTYPES as OF_WARPS
from tests.machine.test_mma import drawn, fragments, in_words, of_sum

THREADS = 128
DTYPES = OF_WARPS | {"e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2)}
IMAGE = 49_152  # bytes of shared memory
RIGHT_AT = 16_384  # where the right factor is


@dataclass(frozen=True)
class Place:
    """How a factor lies in shared memory."""

    width: int = 128  # of a swizzled row; 16: not swizzled
    transposed: bool = False
    ahead: int = 0  # bytes from the beginning of a swizzled pattern
    pattern: int = 0  # where the pattern begins, from the next 1024 bytes on


@dataclass(frozen=True)
class Product:
    left: str
    right: str
    total: str
    columns: int
    left_at: Place | None  # None: in registers
    right_at: Place
    keeps: bool = True
    signs: tuple[int, int] = (1, 1)
    limited: bool = False

    @property
    def terms(self) -> int:
        return 32 // DTYPES[self.left].itemsize

    @property
    def opcode(self) -> str:
        shape = f"m64n{self.columns}k{self.terms}"
        limited = ".satfinite" * self.limited
        return f"wgmma.mma_async.sync.aligned.{shape}{limited}.{self.total}.{self.left}.{self.right}"

    def __str__(self) -> str:
        places = ["registers" if each is None else f"{each.width}" for each in (self.left_at, self.right_at)]
        return f"{self.opcode.partition('m64')[2]} {' '.join(places)}"


def half(width: int, transposed: bool, **more: int) -> Product:
    place = Place(width, transposed, **more)
    return Product("f16", "f16", "f32", 64, place, place)


PRODUCTS = [
    *(half(width, transposed) for width in (16, 32, 64, 128) for transposed in (False, True)),
    *(half(128, False, ahead=ahead) for ahead in (32, 96)),
    half(64, False, ahead=32),
    *(half(width, False, pattern=pattern) for width, pattern in ((128, 384), (64, 128), (32, 128))),
    *(Product("bf16", "bf16", "f32", n, Place(64), Place(128, True)) for n in (64, 128, 256)),
    *(Product("f16", "f16", total, n, None, Place(32)) for total in ("f32", "f16") for n in (8, 24)),
    Product("f16", "f16", "f16", 40, Place(128, True), Place(16, True), keeps=False),
    *(Product("tf32", "tf32", "f32", 16, at, Place(128)) for at in (None, Place(32))),
    *(Product(left, right, "f32", 8, Place(64), Place(64)) for left in ("e4m3", "e5m2") for right in ("e4m3", "e5m2")),
    Product("e4m3", "e4m3", "f16", 16, None, Place(128)),
    *(Product(left, right, "s32", 16, Place(32), Place(128)) for left in ("s8", "u8") for right in ("s8", "u8")),
    Product("s8", "s8", "s32", 8, None, Place(16), limited=True),
    *(dataclasses.replace(half(128, False), signs=signs) for signs in ((-1, 1), (1, -1), (-1, -1))),
    dataclasses.replace(half(128, False), keeps=False),
]


def stored(image: np.ndarray, start: int, matrix: np.ndarray, place: Place) -> int:
    """Put the lines of a factor into the image, and give its descriptor; `matrix` has a line for each row or column.

    A piece is 16 bytes. Not transposed, a piece has neighbours in a sum, and 8 lines beside each other make a block;
    transposed, it has neighbours across lines, and 8 terms make a block.
    """
    pieces = place.width // 16
    rows = np.ascontiguousarray(matrix.T if place.transposed else matrix)
    count, across = rows.shape[0], rows.shape[1] * rows.itemsize // 16
    chunks = rows.view(np.uint8).reshape(count, across, 16)
    block = 8 * place.width  # bytes
    many = -(-count // 8)
    if pieces == 1:
        beside, below = many * block, block  # from one piece to the next, and from 8 rows to the next 8
        leading, stride = (below, beside) if place.transposed else (beside, below)
    else:
        stride, leading = block, many * block
    start += place.pattern
    for row in range(count):
        for piece in range(across):
            at = start + row // 8 * block + row % 8 * place.width
            if pieces == 1:
                at += piece * many * block
            else:
                inside = place.ahead // 16 + piece
                at += inside // pieces * leading + inside % pieces * 16
            turned = (at - place.pattern) >> 7 & (pieces - 1)
            at ^= turned << 4
            image[at : at + 16] = chunks[row, piece]
    mode = {16: 0, 128: 1, 64: 2, 32: 3}[place.width]
    address = start + place.ahead
    return address >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | (place.pattern >> 7 & 7) << 49 | mode << 62


def in_warps(rows: np.ndarray, of_warp: object) -> np.ndarray:
    """Words of registers, those of four warps beside each other."""
    assert callable(of_warp)
    return np.concatenate([in_words(of_warp(rows[16 * warp : 16 * warp + 16])) for warp in range(4)], 1)


def text_of(product: Product, descriptors: tuple[int, int], registers: int) -> str:
    lines = ["shl.b64 %q1, %q0, 2;", "add.s64 %q2, %in, %q1;", "shl.b32 %r9, %r0, 2;", "add.s32 %r9, %r9, %base;"]
    for at in range(0, IMAGE, 16 * THREADS):
        values = "{%r1, %r2, %r3, %r4}"
        lines += [f"ld.global.v4.b32 {values}, [%q2+{at}];", f"st.shared.v4.b32 [%r9+{at}], {values};"]
    lines.append(f".reg .b32 %d<{registers}>;")
    words = [f"%d{n}" for n in range(registers)]
    names = [*words, *(f"%r{20 + n}" for n in range(4))]
    lines += [f"ld.global.b32 {name}, [%its+{IMAGE + 4 * THREADS * n}];" for n, name in enumerate(names)]
    lines += ["fence.proxy.async.shared::cta;", "bar.sync 0;", "wgmma.fence.sync.aligned;"]
    lines += [f"mov.b64 %q{8 + n}, {value};" for n, value in enumerate(descriptors)]
    lines.append(f"setp.{'ne' if product.keeps else 'eq'}.s32 %p1, %tid, -1;")
    in_registers = product.left_at is None
    left = "{%r20, %r21, %r22, %r23}" if in_registers else "%q8"
    rest = ["%p1"]
    if product.total != "s32":
        rest += map(str, product.signs)
    if DTYPES[product.left].itemsize == 2:
        turned = [product.right_at] if product.left_at is None else [product.left_at, product.right_at]
        rest += [str(int(each.transposed)) for each in turned]
    lines.append(f"{product.opcode} {{{', '.join(words)}}}, {left}, %q9, {', '.join(rest)};")
    lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    return "\n".join([*lines, *(f"st.global.b32 [%mine+{4 * THREADS * n}], {word};" for n, word in enumerate(words))])


def numbers(shape: tuple[int, int], kind: str, seed: int) -> np.ndarray:
    return drawn(shape, DTYPES[kind], seed)


@pytest.mark.parametrize("product", PRODUCTS, ids=str)
def test_products(product: Product) -> None:
    left = numbers((64, product.terms), product.left, 1)
    right = numbers((product.terms, product.columns), product.right, 2)
    before = numbers((64, product.columns), product.total, 3)
    if product.limited:
        before[::2] = 2**31 - 1
    image = np.random.default_rng(4).integers(0, 256, IMAGE, np.uint8)
    descriptors = (
        0 if product.left_at is None else stored(image, 0, left, product.left_at),
        stored(image, RIGHT_AT, np.ascontiguousarray(right.T), product.right_at),
    )
    sums = in_warps(before, of_sum)
    words = np.concatenate([sums, in_warps(left, fragments)])
    x = np.concatenate([image, words.reshape(-1).view(np.uint8)])
    body = text_of(product, descriptors, len(sums))
    seen = see(body, Launch(threads=(THREADS, 1, 1), shared=IMAGE, x=x, out=sums.nbytes))
    assert seen.says == []
    if product.left == "tf32":
        left, right = ((each.view(np.uint32) & 0xFFFFE000).view(np.float32) for each in (left, right))
    wide = np.int64 if product.total == "s32" else np.float64
    expected = before.astype(wide) * product.keeps
    expected += product.signs[0] * product.signs[1] * (left.astype(wide) @ right.astype(wide))
    expected = np.clip(expected, -(2**31), 2**31 - 1) if product.limited else expected
    meant = in_warps(expected.astype(before.dtype), of_sum).view(before.dtype)
    found = seen.out.view(np.uint32).reshape(sums.shape).view(before.dtype)
    if before.dtype.kind == "i":
        np.testing.assert_array_equal(found, meant)
    else:
        np.testing.assert_allclose(found.astype(wide), meant.astype(wide), rtol={2: 2e-3, 4: 1e-6}[before.itemsize])


@pytest.mark.parametrize(
    "statement",
    [
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%r10, %r11, %r12, %r13}, %q9, %q9, %r1, 0, %p1, 1, 1;",
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%r10, %r11, %r12, %r13}, %q9, %q9, %p1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.f16.f16 {%r10, %r11, %r12, %r13}, %q9, %q9, %p1, 1, 1, 0, 0;",
        "wgmma.other.sync.aligned;",
        "@%p1 wgmma.fence.sync.aligned;",
    ],
)
def test_what_is_no_product_of_warpgroups(statement: str) -> None:
    with pytest.raises(NotUnderstood):
        program_of(statement)


def test_a_part_of_a_warpgroup_has_no_products() -> None:
    product = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r10, %r11, %r12, %r13}, %q9, %q9, %p1, 1, 1, 0, 0;"
    with pytest.raises(NotUnderstood, match="products of warpgroups, and is launched with 96 threads"):
        see(product, Launch(threads=(96, 1, 1)))


# Triton's


@dataclass(frozen=True)
class Dot:
    m: int
    n: int
    block: int  # terms of each step
    terms: int
    dtype: str
    total: str = "float32"
    stages: int = 3
    warps: int = 4
    turned: tuple[bool, bool] = (False, False)
    doubled: bool = False  # the left factor is made in registers

    def __str__(self) -> str:
        words = [f"{self.m}x{self.n}x{self.block}", self.dtype, self.total, f"{self.stages} stages {self.warps} warps"]
        words += [
            word for word, it in zip(("left turned", "right turned", "doubled"), (*self.turned, self.doubled)) if it
        ]
        return " ".join(words)


DOTS = [
    Dot(64, 64, 32, 128, "float16"),
    Dot(64, 64, 32, 128, "float16", doubled=True),
    Dot(64, 64, 32, 128, "float16", "float16"),
    Dot(64, 32, 32, 128, "bfloat16", stages=1),
    Dot(64, 16, 16, 64, "float16", stages=2, turned=(True, False)),
    Dot(128, 64, 64, 256, "float16", stages=4, warps=8, turned=(True, True)),
    Dot(128, 256, 64, 128, "bfloat16", stages=2, warps=8),
    Dot(128, 128, 32, 64, "float16", turned=(False, True), doubled=True),
    Dot(64, 64, 32, 128, "float32", stages=2),
    Dot(64, 64, 64, 128, "float32", turned=(True, False)),
    Dot(64, 128, 64, 128, "float32", stages=2, turned=(False, True), doubled=True),
    Dot(64, 64, 32, 128, "int8", "int32", stages=2, turned=(False, True)),
]


def _kernel(dot: Dot) -> Kernel:
    left = (
        f"rows[:, None] + (start + inner)[None, :] * {dot.m}"
        if dot.turned[0]
        else (f"rows[:, None] * {dot.terms} + (start + inner)[None, :]")
    )
    right = (
        f"(start + inner)[:, None] + columns[None, :] * {dot.terms}"
        if dot.turned[1]
        else (f"(start + inner)[:, None] * {dot.n} + columns[None, :]")
    )
    text = f"""
    rows = tl.arange(0, {dot.m})
    columns = tl.arange(0, {dot.n})
    inner = tl.arange(0, {dot.block})
    total = tl.zeros(({dot.m}, {dot.n}), tl.{dot.total})
    for start in tl.range(0, {dot.terms}, {dot.block}, num_stages={dot.stages}):
        a = tl.load(a_ptr + {left}){" * 2" * dot.doubled}
        b = tl.load(b_ptr + {right})
        total = tl.dot(a, b, total, out_dtype=tl.{dot.total})
    tl.store(c_ptr + rows[:, None] * {dot.n} + columns[None, :], total)
    """
    shapes = [each[::-1] if turn else each for each, turn in zip(((dot.m, dot.terms), (dot.terms, dot.n)), dot.turned)]
    inputs = [(name, shape, dot.dtype) for name, shape in zip("ab", shapes)]
    return make_kernel("product", text, inputs, [("c", (dot.m, dot.n), dot.total)], num_warps=dot.warps)


@functools.cache
def _compiled(dot: Dot) -> tuple[Kernel, Binary, tuple[np.ndarray, ...]]:
    kernel = _kernel(dot)
    rng = np.random.default_rng(0)
    inputs = tuple(random_array(rng, buffer.shape, dot.dtype) for buffer in kernel.inputs)
    return kernel, compile_kernel(kernel, TARGETS["sm_90"], lines=True), inputs


@pytest.mark.parametrize("dot", DOTS, ids=str)
def test_products_of_triton(dot: Dot) -> None:
    kernel, binary, inputs = _compiled(dot)
    assert "wgmma.mma_async" in str(binary.code)
    examined = examine(kernel, binary, inputs)
    assert [str(finding) for finding in examined.findings] == []
    assert examined.forgotten == ()
    wide = np.int64 if dot.total == "int32" else np.float64
    left, right = (each.T if turn else each for each, turn in zip(inputs, dot.turned))
    expected = (1 + dot.doubled) * left.astype(wide) @ right.astype(wide)
    digits = {"int8": 0, "float32": 2e-3}.get(dot.dtype, 2e-3 if dot.total == "float16" else 1e-6)
    wrong = np.abs(examined.outputs[0].astype(wide) - expected).max()
    assert wrong <= digits * np.abs(expected).max()


UNDER_WAY = {Kind.MEMORY_UNDER_WAY, Kind.REGISTER_UNDER_WAY}
MISSING = {
    "wgmma.wait_group": UNDER_WAY,
    "wgmma.commit_group": {Kind.NEVER_COMMITTED},
    "wgmma.fence": {Kind.REGISTER_NOT_FENCED},
    "fence.proxy.async": {Kind.MEMORY_NOT_FENCED},
    "cp.async.wait_group": {Kind.UNDEFINED_STORED},
    "bar.sync": {Kind.RACE_OF_WARPS},
}
# Triton 3.6 has no fence of the proxy behind cp.async, 3.9 has one; the machine asks for none there
NEEDS_FENCE = [
    Dot(64, 32, 32, 128, "bfloat16", stages=1),
    Dot(64, 64, 32, 32, "float16", stages=1, turned=(True, False)),
]


@pytest.mark.parametrize("word", MISSING)
@pytest.mark.parametrize("dot", [*DOTS[:9:2], *NEEDS_FENCE], ids=str)
def test_what_is_missing_is_noticed(dot: Dot, word: str) -> None:
    """All of them, and one at a time: nothing is found only where the values are right, for Triton waits twice."""
    kernel, binary, inputs = _compiled(dot)
    code = str(binary.code)
    places = [*re.finditer(rf"\n[^\n]*{re.escape(word)}[^\n]*", code)]
    if word == "fence.proxy.async" and dot not in NEEDS_FENCE or word == "cp.async.wait_group" and dot.stages == 1:
        return
    assert places

    def without(found: list[re.Match[str]]) -> Binary:
        less = code
        for match in reversed(found):
            less = less[: match.start()] + less[match.end() :]
        return dataclasses.replace(binary, code=less)

    kinds = {finding.kind for finding in examine(kernel, without(places), inputs).findings}
    assert kinds & MISSING[word], kinds
    right = examine(kernel, binary, inputs).outputs[0]
    noticed = 0
    for match in places:
        examined = examine(kernel, without([match]), inputs)
        noticed += bool(examined.findings)
        assert examined.findings or np.array_equal(examined.outputs[0], right)
    assert noticed


# ours


def two_products(x: jax.Array, w: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.exp(x) @ w, jnp.tanh(x) @ v


def test_factors_in_registers_that_are_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an H100 gave wrong numbers for: the code of Triton 3.6, without the waits of launch/compile/waits.py.

    Triton 3.9 writes factors later, when the products that read them have ended; with longer waits it is wrong as well.
    """
    shape = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16)
    (kernel,) = j2t.transpile(two_products, shape, shape, shape, contractions="triton", for_target="sm_90").kernels
    rng = np.random.default_rng(5)
    x, w, v = (random_array(rng, (1024, 1024), "bfloat16") for _ in range(3))
    first = Settings(programs=range(1))
    compiled = compiled_for_machine(kernel, TARGETS["sm_90"])
    examined = examine(kernel, compiled, (x, w, v), first)
    assert [str(finding) for finding in examined.findings] == []
    for found, made, right in zip(examined.outputs, (np.exp, np.tanh), (w, v)):
        factor = made(x.astype(np.float32)).astype(x.dtype).astype(np.float64)
        expected = factor @ right.astype(np.float64)
        found = found.astype(np.float64)
        written = np.abs(found - expected) < 0.02 * np.abs(expected).max()
        assert written.sum() >= 64 * 64  # the block of the first program
    monkeypatch.setattr(compiling, "products_awaited", lambda code: code)
    monkeypatch.setenv("J2T_CACHE", "0")
    compiling._binaries.clear()
    raw = compiled_for_machine(kernel, TARGETS["sm_90"])
    compiling._binaries.clear()
    assert raw.code != compiled.code
    kinds = {finding.kind for finding in examine(kernel, raw, (x, w, v), first).findings}
    assert kinds == ({Kind.REGISTER_UNDER_WAY} if triton_version().startswith("3.6") else set())
    more = re.sub(r"(wgmma\.wait_group\.sync\.aligned )[1-9]", r"\g<1>9", str(raw.code))
    kinds = {
        finding.kind for finding in examine(kernel, dataclasses.replace(raw, code=more), (x, w, v), first).findings
    }
    assert Kind.REGISTER_UNDER_WAY in kinds


def test_statistics_know_products_of_warpgroups() -> None:
    kernel, binary, inputs = _compiled(DOTS[0])
    examined = examine(kernel, binary, inputs, Settings(count=True))
    found = statistics(examined.program.encoded.module.body, examined.ran.counts).instructions
    assert found["products of matrices"] == 2 * 4 * 4  # two in each of four steps, in four warps
    waits = [each for each in examined.program.encoded.module.body if kind_of(each) == "fences and waits"]
    assert {each.opcode.split(".")[1] for each in waits} >= {"fence", "commit_group", "wait_group"}


def test_tensor_memory_is_not_known() -> None:
    """sm_100 multiplies otherwise: products for it are compiled for sm_90, all else for itself."""
    assert compiled_for_machine(_kernel(DOTS[0]), TARGETS["sm_100"]).target == "sm_90"
    assert compiled_for_machine(_kernel(DOTS[0]), TARGETS["sm_120"]).target == "sm_120"
