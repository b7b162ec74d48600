"""What is described in setup.cfg, and the README without links that lead nowhere outside of a checkout."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup

LINK = re.compile(r"\[([^\]]+)\]\((?!https://)[^)]*\)")
NOTE = (
    "Pages and examples that are named here come with the source distribution, `scripts/` with a checkout. The command "
    "takes functions of any file, as `jaxpr2triton explain model.py:loss 'f32[128,64]'`.\n\n"
)


def description() -> str:
    """[docs/loops.md](docs/loops.md) → docs/loops.md"""
    text = Path(__file__).with_name("README.md").read_text("utf-8")
    title, rest = text.split("\n\n", 1)
    return f"{title}\n\n{NOTE}{LINK.sub(lambda link: link[1], rest)}"


setup(long_description=description(), long_description_content_type="text/markdown")
