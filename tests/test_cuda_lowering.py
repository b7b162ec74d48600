"""What XLA gets to see when a fused program is lowered for CUDA, on a machine that need not have one."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import triton

import jaxpr2triton as j2t
from bench import xla
from tests.programs import cross_entropy, layer_norm, windows

ROWS, COLUMNS = 512, 256
TARGET = "triton_kernel_call_ffi"

# Operations that XLA folds, renames or fills in without a kernel of its own.
FREE = {"constant", "reshape", "return", "custom_call", "call", "convert"}


@j2t.fuse
def layer_norm_loss(x: Any, scale: Any, bias: Any, target: Any) -> Any:
    return ((layer_norm(x, scale, bias) - target) ** 2).mean()


@j2t.fuse
def classifier_loss(logits: Any, labels: Any) -> Any:
    return cross_entropy(logits, labels)


def shaped(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


LOSSES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {
    "layer_norm": (
        layer_norm_loss,
        (shaped(ROWS, COLUMNS), shaped(COLUMNS), shaped(COLUMNS), shaped(ROWS, COLUMNS)),
        (0, 1, 2),
    ),
    "cross_entropy": (classifier_loss, (shaped(ROWS, COLUMNS), shaped(ROWS, dtype=jnp.int32)), (0,)),
}


def gradient_of(name: str) -> tuple[Any, tuple[Any, ...]]:
    loss, avals, argnums = LOSSES[name]
    return jax.jit(jax.value_and_grad(loss, argnums)), avals


@pytest.mark.parametrize("name", LOSSES)
def test_a_training_step_is_calls_of_our_kernels(name: str) -> None:
    step, avals = gradient_of(name)
    text = step.trace(*avals).lower(lowering_platforms=("cuda",)).as_text()
    operations = re.findall(r"stablehlo\.(\w+)", text)
    targets = re.findall(r"custom_call @(\w+)", text)
    assert set(targets) == {TARGET} and len(targets) <= 8
    assert set(operations) <= FREE, sorted(set(operations) - FREE)


def test_what_is_left_over_is_between_the_kernels() -> None:
    sandwich = jax.jit(j2t.fuse(lambda x: windows(jnp.sin(x)) * 2))
    text = sandwich.trace(shaped(64, 32)).lower(lowering_platforms=("cuda",)).as_text()
    assert re.findall(r"custom_call @(\w+)", text) == [TARGET, TARGET]
    assert text.count("stablehlo.reduce_window") == 1


def with_the_plugin(test: Any) -> Any:
    """Needs JAX's plugin for CUDA."""
    found = any(importlib.util.find_spec(f"jax_cuda{n}_plugin") for n in (12, 13))
    missing = importlib.util.find_spec("jax_plugins") is None or not found
    return pytest.mark.cuda_plugin(pytest.mark.skipif(missing, reason="JAX's CUDA plugin is not installed")(test))


def compile_elsewhere(name: str, **variables: str) -> None:
    """In a process of its own, because the plugin is only loaded without a device if JAX is told to run on the CPU."""
    program = f"from tests.test_cuda_lowering import check_compiled; check_compiled({name!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "JAX_PLATFORMS": "cpu", **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@with_the_plugin
@pytest.mark.parametrize("name", LOSSES)
def test_xla_compiles_it_for_an_h200(name: str) -> None:
    compile_elsewhere(name)


# Stands for the ptxas of CUDA 12.4: it reads no newer PTX, and notes what it is given.
OLD_PTXAS = """\
#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 12.4, V12.4.131"; exit; fi
grep -E "^\\.version|\\.entry" "$1" >> "{folder}/given"
version=$(sed -n "s/^\\.version //p" "$1")
case $version in
    8.[5-9] | 9.*) echo "fatal   : Unsupported .version $version; current version is '8.4'" >&2; exit 255 ;;
esac
exec "{ptxas}" "$@"
"""


@with_the_plugin
@pytest.mark.skipif(jax.version.__version_info__ < (0, 11), reason="an older JAX assembles at the first launch")
def test_an_old_toolkit_on_the_path_assembles_it(tmp_path: Path) -> None:
    ptxas = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    (tmp_path / "ptxas").write_text(OLD_PTXAS.format(folder=tmp_path, ptxas=ptxas))
    (tmp_path / "ptxas").chmod(0o755)
    compile_elsewhere("layer_norm", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    given = (tmp_path / "given").read_text()
    assert ".version 8.0" in given and ".entry layer_norm_loss_bwd" in given


def check_compiled(name: str) -> None:
    """Without a device: XLA schedules the program, and its assembler takes every kernel."""
    step, avals = gradient_of(name)
    sharding = xla.device()
    placed = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding) for aval in avals]
    text = step.lower(*placed).compile().as_text()
    entry = text[text.index("ENTRY") :]
    assert entry.count(f'custom_call_target="{TARGET}"') >= 2
    launched = set(re.findall(r" (fusion|reduce|dot|sort|scatter|gather|transpose|copy)\(", entry))
    assert not launched, entry


# ---------------------------------------------------------------------------------------------- profiles, exports
def scoped(x: Any) -> Any:
    with jax.named_scope("attention"):
        x = jax.nn.softmax(x, -1)
    with jax.named_scope("mlp"):
        return jnp.sort(jnp.sin(x).sum(0)) * 2


def scopes_of(function: Callable[..., Any]) -> list[str]:
    """The names that a profile shows for our kernels."""
    text = jax.jit(function).trace(shaped(2048, 1024)).lower(lowering_platforms=("cuda",)).as_text(debug_info=True)
    names = dict(re.findall(r'^(#loc\d+) = loc\("([^"]*)"', text, re.MULTILINE))
    return [names[place] for place in re.findall(rf"custom_call @{TARGET}.* loc\((#loc\d+)\)$", text, re.MULTILINE)]


def test_named_scopes_are_in_profiles() -> None:
    """A kernel of several scopes is in that of its result."""
    names = scopes_of(j2t.fuse(scoped))
    assert names[0].startswith("attention/scoped") and names[-1].startswith("mlp/scoped")
    assert all(re.fullmatch(r"(attention|mlp)/scoped\w*/\w+", name) for name in names)
    names = scopes_of(jax.grad(lambda x: j2t.fuse(scoped)(x).sum()))
    assert any(name.startswith("transpose(jvp(attention))/scoped_bwd") for name in names)


def test_an_export_for_cuda_is_made_anywhere() -> None:
    call = jax.export.DisabledSafetyCheck.custom_call(TARGET)
    exported = jax.export.export(jax.jit(j2t.fuse(scoped)), platforms=("cpu", "cuda"), disabled_checks=[call])
    made = exported(shaped(64, 32))
    assert TARGET in made.mlir_module()
    x = jnp.linspace(0, 1, 64 * 32).reshape(64, 32)
    assert jnp.allclose(made.call(x), scoped(x), rtol=1e-5)


BATCH = "b, 32"


@pytest.mark.parametrize("backend", ["auto", "interpret", "machine"])
@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("gradient", [False, True])
def test_symbolic_shapes_stay_with_xla(backend: Any, platform: str, gradient: bool) -> None:
    """It is a limit: nothing is said of it, unless nothing may stay with XLA."""
    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape(BATCH), jnp.float32)

    def exported(strict: bool) -> Any:
        f = j2t.fuse(scoped, backend=backend, strict=strict)
        call = jax.jit(jax.grad(lambda x: f(x).sum())) if gradient else f
        return jax.export.export(call, platforms=(platform,))(shape)

    assert TARGET not in exported(False).mlir_module()
    with pytest.raises(j2t.NotFusible) as caught:
        exported(True)
    assert str(caught.value) == (
        "cannot compile scoped: f32[b,32] is a symbolic shape, and kernels are made for numbers, so the whole function "
        "stays with XLA\n  try  export it for each shape that you need, or leave it to XLA (drop strict=True)"
    )


def test_symbolic_shapes_cannot_be_transpiled() -> None:
    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape(BATCH), jnp.float32)
    with pytest.raises(j2t.UserError) as caught:
        j2t.fuse(scoped).explain(shape)
    assert str(caught.value) == (
        "scoped has an argument of a symbolic shape, f32[b,32], and kernels are made for numbers\n"
        "  try  transpile it for each shape that you need"
    )
