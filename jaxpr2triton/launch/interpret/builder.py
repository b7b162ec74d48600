"""Triton's interpreting builder with its arithmetic repaired: tiles are NumPy arrays, memory is a checked `Memory`.

What the stock builder gets wrong or lacks: bf16 and fp8 arithmetic, i1 arithmetic, NaN and zeros in minima and maxima,
integer division, shifts, conversions that saturate, tf32 products, libdevice, and masked lanes that are undefined.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.special
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, InterpreterOptions, TensorHandle, _get_np_dtype, _ir

from jaxpr2triton.launch.interpret import arithmetic
from jaxpr2triton.launch.interpret.libdevice import libdevice_function
from jaxpr2triton.launch.interpret.memory import Memory

_WRAPPING = (np.add, np.subtract, np.multiply)
_MAXIMUM, _MINIMUM = arithmetic.extreme(np.maximum, 1), arithmetic.extreme(np.minimum, -1)
_MAXIMUM_NUMBER, _MINIMUM_NUMBER = arithmetic.extreme(np.fmax, 1), arithmetic.extreme(np.fmin, -1)
_DOT_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")


_stored: dict[str, np.dtype] = {}


def stored_dtype(dtype: tl.dtype) -> np.dtype:
    """How values of `dtype` are stored: as the stock interpreter does it, looked up once."""
    name = dtype.scalar.name
    found = _stored.get(name)
    if found is None:
        found = _stored[name] = _get_np_dtype(dtype)
    return found


def _is_minus_one(numbers: np.ndarray) -> bool:
    """Of a number, which may be spread over a tile: all elements are one then."""
    is_one = numbers.size == 1 or not any(numbers.strides)
    return is_one and numbers.dtype.kind == "f" and bool(numbers[(0,) * numbers.ndim] == -1)


def _numbers(handle: TensorHandle) -> np.ndarray:
    return arithmetic.decode(handle.data, handle.dtype.scalar.name)


def handle_of(values: np.ndarray, dtype: tl.dtype) -> TensorHandle:
    """Values stored as `dtype` stores them."""
    scalar = dtype.scalar
    return TensorHandle(arithmetic.encode(values, scalar.name, stored_dtype(scalar)), scalar)


def _integers(op: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., TensorHandle]:
    return lambda self, lhs, rhs: TensorHandle(op(lhs.data, rhs.data), lhs.dtype.scalar)


_OPERATION = _ir.ATOMIC_OP
_COMBINING = {
    **dict.fromkeys((_OPERATION.FADD, _OPERATION.ADD), np.add),
    **dict.fromkeys((_OPERATION.MAX, _OPERATION.UMAX), np.maximum),
    **dict.fromkeys((_OPERATION.MIN, _OPERATION.UMIN), np.minimum),
}


class Builder(InterpreterBuilder):
    """One for the process; `memory` belongs to the run that holds the lock."""

    memory: Memory

    def __init__(self) -> None:
        super().__init__()
        self.options: Any = dataclasses.replace(
            InterpreterOptions(), sanitize_overflow=False, allowed_dot_input_precisions=_DOT_PRECISIONS
        )

    # memory

    def create_get_program_id(self, axis: int) -> TensorHandle:
        return TensorHandle(np.array([self.memory.program[axis]], np.int32), tl.int32)

    def create_load(self, ptr: TensorHandle, *policy: Any) -> TensorHandle:
        return self.create_masked_load(ptr, None, None)

    def create_masked_load(
        self, ptrs: TensorHandle, mask: TensorHandle | None, other: TensorHandle | None, *policy: Any, **more: Any
    ) -> TensorHandle:
        element = ptrs.get_element_ty()
        lanes, fill = None if mask is None else mask.data, None if other is None else other.data
        return TensorHandle(self.memory.load(ptrs.data, lanes, fill, stored_dtype(element)), element)

    def create_store(self, ptr: TensorHandle, value: TensorHandle, *policy: Any) -> None:
        self.memory.store(ptr.data, value.data, None)

    def create_masked_store(self, ptrs: TensorHandle, value: TensorHandle, mask: TensorHandle, *policy: Any) -> None:
        self.memory.store(ptrs.data, value.data, mask.data)

    def create_atomic_rmw(
        self, operation: Any, ptr: TensorHandle, value: TensorHandle, mask: TensorHandle, *order: Any
    ) -> TensorHandle:
        """What was there before is not asked for."""
        if operation not in _COMBINING:
            raise NotImplementedError(f"the interpreter does not know the atomic operation {operation}")
        self.memory.accumulate(ptr.data, value.data, mask.data, _COMBINING[operation])
        return value

    def create_atomic_cas(self, *args: Any) -> TensorHandle:
        raise NotImplementedError("the interpreter does not exchange what it compares")

    create_atomic_poll = create_atomic_cas

    # constants and copies of them

    def get_bf16(self, value: float) -> TensorHandle:
        return handle_of(np.array([value], np.float32), tl.bfloat16)

    def get_all_ones_value(self, type: tl.dtype) -> TensorHandle:
        stored = stored_dtype(type)
        ones = np.ones(1, bool) if stored == np.bool_ else np.full(1, -1, np.int64).astype(stored)
        return TensorHandle(ones, type.scalar)

    def create_splat(self, ret_ty: tl.dtype, arg: TensorHandle) -> TensorHandle:
        return TensorHandle(np.broadcast_to(arg.data, tuple(ret_ty.shape)), arg.dtype.scalar)

    # arithmetic

    def binary_op(self, lhs: TensorHandle, rhs: TensorHandle, op: Callable[..., np.ndarray]) -> TensorHandle:
        a, b = _numbers(lhs), _numbers(rhs)
        if a.dtype == np.bool_ and op in _WRAPPING:
            return TensorHandle((op(a.astype(np.int8), b.astype(np.int8)) & 1).astype(np.bool_), tl.int1)
        result = op(a, b)
        return handle_of(result, tl.int1 if result.dtype == np.bool_ else lhs.dtype)

    def unary_op(self, arg: TensorHandle, op: Callable[..., np.ndarray]) -> TensorHandle:
        return handle_of(op(_numbers(arg)), arg.dtype)

    create_sdiv = create_udiv = create_idiv = _integers(arithmetic.quotient)
    create_srem = create_urem = _integers(arithmetic.integer_remainder)
    create_shl = _integers(arithmetic.shift_left)
    create_lshr = _integers(arithmetic.shift_right_logical)
    create_ashr = _integers(arithmetic.shift_right_arithmetic)
    create_umulhi = _integers(arithmetic.high_half)

    def create_minimumf(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        return self.binary_op(lhs, rhs, _MINIMUM)

    def create_maximumf(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        return self.binary_op(lhs, rhs, _MAXIMUM)

    def create_minnumf(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        return self.binary_op(lhs, rhs, _MINIMUM_NUMBER)

    def create_maxnumf(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        return self.binary_op(lhs, rhs, _MAXIMUM_NUMBER)

    def create_clampf(self, arg: TensorHandle, lo: TensorHandle, hi: TensorHandle, propagate_nans: Any) -> TensorHandle:
        drop_nan = propagate_nans == _ir.PROPAGATE_NAN.NONE
        larger, smaller = (_MAXIMUM_NUMBER, _MINIMUM_NUMBER) if drop_nan else (_MAXIMUM, _MINIMUM)
        return self.binary_op(self.binary_op(arg, lo, larger), hi, smaller)

    def create_fma(self, x: TensorHandle, y: TensorHandle, z: TensorHandle) -> TensorHandle:
        return handle_of(_numbers(x).astype(np.float64) * _numbers(y) + _numbers(z), z.dtype)

    def create_fneg(self, arg: TensorHandle) -> TensorHandle:
        return self.unary_op(arg, np.negative)

    def create_fmul(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        """A product with the constant -1 only turns a sign, also that of NaN: LLVM makes a negation of it."""
        for factor, other in ((lhs, rhs), (rhs, lhs)):
            if _is_minus_one(_numbers(factor)):
                return self.create_fneg(other)
        return self.binary_op(lhs, rhs, np.multiply)

    def create_erf(self, arg: TensorHandle) -> TensorHandle:
        return self.unary_op(arg, scipy.special.erf)

    def create_rsqrt(self, arg: TensorHandle) -> TensorHandle:
        return self.unary_op(arg, lambda x: 1 / np.sqrt(x))

    def create_dot(
        self, a: TensorHandle, b: TensorHandle, d: TensorHandle, input_precision: Any, max_num_imprecise_acc: Any
    ) -> TensorHandle:
        x, y, acc = _numbers(a), _numbers(b), _numbers(d)
        if a.dtype.scalar == tl.float32 and input_precision == _ir.INPUT_PRECISION.TF32:
            x, y = arithmetic.round_to_tf32(x), arithmetic.round_to_tf32(y)
        wide = np.result_type(acc.dtype, np.float32) if acc.dtype.kind == "f" else acc.dtype
        return handle_of(np.matmul(x.astype(wide), y.astype(wide)) + acc, d.dtype)

    def create_extern_elementwise(
        self, library: str, path: str, symbol: str, args: Sequence[TensorHandle], result: tl.dtype, is_pure: bool
    ) -> TensorHandle:
        return handle_of(np.asarray(libdevice_function(symbol)(*map(_numbers, args))), result)

    # conversions

    def cast_impl(self, src: TensorHandle, dst_type: tl.dtype) -> TensorHandle:
        source, target = src.dtype.scalar, dst_type.scalar
        if source == target:
            return src
        values, stored = _numbers(src), stored_dtype(target)
        if values.dtype.kind == "f" and stored.kind in "iu" and target.name not in arithmetic.NARROW:
            return TensorHandle(arithmetic.float_to_integer(values, stored), target)
        if target == tl.int1:
            return TensorHandle((values & values.dtype.type(1)).astype(np.bool_), target)
        return handle_of(values, target)

    def create_fp_to_fp(self, src: TensorHandle, dst_type: tl.dtype, rounding_mode: Any = None) -> TensorHandle:
        if rounding_mode == _ir.ROUNDING_MODE.RTZ:
            raise NotImplementedError("the interpreter does not round towards zero")
        return self.cast_impl(src, dst_type)
