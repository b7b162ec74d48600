"""A process that does jobs, with the stand-in driver where it is told so: `python -m bench.device.worker`.

On that driver (`REHEARSED`) everything is done but timed, and small programs are computed (`COMPUTED`).
"""

from __future__ import annotations

import importlib
import os

from bench.device import REHEARSED

if __name__ == "__main__":
    if os.environ.get(REHEARSED):
        importlib.import_module("tests.standin.start").started()  # before JAX is imported, which looks for devices then
    importlib.import_module("bench.device.tasks").main()
