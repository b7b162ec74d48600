"""Scans without what nobody reads."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton._compat import scan_counts_of, user_frame
from jaxpr2triton.normalize import passes
from jaxpr2triton.normalize.loops.prune import prune_scans
from jaxpr2triton.normalize.passes import normalize
from tests.normalize.passing import after, primitives_of, traced

A, B = np.float32(0.5), np.float32(-1.5)
XS = np.array([0.1, 0.2, 0.3], np.float32)


def states(a: Any, b: Any, c: Any, xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        a, b, c = carry
        return (a + c * x, b * a, c), (jnp.sin(b), a)

    return lax.scan(step, (a, b, c), xs)


def shape_of_scan(closed: Any) -> tuple[int, int, int, int]:
    """How many constants, carries, xs and ys."""
    (scan,) = (eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan")
    consts, carries = scan_counts_of(scan.params)
    return consts, carries, len(scan.invars) - consts - carries, len(scan.outvars) - carries


def test_before_and_after() -> None:
    result = after(prune_scans, lambda *args: states(*args)[0][0], A, B, A, XS)
    (scan,) = result.jaxpr.eqns
    assert shape_of_scan(result) == (1, 1, 1, 0)
    assert str(scan.params["jaxpr"].jaxpr) == (
        "{ lambda ; a:f32[] b:f32[] c:f32[]. let\n    d:f32[] = mul a c\n    e:f32[] = add b d\n  in (e,) }"
    )


def test_what_live_ys_need_stays() -> None:
    result = after(prune_scans, lambda *args: states(*args)[1][0], A, B, A, XS)
    assert shape_of_scan(result) == (1, 2, 1, 1)


def test_unchanged_carries_are_constants() -> None:
    result = after(prune_scans, lambda *args: states(*args), A, B, A, XS)
    assert shape_of_scan(result) == (1, 2, 1, 2)
    assert result.jaxpr.outvars[2] is result.jaxpr.invars[2]


def test_unread_xs_go() -> None:
    def function(a: Any, xs: Any) -> Any:
        return lax.scan(lambda c, x: (c * 2, x[1]), a, (xs, xs + 1))[0]

    result = after(normalize, function, A, XS)
    assert shape_of_scan(result) == (0, 1, 0, 0)
    assert primitives_of(result) == ["scan"]


def test_scans_inside_of_scans() -> None:
    def function(a: Any, b: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            return lax.scan(lambda c, x: ((c[0] + x, c[1] * c[0]), None), carry, x)[0], None

        return lax.scan(step, (a, b), xs)[0][0]

    result = after(normalize, function, A, B, np.stack([XS, XS]))
    assert shape_of_scan(result) == (0, 1, 1, 0)
    (scan,) = result.jaxpr.eqns
    assert shape_of_scan(scan.params["jaxpr"]) == (0, 1, 1, 0)


def test_a_scan_before_a_scan_loses_what_only_the_dead_part_reads() -> None:
    def function(a: Any, b: Any, c: Any, xs: Any) -> Any:
        (a, b, c), _ = states(a, b, c, xs)
        return states(a, b, c, xs)[0][0]

    result = after(normalize, function, A, B, A, XS)
    scans = [eqn for eqn in result.jaxpr.eqns if eqn.primitive.name == "scan"]
    assert [len(scan.outvars) for scan in scans] == [1, 1]


def test_what_reads_a_dead_result_goes_too() -> None:
    def function(*args: Any) -> Any:
        (a, b, _), (y, _) = states(*args)
        jnp.sum(y) + b
        return a

    assert primitives_of(after(prune_scans, function, A, B, A, XS)) == ["scan"]


@pytest.mark.parametrize("length", [0, 3])
def test_arrays_without_elements_are_not_written(length: int) -> None:
    def function(a: Any, xs: Any) -> Any:
        return lax.scan(lambda c, x: (c * x, (c[None][:0], c) if length else c), a, xs)

    result = after(prune_scans, function, A, XS[:length])
    assert shape_of_scan(result) == (0, 1, 1, int(length > 0))


def test_what_is_all_alive_is_returned_as_it_is() -> None:
    before = traced(lambda a, xs: lax.scan(lambda c, x: (c * x, c), a, xs), A, XS)
    assert prune_scans(before) is before


def test_effects_stay() -> None:
    def function(a: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            jax.debug.print("{}", x)
            return (carry[0] * 2, carry[1] + x), None

        return lax.scan(step, (a, a), xs)[0][0]

    result = after(prune_scans, function, A, XS)
    assert shape_of_scan(result) == (0, 1, 1, 0)
    (scan,) = result.jaxpr.eqns
    assert scan.effects and "add" not in primitives_of(scan.params["jaxpr"])


def test_the_line_of_the_user_stays() -> None:
    result = prune_scans(traced(lambda *args: states(*args)[0][0], A, B, A, XS))
    frame = user_frame(result.jaxpr.eqns[0])
    assert frame is not None and frame.function.endswith("states")


def test_it_is_one_of_the_passes() -> None:
    assert "prune_scans" in [each.name for each in passes.LOOPS]


def test_a_scan_that_reads_what_its_body_does_not() -> None:
    def function(a: Any, b: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            bias = jnp.cos(b)

            def inner(d: Any, _: Any) -> Any:
                jnp.sin(bias)
                return d * x, None

            return lax.scan(inner, c, None, length=2)

        return lax.scan(lambda c, x: (step(c, x)[0], jnp.cos(b)), a, xs)[0]

    def without_sines(closed: Any) -> Any:
        """What comes of dead equations that are taken out of a body alone."""

        def kept(eqn: Any) -> Any:
            if eqn.primitive.name != "scan":
                return eqn
            return eqn.replace(params={**eqn.params, "jaxpr": without_sines(eqn.params["jaxpr"])})

        eqns = [kept(eqn) for eqn in closed.jaxpr.eqns if eqn.primitive.name != "sin"]
        return closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns))

    result = after(lambda closed: prune_scans(without_sines(closed)), function, A, B, XS)
    (scan,) = result.jaxpr.eqns
    assert "cos" not in primitives_of(scan.params["jaxpr"]) and shape_of_scan(scan.params["jaxpr"]) == (1, 1, 0, 0)
