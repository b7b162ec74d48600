"""The machine's C with one thing wrong, and the tests that notice.

    python -m tests.machine.core_mutants                     all of them
    python -m tests.machine.core_mutants 3 40                mutants 3, 43, 83, …
    python -m tests.machine.core_mutants --like printed.txt  those that an earlier run printed, wherever they stand now
    python -m tests.machine.core_mutants --like copies.h:    those of lines with this in them, or before them

Each mutant is compiled (quickly, without optimization) and runs the short texts of this folder in a process of its own:
it may crash or never end. Printed are those that nobody notices and that are not in harmless.txt, which has them by the
reason why they change nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jaxpr2triton.launch.machine import layout
from jaxpr2triton.launch.machine import run as machine
from tests.machine import test_findings, test_meeting, test_mma, test_values, test_warpgroups
from tests.machine.finding_cases import CASES
from tests.machine.value_cases import VALUES

HERE = Path(machine.__file__).parent
FILES = ("core.c", "state.h", "clocks.h", "shadow.h", "memory.h", "lanes.h", "copies.h", "warpgroups.h")
SECONDS = 10  # of a processor, that the tests of one mutant may take
RULES = (
    *((r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == ")),
    *((r" && ", " || "), (r" \|\| ", " && "), (r" & ", " | "), (r" \| ", " & "), (r" \|= ", " = "), (r" ~", " ")),
    *((r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "), (r" % ", " / "), (r" << ", " >> ")),
    *((r"\+\+;", ";"), (r" \+= ", " = "), (r" \^ ", " + "), (r"!(?=[a-z])", ""), (r" 0;", " 1;"), (r" 1;", " 0;")),
    (r"\bmask\b", "ALL_LANES"),  # a predicate that is lost
    (r"\bactive\b", "ALL_LANES"),
    (r"UNDEFINED\(", "DIFFERENT("),
    (r"DIFFERENT\(", "UNDEFINED("),
    (r"\breport(_lane|_clash)?\(run[^;]*;", ";"),  # a finding that is not made
    (r"(?<=[ {])set_faults\([^;]*;", ";"),  # a taint that stays
    (r"(?<=set_faults)\((.*), [^,;]*\);", r"(\1, 0);"),  # … or is dropped
    (r"\bcontinue;", ";"),
    (r"\? (\w+) : (\w+)", r"? \2 : \1"),
)


_FOR = re.compile(r"for \([^;]*;[^;]*;[^;]*\)")


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int  # the first of them, if it goes on
    right: str
    wrong: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}\n  {self.right.strip()}\n  {self.wrong.strip()}"

    @property
    def known_as(self) -> str:
        return f"{self.file}: {self.wrong.strip()}"


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """Code without comments; a line that ends within brackets, and those that it goes on in, are one."""
    begun, first = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        code = line.partition("//")[0].rstrip()
        begun, first = (f"{begun} {code.strip()}", first) if begun else (code, number)
        if begun.count("(") <= begun.count(")"):
            yield first, begun
            begun = ""


def mutants() -> Iterator[Mutant]:
    for file in FILES:
        for number, code in _whole_lines((HERE / file).read_text("utf-8")):
            if not code.strip() or code.startswith(("#", "typedef")):
                continue
            for wanted, given in RULES:
                for match in re.finditer(wanted, code):
                    if any(header.start() <= match.start() < header.end() for header in _FOR.finditer(code)):
                        continue  # one round more or less reads what nobody uses, or what lies behind an array
                    wrong = code[: match.start()] + match.expand(given) + code[match.end() :]
                    if wrong != code:
                        yield Mutant(file, number, code, wrong)


def harmless() -> set[str]:
    """… as `core.c: the line that is wrong`."""
    return set(Path(__file__).with_name("harmless.txt").read_text("utf-8").split("\n"))


def source(mutant: Mutant | None) -> str:
    """All of the core in one text."""
    texts = {file: (HERE / file).read_text("utf-8") for file in (*FILES, "arithmetic.h")}
    texts["layout.h"] = layout.header()
    if mutant:
        lines = dict(_whole_lines(texts[mutant.file])) | {mutant.line: mutant.wrong}
        texts[mutant.file] = "\n".join(lines.values())
    return re.sub(r'#include "([\w.]+)"', lambda match: texts[match[1]], texts["core.c"])


def compiled(mutant: Mutant | None, folder: str, number: int) -> Path | None:
    """The library, or None if C refuses it."""
    path = Path(folder) / f"{number}.so"
    flags = ["-std=gnu11", "-O0", "-w", "-shared", "-fPIC", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing"]
    command = [os.environ.get("CC", "gcc"), *flags, "-x", "c", "-", "-o", str(path), "-lm"]
    done = subprocess.run(command, input=source(mutant), capture_output=True, text=True)
    return None if done.returncode else path


def checks() -> Iterator[Callable[[], object]]:
    yield from (partial(test_findings.test_a_finding_and_its_mend, case) for case in CASES)
    yield from (partial(test_values.test_values, value) for value in VALUES)
    yield from (partial(test_findings.test_sectors_and_wavefronts, *access) for access in test_findings.ACCESSES)
    yield test_findings.test_what_nothing_wrote_is_counted
    yield test_findings.test_counts_of_warps_add_up
    yield test_findings.test_a_program_that_is_cut_off_is_not_looked_at_any_more
    yield test_findings.test_many_findings_of_one_kind_leave_room_for_others
    yield test_findings.test_many_findings_of_many_kinds
    yield test_findings.test_an_assertion_in_words
    yield test_findings.test_a_deadlock_in_words
    yield test_findings.test_a_deadlock_is_known_after_as_many_rounds_as_wanted
    yield test_findings.test_programs_that_are_resident_are_cut_off_too
    yield from (partial(test_findings.test_all_programs_run_however_many_are_resident, n) for n in (1, 4, 8))
    yield from (partial(test_meeting.test_values, made, 5, "sm_90") for made in test_meeting.MADE)
    yield partial(test_meeting.test_a_device_with_less_room_than_programs, test_meeting.shifted, 4)
    yield partial(test_meeting.test_what_is_missing_in_the_source, test_meeting.shifted, "another half")
    yield test_findings.test_functions_have_registers_and_labels_of_their_own
    yield test_findings.test_without_checks_nothing_is_found
    yield from (partial(test_mma.test_products, product) for product in test_mma.PRODUCTS)
    yield from (partial(test_warpgroups.test_products, product) for product in test_warpgroups.PRODUCTS)


def passes(library: Path, tests: Sequence[Callable[[], object]]) -> bool:
    """In a process of its own, for a crash is a difference too."""
    child = os.fork()
    if not child:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # what the mutant does not end, this does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        loaded = ctypes.CDLL(str(library))
        machine.core = lambda: loaded  # type: ignore[assignment]
        try:
            for test in tests:
                test()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _chosen(start: int, step: int, like: str) -> list[Mutant]:
    known = harmless()
    every = [each for each in mutants() if each.known_as not in known][start::step]
    if not like:
        return every
    if not Path(like).exists():
        return [each for each in every if like in f"{each.file}: {each.right}"]
    printed = re.findall(r"^(\S+):\d+\n  .*\n  (.*)$", Path(like).read_text("utf-8"), re.M)
    return [each for each in every if (each.file, each.wrong.strip()) in printed]


def main(start: int, step: int, like: str) -> None:
    tests = list(checks())
    for test in tests:
        test()  # and so everything is parsed and compiled
    chosen = _chosen(start, step, like)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        unchanged = compiled(None, folder, 0)
        assert unchanged is not None
        assert passes(unchanged, tests)
        libraries = pool.map(lambda n: compiled(chosen[n], folder, n + 1), range(len(chosen)))
        made = noticed = 0
        for mutant, library in zip(chosen, libraries):
            if library is None:
                continue
            made += 1
            if passes(library, tests):
                print(mutant, flush=True)
            else:
                noticed += 1
            library.unlink()
    print(f"{noticed} of {made} noticed", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("start", type=int, nargs="?", default=0)
    parser.add_argument("step", type=int, nargs="?", default=1)
    parser.add_argument("--like", default="")
    main(**vars(parser.parse_args()))
