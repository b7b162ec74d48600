"""Prints what setup.cfg asks for, the test and dev extras included, one requirement on a line."""

from __future__ import annotations

import configparser
from pathlib import Path


def requirements() -> list[str]:
    """The install_requires, test and dev entries of setup.cfg."""
    config = configparser.ConfigParser()
    config.read(Path(__file__).parent.parent / "setup.cfg", encoding="utf-8")
    entries = [
        config["options"]["install_requires"],
        config["options.extras_require"]["test"],
        config["options.extras_require"]["dev"],
    ]
    return [line for entry in entries for line in entry.split("\n") if line]


if __name__ == "__main__":
    print("\n".join(requirements()))
