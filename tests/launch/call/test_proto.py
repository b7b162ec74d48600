"""The message is the one that jaxlib's own encoder writes."""

from __future__ import annotations

import importlib

import pytest

from jaxpr2triton.launch.call.proto import encode_kernel_call


def test_a_message_that_jaxlib_wrote() -> None:
    """TritonKernelCall(TritonKernel("soft", 4, 1, 300, "ptx", "", 90), 200, 3, 1, two arrays).to_proto("soft", b"")"""
    expected = "0a290a140a04736f6674100418ac022203707478305a500110c801180320012a040a0210102a040a0210102204736f6674"
    assert encode_kernel_call("soft", "ptx", 4, 300, 90, (200, 3, 1), [0, 0]).hex() == expected


def test_what_is_zero_before() -> None:
    """create_array_parameter(4, 16) for the second array."""
    cleared = encode_kernel_call("soft", "ptx", 4, 300, 90, (200, 3, 1), [0, 4]).hex()
    assert cleared == (
        "0a2b0a140a04736f6674100418ac022203707478305a500110c801180320012a040a0210102a060a04080410102204736f6674"
    )


@pytest.mark.cuda_plugin
@pytest.mark.parametrize("shared", [0, 127, 128, 232_448])
@pytest.mark.parametrize("grid", [(1, 1, 1), (2**31 - 1, 65_535, 300)])
def test_against_the_plugins_encoder(shared: int, grid: tuple[int, int, int]) -> None:
    jaxlib_triton = importlib.import_module("jaxlib.gpu_triton")
    if not hasattr(jaxlib_triton, "TritonKernel"):
        pytest.skip("JAX's CUDA plugin is not installed")
    ptx = ".version 8.7\n" * 100
    kernel = jaxlib_triton.TritonKernel("soft", 8, 1, shared, ptx, "", 100)
    arrays = [jaxlib_triton.create_array_parameter(size, 16) for size in (0, 0, 1, 4, 300)]
    expected = jaxlib_triton.TritonKernelCall(kernel, *grid, arrays).to_proto("soft", b"")
    assert encode_kernel_call("soft", ptx, 8, shared, 100, grid, [0, 0, 1, 4, 300]) == expected
