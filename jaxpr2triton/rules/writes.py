"""What a scatter does with an old value and its update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OPERATIONS: Mapping[str, tuple[str, ...]] = {  # the one equation that the function of each consists of
    "scatter": (),
    "scatter-add": ("add", "add_any"),
    "scatter-sub": ("sub",),
    "scatter-mul": ("mul",),
    "scatter-min": ("min",),
    "scatter-max": ("max",),
}


def is_usual(name: str, params: Mapping[str, Any]) -> bool:
    """True if a scatter's function is the one that the primitive's name says.

    scatter[update_jaxpr=None]                                       the update
    scatter-add[update_jaxpr={ lambda ; a b. c = add a b in (c,) }]  their sum
    scatter[update_jaxpr={ lambda ; a b. c = sin a in (c,) }]        unusual: this is `x.at[i].apply(jnp.sin)`
    """
    function = params["update_jaxpr"]
    if function is None:
        return True
    inner = getattr(function, "jaxpr", function)
    if not inner.eqns:
        return name == "scatter" and inner.outvars[0] is inner.invars[1]
    eqn, *others = inner.eqns
    whole = list(eqn.invars) == list(inner.invars) and inner.outvars[0] is eqn.outvars[0]
    return not others and whole and eqn.primitive.name in OPERATIONS[name]
