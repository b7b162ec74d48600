"""The flags of XLA that tests run with. This is imported before JAX."""

from __future__ import annotations

import os
from importlib.metadata import entry_points

DEVICES = "--xla_force_host_platform_device_count=8"
# The CPU compiles a program of the tests to run it once, and takes three quarters of the time with these. With level 0
# it takes half of that, and the gradient of a maximum of magnitudes in a scan is NaN.
QUICK = ("--xla_backend_optimization_level=1", "--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters")


def xla_flags() -> str:
    """What the environment says goes last, and wins. A plugin of JAX would compile for its device with `QUICK`, too."""
    quick = () if entry_points(group="jax_plugins") else QUICK
    return " ".join([DEVICES, *quick, os.environ.get("XLA_FLAGS", "")]).strip()
