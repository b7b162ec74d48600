"""Eight fake CPU devices, mistakes raised, hypothesis profiles, and the `gpu` marker."""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8").strip()
os.environ.pop("JAX_PLATFORMS", None)
os.environ.pop("COLUMNS", None)  # test runners set it for their own workers
os.environ["J2T_RAISE"] = "1"  # a mistake of ours is an error, in the processes that tests start too

import hypothesis  # these follow the flags, which JAX reads when it is imported
import jax
import pytest

_ANY_HEALTH = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large]
hypothesis.settings.register_profile(
    "ci", max_examples=25, deadline=None, derandomize=True, suppress_health_check=_ANY_HEALTH
)
hypothesis.settings.register_profile(
    "deep", max_examples=2000, deadline=None, print_blob=True, suppress_health_check=_ANY_HEALTH
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `gpu` need a device; without one they are skipped, and say so."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and jax.default_backend() not in ("gpu", "cuda", "rocm"):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA or ROCm device, and there is none here"))
