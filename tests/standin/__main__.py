"""Runs pytest on the stand-in driver; words are handed to it.

python -m tests.standin             the tests marked `standin`, which count and compute nothing
python -m tests.standin -m gpu      the tests that need a device: kernels are computed
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.standin.build import why_not
from tests.standin.start import COMPUTED

if __name__ == "__main__":
    if reason := why_not():
        sys.exit(reason)
    words = sys.argv[1:] or ["-m", "standin", str(Path(__file__).parent)]
    if "gpu" in words:
        os.environ[COMPUTED] = "1"
    sys.exit(pytest.main(["-p", "tests.standin.plugin", *words]))
