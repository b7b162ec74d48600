"""Stands for a worker: does what the name of a job says, without a device."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from bench.device import ANSWERS
from bench.device.store import Row, line_of

ANSWER = os.fdopen(int(os.environ[ANSWERS]), "w", buffering=1)


def say(what: str, **facts: object) -> None:
    print(json.dumps({"say": what, **facts}), file=ANSWER, flush=True)


def measured(name: str, family: str, way: str) -> None:
    say("found", line=line_of(Row("", "time", family, name, way=way, us=(1.0,))))


def do(name: str, family: str, ways: list[str]) -> None:
    if name == "known":
        say("hash", hashes={"ours": "old"})
        if sys.stdin.readline().strip() == "later":
            return
    say("alone")
    sys.stdin.readline()
    measured(name, family, ways[0])
    match name:
        case "hangs":
            time.sleep(60)
        case "crashes":
            print("the last words")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGSEGV)
    say("release")
    for way in ways[1:]:
        measured(name, family, way)


say("ready")
for line in sys.stdin:
    job = json.loads(line)
    do(job["name"], job["family"], job["ways"])
    say("done", full=job["name"] == "large")
