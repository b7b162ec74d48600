"""Counts what one call of each program takes, in a process of its own.

    python -m tests.standin.counting SECONDS WHO TITLE ...

Prints one line of JSON for each title, and ends in the middle of one that takes longer than it may; `bench/launched.py`
asks for the others again.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

from tests.standin.start import started

started()  # before anything imports JAX, which looks for devices then

import jax  # noqa: E402  # after the driver

import jaxpr2triton as j2t  # noqa: E402  # after the driver
from tests.standin.full_size import full_size  # noqa: E402  # after the driver
from tests.standin.record import Counts, loops_take, recording  # noqa: E402  # after the driver
from tests.works import Work  # noqa: E402  # after the driver

ROUNDS = 100  # of loops whose condition nobody computes
TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "jax.jit": lambda function: function,
    "ours": lambda function: j2t.fuse(function, backend="triton"),
}


def counted(work: Work, who: str) -> Counts:
    """The third call: the first one compiles, and XLA records CUDA graphs in the second."""
    with work.precision(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args = jax.device_put(work.arguments())
        step = jax.jit(work.function(TRANSFORMS[who]))
        for _ in range(2):
            jax.block_until_ready(step(*args))
        with recording(events=False) as record:
            jax.block_until_ready(step(*args))
    return record.counts


def main(seconds: str, who: str, *titles: str) -> None:
    loops_take(ROUNDS)
    known = {str(work): work for work in full_size()}
    for title in titles:
        signal.alarm(int(seconds))  # XLA may evaluate long loops as it compiles, and hears nothing meanwhile
        try:
            facts: dict[str, Any] = dataclasses.asdict(counted(known[title], who))
        except Exception as problem:  # the others are counted all the same, and the page says what it was
            facts = {"problem": " ".join(f"{type(problem).__name__}: {problem}".split())[:200]}
        print(json.dumps({"title": title} | facts), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
