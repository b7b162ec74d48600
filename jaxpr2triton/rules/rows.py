"""Every row of every family, in one table."""

from __future__ import annotations

from jaxpr2triton.rules import indexing, reductions, sweeps
from jaxpr2triton.rules.base import merge_tables
from jaxpr2triton.rules.pointwise.table import POINTWISE
from jaxpr2triton.rules.reductions import Outcome, Reduction
from jaxpr2triton.rules.sweeps import Sweep

TABLE = merge_tables(POINTWISE, indexing.TABLE, reductions.TABLE, sweeps.TABLE)
ADDED = frozenset({"dot_general", *(name for name, row in reductions.TABLE.items() if row.linear_in)})  # sums of terms


def names_of(outcome: Outcome) -> frozenset[str]:
    """The reductions and sweeps whose results are that."""
    rows: dict[str, Reduction | Sweep] = {**reductions.TABLE, **sweeps.TABLE}
    return frozenset(name for name, row in rows.items() if row.outcome is outcome)
