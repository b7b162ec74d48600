"""The driver by itself, which needs a compiler and no plugin: what it reads in cubins, and what it refuses."""

from __future__ import annotations

import ctypes
import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest

from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch.compile.compile import compile_kernel, resources
from tests.launch.handmade import SOFTMAX
from tests.standin import build

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the driver is compiled by gcc")

NOT_FOUND, INVALID, NOT_SUPPORTED = 500, 1, 801
CUBIN = 1


@pytest.fixture(scope="module")
def parts() -> build.Parts:
    places = {name: build.find(where) for name, where in (("header", build.HEADER), ("ptxas", build.ASSEMBLER))}
    return build.Parts(Path("gcc"), places["header"].parent, places["ptxas"], build.find(build.LIBDEVICE), ())


@pytest.fixture(scope="module")
def driver(parts: build.Parts, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Under a name of its own: the loader would hand out a library called libcuda.so.1 to everybody."""
    folder = tmp_path_factory.mktemp("driver")
    named = dataclasses.replace(build.DRIVER, soname="libstandin.so")
    build.link(named, ["cuMemAlloc_v2", "cuNothingOfTheKind", "cudaMalloc"], parts, folder)
    return ctypes.CDLL(str(folder / named.soname))


@pytest.fixture(scope="module")
def cubin(parts: build.Parts, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """As the wrapper of ptxas leaves it."""
    folder = tmp_path_factory.mktemp("cubin")
    wrapper, text, made = folder / "ptxas", folder / "kernel.ptx", folder / "kernel.cubin"
    build.write_wrapper(wrapper, parts)
    text.write_text(str(compile_kernel(SOFTMAX, TARGETS["sm_90"]).code))
    subprocess.run([wrapper, "-arch=sm_90a", text, "-o", made], check=True)
    return made.read_bytes()


@pytest.mark.parametrize("library", build.LIBRARIES[1:4], ids=lambda library: library.soname)
def test_the_other_libraries_compile(library: build.Library, parts: build.Parts, tmp_path: Path) -> None:
    alone = dataclasses.replace(library, needs=())
    build.link(alone, ["nvmlNothing", "cudaNothing", "cuNothing", "cublasNothing"], parts, tmp_path)
    assert (tmp_path / library.soname).exists()


def test_what_is_missing_says_so(driver: ctypes.CDLL, capfd: pytest.CaptureFixture[str]) -> None:
    assert driver.cuNothingOfTheKind() == NOT_SUPPORTED
    assert capfd.readouterr().err == "the stand-in driver has no cuNothingOfTheKind\n"
    assert not hasattr(driver, "cudaMalloc")


def test_the_newest_form_of_an_entry_is_found(driver: ctypes.CDLL) -> None:
    found, status = ctypes.c_void_p(), ctypes.c_int()
    assert (
        driver.cuGetProcAddress_v2(b"cuMemAlloc", ctypes.byref(found), 13000, ctypes.c_uint64(), ctypes.byref(status))
        == 0
    )
    assert found.value == ctypes.cast(driver.cuMemAlloc_v2, ctypes.c_void_p).value
    assert driver.cuGetProcAddress_v2(b"cuNoSuch", ctypes.byref(found), 13000, ctypes.c_uint64(), None) == NOT_FOUND


def test_a_cubin_says_what_its_kernel_takes(driver: ctypes.CDLL, cubin: bytes) -> None:
    out = ctypes.create_string_buffer(4096)
    assert driver.standin_describe(cubin, out, ctypes.c_size_t(len(out))) == CUBIN
    binary = compile_kernel(SOFTMAX, TARGETS["sm_90"])
    registers, parameters = resources(binary).registers, len(SOFTMAX.buffers) + 2  # and two scratches
    assert out.value.decode() == (
        f"softmax {registers} registers 0 shared {parameters} parameters {8 * parameters} bytes "
        f"{32 * binary.num_warps} threads arch 90\n"
    )


def test_text_is_read_as_a_cubin_is(driver: ctypes.CDLL, cubin: bytes) -> None:
    text = str(compile_kernel(SOFTMAX, TARGETS["sm_90"]).code).encode()
    out = ctypes.create_string_buffer(4096)
    driver.standin_describe(text, out, ctypes.c_size_t(len(out)))
    parameters = len(SOFTMAX.buffers) + 2
    assert f"{parameters} parameters {8 * parameters} bytes" in out.value.decode()


def test_the_text_lies_behind_the_cubin(cubin: bytes) -> None:
    text = str(compile_kernel(SOFTMAX, TARGETS["sm_90"]).code).encode()
    assert cubin.endswith(text + b"\0") and cubin[15:16] == b"P"


def test_copies_stay_inside_of_allocations(driver: ctypes.CDLL) -> None:
    at, size = ctypes.c_uint64(), 64
    assert driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)) == 0
    host = ctypes.create_string_buffer(b"x" * size, size)
    assert driver.cuMemcpyHtoD_v2(at, host, ctypes.c_size_t(size)) == 0
    back = ctypes.create_string_buffer(size)
    assert driver.cuMemcpyDtoH_v2(back, at, ctypes.c_size_t(size)) == 0 and back.raw == host.raw
    assert driver.cuMemcpyHtoD_v2(at, host, ctypes.c_size_t(size + 1)) == INVALID
    assert driver.cuMemFree_v2(at) == 0
    assert driver.cuMemFree_v2(at) == INVALID
