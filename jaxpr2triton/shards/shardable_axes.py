"""Which dimensions of what comes in and goes out may be split over devices, for `explain`."""

from __future__ import annotations

from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.ir.kernel import Divided
from jaxpr2triton.ir.tracing import argument_names, result_names
from jaxpr2triton.shards.constraints import why_nowhere_split
from jaxpr2triton.shards.flow import Classes, why_not_split
from jaxpr2triton.shards.local import opened
from jaxpr2triton.shards.walks import Dim, shape_of


def divided(closed: Closed) -> tuple[Divided, ...]:
    """The dimensions that are split together, but those of single elements.

    x[0], out[0]    may be split
    x[1]            may be split, and the devices meet: the mean is along it
    """
    plain, held = opened(closed)
    jaxpr = plain.jaxpr
    classes, nowhere = Classes(jaxpr), why_nowhere_split(plain)
    found: dict[Dim, list[str]] = {}
    outputs = [name or f"out{number or ''}" for number, name in enumerate(result_names(closed))]
    ends = [*jaxpr.invars[len(held) :], *jaxpr.outvars]
    for name, atom in zip([*argument_names(closed), *outputs], ends):
        for var in variables([atom]):
            for d, kind in enumerate(classes.all_of(var)):
                if shape_of(var)[d] > 1:
                    found.setdefault(kind, []).append(f"{name}[{d}]")
    return tuple(
        Divided(
            tuple(dict.fromkeys(places)),
            kind in classes.met,
            nowhere or classes.why.get(kind) or why_not_split(jaxpr, classes, frozenset({kind})),
        )
        for kind, places in found.items()
    )
