"""Every row of every family, in one table."""

from __future__ import annotations

from jaxpr2triton.rules import indexing, reductions, sweeps
from jaxpr2triton.rules.base import merge_tables
from jaxpr2triton.rules.pointwise.table import POINTWISE

TABLE = merge_tables(POINTWISE, indexing.TABLE, reductions.TABLE, sweeps.TABLE)
