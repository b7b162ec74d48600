"""The process beside this one in which Triton compiles.

Some kernels Triton never comes back from, and over others it breaks down, and takes its process along. A process can be
ended from outside, and a pass of the compiler cannot; so it is the helper that ends, and the kernel is refused. It
starts with the first kernel, in the time that importing Triton takes here too, and lives as long as this process.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from jaxpr2triton.errors import BackendError, KernelRefused
from jaxpr2triton.launch.compile.triton_shim import TRITON_LOCK, triton_side, triton_version

SECONDS = 120  # for one kernel

_PROGRAM = Path(__file__).with_name("triton_compiler.py")
_lock = threading.Lock()


@dataclass(frozen=True)
class Helper:
    """A running process, what is said to it and heard from it, and who started it."""

    process: subprocess.Popen[bytes]
    line: Connection
    owner: int


_helpers: list[Helper] = []  # one, or none


def compiled_beside(task: Mapping[str, Any]) -> dict[str, Any]:
    """Triton's answer; `KernelRefused` if there is none."""
    if not sys.executable:  # within another program: there is nothing to start
        with TRITON_LOCK:
            return triton_side("compile.triton_compiler").answered(task)
    with _lock:
        helper = _running()
        answer = None
        try:
            helper.line.send((SECONDS, task))
            answer = helper.line.recv()
        except (EOFError, ConnectionError):
            raise _ended(helper.process.wait(), task["name"]) from None
        finally:
            if answer is None:  # interrupted, or ended
                _end()
        return answer


def _running() -> Helper:
    if _helpers and _helpers[0].owner != os.getpid():  # this is a copy of the process that started it
        _helpers.clear()
    if not _helpers:
        _helpers.append(_start())
    return _helpers[0]


def _start() -> Helper:
    triton_version()  # is it there?
    try:
        return _started()
    except OSError as problem:  # no file, no right, no memory, too many files that are open
        what = f"the process in which Triton compiles cannot be started: {sys.executable} ({problem.strerror})"
        raise BackendError(what, hint="sys.executable has to be a Python that can be run") from problem


def _started() -> Helper:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-P", str(_PROGRAM), str(theirs.fileno())]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=environment,
            start_new_session=True,  # an interrupt is for this process
        )
        return Helper(process, Connection(ours.detach()), os.getpid())


@atexit.register
def _end() -> None:
    while _helpers:
        helper = _helpers.pop()
        helper.line.close()
        if helper.owner == os.getpid():
            helper.process.kill()
            helper.process.wait()


def _ended(status: int, name: str) -> KernelRefused | BackendError:
    if status >= 0:
        return BackendError(f"Triton's compiler does not start: {_PROGRAM.name} ends with status {status}")
    if -status == signal.SIGALRM:
        return KernelRefused(f"Triton does not come back from kernel {name} within {SECONDS} seconds")
    return KernelRefused(f"Triton breaks down over kernel {name}: {signal.strsignal(-status)}")
