"""Which ptxas JAX would take, as it is known before XLA compiles; each ptxas here is a script that says its version."""

from __future__ import annotations

import importlib
import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch.call import assembler, primitive
from jaxpr2triton.launch.call.assembler import Assembler, assemblers, check_assembler

X = jax.ShapeDtypeStruct((8, 100), jnp.float32)
SAYS = """\
ptxas: NVIDIA (R) Ptx optimizing assembler
Copyright (c) 2005-2024 NVIDIA Corporation
Built on Thu_Mar_28_02:18:24_PDT_2024
Cuda compilation tools, release {short}, V{version}
Build cuda_{short}.r{short}/compiler.0_0
"""

pytestmark = pytest.mark.usefixtures("cache_dir")


def make_ptxas(folder: Path, version: str, script: str = "") -> Path:
    """A ptxas that says it is of that version, and notes that it was asked."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ptxas"
    says = SAYS.format(version=version, short=version.rpartition(".")[0])
    path.write_text(
        "\n".join(["#!/bin/sh", f"echo asked >> {folder}/asked", script or f"/bin/cat << END\n{says}END", ""])
    )
    path.chmod(0o755)
    return path


def times_asked(ptxas: Path) -> int:
    return len((ptxas.parent / "asked").read_text().splitlines())


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of packages, with a plugin for CUDA 13 in it; a ptxas may be in `path` and in `usual`."""
    packages = tmp_path / "lib" / "python3" / "site-packages"
    (packages / "jax_cuda13_plugin").mkdir(parents=True)
    (packages / "jax_cuda13_plugin" / "__init__.py").touch()
    for name in assembler._PLUGINS:  # which may be installed here
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(assembler, "_USUAL", (str(tmp_path / "usual"),))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("J2T_TARGET", raising=False)
    monkeypatch.setattr(primitive, "_fallen_back", set())
    return packages


def lowered(function: Callable[..., Any], *args: Any) -> str:
    return jax.jit(function).trace(*args).lower(lowering_platforms=("cuda",)).as_text()


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x * 1.5)


def found() -> list[str]:
    return [each.path for each in assemblers()]


def test_the_order_in_which_jaxlib_looks(tmp_path: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [tmp_path / "bin", tmp_path / "path", tmp_path / "more", tmp_path / "usual"]
    places += [plugin / "nvidia" / "cu13" / "bin", plugin / "jax_cuda13_plugin" / "cuda" / "bin"]
    for number, place in enumerate(places):
        make_ptxas(place, f"12.{number}.99")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}{os.pathsep}{tmp_path / 'more'}{os.pathsep}{tmp_path / 'none'}")
    prefix = [str(tmp_path / "bin" / "ptxas")]  # of the environment, which is also the folder we are in
    assert found() == [str(place / "ptxas") for place in places] + prefix
    monkeypatch.delenv("PATH")
    assert found() == [str(place / "ptxas") for place in [places[0], *places[3:]]] + prefix


def test_toolkits_of_12_lie_elsewhere(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "_PLUGINS", dict(list(assembler._PLUGINS.items())[1:]))
    (plugin / "jax_cuda13_plugin").rename(plugin / "jax_cuda12_plugin")
    importlib.invalidate_caches()
    make_ptxas(plugin / "nvidia" / "cu13" / "bin", "13.0.88")
    ptxas = make_ptxas(plugin / "nvidia" / "cuda_nvcc" / "bin", "12.9.86")
    assert found() == [str(ptxas)]


def test_without_a_plugin_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lowered here is for another machine then, and that one's ptxas counts."""
    monkeypatch.setattr(assembler, "_PLUGINS", {"jax_cuda_plugin_that_is_missing": "nvidia"})
    ptxas = make_ptxas(tmp_path / "path", "11.8.89")
    assert "custom_call" in lowered(j2t.fuse(softmax, strict=True), X)
    assert not (ptxas.parent / "asked").exists()


@pytest.mark.parametrize(
    ("cuda", "ptx"),
    [((11, 8, 89), 78), ((12, 0, 76), 80), ((12, 4, 131), 84), ((12, 5, 82), 85), ((12, 6, 85), 85), ((12, 7, 0), 86)]
    + [((12, 8, 93), 87), ((12, 9, 86), 88), ((13, 0, 88), 90), ((13, 4, 59), 94)],
)
def test_the_newest_ptx_of_a_toolkit(cuda: tuple[int, ...], ptx: int) -> None:
    assert Assembler("ptxas", cuda).newest_ptx == ptx


def test_what_12_4_can_read_is_given_to_it(tmp_path: Path) -> None:
    ptxas = make_ptxas(tmp_path / "path", "12.4.131")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = lowered(j2t.fuse(softmax, strict=True), X)
    assert text.count("custom_call @triton_kernel_call_ffi") == 1 and times_asked(ptxas) == 1


@pytest.mark.parametrize(
    ("version", "target", "reads", "needs"), [("12.4.131", "sm_100", "8.4", "8.6"), ("11.8.89", "sm_90", "7.8", "8.0")]
)
def test_what_it_cannot_read_is_left_to_xla_with_one_line(
    version: str, target: str, reads: str, needs: str, tmp_path: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("J2T_TARGET", target)
    old = make_ptxas(tmp_path / "path", version)
    new = make_ptxas(tmp_path / "opt", "13.0.88")
    monkeypatch.setenv("PATH", f"{old.parent}{os.pathsep}{new.parent}{os.pathsep}{os.environ['PATH']}")
    step = jax.value_and_grad(j2t.fuse(lambda x: (jnp.sort(softmax(x)) ** 2).mean()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        texts = [lowered(step, X), lowered(j2t.fuse(softmax), X)]
    assert [(each.category, str(each.message)) for each in caught] == [
        (
            j2t.KernelFallback,
            f"XLA runs what kernels were made for: JAX would assemble kernels for {target} with {old} of CUDA "
            f"{version.rpartition('.')[0]}, which reads PTX {reads} at most, and they need {needs}; "
            f"put a newer ptxas, as in {new.parent}, first on PATH",
        )
    ]
    assert all("triton" not in text for text in texts)


def test_what_it_cannot_read_under_strict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_TARGET", "sm_120")
    old = make_ptxas(tmp_path / "path", "12.4.131")
    monkeypatch.setattr(assembler, "_tritons", lambda: [])
    with pytest.raises(j2t.KernelRefused) as caught:
        lowered(j2t.fuse(softmax, strict=True), X)
    assert str(caught.value) == (
        f"JAX would assemble kernels for sm_120 with {old} of CUDA 12.4, which reads PTX 8.4 at most, "
        "and they need 8.7\n"
        "  try  put a newer ptxas (pip install nvidia-cuda-nvcc has one) first on PATH"
    )


def test_triton_brings_one_along_that_jax_does_not_see(tmp_path: Path, plugin: Path) -> None:
    make_ptxas(tmp_path / "path", "11.8.89")
    with pytest.raises(j2t.KernelRefused) as caught:
        check_assembler(TARGETS["sm_80"])
    assert caught.value.hint is not None
    assert re.search(r", as in \S+/bin, first on PATH$", caught.value.hint)


def test_a_newer_one_comes_too_late(tmp_path: Path, plugin: Path) -> None:
    """pip's packages are looked at last, though XLA takes them first for its own kernels."""
    make_ptxas(plugin / "nvidia" / "cu13" / "bin", "13.0.88")
    check_assembler(TARGETS["sm_90"])
    make_ptxas(tmp_path / "path", "11.8.89")
    with pytest.raises(j2t.KernelRefused, match=r"path/ptxas of CUDA 11\.8, which reads PTX 7\.8 at most"):
        check_assembler(TARGETS["sm_90"])


def test_each_is_asked_once_until_it_changes(tmp_path: Path) -> None:
    ptxas = make_ptxas(tmp_path / "path", "12.4.131")
    for _ in range(3):
        assert next(assemblers()) == Assembler(str(ptxas), (12, 4, 131))
    assert times_asked(ptxas) == 1
    make_ptxas(tmp_path / "path", "12.9.86")
    os.utime(ptxas, (1, 1))
    assert next(assemblers()).version == (12, 9, 86)


@pytest.mark.parametrize("version", ["11.7.99", "12.3.103"])
def test_what_jaxlib_does_not_take(version: str, tmp_path: Path, plugin: Path) -> None:
    make_ptxas(tmp_path / "path", version)
    ptxas = make_ptxas(tmp_path / "bin", "12.2.140")
    assert found()[0] == str(ptxas)
    (tmp_path / "bin" / "ptxas").unlink()
    assert found() == []


@pytest.mark.parametrize("script", ["echo ptxas, a fine assembler", "exit 3", "kill -9 $$", "printf '\\377\\376'"])
def test_one_that_says_nonsense_is_passed_over(script: str, tmp_path: Path) -> None:
    make_ptxas(tmp_path / "path", "", script)
    assert found() == []


def test_what_is_no_program_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "path" / "ptxas").mkdir(parents=True)
    assert found() == []
    (tmp_path / "path" / "ptxas").rmdir()
    (tmp_path / "path" / "ptxas").write_text("not to be executed")
    assert found() == []


def test_one_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "_SECONDS", 0.2)
    make_ptxas(tmp_path / "path", "", "sleep 20")
    began = time.monotonic()
    assert found() == [] and time.monotonic() - began < 10
    assert "custom_call" in lowered(j2t.fuse(softmax, strict=True), X)


def test_on_the_cpu_nobody_looks(tmp_path: Path) -> None:
    ptxas = make_ptxas(tmp_path / "path", "11.8.89")
    x = jnp.ones((8, 100))
    for backend in ("auto", "interpret"):
        jax.block_until_ready(j2t.fuse(softmax, backend=backend, strict=True)(x))
    assert not (ptxas.parent / "asked").exists()
