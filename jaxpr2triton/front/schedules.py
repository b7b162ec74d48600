"""Schedules that a user gives, in a file or as JSON. What is wrong with one is told, and costs only that one."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from typing import Any

from jaxpr2triton.errors import ScheduleWarning, UserError, warn
from jaxpr2triton.ir.recorded import Recorded, parsed, records_in


def read_schedules(given: Any) -> tuple[Recorded, ...]:
    """The schedules in a file, or in the JSON of one: what `explain --json` prints, or a list of schedules."""
    if given is None or (isinstance(given, tuple) and all(isinstance(each, Recorded) for each in given)):
        return given or ()
    if isinstance(given, str | os.PathLike):
        path = os.fspath(given)
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as problem:
            raise UserError(f"schedules={path!r} cannot be read: {problem}") from problem
        return _in_text(text, path)
    return tuple(_parsed(given, "schedules"))


@functools.lru_cache(maxsize=16)
def _in_text(text: str, path: str) -> tuple[Recorded, ...]:
    try:
        given = json.loads(text)
    except ValueError as problem:
        warn(f"{path} is ignored: it is no JSON ({problem})", ScheduleWarning)
        return ()
    return tuple(_parsed(given, path))


def _parsed(given: Any, where: str) -> Iterator[Recorded]:
    nothing = True
    for number, each in enumerate(records_in(given)):
        nothing = False
        try:
            yield parsed(each)
        except ValueError as problem:
            warn(f"{where}: schedule {number} is ignored: {problem}", ScheduleWarning)
    if nothing:
        warn(f"{where} is ignored: there is no schedule in it", ScheduleWarning)
