"""Every named program and its gradient: `explain` says what is launched, and each launch is what was meant."""

from __future__ import annotations

import warnings

import jax
import pytest

import jaxpr2triton as j2t
from tests.standin.checks import noting_kernels
from tests.standin.record import recording
from tests.works import Work, explained, works

pytestmark = pytest.mark.standin


@pytest.mark.parametrize("work", list(works()), ids=str)
def test_launches(work: Work) -> None:
    with work.precision(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is left over is no concern here
        args = jax.device_put(work.arguments())
        with noting_kernels() as meant:
            step = jax.jit(work.function(lambda function: j2t.fuse(function, backend="triton")))
            jax.block_until_ready(step(*args))
        with recording() as record:
            jax.block_until_ready(step(*args))
        assert explained(work, *args) == meant.launched(record.launches)
    assert not meant.problems(record.launches)
    assert not record.refusals
