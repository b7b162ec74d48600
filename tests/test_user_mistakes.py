"""What a user's mistake says: the same as with `jax.jit`, about the user's function, file and arguments."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t

X = jnp.ones(3)


class Mistakes:
    """Each a function with a mistake, made anew each time: JAX remembers what it has traced."""

    def branch(self) -> Any:
        def f(x: Any) -> Any:
            return x if x.sum() > 0 else -x

        return f

    def text(self) -> Any:
        return lambda x: "text"

    def generator(self) -> Any:
        return lambda x: (x for _ in range(2))

    def inside(self) -> Any:
        return lambda x: {"a": x, "b": [x, object()]}

    def numpy(self) -> Any:
        return lambda x: np.sin(x)

    def number(self) -> Any:
        def f(x: Any, *rest: Any, scale: float = 1.0, **more: Any) -> Any:
            return float(x[0]) * scale

        return f

    def index(self) -> Any:
        return lambda x: [1, 2, 3][x.sum().astype(int)]

    def shape(self) -> Any:
        return lambda x: jnp.zeros(x.sum().astype(int))

    def size(self) -> Any:
        return lambda x: jnp.nonzero(x)[0]

    def steps(self) -> Any:
        def f(x: Any) -> Any:
            for _ in range(x.sum().astype(int)):
                x = x + 1
            return x

        return f

    def carried(self) -> Any:
        return lambda x: jax.lax.scan(lambda c, _: (c.astype(int), c), x, None, length=3)

    def method(self) -> Any:
        class Net:
            def apply(self, x: Any) -> Any:
                return bool(x[0])

        return Net().apply

    def instance(self) -> Any:
        class Net:
            def __call__(self, x: Any) -> Any:
                return bool(x[0])

        return Net()

    def partial(self) -> Any:
        def f(scale: float, x: Any) -> Any:
            return bool(x[0] > scale)

        return functools.partial(f, 3.0)

    def jitted(self) -> Any:
        return jax.jit(self.branch())

    def arguments(self) -> Any:
        return lambda x, y: x + y


class Leak:
    """Functions that keep a value for longer than their trace."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def keep(self, x: Any) -> Any:
        self.kept.append(jnp.sin(x))
        return x


def fuse(function: Any, **static: Any) -> Any:
    return j2t.fuse(function, backend="interpret", **static)


def transpiled(function: Any, **static: Any) -> Any:
    return lambda *args, **kwargs: j2t.transpile(function, *args, **static, **kwargs)


def says(thunk: Callable[[], Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()), pytest.raises(Exception) as caught:
        thunk()
    return re.sub(r"0x[0-9a-f]+|(?<=Tracer )\d+|(?<=list )\d+", "…", f"{caught.type.__name__}: {caught.value}")


@pytest.mark.parametrize("mistake", [name for name in vars(Mistakes) if not name.startswith("_")])
@pytest.mark.parametrize("ours", [fuse, transpiled])
def test_a_mistake_is_said_as_by_jit(ours: Any, mistake: str) -> None:
    make = getattr(Mistakes(), mistake)
    expected = says(lambda: jax.jit(make())(X))
    assert says(lambda: ours(make())(X)) == expected
    assert "jaxpr2triton" not in expected.replace(__file__, "")


@pytest.mark.parametrize("ours", [fuse, transpiled])
@pytest.mark.parametrize("number", range(4))
def test_a_mistake_names_the_argument(ours: Any, number: int) -> None:
    def f(params: Any, *rest: Any, scale: Any, **more: Any) -> Any:
        return int([params["w"][0], rest[0][1], scale[1], more["deep"][0][1]][number])

    def call(jitted: Any) -> Any:
        return jitted(f)({"w": X}, X, scale=X, deep=[X])

    name = ["params['w']", "rest[0]", "scale", "more['deep'][0]"][number]
    assert f"it depends on the value of the argument {name}." in says(lambda: call(jax.jit))
    assert says(lambda: call(ours)) == says(lambda: call(jax.jit))


@pytest.mark.parametrize("transformed", [jax.jit, jax.grad, jax.vmap, lambda f: lambda x: jax.jvp(f, (x,), (x,))])
def test_a_mistake_under_a_transformation(transformed: Any) -> None:
    make = Mistakes().branch
    x = X[None] if transformed is jax.vmap else X
    assert says(lambda: transformed(fuse(make()))(x)) == says(lambda: transformed(jax.jit(make()))(x))


@pytest.mark.parametrize("ours", [fuse, transpiled])
def test_a_leaked_tracer_names_the_function(ours: Any) -> None:
    def later(jitted: Any) -> Any:
        leak = Leak()
        jitted(leak.keep)(X)
        return leak.kept[0] + 1

    expected = says(lambda: later(jax.jit))
    assert "The function being traced when the value leaked was keep at " in expected
    assert says(lambda: later(ours)) == expected


@pytest.fixture
def few_objects() -> Iterator[None]:
    """JAX looks for leaks among all objects that the collector knows, and what other tests have left is frozen."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("ours", [fuse, transpiled])
def test_a_leak_is_found_where_it_happens(ours: Any) -> None:
    def checked(jitted: Any) -> Any:
        leak = Leak()
        with jax.checking_leaks():
            jitted(leak.keep)(X)

    lines = says(lambda: checked(ours)).splitlines()
    assert lines[0] == "Exception: Leaked trace DynamicJaxprTrace. Leaked tracer(s):"
    assert re.fullmatch(
        r"The error occurred while tracing the function keep at .*test_user_mistakes\.py:\d+ for jit\. ", lines[3]
    )


def power(x: Any, n: Any) -> Any:
    return x**n


@pytest.mark.parametrize("ours", [fuse, transpiled])
@pytest.mark.parametrize(
    ("static", "args", "kwargs"),
    [
        (dict(static_argnums=1), (X, [1]), {}),
        (dict(static_argnames="n"), (X,), {"n": [1]}),
        (dict(static_argnums=1), (X, X), {}),
        (dict(static_argnums=5), (X, 2), {}),
        (dict(static_argnums=-3), (X, 2), {}),
        (dict(static_argnames="k"), (X, 2), {}),
        (dict(static_argnums="n"), (X, 2), {}),
        (dict(static_argnums=0, static_argnames="n"), (X,), {"n": 2}),
        ({}, (X,), {}),
        ({}, (X, X, X), {}),
        ({}, (X,), {"z": X}),
        ({}, (X, 2**70), {}),
    ],
)
def test_arguments_that_do_not_fit(ours: Any, static: Any, args: Any, kwargs: Any) -> None:
    assert says(lambda: ours(power, **static)(*args, **kwargs)) == says(
        lambda: jax.jit(power, **static)(*args, **kwargs)
    )


def test_names_and_numbers_of_static_arguments_are_those_of_jit() -> None:
    for static in (dict(static_argnums=1), dict(static_argnames="n"), dict(static_argnums=-1)):
        np.testing.assert_array_equal(j2t.transpile(power, X, 3, **static)(X), X)
        np.testing.assert_array_equal(fuse(power, **static)(X, 3), X)
    np.testing.assert_array_equal(j2t.transpile(power, X, n=3, static_argnums=1)(X), X)
    np.testing.assert_array_equal(j2t.transpile(pow, X, 3, static_argnums=1)(X), X)  # a builtin


def test_a_global_may_change_between_two_traces() -> None:
    """JAX remembers traces by function: those of `jit` go with `clear_cache`, so ours must not outlive them."""
    factor = [1.0]
    f = fuse(lambda x: x * factor[0])
    f(X)
    factor[0] = 2.0
    f.clear_cache()
    np.testing.assert_array_equal(f(X), X * 2)


def test_what_a_function_closes_over_may_be_traced() -> None:
    def outer(x: Any, y: Any) -> Any:
        return fuse(lambda z: z * x + y["w"])(x + 1)

    np.testing.assert_allclose(jax.jit(outer)(X, {"w": X * 3}), outer(X, {"w": X * 3}))
    np.testing.assert_allclose(jax.grad(lambda x: jax.jit(outer)(x, {"w": X}).sum())(X), X * 3)


# ---------------------------------------------------------------------------------------------- NaN
def log_of(x: Any) -> Any:
    y = x * 2
    return jnp.log(y).sum()


def guarded(x: Any) -> Any:
    return jnp.where(x > 0, jnp.log(x), 0.0).sum()


def looped(x: Any) -> Any:
    return jax.lax.scan(lambda c, _: (jnp.log(c), c), x, None, length=3)[0]


def lines_in(function: str, problem: BaseException) -> list[str | None]:
    return [frame.line for frame in traceback.extract_tb(problem.__traceback__) if frame.name == function]


NAN_PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "call": lambda jitted: jitted(log_of)(-X),
    "loop": lambda jitted: jitted(looped)(-X),
    "constant": lambda jitted: jitted(lambda: jnp.log(-jnp.ones(3)).sum())(),
    "inside": lambda jitted: jax.jit(lambda x: jitted(log_of)(x) + 1)(-X),
    "gradient": lambda jitted: jax.grad(jitted(log_of))(-X),
    "gradient alone": lambda jitted: jax.grad(jitted(guarded))(0 * X),
    "jitted gradient": lambda jitted: jax.jit(jax.grad(jitted(guarded)))(0 * X),
    "batch": lambda jitted: jax.vmap(jitted(log_of))(-X[None]),
    "batched gradient": lambda jitted: jax.vmap(jax.grad(jitted(log_of)))(-X[None]),
}


@pytest.mark.parametrize("program", NAN_PROGRAMS)
@pytest.mark.parametrize("backend", ["auto", "interpret"])
def test_a_nan_is_blamed_on_the_operation(program: str, backend: str) -> None:
    run = NAN_PROGRAMS[program]
    with jax.debug_nans(True):
        expected = says(lambda: run(jax.jit))
        assert says(lambda: run(functools.partial(j2t.fuse, backend=backend))) == expected
    assert re.fullmatch(r"FloatingPointError: invalid value \(nan\) encountered in (log|div|scan)", expected)


def test_a_nan_has_the_line_of_the_user() -> None:
    with jax.debug_nans(True), contextlib.redirect_stdout(io.StringIO()):
        with pytest.raises(FloatingPointError) as caught:
            fuse(log_of)(-X)
        assert lines_in("log_of", caught.value) == ["return jnp.log(y).sum()"]
        with pytest.raises(FloatingPointError) as caught:
            j2t.transpile(log_of, X)(-X)
        assert caught.value.__cause__ is not None
        assert lines_in("log_of", caught.value.__cause__) == ["return jnp.log(y).sum()"]


def test_a_nan_in_a_transpiled_program() -> None:
    programs = {"log": (log_of, None, -X), "scan": (looped, None, -X), "div": (guarded, 0, 0 * X)}
    for name, (function, grad, x) in programs.items():
        program = j2t.transpile(function, X, grad=grad)
        with jax.debug_nans(True):
            assert says(lambda: program(x)) == f"FloatingPointError: invalid value (nan) encountered in {name}"  # noqa: B023


def test_a_nan_that_nobody_sees_is_no_error() -> None:
    """A constant is folded while kernels are planned, where `jax_debug_nans` has nothing to look for."""
    bad = np.array([-1.0, 1.0, 1.0], np.float32)
    with jax.debug_nans(True):
        found = fuse(lambda x: jnp.where(bad > 0, jnp.log(jnp.asarray(bad)) + x, 0.0))(X)
    np.testing.assert_array_equal(found, [0, 1, 1])
