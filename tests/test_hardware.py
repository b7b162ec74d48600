"""The machines that kernels are compiled for."""

from __future__ import annotations

import pytest

from jaxpr2triton.errors import UserError
from jaxpr2triton.hardware import DEFAULT_TARGET, TARGETS, Target, target_named


@pytest.mark.parametrize("name", TARGETS)
def test_names_and_backends_agree(name: str) -> None:
    target = target_named(name)
    assert target.name == name
    match target:
        case Target(backend="cuda", arch=int(arch), warp_size=32):
            assert name == f"sm_{arch}"
        case Target(backend="hip", arch=str(arch), warp_size=64):
            assert name == arch
        case _:
            pytest.fail(f"{target} is neither a CUDA nor a HIP target")
    assert target.shared_bytes % 1024 == 0
    assert target.processors > 0


def test_the_targets_that_are_promised() -> None:
    assert {"sm_80", "sm_90", "sm_100", "gfx942"} <= set(TARGETS)
    assert target_named("sm_90") is DEFAULT_TARGET
    assert DEFAULT_TARGET.shared_bytes == 232_448


def test_an_unknown_target_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UserError) as caught:
        target_named("sm_91")
    assert str(caught.value) == (
        "unknown target 'sm_91'\n  try  one of sm_80, sm_86, sm_89, sm_90, sm_100, sm_120, gfx90a, gfx942"
    )
