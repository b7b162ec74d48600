"""What `fuse` gives: it explains itself, binds, is copied and pickled, and can be interrupted."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.front import planning
from jaxpr2triton.launch.call import primitive

PACKAGE = Path(j2t.__file__).parent
X = jnp.ones((3, 40))
BACKENDS = ("auto", "interpret", "machine")


@functools.partial(j2t.fuse, backend="interpret")
def twice(x: Any) -> Any:
    return x * 2


class Model:
    scale = 3.0

    @functools.partial(j2t.fuse, static_argnums=0, backend="interpret")
    def scaled(self, x: Any) -> Any:
        return x * self.scale


def wave(x: Any) -> Any:
    return jnp.sin(x) * jnp.exp(x)


def norms(x: Any, axis: int = -1) -> Any:
    return jnp.sqrt((x * x).sum(axis))


# ---------------------------------------------------------------------------------------------- explain
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fused_function_explains_itself(backend: Any) -> None:
    f = j2t.fuse(norms, backend=backend)
    assert f.explain(X) == j2t.transpile(norms, X).explain()
    assert f.explain(X, why=True) == j2t.transpile(norms, X).explain(why=True)
    pair = j2t.transpile(lambda x: norms(x).sum(), X, grad=0)
    assert isinstance(pair, j2t.GradProgram)
    total = j2t.fuse(lambda x: norms(x).sum(), backend=backend)
    assert total.explain(X, grad=0).count("forward:") == 1


def test_what_is_explained_has_the_options_that_run() -> None:
    f = j2t.fuse(norms, roles={"k": "loop"})
    assert "k: loop 40 by" in f.explain(X)
    assert "k: lane 40 of 64" in j2t.fuse(norms).explain(X)
    for program in (j2t.transpile(f, X), j2t.transpile(functools.partial(f), X)):
        assert str(program.kernels[0].axes[1]).startswith("k: loop")
    over = j2t.transpile(f, X, roles={"k": "lane"})
    assert str(over.kernels[0].axes[1]).startswith("k: lane")


def test_static_arguments_of_a_fused_function_are_static_where_it_is_transpiled() -> None:
    f = j2t.fuse(norms, static_argnames="axis")
    assert "out f32[40]" not in f.explain(X, axis=0)
    np.testing.assert_allclose(j2t.transpile(f, X, axis=0)(X), norms(X, 0), rtol=1e-6)
    assert "(f32[3,40]) → (f32[40])" in f.explain(X, axis=0)


def test_strict_is_kept() -> None:
    f = j2t.fuse(lambda x: jnp.abs(jnp.fft.fft(x)), strict=True)
    with pytest.raises(j2t.NotFusible):
        f.explain(X)
    assert j2t.transpile(f, X, strict=False).leftovers


# ---------------------------------------------------------------------------------------------- as an object
def test_methods_have_what_a_method_of_jit_has() -> None:
    model = Model()
    np.testing.assert_allclose(model.scaled(X), X * 3)
    assert "scaled" in model.scaled.lower(model, X).as_text()
    assert model.scaled.explain(model, X).startswith("scaled: (f32[3,40]) → (f32[3,40])")
    np.testing.assert_allclose(j2t.transpile(model.scaled, X)(X), X * 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_copies(backend: Any) -> None:
    f = j2t.fuse(wave, backend=backend)
    for each in (copy.copy(f), copy.deepcopy(f), copy.deepcopy({"f": [f]})["f"][0]):
        assert each is f
    g = pickle.loads(pickle.dumps(f))
    assert repr(g) == repr(f) == f"<fused {wave!r}>"
    assert g.explain(X) == f.explain(X)
    np.testing.assert_array_equal(g(X), f(X))


class ByValue(pickle.Pickler):
    """What cloudpickle does: a function that its module does not have by its name is pickled as what it is."""

    def reducer_override(self, value: Any) -> Any:
        return (functools.partial, (jax.lax.neg,)) if value is twice.__wrapped__ else NotImplemented


def test_a_decorated_function_is_pickled_by_value() -> None:
    """Which plain pickle cannot do, as it cannot for `jax.jit`."""
    file = io.BytesIO()
    ByValue(file).dump(twice)
    np.testing.assert_array_equal(pickle.loads(file.getvalue())(X), -X)
    with pytest.raises(pickle.PicklingError, match="it's not the same object as"):
        pickle.dumps(twice)


def test_cloudpickle() -> None:
    """Of what no module has by its name: lambdas, decorated functions and methods, and what closes over them."""
    by_value = pytest.importorskip("cloudpickle")
    bound = Model().scaled
    for call in (j2t.fuse(lambda x: x * 2, backend="interpret"), twice, bound, lambda x: twice(x) + 1):
        np.testing.assert_array_equal(pickle.loads(by_value.dumps(call))(X), call(X))


def test_options_are_pickled_too() -> None:
    f = j2t.fuse(norms, roles={"k": "loop"}, static_argnames="axis", backend="interpret")
    g = pickle.loads(pickle.dumps(f))
    assert "k: loop" in g.explain(X, axis=-1)
    np.testing.assert_allclose(g(X, axis=-1), norms(X), rtol=1e-6)


def test_what_it_has_not_it_does_not_have() -> None:
    f = j2t.fuse(wave, backend="interpret")
    assert hasattr(f, "lower") and hasattr(f, "explain") and not hasattr(f, "explan")
    assert not hasattr(object.__new__(j2t.Fused), "lower")
    with pytest.raises(AttributeError) as caught:
        f.explan(X)
    assert str(caught.value) == "a fused function has no attribute 'explan'"
    assert (caught.value.name, caught.value.obj) == ("explan", f)  # of which Python makes: Did you mean: 'explain'?


# ---------------------------------------------------------------------------------------------- interrupts, errors
@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(primitive, "run_interpreted", run)


def test_an_interrupt_is_one_wherever_the_backend_was_chosen(
    interrupted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("J2T_BACKEND", "interpret")
    with pytest.raises(KeyboardInterrupt):
        j2t.fuse(wave)(X)


def test_what_this_package_says_in_a_callback_keeps_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*args: Any) -> Any:
        raise j2t.BackendError("there is no more room", hint="make some")

    monkeypatch.setattr(primitive, "run_interpreted", run)
    for call in (j2t.fuse(wave, backend="interpret"), j2t.transpile(wave, X)):
        with pytest.raises(j2t.BackendError) as caught:
            call(X)
        assert str(caught.value) == "there is no more room\n  try  make some"


def test_errors_of_the_users_own_callbacks_are_as_with_jit() -> None:
    def refuse(x: Any) -> Any:
        raise ValueError("no")

    def f(x: Any) -> Any:
        return jax.pure_callback(refuse, jax.ShapeDtypeStruct(x.shape, x.dtype), x) * 2

    for make in (jax.jit, functools.partial(j2t.fuse, backend="interpret")):
        with pytest.raises(jax.errors.JaxRuntimeError, match="ValueError: no"):
            make(f)(X)


def test_an_interrupt_while_planning_says_what_took_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(planning, "compile_jaxpr", interrupted)
    f = j2t.fuse(lambda x: jnp.sin(x).sum() * 17, backend="interpret")
    for call in (f, f.lower, f.explain, jax.jit(f)):  # of those around it most lines are JAX's
        with pytest.raises(KeyboardInterrupt) as caught:
            call(X)
        assert re.fullmatch(r"jaxpr2triton: planning lambda_at_\d+: 0 s", str(caught.value))
        assert sum(each.path.is_relative_to(PACKAGE) for each in caught.traceback) <= 5
        assert caught.value.__suppress_context__
    with pytest.raises(KeyboardInterrupt) as caught:
        f(X)
    assert len(caught.traceback) < 5
