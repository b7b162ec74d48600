"""Triton's typing rules over the repaired builder, with shortcuts: a tile's type is made once, not at every step."""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.language.semantic import TritonSemantic

from jaxpr2triton.launch.interpret.builder import Builder

# Two operands of one of these types are computed in it, whatever the operator.
_CLOSED = frozenset(dtype.name for dtype in (tl.float32, tl.float64, tl.int32, tl.int64, tl.uint32, tl.uint64))


class Semantic(TritonSemantic):
    """The stock rules give the same results, slower."""

    def binary_op_type_checking_impl(self, lhs: Any, rhs: Any, *more: Any, **options: Any) -> tuple[Any, Any]:
        tensors = isinstance(lhs, tl.tensor) and isinstance(rhs, tl.tensor)
        if tensors and lhs.dtype.name == rhs.dtype.name and lhs.dtype.name in _CLOSED:
            return self.broadcast_impl_value(lhs, rhs)
        return super().binary_op_type_checking_impl(lhs, rhs, *more, **options)

    def broadcast_impl_value(self, lhs: Any, rhs: Any) -> tuple[Any, Any]:
        left, right = lhs.type, rhs.type
        if left.is_block() and right.is_block() and left.shape.values == right.shape.values:
            return lhs, rhs
        return super().broadcast_impl_value(lhs, rhs)

    def load(self, ptr: Any, mask: Any, other: Any, *more: Any) -> Any:
        """The stock rule asks `if other`, which loses an `other` of 0.0 where a tensor of one element has a truth."""
        if other is None or mask is None or ptr.type.is_block():
            return super().load(ptr, mask, other, *more)
        loaded = super().load(ptr, mask, None, *more)
        return self.where(mask, loaded, self.cast(other, loaded.dtype))


SEMANTIC = Semantic(Builder())


_stock_block_type_init = tl.block_type.__init__
_stock_tensor_init = tl.tensor.__init__
_block_types: dict[Any, dict[str, Any]] = {}
_shapes: dict[Any, tuple[Any, Any]] = {}


def block_type_init(self: tl.block_type, element_ty: tl.dtype, shape: Any) -> None:
    """`block_type.__init__`, which is slow, once for each type."""
    sizes = shape.values if isinstance(shape, tl.tuple) else shape
    key = (element_ty.name, *(size if type(size) is int else size.value for size in sizes))
    made = _block_types.get(key)
    if made is None:
        _stock_block_type_init(self, element_ty, shape)
        _block_types[key] = dict(vars(self))
    else:
        vars(self).update(made)


def tensor_init(self: tl.tensor, handle: Any, type: tl.dtype) -> None:
    """`tensor.__init__`, which is slow, once for each shape."""
    key = tuple(type.shape.values) if type.is_block() else ()
    made = _shapes.get(key)
    if made is None:
        _stock_tensor_init(self, handle, type)
        _shapes[key] = (self.numel, self.shape)
    else:
        self.numel, self.shape = made
        self.handle, self.type, self.dtype = handle, type, type.scalar
