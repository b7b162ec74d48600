"""The message that jaxlib's `triton_kernel_call_ffi` custom call reads, encoded by hand.

It is a protobuf (`TritonAnyKernelCall`), so that a kernel can be lowered where jaxlib's GPU plugin is not installed:

    any call      1: kernel call   4: name
    kernel call   1: kernel   2, 3, 4: grid   5: parameters
    kernel        1: entry point   2: warps   3: shared bytes   4: PTX   6: compute capability   10: blocks in a cluster
    parameter     1: array (1: bytes to zero   2: alignment)
"""

from __future__ import annotations

from collections.abc import Sequence

_ALIGNMENT = 16  # of every array of JAX, in bytes


def encode_kernel_call(
    entry: str,
    ptx: str,
    num_warps: int,
    shared: int,
    capability: int,
    grid: tuple[int, int, int],
    zeroed: Sequence[int],
) -> bytes:
    """A launch of one kernel whose parameters are pointers; `zeroed` says how many bytes of each are zero before."""
    kernel = (
        _bytes(1, entry.encode())
        + _number(2, num_warps)
        + _number(3, shared)
        + _bytes(4, ptx.encode())
        + _number(6, capability)
        + _number(10, 1)
    )
    launch = _bytes(1, kernel) + b"".join(_number(tag, size) for tag, size in zip((2, 3, 4), grid))
    arrays = (_bytes(5, _bytes(1, _number(1, size) + _number(2, _ALIGNMENT))) for size in zeroed)
    call = launch + b"".join(arrays)
    return _bytes(1, call) + _bytes(4, entry.encode())


def _varint(value: int) -> bytes:
    """Seven bits to a byte, the lowest first; the top bit says that more follow."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _number(tag: int, value: int) -> bytes:
    """Nothing for 0, which is the default of every number."""
    return _varint(tag << 3) + _varint(value) if value else b""


def _bytes(tag: int, payload: bytes) -> bytes:
    return _varint(tag << 3 | 2) + _varint(len(payload)) + payload
