"""Small matrices are factorised on one thread, large ones on as many as there are."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg  # noqa: F401 - its threads are those of JAX
from jax.scipy.linalg import solve_triangular
from threadpoolctl import ThreadpoolController, threadpool_limits

import theorykit
from theorykit._compat import MANY_ROWS, threads_for
from theorykit._jit import rows_of

from .processes import call


def threads() -> set[int]:
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    return {library.get_num_threads() for library in libraries}


@pytest.fixture(autouse=True)
def three_threads():
    """More than one, whatever the machine has."""
    with threadpool_limits(3, user_api="blas"):
        assert threads() == {3}
        yield
        assert threads() == {3}


def test_rows_are_those_of_the_largest_matrix():
    assert rows_of([]) == rows_of([3, "text", np.arange(7), jax.random.key(0), np.zeros(())]) == 0
    assert rows_of([np.zeros(5)]) == 5
    assert rows_of([np.zeros((5000, 3, 3)), jnp.zeros((4, 2))]) == 4
    assert rows_of([np.zeros((7, 12, 4)), jnp.zeros((2, 2, 16, 16))]) == 16


def test_the_limit_holds_within_the_contexts_and_ends_with_the_last():
    with threads_for(MANY_ROWS):
        assert threads() == {3}
    with threads_for(MANY_ROWS - 1):
        assert threads() == {1}
        with pytest.raises(KeyError), threads_for(2):
            raise KeyError
        assert threads() == {1}
    entered, leave = threading.Event(), threading.Event()

    def other():
        with threads_for(2):
            entered.set()
            leave.wait(60)

    beside = threading.Thread(target=other)
    with threads_for(2):
        beside.start()
        entered.wait(60)
    assert threads() == {1}
    leave.set()
    beside.join()
    assert threads() == {3}


@pytest.mark.parametrize(("rows", "expected"), [(20, 1), (MANY_ROWS, 3)])
def test_compiled_functions_have_the_threads_that_their_arguments_ask_for(rows, expected):
    seen = []

    def record(value):
        seen.append(threads())
        return value

    @theorykit.jit
    def function(x):
        return jax.pure_callback(record, jax.ShapeDtypeStruct((), x.dtype), jnp.sum(x))

    assert function(jnp.ones(rows)) == rows
    assert seen == [{expected}]


def solved_beside_each_other() -> bool:
    solve = jax.jit(lambda factors: [solve_triangular(each, jnp.sin(each), lower=True) for each in factors])
    return all(bool(jnp.isfinite(each).all()) for each in solve([jnp.eye(300) * jnp.ones((3, 1, 1))] * 3))


def test_batches_of_solves_do_not_wait_for_each_other_for_ever():
    assert call(solved_beside_each_other)
