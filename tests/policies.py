"""Policies with other numbers, for tests that need little room, or much."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

from jaxpr2triton.front import planning
from jaxpr2triton.hardware import Target
from jaxpr2triton.policy import DEFAULT_POLICY, Policy, policy_of

Numbers = Mapping[str, Any]


def moved(policy: Policy = DEFAULT_POLICY, **subjects: Numbers) -> Policy:
    """`moved(blocks={"resident": 64}, target={"processors": 4})`: the policy with these numbers."""
    return replace(policy, **{name: replace(getattr(policy, name), **numbers) for name, numbers in subjects.items()})


@contextlib.contextmanager
def planned_with(**subjects: Numbers) -> Iterator[None]:
    """What is fused or transpiled inside of the `with` is planned with these numbers."""

    def policy(target: Target) -> Policy:
        return moved(policy_of(target), **subjects)

    with mock.patch.object(planning, "policy_of", policy):
        yield
