"""Programs as values: what they say of themselves, and what is left of them in another process."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from tests.programs import windows

X = jnp.linspace(0.0, 1.0, 32).reshape(4, 8)


def scores(x: Any) -> Any:
    return windows(jax.nn.softmax(x * 2))


def total(x: Any) -> Any:
    return jnp.sin(x).sum()


def test_what_programs_say_of_themselves() -> None:
    program = j2t.transpile(scores, X)
    assert repr(program) == "Program(name='scores', kernels=1, leftovers=1)"
    pair = j2t.transpile(total, X, grad=0)
    assert repr(pair) == (
        "GradProgram(name='total', forward=Program(name='total_fwd', kernels=1, leftovers=0), "
        "backward=Program(name='total_bwd', kernels=1, leftovers=0), residuals=1)"
    )
    assert (type(program).__name__, type(pair).__name__) == (j2t.Program.__name__, j2t.GradProgram.__name__)
    assert isinstance(program.kernels[0], j2t.Kernel) and isinstance(program.leftovers[0], j2t.Leftover)


def test_lambdas_are_called_after_their_line() -> None:
    one = lambda x: jnp.sin(x)  # noqa: E731  # lambdas are what this is about
    line = one.__code__.co_firstlineno
    for each in (one, functools.partial(one), jax.jit(one)):
        program = j2t.transpile(each, X)
        assert program.explain().startswith(f"lambda at test_looking.py:{line}: (f32[4,8]) → ")
        assert [kernel.name for kernel in program.kernels] == [f"lambda_at_{line}"]
    two = j2t.transpile(lambda x: jnp.cos(windows(jnp.sin(x))), X)
    assert [kernel.name for kernel in two.kernels] == [f"lambda_at_{line + 6}_0", f"lambda_at_{line + 6}_1"]
    pair = j2t.transpile(lambda x: jnp.sin(x).sum(), X, grad=0)
    assert [kernel.name for kernel in pair.forward.kernels] == [f"lambda_at_{line + 8}_fwd"]
    assert pair.explain().startswith(f"lambda at test_looking.py:{line + 8}, forward: ")
    one.__name__ = "sine"
    assert [kernel.name for kernel in j2t.transpile(one, X).kernels] == ["sine"]


@pytest.mark.parametrize("arrays", [(X,), (X.astype(jnp.bfloat16),)])
def test_a_program_can_be_pickled_to_be_looked_at(arrays: tuple[Any, ...]) -> None:
    program = j2t.transpile(scores, *arrays)
    found = pickle.loads(pickle.dumps(program))
    again = pickle.loads(pickle.dumps(found))
    for each in (found, again):
        assert isinstance(each, j2t.Program) and repr(each) == repr(program)
        assert (each.kernels, each.leftovers, each.source) == (program.kernels, program.leftovers, program.source)
        assert (each.explain(), each.explain_json()) == (program.explain(), program.explain_json())
        assert {**each.stages} == {name: str(stage) for name, stage in program.stages.items()}
        with pytest.raises(j2t.UserError) as caught:
            each(*arrays)
        assert str(caught.value) == (
            "scores was unpickled: it can be looked at, but not called\n"
            "  try  transpile the function again in this process"
        )


def test_keys_can_be_pickled_too() -> None:
    program = j2t.transpile(lambda key: jax.random.uniform(key, (3,)), jax.random.key(0))
    assert pickle.loads(pickle.dumps(program)).explain() == program.explain()


def test_a_gradient_can_be_pickled_to_be_looked_at() -> None:
    pair = j2t.transpile(lambda x: jnp.sin(x).sum(), X, grad=0)
    found = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(pair))))
    assert (repr(found), found.source, found.residuals) == (repr(pair), pair.source, pair.residuals)
    assert (found.explain(), found.explain_json()) == (pair.explain(), pair.explain_json())
    for call in (lambda: found(X), lambda: found.forward(X), lambda: found.backward((), X), found.as_custom_vjp):
        with pytest.raises(j2t.UserError, match="was unpickled: it can be looked at, but not called"):
            call()


def test_copies_are_the_program_itself() -> None:
    program, pair = j2t.transpile(scores, X), j2t.transpile(lambda x: jnp.sin(x).sum(), X, grad=0)
    for made in (copy.copy(program), copy.deepcopy(program), copy.deepcopy({"a": program})["a"]):
        np.testing.assert_allclose(made(X), scores(X), rtol=1e-5)
    for each in (copy.copy(pair), copy.deepcopy(pair)):
        np.testing.assert_allclose(each(X)[1], jnp.cos(X), rtol=1e-5)


def test_the_header_of_a_module_is_folded() -> None:
    """Types in runs, leftovers of one kind in one line, and no line longer than those of kernels."""
    arrays = [X] * 60

    def each_in_windows(*xs: Any) -> Any:
        return [windows(x) for x in xs]

    lines = j2t.transpile(each_in_windows, *arrays).source.splitlines()
    assert lines[0] == "# each_in_windows: (60 x f32[4,8]) → (60 x f32[4,8])"
    assert len(lines) == 2 and lines[1].startswith("#   left to XLA: 60 x reduce_window_sum, such as ")
    many = j2t.transpile(lambda *xs: [windows(x) for x in xs], *(jnp.ones((4, 100 + n)) for n in range(40))).source
    assert all(line.startswith("#") and len(line) <= 110 for line in many.splitlines())
