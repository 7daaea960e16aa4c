"""Functions are held to their annotations in every test: by beartype, and those of arrays by jaxtyping."""

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from theorykit.bpkr.action.prior import substitute_nested
from theorykit.bpkr.evaluation.rounding import log_det_sensitivity
from theorykit.derivation.claims import worst
from theorykit.symbolic.algebra import transpose


@pytest.mark.parametrize("call", [lambda: transpose("H"), lambda: substitute_nested("U_1", {})])
def test_symbolic_functions_are_checked(call):
    with pytest.raises(TypeCheckError):
        call()


def test_functions_of_arrays_are_checked_for_shapes_that_belong_together():
    assert log_det_sensitivity(jnp.eye(2), jnp.ones(2)) > 0
    with pytest.raises(TypeCheckError):
        log_det_sensitivity(jnp.eye(2), jnp.ones(3))


def test_what_is_right_passes():
    assert worst(1.0, 2.0) == 2.0
