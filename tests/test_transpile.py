"""`transpile`: programs to look at, to run, and to differentiate with."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.front.options import BACKENDS
from tests.programs import windows
from tests.transforms.functions import PARAMS, V, X, Y, dense, energy, layer_norm, mix, wave


def close(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


# ---------------------------------------------------------------------------------------------- programs
def test_from_arrays_and_from_shapes() -> None:
    by_array = j2t.transpile(layer_norm, X, V, V)
    by_shape = j2t.transpile(layer_norm, *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (X, V, V)))
    assert by_array.source == by_shape.source
    assert len(by_array.kernels) == 1 and by_array.leftovers == ()
    close(by_shape(X, V, V), layer_norm(X, V, V))


def test_what_a_kernel_tells() -> None:
    (kernel,) = j2t.transpile(layer_norm, X, V, V).kernels
    assert [buffer.name for buffer in kernel.inputs] == ["x", "scale", "bias"]
    assert [buffer.shape for buffer in kernel.outputs] == [(3, 4)]
    assert kernel.bytes_read == 4 * (12 + 4 + 4) and kernel.bytes_written == 4 * 12
    assert all(axis.size for axis in kernel.axes) and kernel.num_warps >= 1 and kernel.flops > 0


def test_pytrees_keywords_and_defaults() -> None:
    def f(params: Any, x: Any, factor: Any = 2.0, *, offset: Any) -> Any:
        return {"out": dense(params, x) * factor + offset["deep"]}

    program = j2t.transpile(f, PARAMS, X, offset={"deep": V})
    close(program(PARAMS, X, offset={"deep": V}), f(PARAMS, X, offset={"deep": V}))
    close(program(PARAMS, x=X, offset={"deep": V}), f(PARAMS, X, offset={"deep": V}))


def test_static_arguments_are_left_out() -> None:
    def power(x: Any, n: int, how: str = "sum") -> Any:
        return (x**n).sum(0) if how == "sum" else x**n

    by_number = j2t.transpile(power, X, 3, "none", static_argnums=(1, 2))
    by_name = j2t.transpile(power, X, 3, how="none", static_argnames=("n", "how"))
    close(by_number(X), X**3)
    close(by_name(x=X), X**3)


def test_closed_over_arrays_and_numbers() -> None:
    table = np.arange(4, dtype=np.float32)
    close(j2t.transpile(lambda x, k: x * table + k, X, 2.0)(X, 2.0), X * table + 2.0)


def test_keys_and_integers() -> None:
    def f(key: Any, n: Any) -> Any:
        return jax.random.bits(key, (3,)) % 7 + n

    program = j2t.transpile(f, jax.random.key(0), jnp.arange(3, dtype=jnp.uint32))
    np.testing.assert_array_equal(program(jax.random.key(5), jnp.ones(3, jnp.uint32)), f(jax.random.key(5), 1))


def test_a_fused_function_can_be_transpiled() -> None:
    program = j2t.transpile(j2t.fuse(layer_norm), X, V, V)
    assert len(program.kernels) == 1 and not program.leftovers
    close(program(X, V, V), layer_norm(X, V, V))


def test_a_program_can_be_transformed() -> None:
    program = j2t.transpile(wave, X)
    close(jax.jit(program)(X), wave(X))
    close(jax.vmap(program)(jnp.stack([X, Y])), wave(jnp.stack([X, Y])))
    close(jax.grad(lambda x: program(x).sum())(X), jax.grad(lambda x: wave(x).sum())(X))


def test_leftovers_have_a_place_and_a_reason() -> None:
    program = j2t.transpile(lambda x: windows(x * 2) + 1, X)
    (leftover,) = program.leftovers
    assert leftover.primitive == "reduce_window_sum" and "reduce_window_sum" in leftover.equation and leftover.why
    assert re.fullmatch(r"programs\.py:\d+ \(windows\)", leftover.where)
    close(program(X), windows(X * 2) + 1)


def test_source_is_a_module(tmp_path: Path) -> None:
    program = j2t.transpile(lambda x, y: (x.sum(), jnp.sin(y).sum(1), x * y), jnp.ones((300, 40)), jnp.ones((300, 40)))
    source = program.source
    names = ", ".join(kernel.name for kernel in program.kernels)
    assert source.startswith(
        f"# {program.name}: (f32[300,40], f32[300,40]) → (f32[], f32[300], f32[300,40])\n"
        f"#   in {len(program.kernels)} kernels: {names}\n\nimport triton\n"
    )
    assert len(re.findall("^import triton$", source, re.M)) == 1
    path = tmp_path / "kernels.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for kernel in program.kernels:
        assert hasattr(module, kernel.name)


def test_source_has_every_helper_once() -> None:
    source = j2t.transpile(lambda x: (jnp.argmax(x, 1), jnp.argmax(x * 2, 0)), jnp.ones((300, 40))).source
    functions = re.findall(r"^def (\w+)", source, re.M)
    assert len(functions) == len(set(functions)) == 3


def test_source_tells_what_is_left() -> None:
    source = j2t.transpile(lambda x: windows(x), X).source
    head = r"# lambda_at_\d+: \(f32\[3,4\]\) → \(f32\[3,4\]\)\n"
    assert re.fullmatch(head + r"#   left to XLA: .* = reduce_window_sum\[.*\n", source)


def test_kernels_have_different_names() -> None:
    program = j2t.transpile(loss_of_two, X, V, V, grad=(0, 1, 2))
    names = [kernel.name for part in (program.forward, program.backward) for kernel in part.kernels]
    assert len(set(names)) == len(names)


def test_explain() -> None:
    text = j2t.transpile(layer_norm, X, V, V).explain()
    assert text.startswith("layer_norm: (f32[3,4], f32[4], f32[4]) → (f32[3,4])\n")
    assert "nothing left to XLA" in text


def test_strict() -> None:
    with pytest.raises(j2t.NotFusible, match="reduce_window_sum"):
        j2t.transpile(windows, X, strict=True)
    with pytest.raises(j2t.NotFusible, match="reduce_window_sum"):
        j2t.transpile(lambda x: windows(x).sum(), X, strict=True, grad=True)
    assert j2t.transpile(layer_norm, X, V, V, strict=True, grad=(0, 1, 2)).residuals


# ---------------------------------------------------------------------------------------------- gradients
def loss_of_two(x: Any, scale: Any, bias: Any) -> Any:
    return (layer_norm(x, scale, bias) ** 2).sum() + bias.sum()


def test_value_and_gradients() -> None:
    program = j2t.transpile(loss_of_two, X, V, V, grad=(0, 2))
    close(program(X, V, V), jax.value_and_grad(loss_of_two, argnums=(0, 2))(X, V, V))


@pytest.mark.parametrize("grad", [True, 0, -3])
def test_one_argument(grad: Any) -> None:
    close(j2t.transpile(loss_of_two, X, V, V, grad=grad)(X, V, V)[1], jax.grad(loss_of_two)(X, V, V))


def test_no_gradient_asked() -> None:
    assert isinstance(j2t.transpile(energy, X, grad=False), j2t.Program)
    assert isinstance(j2t.transpile(energy, X, grad=0), j2t.GradProgram)


def test_order_of_arguments_is_kept() -> None:
    close(j2t.transpile(loss_of_two, X, V, V, grad=(2, 0))(X, V, V)[1], jax.grad(loss_of_two, (2, 0))(X, V, V))


def test_pytree_gradients_beside_static_arguments() -> None:
    def f(how: str, params: Any, x: Any, n: Any) -> Any:
        return (dense(params, x) * n).sum() if how == "sum" else dense(params, x)

    program = j2t.transpile(f, "sum", PARAMS, X, jnp.arange(4), grad=(1, 2), static_argnums=0)
    expected = jax.grad(lambda p, x: f("sum", p, x, jnp.arange(4)), argnums=(0, 1))(PARAMS, X)
    close(program(PARAMS, X, jnp.arange(4))[1], expected)


def test_forward_then_backward() -> None:
    def f(x: Any, y: Any) -> Any:
        return {"a": mix(x, y), "n": jnp.arange(3), "b": [x.sum()]}

    program = j2t.transpile(f, X, Y, grad=(0, 1))
    out, residuals = program.forward(X, Y)
    expected, pullback = jax.vjp(lambda x, y: {k: v for k, v in f(x, y).items() if k != "n"}, X, Y)
    close({k: v for k, v in out.items() if k != "n"}, expected)
    cotangents = {"a": Y, "n": np.zeros(3, jax.dtypes.float0), "b": [jnp.float32(2)]}
    close(program.backward(residuals, cotangents), pullback({"a": Y, "b": [jnp.float32(2)]}))
    assert [leaf.shape for leaf in residuals] == [residual.shape for residual in program.residuals]


def test_gradient_that_is_zero() -> None:
    program = j2t.transpile(lambda x, y: jnp.sin(x).sum(), X, Y, grad=(0, 1))
    close(program(X, Y)[1], (jnp.cos(X), jnp.zeros_like(Y)))


def test_residuals_of_layer_norm() -> None:
    program = j2t.transpile(layer_norm, X, V, V, grad=(0, 1, 2))
    found = [(residual.name, residual.source, residual.shape) for residual in program.residuals]
    assert found == [
        ("x", "input", (3, 4)),
        ("scale", "input", (4,)),
        ("mean", "new", (3, 1)),
        ("rsqrt", "new", (3, 1)),
    ]
    assert [residual.nbytes for residual in program.residuals] == [48, 16, 12, 12]
    where = [residual.where for residual in program.residuals]
    assert where[:2] == ["", ""] and all(re.fullmatch(r"functions\.py:\d+ \(layer_norm\)", w) for w in where[2:])
    assert "rsqrt" in program.explain() and "forward" in program.explain_json()
    assert all(kernel.name in program.source for kernel in program.backward.kernels)


def test_custom_vjp() -> None:
    f = j2t.transpile(layer_norm, X, V, V, grad=(0, 1, 2)).as_custom_vjp()
    assert isinstance(f, jax.custom_vjp)
    close(f(X, V, V), layer_norm(X, V, V))
    expected = jax.grad(lambda *a: (layer_norm(*a) ** 2).sum(), argnums=(0, 1, 2))(X, V, Y[0])
    found = jax.jit(jax.grad(lambda x, s, b: (f(x, bias=b, scale=s) ** 2).sum(), argnums=(0, 1, 2)))(X, V, Y[0])
    close(found, expected)
    batch = jnp.stack([X, Y])
    close(
        jax.vmap(jax.grad(lambda x: (f(x, V, V) ** 2).sum()))(batch),
        jax.vmap(jax.grad(lambda x: (layer_norm(x, V, V) ** 2).sum()))(batch),
    )


def test_custom_vjp_with_pytrees_and_integers() -> None:
    def f(params: Any, x: Any, n: Any) -> Any:
        return dense(params, x) * n, n + 1

    g = j2t.transpile(f, PARAMS, X, jnp.arange(4), grad=0).as_custom_vjp()
    n = jnp.arange(4)
    close(jax.grad(lambda p: g(p, X, n)[0].sum())(PARAMS), jax.grad(lambda p: f(p, X, n)[0].sum())(PARAMS))


def test_custom_vjp_refuses_gradients_that_were_not_asked_for() -> None:
    f = j2t.transpile(mix, X, Y, grad=0).as_custom_vjp()
    with pytest.raises(j2t.UserError) as caught:
        jax.grad(lambda y: f(X, y).sum())(Y)
    assert str(caught.value) == (
        "mix was transpiled without the gradient for `y`\n"
        "  try  name the argument in `grad`, or wrap it in jax.lax.stop_gradient"
    )


# ---------------------------------------------------------------------------------------------- errors
def message(call: Any) -> str:
    with pytest.raises(j2t.UserError) as caught:
        call()
    return str(caught.value)


def test_errors_of_transpile() -> None:
    assert message(lambda: j2t.transpile(X)) == f"transpile takes a function, not {X!r}"
    assert message(lambda: j2t.transpile(mix, X, "abc")) == (
        "the argument `y` of mix is 'abc', which is not an array\n"
        "  try  an argument that is not an array is static: static_argnames='y'"
    )
    assert message(lambda: j2t.transpile(mix, X, "f32[4]")) == (
        "the argument `y` of mix is 'f32[4]', which is not an array\n"
        "  try  a shape and a dtype are given as jax.ShapeDtypeStruct((8, 4), jnp.float32)"
    )
    assert message(lambda: j2t.transpile(mix, X, Y, grad=2)) == (
        "grad=2: mix is given 2 positional arguments, numbered from 0"
    )
    assert message(lambda: j2t.transpile(jnp.sin, X, grad="x")) == (
        "grad='x': sin is given 1 positional argument, numbered from 0"
    )
    assert message(lambda: j2t.transpile(mix, X, Y, grad=(0, "y"))) == (
        "grad=(0, 'y'): mix is given 2 positional arguments, numbered from 0"
    )
    assert message(lambda: j2t.transpile(pow, X, 2, grad=1, static_argnums=1)) == "grad=1: argument 1 of pow is static"
    assert message(lambda: j2t.transpile(mix, X, jnp.arange(4), grad=1)) == (
        "`y` is i32[4]: only floating-point arguments have gradients"
    )


def test_errors_of_a_call() -> None:
    program = j2t.transpile(mix, X, Y)
    again = "\n  try  transpile it again for this argument, or use `fuse`, which does so by itself"
    assert message(lambda: program(X, V)) == f"`y` is f32[4], but mix was transpiled for f32[3,4]{again}"
    assert message(lambda: program(X)) == (
        "mix was transpiled for the arguments (x, y): missing a required argument: 'y'"
    )
    assert message(lambda: program(X, [Y])) == f"`y` has the form [*], but mix was transpiled for the form *{again}"
    assert message(lambda: program(X, None)) == f"`y` has the form None, but mix was transpiled for the form *{again}"
    assert message(lambda: program(X, "abc")) == "`y` is 'abc', but mix was transpiled for f32[3,4]"


OTHER_DTYPES = ("float16", "bfloat16", "int32", "uint8", "bool", "complex64")


@pytest.mark.parametrize("dtype", OTHER_DTYPES)
def test_a_program_takes_no_other_dtype(dtype: str) -> None:
    """Not even one that would go into its own: `jit` would compute with the dtype that it is given."""
    program = j2t.transpile(lambda params: params["w"] * 2, {"w": V})
    given = {"w": jnp.ones(4, dtype)}
    short = {"float16": "f16", "bfloat16": "bf16", "int32": "i32", "uint8": "u8", "bool": "bool", "complex64": "c64"}
    text = f"`params['w']` is {short[dtype]}[4], but {program.name} was transpiled for f32[4]\n"
    assert message(lambda: program(given)).startswith(text)
    with jax.enable_x64(True):
        assert message(lambda: program({"w": jnp.ones(4, "float64")})).startswith("`params['w']` is f64[4], but")


def test_a_program_takes_numbers_as_jit_does() -> None:
    program = j2t.transpile(lambda x, k: x * k, X, jnp.float32(2))
    for number in (3, 3.0, np.float32(3), np.float64(3), jnp.float32(3), jnp.asarray(3)):
        close(program(X, number), X * 3)
    close(program(np.asarray(X, np.float64), 3), X * 3)  # JAX has no f64 unless it is told to
    assert message(lambda: program(X, True)).startswith(f"`k` is bool[], but {program.name} was transpiled for f32[]")
    assert message(lambda: program(X, 1j)).startswith(f"`k` is c64[], but {program.name} was transpiled for f32[]")
    assert j2t.transpile(lambda k: k * 2, jnp.bfloat16(2))(3.0).dtype == jnp.bfloat16
    counter = j2t.transpile(lambda n: n + 1, jnp.int32(2))
    assert int(counter(3)) == 4
    assert message(lambda: counter(3.0)).startswith(f"`n` is f32[], but {counter.name} was transpiled for i32[]")
    assert message(lambda: counter(2**40)) == f"`n` is 1099511627776, but {counter.name} was transpiled for i32[]"


def test_errors_of_a_gradient() -> None:
    program = j2t.transpile(mix, X, Y, grad=0)
    assert message(lambda: program(X, Y)) == (
        "mix does not return one floating-point number, so it has no gradient by itself\n"
        "  try  `result, residuals = program.forward(...)` and `program.backward(residuals, cotangents)`"
    )
    _, residuals = program.forward(X, Y)
    assert message(lambda: program.backward(residuals, V)) == ("a cotangent is f32[4], but mix returns f32[3,4]")
    assert message(lambda: program.backward(residuals, X.astype(int))) == (
        "a cotangent is i32[3,4], but mix returns f32[3,4]"
    )
    assert message(lambda: program.backward(residuals, (X, X))) == (
        "the cotangents have the form PyTreeDef((*, *)), but mix returns PyTreeDef(*)"
    )


def test_a_misspelt_knob_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_BACKND", "xla")
    for call in (lambda: j2t.transpile(mix, X, Y), *(lambda b=b: j2t.fuse(mix, backend=b)(X, Y) for b in BACKENDS)):
        assert message(call).startswith("unknown environment variable J2T_BACKND; known are J2T_BACKEND, ")


def test_references_cannot_be_transpiled() -> None:
    def counting(x: Any) -> Any:
        total = jax.new_ref(x)
        total[...] += 1
        return total[...]

    with pytest.raises(j2t.NotFusible) as caught:
        j2t.transpile(counting, X)
    what, where, hint = str(caught.value).splitlines()
    assert re.fullmatch(r"cannot compile `\w+`: it has side effects, so the whole function stays with XLA", what)
    assert re.fullmatch(r"  at   test_transpile\.py:\d+ \(.*counting\)", where)
    assert hint == "  try  take the side effect out of the function, or call it through `fuse`"


@pytest.mark.gpu
def test_on_a_device() -> None:
    program = j2t.transpile(loss_of_two, X, V, V, grad=(0, 1, 2))
    close(program(X, V, V), jax.value_and_grad(loss_of_two, argnums=(0, 1, 2))(X, V, V))


@pytest.mark.parametrize(
    ("option", "said", "says"),
    [
        ("backend", "interpret", "\n  try  it is an option of fuse: fuse(mix, backend=...)"),
        ("donate_argnums", 0, "\n  try  it is an option of fuse: fuse(mix, donate_argnums=...)"),
        ("why", True, "\n  try  it is an option of explain: transpile(mix, ...).explain(why=...)"),
        ("contraction", "triton", ". Did you mean 'contractions'?"),
        ("static_argname", "x", ". Did you mean 'static_argnames'?"),
    ],
)
def test_an_option_that_is_none_of_transpile(option: str, said: Any, says: str) -> None:
    expected = f"{option!r} is neither an argument of mix nor an option of transpile{says}"
    assert message(lambda: j2t.transpile(mix, X, Y, **{option: said})) == expected


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("contractions", "\n  try  it is an option of fuse: fuse(mix, contractions=...)"),
        ("for_target", "\n  try  it is an option of transpile: transpile(mix, for_target=...)"),
        ("cycle", ". Did you mean 'cycles'?"),
    ],
)
def test_an_option_that_is_none_of_explain(option: str, says: str) -> None:
    expected = f"{option!r} is neither an argument of mix nor an option of explain{says}"
    assert message(lambda: j2t.fuse(mix).explain(X, Y, **{option: "triton"})) == expected


def test_a_function_may_have_arguments_called_like_options() -> None:
    close(j2t.transpile(lambda x, backend: x * backend, X, backend=Y)(X, Y), X * Y)
    close(j2t.transpile(lambda x, **more: x * more["contraction"], X, contraction=Y)(X, Y), X * Y)


@pytest.mark.parametrize(
    ("option", "said"),
    [("exact_order", "exact_order='yes' is not a choice"), ("strict", "strict='yes' is not a choice")],
)
def test_flags_are_true_or_false(option: str, said: str) -> None:
    for call in (lambda: j2t.fuse(mix, **{option: "yes"}), lambda: j2t.transpile(mix, X, Y, **{option: "yes"})):
        assert message(call) == f"{said}\n  try  True or False"
