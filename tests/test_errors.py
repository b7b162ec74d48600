"""How errors are worded."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import pytest

from jaxpr2triton import errors, mistakes
from jaxpr2triton.errors import Jaxpr2TritonError, NotFusible, UserError, WhyNot


def test_an_error_says_what_where_and_what_to_try() -> None:
    error = NotFusible(
        "cannot compile `b:f32[8] = sort[num_keys=1] a`: there is no rule for the primitive `sort`",
        where="model.py:62 (loss)",
        hint="leave it to XLA (drop strict=True), or see `jaxpr2triton explain` for what it costs",
    )
    assert str(error) == (
        "cannot compile `b:f32[8] = sort[num_keys=1] a`: there is no rule for the primitive `sort`\n"
        "  at   model.py:62 (loss)\n"
        "  try  leave it to XLA (drop strict=True), or see `jaxpr2triton explain` for what it costs"
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UserError("what"), "what"),
        (UserError("what", where="here"), "what\n  at   here"),
        (UserError("what", hint="this"), "what\n  try  this"),
    ],
)
def test_what_is_not_known_is_left_out(error: Jaxpr2TritonError, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.UserError, ValueError),
        (errors.BackendError, RuntimeError),
        (errors.NotFusible, TypeError),
        (errors.CompilerBug, AssertionError),
        (errors.KernelRefused, RuntimeError),
    ],
)
def test_every_error_is_ours_and_a_builtin_one(kind: type[Jaxpr2TritonError], builtin: type[Exception]) -> None:
    error = kind("what", where="where", hint="hint")
    assert isinstance(error, Jaxpr2TritonError)
    assert isinstance(error, builtin)
    assert (error.what, error.where, error.hint) == ("what", "where", "hint")


def test_warnings_are_user_warnings() -> None:
    assert issubclass(errors.KernelFallback, UserWarning)
    assert issubclass(errors.CacheWarning, UserWarning)


def test_a_refusal_prints_its_reason() -> None:
    assert str(WhyNot("the row is too long")) == "the row is too long"


def test_a_warning_points_at_the_users_line() -> None:
    """Not at what of ours, of JAX or of Python found something to warn of."""

    def deep(x: Any) -> Any:
        with contextlib.ExitStack() as stack:
            stack.callback(errors.warn, "careful", errors.KernelFallback)
        return x

    with pytest.warns(errors.KernelFallback, match="careful") as caught:
        jax.jit(deep)(1.0)
    assert caught[0].filename == __file__
    with pytest.warns(errors.BugWarning) as caught:
        mistakes.tell(errors.Mistake(KeyError(), "KeyError", "here", ""), "a program of this test", "XLA runs it")
    assert caught[0].filename == __file__
