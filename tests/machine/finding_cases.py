"""The texts in findings/*.txt: each with something that makes a finding, and mended.

    == one lane writes, another reads                 a name, and how it is launched
    st.shared.b32 [%sh], %tid;
    << || bar.warp.sync -1;>>                         wrong || right
    ld.shared.b32 %r2, [%r1];
    -> RACE_IN_WARP 3/1 shared memory, byte 4, …      what is said of the wrong one; of the right one, nothing
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxpr2triton.launch.machine.run import Settings
from tests.machine.handwritten import WORDS, Launch


def _with_nans(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x[[3, 19]] = np.nan
    return x


@dataclass(frozen=True)
class Case:
    name: str
    wrong: str
    right: str
    says: tuple[str, ...]
    launch: Launch


_RANDOM = np.random.default_rng(3)
_INPUTS: dict[str, np.ndarray] = {
    "words": WORDS,
    "reals": _RANDOM.standard_normal(64).astype(np.float32),
    "doubles": _RANDOM.standard_normal(32),
    "halves": (_RANDOM.standard_normal(64) * 3).astype(np.float16),
    "brains": np.random.default_rng(5).standard_normal(128).astype(np.float32).view(np.uint16)[1::2],
}
_INPUTS["nans"] = _with_nans(_INPUTS["reals"])
_CASE = re.compile(r"^== (?P<name>.*?)(?:  (?P<launch>.*))?\n(?P<body>(?:(?!==|->).*\n)*)(?P<says>(?:-> .*\n?)*)", re.M)
_CHOICE = re.compile(r"<<(.*?) *\|\| *(.*?)>>")


def _launch(words: str) -> Launch:
    found = dict(word.split("=") for word in words.split())
    x = found.get("x", "words")
    return Launch(
        threads=(int(found.get("threads", 32)), 1, 1),
        grid=(int(found.get("grid", 1)), 1, 1),
        shared=int(found.get("shared", 512)),
        x=_INPUTS[x] if x in _INPUTS else np.zeros(int(x.removeprefix("zeros")), np.uint8),
        control=tuple(map(int, found.get("control", "").split(","))) if "control" in found else (),
        zeros="zeros" in found,
        settings=Settings(budget=int(found.get("budget", 10**6)), resident=int(found.get("resident", 0))),
    )


def cases(text: str) -> list[Case]:
    return [
        Case(
            name=match["name"],
            wrong=_CHOICE.sub(r"\1", match["body"]),
            right=_CHOICE.sub(r"\2", match["body"]),
            says=tuple(line.removeprefix("-> ") for line in match["says"].splitlines()),
            launch=_launch(match["launch"] or ""),
        )
        for match in _CASE.finditer(text)
    ]


CASES = [case for path in sorted(Path(__file__).parent.glob("findings/*.txt")) for case in cases(path.read_text())]
