"""The version of this package, for setup.cfg, for the user and for reports of mistakes."""

from __future__ import annotations

__version__ = "0.1.0"
