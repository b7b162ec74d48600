"""A kernel's source as a live Python module."""

from __future__ import annotations

import hashlib
import linecache
import threading
from collections import OrderedDict
from typing import Any

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.kernel import Kernel

_KEPT = 256
_modules: OrderedDict[str, dict[str, Any]] = OrderedDict()
_lock = threading.Lock()


def load_function(kernel: Kernel) -> Any:
    """The `@triton.jit` function of `kernel`. The last few hundred modules are kept, by their text.

    Triton reads the text of a function back through `inspect`, so it is left in `linecache` for as long.
    """
    with _lock:
        namespace = _modules.get(kernel.source)
        if namespace is None:
            namespace = _modules[kernel.source] = _execute(kernel.source)
        _modules.move_to_end(kernel.source)
        while len(_modules) > _KEPT:
            forgotten, _ = _modules.popitem(last=False)
            linecache.cache.pop(_filename(forgotten), None)
    if kernel.name not in namespace:
        raise CompilerBug(f"the source of kernel {kernel.name} does not define {kernel.name}")
    return namespace[kernel.name]


def _filename(source: str) -> str:
    return f"<triton kernels {hashlib.sha256(source.encode()).hexdigest()[:16]}>"


def _execute(source: str) -> dict[str, Any]:
    filename = _filename(source)
    code = compile(source, filename, "exec")
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": filename}
    exec(code, namespace)
    return namespace
