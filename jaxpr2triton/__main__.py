"""python -m jaxpr2triton"""

from __future__ import annotations

import sys

from jaxpr2triton.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
