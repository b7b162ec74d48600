"""Products of matrices: fragments of each shape and type against NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from tests.machine.handwritten import Launch, see

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {
    **{"f16": np.dtype(np.float16), "bf16": BF16, "tf32": np.dtype(np.float32), "f32": np.dtype(np.float32)},
    **{"f64": np.dtype(np.float64), "s8": np.dtype(np.int8), "u8": np.dtype(np.uint8), "s32": np.dtype(np.int32)},
}


@dataclass(frozen=True)
class Product:
    m: int
    k: int
    element: str
    total: str
    limited: bool = False

    @property
    def opcode(self) -> str:
        types = f"{self.total}.{self.element}.{self.element}.{self.total}"
        return f"mma.sync.aligned.m{self.m}n8k{self.k}.row.col.{'satfinite.' * self.limited}{types}"


PRODUCTS = [
    *(Product(16, k, "f16", total) for k in (8, 16) for total in ("f32", "f16")),
    *(Product(16, k, "bf16", "f32") for k in (8, 16)),
    *(Product(16, k, "tf32", "f32") for k in (4, 8)),
    *(Product(16, k, element, "s32") for k in (16, 32) for element in ("s8", "u8")),
    Product(16, 32, "s8", "s32", limited=True),
    Product(8, 16, "s8", "s32"),
    *(Product(m, 4, "f64", "f64") for m in (8, 16)),
]


def fragments(matrix: np.ndarray) -> np.ndarray:
    """Registers of 32 lanes, as the manual has them.

    Lane l holds of each block of 8 rows the row l // 4, and of each block of columns those neighbours that begin at
    l % 4. Blocks below each other come first. The right matrix is handed over transposed.
    """
    together = max(1, 4 // matrix.itemsize)
    return _fragments(matrix, together)


def _fragments(matrix: np.ndarray, together: int) -> np.ndarray:
    rows, columns = matrix.shape
    width = 4 * together
    registers = []
    for column in range(0, columns, width):
        for row in range(0, rows, 8):
            block = matrix[row : row + 8, column : column + width].reshape(8, 4, together)
            registers.append(np.ascontiguousarray(block).reshape(32, together))
    return np.stack(registers)


def of_sum(matrix: np.ndarray) -> np.ndarray:
    """Pairs of neighbours; a register for each unless they are halves."""
    pairs = _fragments(matrix, 2)
    return pairs if matrix.itemsize == 2 else np.concatenate([pairs[..., n : n + 1] for n in (0, 1)], -1)


def in_words(fragments: np.ndarray) -> np.ndarray:
    """(registers, 32), as they lie in memory."""
    count = fragments.shape[0]
    width = np.uint64 if fragments.itemsize == 8 else np.uint32
    words = np.ascontiguousarray(fragments).reshape(count, 32, -1).view(width)
    return np.moveaxis(words, 2, 1).reshape(-1, 32)


def drawn(shape: tuple[int, int], dtype: np.dtype, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def multiplied(product: Product, left: np.ndarray, right: np.ndarray, total: np.ndarray) -> np.ndarray:
    if product.element == "tf32":
        left, right = ((each.view(np.uint32) & 0xFFFFE000).view(np.float32) for each in (left, right))
    wide = np.int64 if total.dtype.kind == "i" else np.float64
    found = left.astype(wide) @ right.astype(wide) + total.astype(wide)
    return (np.clip(found, -(2**31), 2**31 - 1) if product.limited else found).astype(total.dtype)


def text_of(product: Product, counts: tuple[int, int, int], widths: tuple[int, int]) -> str:
    lines, names, at = [], [], 0
    for count, width, letter in zip(counts, (widths[0], widths[0], widths[1]), "abc"):
        names.append([f"%{letter}{n}" for n in range(count)])
        lines.append(f".reg .b{8 * width} %{letter}<{count}>;")
        step = "%q0" if width == 4 else "%q1"
        lines.append(f"add.s64 %q2, %in, {step};")
        for name in names[-1]:
            lines.append(f"ld.global.b{8 * width} {name}, [%q2+{at}];")
            at += 32 * width
    results = [f"%d{n}" for n in range(counts[2])]
    lists = ", ".join("{" + ", ".join(each) + "}" for each in (results, *names))
    width = widths[1]
    lines = ["shl.b64 %q1, %q0, 1;", f".reg .b{8 * width} %d<{counts[2]}>;", *lines, f"{product.opcode} {lists};"]
    lines.append(f"add.s64 %q2, %out, {'%q0' if width == 4 else '%q1'};")
    return "\n".join([*lines, *(f"st.global.b{8 * width} [%q2+{32 * width * n}], {d};" for n, d in enumerate(results))])


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.opcode)
def test_products(product: Product) -> None:
    element, dtype = DTYPES[product.element], DTYPES[product.total]
    left, right = drawn((product.m, product.k), element, 1), drawn((product.k, 8), element, 2)
    total = drawn((product.m, 8), dtype, 3)
    if dtype.kind == "i":
        total[::2] = total[::2] // 2**10 + (2**31 - 2**21)  # some sums are too large
    words = [in_words(fragments(left)), in_words(fragments(right.T)), in_words(of_sum(total))]
    widths = (words[0].itemsize, words[2].itemsize)
    x = np.concatenate([each.reshape(-1).view(np.uint8) for each in words])
    body = text_of(product, (len(words[0]), len(words[1]), len(words[2])), widths)
    seen = see(body, Launch(x=x, out=words[2].nbytes, granule=widths[1]))
    assert seen.says == []
    expected = in_words(of_sum(multiplied(product, left, right, total)))
    found = seen.out.view(words[2].dtype).reshape(expected.shape)
    if dtype.kind == "i":
        np.testing.assert_array_equal(found, expected)
    else:
        digits = {2: 2e-3, 4: 1e-6, 8: 1e-14}[dtype.itemsize]
        np.testing.assert_allclose(found.view(dtype), expected.view(dtype), rtol=digits, atol=digits)
