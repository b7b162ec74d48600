"""Every module can be imported, by itself or after others."""

from __future__ import annotations

import importlib
import pkgutil

import jaxpr2triton


def test_every_module_can_be_imported() -> None:
    names = [each.name for each in pkgutil.walk_packages(jaxpr2triton.__path__, "jaxpr2triton.")]
    assert len(names) > 400
    for name in names:
        if not name.endswith(".__main__"):
            importlib.import_module(name)
