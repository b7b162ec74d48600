"""The scripts can be run, and name no machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import one_in

CHECKOUT = Path(__file__).parent.parent
COMMANDS = ("scripts/test", "scripts/demo", "scripts/deep", ".ci/run")
SHELL = (*COMMANDS, "scripts/environment.sh")


@pytest.mark.parametrize("name", SHELL)
def test_bash_can_read_it(name: str) -> None:
    done = subprocess.run(["bash", "-n", CHECKOUT / name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_it_can_be_run(name: str) -> None:
    assert os.access(CHECKOUT / name, os.X_OK)
    assert (CHECKOUT / name).read_text().startswith("#!/usr/bin/env bash\n")


@pytest.mark.parametrize("name", SHELL)
def test_it_names_no_place_of_one_machine(name: str) -> None:
    text = (CHECKOUT / name).read_text().replace("#!/usr/bin/env bash", "").replace("/dev/null", "")
    assert not any(word.startswith(("/", '"/', "'/")) for word in text.split())
    assert "http" not in text


def test_requirements_are_those_of_setup_cfg() -> None:
    command = [sys.executable, CHECKOUT / "scripts/requirements.py"]
    names = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout.split()
    assert [name.split(">=")[0] for name in names] == [
        "jax", "triton", "numpy", "pytest", "pytest-xdist", "hypothesis", "ruff", "mypy",
    ]  # fmt: skip


def test_a_python_is_found_from_any_folder(tmp_path: Path) -> None:
    command = f'. "{CHECKOUT}/scripts/environment.sh"; version_of "$(any_python)"'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, cwd=tmp_path)
    major, minor = map(int, done.stdout.split("."))
    assert (major, minor) >= (3, 11)


def test_a_python_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    command = f'. "{CHECKOUT}/scripts/environment.sh"; python_of_version 3.99; echo found nothing'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "found nothing\n"


def test_one_case_in_some_is_the_same_always() -> None:
    names = [*(f"a.py::test_many[{n}]" for n in range(10)), "a.py::test_one", "a.py::test_two[x]", "a.py::test_two[y]"]
    assert one_in(1, names) == set(names)
    some = one_in(3, names)
    assert some == one_in(3, names) and some < set(names)
    assert 3 <= sum("many" in name for name in some) <= 4
    assert "a.py::test_one" in some and sum("two" in name for name in some) == 1
