"""What the policy and the machines say beside each figure that a device is asked for."""

from __future__ import annotations

import math

import pytest

from bench.device.figures import FIGURES
from jaxpr2triton.hardware import TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_said_of_each_figure(target: str) -> None:
    """Each names numbers that there are: a number that leaves the policy leaves no figure that asks for it."""
    for figure in FIGURES:
        said = figure.said(TARGETS[target])
        assert all(math.isfinite(value) and value > 0 for value in said.values()), figure.name
