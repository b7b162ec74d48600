"""Roles that a user asks for: every one that can be had computes what JAX computes, and the others are refused."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.ir.roles import NO_ROLES, parse_roles
from jaxpr2triton.pipeline import stages
from tests.golden import functions as f
from tests.test_loops import CASES as LOOPS
from tests.test_loops import Case

CHOSEN = (
    "ensemble", "recurrent", "ring", "rings", "inner_sums", "mapped_while", "backwards", "shifted_rows",
    "ensemble_gradient",
)  # fmt: skip
CASES = {
    case.name: case
    for case in (
        *(case for case in LOOPS if case.name in CHOSEN),
        Case("softmax", f.softmax, ((37, 19),), 1),
        Case("layer_norm", f.layer_norm, ((16, 33), (33,), (33,)), 1),
        Case("turned", f.turned, ((33, 70),), 1),
        Case("rotary", f.rotary, ((2, 3, 5, 8), (5, 8), (5, 8)), 1),
    )
}  # fmt: skip
ROLES = tuple(role.value for role in Role)


@pytest.mark.parametrize("name", CASES)
def test_every_role_that_can_be_had_computes_the_same(name: str) -> None:
    case = CASES[name]
    arguments = case.arguments()
    wanted = jax.tree.leaves(jax.jit(case.fn)(*arguments))
    for kernel in j2t.transpile(case.fn, *arguments).kernels:
        for axis in kernel.axes:
            for role in ROLES:
                key = f"{kernel.name}.{axis.name}"
                try:
                    program = j2t.transpile(case.fn, *arguments, roles={key: role})
                except j2t.UserError as refusal:
                    assert role != str(axis.role) and f"axis {axis.name} of kernel {kernel.name} " in str(refusal)
                    continue
                for got, want in zip(jax.tree.leaves(program(*arguments)), wanted, strict=True):
                    np.testing.assert_allclose(got, want, rtol=3e-5, atol=3e-5, err_msg=f"{key} as {role}")
                (made,) = (made for made in program.kernels if made.name == kernel.name)
                has = {each.name: str(each.role) for each in made.axes}
                assert has.get(axis.name, role) == role  # on the grid, axes may become one


def axes_of(name: str, roles: dict[str, str]) -> str:
    (kernel,) = j2t.transpile(CASES[name].fn, *CASES[name].arguments(), roles=roles).kernels
    return " | ".join(map(str, kernel.axes))


@pytest.mark.parametrize(
    ("name", "roles", "expected"),
    [
        ("softmax", {}, "row: grid 37 | col: lane 19 of 32"),
        ("softmax", {"row": "lane"}, "row: lane 37 of 64 | col: lane 19 of 32"),
        ("softmax", {"row": "unroll"}, "col: lane 19 of 32 | row: unroll 37"),
        ("softmax", {"col": "loop"}, "row: grid 37 | col: loop 19 by 16"),
        ("ensemble", {}, "i: grid 300 by 32 | t: loop 3 by 1 | d1u: unroll 3"),
        ("ensemble", {"d1u": "lane"}, "row: grid 300 by 8 | t: loop 3 by 1 | d1u: lane 3 of 4"),
        ("ensemble", {"i": "lane"}, "t: loop 3 by 1 | i: lane 300 of 512 | d1u: unroll 3"),
        ("ensemble", {"i": "lane", "d1u": "lane"}, "t: loop 3 by 1 | i: lane 300 of 512 | d1u: lane 3 of 4"),
        ("rotary", {}, "i: grid 120 by 128 | d3u: unroll 2"),
        ("rotary", {"d3u": "grid"}, "i: grid 240 by 128"),
        ("recurrent", {"k": "unroll"}, "row: grid 4 by 2 | t: loop 5 by 1 | col: lane 16 of 16 | k: unroll 16"),
        (
            "recurrent",
            {"rnn.k": "loop", "k": "unroll"},
            "row: grid 4 | t: loop 5 by 1 | col: lane 16 of 16 | k: loop 16 by 8",
        ),
    ],
)  # fmt: skip
def test_axes(name: str, roles: dict[str, str], expected: str) -> None:
    assert axes_of(name, roles) == expected


MEET = "elements along it meet, so one program has to have all of them"
ENSEMBLE = "i (300, grid), t (3, loop), d1u (3, unroll)"


def test_tiles_that_are_too_large() -> None:
    def doubled(x: Any) -> Any:
        return x * 2

    with pytest.raises(j2t.UserError) as caught:
        j2t.transpile(doubled, jax.ShapeDtypeStruct((1 << 22,), np.float32), roles={"i": "lane"})
    assert str(caught.value) == (
        "roles: axis i of kernel doubled cannot be lane: a tile of 4194304 elements is too large\n"
        "  try  another role, or another axis of i (4194304, grid)"
    )
    with pytest.raises(j2t.UserError) as caught:
        j2t.transpile(lambda x: x, np.ones(8), roles={"i": "grid"})
    assert str(caught.value) == 'roles: there is no axis "i": there are no kernels'


@pytest.mark.parametrize(
    ("name", "roles", "complaint"),
    [
        ("softmax", {"k": "lane"}, 'there is no axis "k": softmax has row, col'),
        ("softmax", {"col": "grid"}, f"axis col of kernel softmax cannot be grid: {MEET}\n"
         "  try  another role, or another axis of row (37, grid), col (19, lane)"),
        ("ensemble", {"t": "lane"}, "axis t of kernel lorenz cannot be lane: it counts the steps of a loop, which come "
         f"one after the other\n  try  another role, or another axis of {ENSEMBLE}"),
        ("ensemble", {"i": "loop"}, "axis i of kernel lorenz cannot be loop: a loop carries it from step to step, "
         f"whole\n  try  another role, or another axis of {ENSEMBLE}"),
        ("ensemble", {"i": "unroll"}, "axis i of kernel lorenz cannot be unroll: a loop runs once for each index of "
         f"it\n  try  another role, or another axis of {ENSEMBLE}"),
        ("turned", {"j": "unroll", "i": "unroll"}, "axis i of kernel turned cannot be unroll: that would be 2310 "
         "variables in place of one, and 64 are the most\n  try  another role, or another axis of i (70, grid), "
         "j (33, grid)"),
    ],
)  # fmt: skip
def test_refusals(name: str, roles: dict[str, str], complaint: str) -> None:
    with pytest.raises(j2t.UserError) as caught:
        axes_of(name, roles)
    assert str(caught.value) == f"roles: {complaint}"


def test_a_kernel_that_a_mistake_keeps_from_being_made_so_is_made_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: Any, graph: Any) -> Any:
        if plan.roles:
            raise RuntimeError("no\nmore")
        return emit(plan, graph)

    emit = stages.emit
    monkeypatch.delenv("J2T_RAISE")
    monkeypatch.setattr(stages, "emit", broken)
    with pytest.warns(j2t.BugWarning, match="in program lorenz: RuntimeError: no\n"):
        assert axes_of("ensemble", {"i": "lane"}) == axes_of("ensemble", {})


def scaled(x: Any) -> Any:
    return jax.nn.softmax(x * 2)


@pytest.mark.parametrize("key", ["scaled_bwd.row", "row"])
def test_gradients(key: str) -> None:
    x = np.random.default_rng(3).standard_normal((5, 7)).astype(np.float32)
    pair = j2t.transpile(scaled, x, grad=True, roles={key: "lane"})
    roles = {half.name: str(half.kernels[0].axes[0].role) for half in (pair.forward, pair.backward)}
    assert roles == {"scaled_fwd": "grid" if "." in key else "lane", "scaled_bwd": "lane"}
    value, residuals = pair.forward(x)
    theirs, pullback = jax.vjp(scaled, x)
    np.testing.assert_allclose(value, theirs, rtol=1e-5)
    np.testing.assert_allclose(pair.backward(residuals, x), pullback(x)[0], rtol=1e-4, atol=1e-6)


def test_an_axis_that_neither_half_has() -> None:
    with pytest.raises(j2t.UserError) as caught:
        j2t.transpile(scaled, np.ones((5, 7), np.float32), grad=True, roles={"k": "lane"})
    assert str(caught.value) == 'roles: there is no axis "k": scaled_fwd has row, col; scaled_bwd has row, col'


def test_roles_as_a_value() -> None:
    roles = parse_roles("rnn", {"k": "lane", "rnn_bwd_0.k": "unroll"})
    assert (str(roles), str(NO_ROLES)) == ('{"k": lane, "rnn_bwd_0.k": unroll}', "{}")
    assert parse_roles("rnn", {}) is parse_roles("rnn", None) is NO_ROLES
    assert [len(roles.of_program(program)) for program in ("rnn", "rnn_bwd", "rnn_fwd")] == [1, 2, 1]
