"""What is published: metadata whose links lead somewhere, and a source distribution that is complete in what it has."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from email import message_from_bytes
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
FILES = ("README.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "pyproject.toml", "setup.cfg", "setup.py")
# Of the tests a part, to see that they stay out.
FOLDERS = ("jaxpr2triton", "docs", "examples", "bench/results", "tests/report")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a source distribution."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("checkout")
    for name in FILES:
        shutil.copy(CHECKOUT / name, folder)
    for name in FOLDERS:
        shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = "import setuptools.build_meta as b; print(b.build_sdist('made'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "made").glob("*.tar.gz")
    with tarfile.open(path) as archive:
        files = {member.name.partition("/")[2]: archive.extractfile(member) for member in archive if member.isfile()}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_links_of_the_description_lead_somewhere(published: dict[str, bytes]) -> None:
    metadata = message_from_bytes(published["PKG-INFO"])
    text = metadata.get_payload()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert text.lstrip().startswith("# jaxpr2triton\n\nThe files that are named here come with the source distribution")
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert targets and all(target.startswith("https://") for target in targets)


def test_files_that_the_description_names_are_in_the_source(published: dict[str, bytes]) -> None:
    text = published["PKG-INFO"].decode()
    named = set(re.findall(r"\b(?:docs|examples|bench/results)/[\w.-]+\.(?:md|py)\b", text))
    assert {"docs/design.md", "examples/gallery.py"} <= named <= set(published)


def test_the_source_has_no_tests_that_cannot_run(published: dict[str, bytes]) -> None:
    assert not [name for name in published if name.startswith("tests/")]
    assert {f"jaxpr2triton/launch/machine/{name}" for name in ("core.c", "arithmetic.h")} <= set(published)
