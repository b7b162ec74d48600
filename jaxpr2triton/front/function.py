"""What `fuse` gives: a function as `jax.jit` gives it, which can also tell what becomes of it."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jaxpr2triton.front.options import Options
from jaxpr2triton.front.transpiled import transpiled
from jaxpr2triton.launch.call.raised import called


def _of_the_jitted(name: str) -> property:
    return property(lambda self: getattr(self._jitted, name))


class Fused:
    """A compiled function, with all that a function of `jax.jit` has: `lower`, `trace`, `eval_shape`, `clear_cache`.

    Where its kernels run on the host, calls wait for their results, and Ctrl-C while they do is a `KeyboardInterrupt`.
    """

    def __init__(self, jitted: Any, function: Callable[..., Any], options: Options, how: Callable[..., Any]) -> None:
        functools.update_wrapper(self, jitted, updated=())
        self.__wrapped__ = function
        self._jitted, self._options, self._how = jitted, options, how

    # Since Python 3.12 `isinstance` looks for these without `__getattr__`; in `vars(self)`, `functools.wraps` would
    # copy them to functions that are made of this one.
    trace, lower, eval_shape, clear_cache = map(_of_the_jitted, ("trace", "lower", "eval_shape", "clear_cache"))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return called(self._jitted, args, kwargs)

    def explain(
        self,
        *args: Any,
        grad: bool | int | Sequence[int] | None = None,
        why: bool = False,
        cycles: bool = False,
        **kwargs: Any,
    ) -> str:
        """What this function becomes for arguments of these shapes: `transpile(fused, *args).explain()`.

        It is planned with the options that it was fused with; `grad` is as for `transpile`, `why` and `cycles` are as
        for `Program.explain`.
        """
        program = transpiled(self.__wrapped__, args, kwargs, self._options, grad, asker="explain")
        return program.explain(why=why, cycles=cycles)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        jitted = vars(self).get("_jitted")
        if jitted is not None and hasattr(jitted, name):
            return getattr(jitted, name)
        raise AttributeError(f"a fused function has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<fused {self.__wrapped__!r}>"

    def __deepcopy__(self, memo: Any = None) -> Fused:
        return self  # nothing can change it

    __copy__ = __deepcopy__

    def __reduce__(self) -> tuple[Any, ...]:
        return self._how, (self.__wrapped__,)


def options_of(function: Any) -> Options:
    """What `fuse` was told of a function; of what is made of a fused one, but for what is static."""
    if isinstance(function, Fused):
        return function._options
    match function:
        case functools.partial(func=inner) | types.MethodType(__func__=inner):
            return replace(options_of(inner), static_argnums=None, static_argnames=None)
    return Options()
