"""Something wrong in the machine's C is noticed: a sample of it, and all of it with HYPOTHESIS_PROFILE=deep."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.machine.core_mutants import FILES, HERE, RULES, harmless, mutants

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
SHARE = 0.95  # that is noticed, at least
EACH = 1 if DEEP else 75
ROOT = Path(__file__).parents[2]


def test_mutants_are_noticed() -> None:
    command = [sys.executable, "-m", "tests.machine.core_mutants", "7", str(EACH)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    *unnoticed, last = done.stdout.strip().split("\n")
    counted = re.fullmatch(r"(\d+) of (\d+) noticed", last)
    assert counted, done.stdout + done.stderr
    noticed, made = map(int, counted.groups())
    assert made >= 600 // EACH
    # a sample may have one that nobody notices
    assert noticed >= min(made - 1, SHARE * made), "\n".join(unnoticed)


def test_every_file_and_every_rule_has_mutants() -> None:
    every = list(mutants())
    assert {each.file for each in every} == set(FILES)
    assert len(every) > 600
    for wanted, _ in RULES:
        assert any(re.search(wanted, each.right) for each in every), wanted


def test_what_is_harmless_is_a_mutant() -> None:
    lines = {each for each in harmless() if each and not each.startswith("#")}
    assert lines - {each.known_as for each in mutants()} == set()


def test_the_core_is_all_in_those_files() -> None:
    assert {path.name for path in HERE.glob("*.[ch]")} == {*FILES, "arithmetic.h"}
