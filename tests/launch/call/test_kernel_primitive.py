"""A kernel inside JAX: interpreted, lowered for devices that are not here, and replaced by XLA."""

from __future__ import annotations

import dataclasses
import re
import threading
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpr2triton.errors import BugWarning, CompilerBug, KernelFallback, KernelRefused
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.call import bridge, devices, primitive
from jaxpr2triton.launch.call.devices import target_for, target_of_capability
from jaxpr2triton.launch.call.primitive import Mode, launch_kernel
from jaxpr2triton.launch.call.proto import encode_kernel_call
from jaxpr2triton.launch.compile.compile import compile_kernel
from tests.launch.handmade import SOFTMAX, add_kernel, dtype_of, make_kernel, shift_kernel

X = jnp.asarray(np.random.default_rng(0).standard_normal((5, 300), dtype=np.float32))
BAD = make_kernel("bad", "tl.store(out_ptr, nowhere)", SPECS := [("x", (5, 300), "float32")], [("out", *SPECS[0][1:])])
LARGE = dataclasses.replace(BAD, name="large", grid=(1, 70_000, 1))


def launcher(
    kernel: Kernel = SOFTMAX,
    reference: Callable[..., Any] = jax.nn.softmax,
    mode: Mode = "device",
    strict: bool = True,
    alternatives: tuple[Kernel, ...] = (),
) -> Callable[..., Any]:
    shapes = [jax.ShapeDtypeStruct(buffer.shape, buffer.dtype) for buffer in kernel.inputs]
    region = jax.make_jaxpr(lambda *args: [reference(*args)])(*shapes)
    return lambda *args: launch_kernel(kernel, region, args, mode, strict, alternatives)[0]


def lowered(function: Callable[..., Any], platform: str = "cuda") -> str:
    return jax.jit(function).trace(X).lower(lowering_platforms=(platform,)).as_text()


@pytest.fixture(autouse=True)
def fresh(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("J2T_TARGET", raising=False)
    primitive._fallen_back.clear()


def test_interpreted_eagerly_and_under_jit() -> None:
    function = launcher(mode="interpret")
    for run in (function, jax.jit(function), jax.jit(lambda x: function(function(x) * 2) + 1)):
        assert isinstance(run(X), jax.Array)
    np.testing.assert_allclose(jax.jit(function)(X), jax.nn.softmax(X), rtol=1e-5)
    np.testing.assert_allclose(function(X), jax.nn.softmax(X), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float16", "bfloat16", "float32"])
def test_every_dtype_through_the_callback(dtype: str) -> None:
    text = "i = tl.arange(0, 8)\ntl.store(out_ptr + i, tl.load(x_ptr + i))"
    kernel = make_kernel("copy", text, [("x", (8,), dtype)], [("out", (8,), dtype)])
    x = jnp.arange(8).astype(dtype_of(dtype))
    out = jax.jit(launcher(kernel, lambda x: x, "interpret"))(x)
    assert out.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(out), np.asarray(x))


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
@pytest.mark.parametrize("shape", [(8,), (), (0,)], ids=str)
def test_64_bits_from_a_thread_without_them(dtype: str, shape: tuple[int, ...]) -> None:
    """XLA may call from a thread of its own, in which `jax.enable_x64` is not set."""
    size = int(np.prod(shape))
    text = f"i = tl.arange(0, {max(size, 1)})\ntl.store(out_ptr + i, tl.load(x_ptr + i, i < {size}), i < {size})"
    kernel = make_kernel("copy", text, [("x", shape, dtype)], [("out", shape, dtype)])
    values = np.random.default_rng(0).integers(1 << 50, 1 << 60, shape).astype(dtype)
    with jax.enable_x64(True):
        x = jnp.asarray(values)
        compiled = jax.jit(launcher(kernel, lambda x: x, "interpret")).lower(x).compile()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(compiled(x)))
    thread.start()
    thread.join()
    assert found[0].dtype == values.dtype
    np.testing.assert_array_equal(np.asarray(found[0]), values)


def test_large_arrays_do_not_deadlock() -> None:
    """Arrays that must be copied are what callbacks that use JAX inside wait for, for ever."""
    text = "i = tl.program_id(0) * 65536 + tl.arange(0, 65536)\ntl.store(out_ptr + i, tl.load(x_ptr + i) + 1)"
    size = 32 * 65536
    kernel = make_kernel("plus", text, [("x", (size,), "float32")], [("out", (size,), "float32")], (32, 1, 1))
    step = launcher(kernel, lambda x: x + 1, "interpret")
    out = jax.jit(lambda x: step(step(x * 2)) * 3)(jnp.zeros(size))
    np.testing.assert_array_equal(np.asarray(out), 6)


def test_interpreted_inside_control_flow_and_from_threads() -> None:
    function = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, y: launcher(mode="interpret")(y), x))
    want = jax.nn.softmax(jax.nn.softmax(jax.nn.softmax(X)))
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(np.asarray(function(X)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results:
        np.testing.assert_allclose(result, want, rtol=1e-5)


def test_bugs_of_kernels_come_out() -> None:
    text = "tl.store(out_ptr + 1, tl.load(x_ptr))"
    function = launcher(
        make_kernel("wild", text, [("x", (), "float32")], [("out", (), "float32")]), lambda x: x, "interpret"
    )
    with pytest.raises(CompilerBug, match="kernel wild writes element 1 of out, which has 1"):
        function(jnp.float32(1))
    with pytest.raises(Exception, match="kernel wild writes element 1 of out, which has 1"):
        jax.block_until_ready(jax.jit(function)(jnp.float32(1)))


def test_an_interrupt_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(primitive, "run_interpreted", interrupt)
        with pytest.raises(KeyboardInterrupt):
            launcher(mode="interpret")(X)


def test_on_other_devices_xla_runs_the_region() -> None:
    function = launcher()
    np.testing.assert_array_equal(jax.jit(function)(X), jax.jit(jax.nn.softmax)(X))
    np.testing.assert_array_equal(function(X), jax.jit(jax.nn.softmax)(X))
    assert "custom_call" not in lowered(function, "cpu")


def test_without_jit() -> None:
    with jax.disable_jit():
        for mode in ("device", "interpret"):
            np.testing.assert_allclose(launcher(mode=mode)(X), jax.nn.softmax(X), rtol=1e-5)


def test_shapes_are_known() -> None:
    for mode in ("device", "interpret"):
        assert jax.eval_shape(launcher(mode=mode), X) == jax.ShapeDtypeStruct((5, 300), jnp.float32)


def message_of(text: str) -> bytes:
    """The kernel call in a lowered module."""
    (opaque,) = re.findall(r'opaque = "((?:[^"\\]|\\[0-9A-F]{2}|\\.)*)"', text)
    escape = re.compile(rb"\\([0-9A-F]{2}|.)", re.DOTALL)
    raw = escape.sub(lambda m: bytes([int(m[1], 16)]) if len(m[1]) == 2 else m[1], opaque.encode("latin-1"))
    return zlib.decompress(raw)


def test_lowered_for_cuda_without_a_device() -> None:
    text = lowered(launcher())
    assert text.count("stablehlo.custom_call @triton_kernel_call_ffi") == 1
    assert "exponential" not in text
    message = message_of(text)
    ptx = str(compile_kernel(SOFTMAX, TARGETS["sm_90"]).code)
    assert ptx.encode() in message and b"softmax" in message


def test_the_target_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert target_for("cuda").name == "sm_90"
    assert target_for("rocm").name == "gfx942"
    monkeypatch.setenv("J2T_TARGET", "sm_80")
    assert target_for("cuda").name == "sm_80"
    assert target_for("rocm").name == "gfx942"
    assert b".target sm_80" in message_of(lowered(launcher()))


def test_a_local_device_has_as_many_processors_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """An H100 for PCIe, and one that is shared out."""
    local = [SimpleNamespace(compute_capability="9.0", core_count=count) for count in (114, 60)]
    monkeypatch.setattr(devices, "_local_devices", lambda platform: local if platform == "cuda" else [])
    assert target_for("cuda") == dataclasses.replace(TARGETS["sm_90"], processors=60)
    assert devices.planned_for() == devices.planned_for("cuda") == target_for("cuda")
    assert target_for("rocm") == TARGETS["gfx942"]
    monkeypatch.setenv("J2T_TARGET", "sm_80")
    assert target_for("cuda") == dataclasses.replace(TARGETS["sm_80"], processors=60)
    assert devices.planned_for() == TARGETS["sm_80"]
    del local[1].core_count, local[0]
    assert target_for("cuda") == TARGETS["sm_80"]


def test_targets_of_devices() -> None:
    assert target_of_capability("9.0") is TARGETS["sm_90"]
    assert target_of_capability("gfx942:sramecc+:xnack-") is TARGETS["gfx942"]
    unlisted = target_of_capability("10.3")
    assert (unlisted.name, unlisted.arch, unlisted.shared_bytes) == ("sm_103", 103, TARGETS["sm_100"].shared_bytes)
    assert bridge.target_arch(compile_kernel(SOFTMAX, unlisted)) == 103
    with pytest.raises(KernelRefused) as caught:
        target_of_capability("7.5")
    assert str(caught.value) == "devices of compute capability 7.5 are too old for Triton's kernels"
    with pytest.raises(KernelRefused, match="kernels are not compiled for gfx1100, only for sm_80, "):
        target_of_capability("gfx1100")


def test_the_counter_of_those_who_meet_is_zero_before() -> None:
    """And nothing else is: what they show each other is written before it is read."""
    kernel = shift_kernel()
    function = launcher(kernel, lambda x: x)
    lines = jax.jit(function).trace(jnp.zeros(1024)).lower(lowering_platforms=("cuda",)).as_text()
    binary = compile_kernel(kernel, TARGETS["sm_90"])
    zeroed = (0, 0, 0, kernel.kept[1].nbytes)
    assert [buffer.begins_as_zero for buffer in kernel.buffers] == [size > 0 for size in zeroed]
    expected = encode_kernel_call("shift", str(binary.code), 4, binary.shared, 90, (8, 1, 1), zeroed)
    assert message_of(lines) == expected


def test_programs_that_do_not_run_at_once_become_xlas(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this device; on a larger one of the same kind they run."""
    function = launcher(shift_kernel(133, num_warps=16), lambda x: x + 1, strict=False)
    x = jnp.zeros(133 * 128)
    assert "custom_call" in jax.jit(function).trace(x).lower(lowering_platforms=("cuda",)).as_text()
    small = [SimpleNamespace(compute_capability="9.0", core_count=30)]
    monkeypatch.setattr(devices, "_local_devices", lambda platform: small)
    with pytest.warns(KernelFallback) as caught:
        text = jax.jit(lambda x: function(x)).trace(x).lower(lowering_platforms=("cuda",)).as_text()
    assert "custom_call" not in text and "stablehlo.add" in text
    assert [str(each.message) for each in caught] == [
        "XLA runs what kernel shift was made for: kernel shift needs all of its 133 programs to run at once, and sm_90 "
        "has room for 4 on each of its 30 processors"
    ]


def test_rocm_launches_what_was_compiled() -> None:
    """The message names a file, which holds the very binary that was compiled and checked, and says how it is run."""
    binary = compile_kernel(SOFTMAX, TARGETS["gfx942"])
    for _ in range(2):  # jaxlib removes what it has read, and knows it again by its name
        lowered(launcher(), "rocm")
        (path,) = Path(bridge._folder().name).glob("*.hsaco")
        assert path.read_bytes() == binary.code
        code = str(path)
        path.unlink()
    expected = encode_kernel_call(binary.name, code, 4, binary.shared, 0, (5, 1, 1), (0, 0))
    assert message_of(lowered(launcher(), "rocm")) == expected


def test_a_refused_kernel_falls_back_with_one_warning() -> None:
    function = launcher(LARGE, strict=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        texts = [lowered(function), lowered(lambda x: function(x) + 1)]
    assert [(warning.category, str(warning.message)) for warning in caught] == [
        (
            KernelFallback,
            "XLA runs what kernel large was made for: kernel large: 70000 programs along y, where 1 to 65535 can run",
        )
    ]
    assert all("custom_call" not in text and "exponential" in text for text in texts)


def test_a_refused_kernel_under_strict() -> None:
    with pytest.raises(KernelRefused, match="kernel large: 70000 programs along y"):
        lowered(launcher(LARGE))


def test_source_that_triton_does_not_understand_is_a_bug_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CompilerBug, match="Triton refuses kernel bad: CompilationError: NameError"):
        lowered(launcher(BAD, strict=False))
    monkeypatch.setenv("J2T_RAISE", "0")
    with pytest.raises(CompilerBug, match="Triton refuses kernel bad: CompilationError: NameError"):
        lowered(launcher(BAD, strict=True))
    with pytest.warns(BugWarning, match="a bug in jaxpr2triton, in program bad"):
        text = lowered(launcher(BAD, strict=False))
    assert "custom_call" not in text and "exponential" in text


def test_smaller_alternatives_are_tried_in_order() -> None:
    text = lowered(launcher(BAD, alternatives=(BAD, SOFTMAX)))
    assert b".entry softmax" in message_of(text)


def test_kernels_must_fit_their_region() -> None:
    with pytest.raises(CompilerBug, match=r"^kernel add: expected inputs .*\(5, 300\).*, but found .*\(64,\)"):
        launcher(BAD, alternatives=(add_kernel(),))(X)


def test_batching_and_differentiating_are_bugs() -> None:
    with pytest.raises(CompilerBug, match="^kernel softmax was batched; programs are batched before they are cut"):
        jax.vmap(launcher())(X[None])
    with pytest.raises(CompilerBug, match="^kernel softmax was differentiated; programs are differentiated before"):
        jax.jvp(launcher(), (X,), (X,))
