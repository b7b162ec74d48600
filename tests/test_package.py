"""What is published: metadata whose links lead somewhere, a source distribution that is complete in what it has, and
what is installed of it, which runs without a checkout."""

from __future__ import annotations

import os
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
LINK = re.compile(r"\]\(([^)#\s]+)")


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
    assert text.lstrip().startswith(
        "# jaxpr2triton\n\nPages and examples that are named here come with the source distribution, `scripts/` with a "
        "checkout. The command takes functions of any file, as `jaxpr2triton explain model.py:loss 'f32[128,64]'`.\n\n"
    )
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert targets and all(target.startswith("https://") for target in targets)


def test_no_page_names_this_or_another_computer(published: dict[str, bytes]) -> None:
    """No repository is public, so the metadata name none, nor a folder of whoever built it."""
    metadata = message_from_bytes(published["PKG-INFO"])
    assert metadata["Project-URL"] is None and metadata["Home-page"] is None
    assert not [name for name, text in published.items() if bytes(CHECKOUT) in text]


def test_files_that_the_description_names_are_in_the_source(published: dict[str, bytes]) -> None:
    text = message_from_bytes(published["PKG-INFO"]).get_payload()
    named = set(re.findall(r"\b(?:docs|examples|bench|tests)/[\w./-]+\.\w+\b", text))
    assert {"docs/design.md", "examples/gallery.py"} <= named <= set(published)


def test_links_of_pages_lead_to_other_files_of_the_source(published: dict[str, bytes]) -> None:
    links = [
        (page, os.path.normpath(os.path.join(os.path.dirname(page), target)))
        for page, text in published.items()
        if page.endswith(".md")
        for target in LINK.findall(text.decode())
        if not target.startswith("https://")
    ]
    assert len(links) > 20
    folders = {os.path.dirname(name) for name in published}
    assert not [(page, target) for page, target in links if target not in published and target not in folders]


def test_the_source_has_no_tests_that_cannot_run(published: dict[str, bytes]) -> None:
    assert not [name for name in published if name.startswith("tests/")]
    assert {f"jaxpr2triton/launch/machine/{name}" for name in ("core.c", "arithmetic.h")} <= set(published)


INSTALLED = """
import runpy, sys
import jax.numpy as jnp
import jaxpr2triton as j2t
assert j2t.__file__.startswith(sys.argv[1]), j2t.__file__
print(float(j2t.fuse(lambda x: jnp.sin(x).sum(), backend="machine")(jnp.ones(8))))
sys.argv = ["jaxpr2triton", "explain", "model.py:double", "f32[8]"]
runpy.run_module("jaxpr2triton", run_name="__main__")
"""


def test_what_is_installed_runs_without_a_checkout(published: dict[str, bytes], tmp_path: Path) -> None:
    """With its C, which the simulator of PTX compiles; made of the source distribution, as pip does it."""
    source, installed = tmp_path / "source", tmp_path / "installed"
    for name, content in published.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    build = [sys.executable, "setup.py", "-q", "build", "--build-lib", str(installed)]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    theirs = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    assert theirs == {name for name in published if name.startswith("jaxpr2triton/") and name.count(".") == 1}
    (tmp_path / "model.py").write_text("def double(x):\n    return x * 2\n")
    environ = {**os.environ, "PYTHONPATH": str(installed)}
    words = [sys.executable, "-c", INSTALLED, str(installed)]
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    number, *report = done.stdout.splitlines()
    assert abs(float(number) - 6.7318) < 1e-3 and report[0] == "double: (f32[8]) → (f32[8])"
