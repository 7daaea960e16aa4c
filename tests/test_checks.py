"""The shared checks of arguments: what they admit comes back as it was meant, all else is refused by name."""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from theorykit.checks import (
    check_aligned,
    checked,
    checked_array,
    checked_number,
    checked_path,
    checked_sequence,
    checked_whole_number,
    in_order_of_names,
    shown,
    single_precision_note,
)
from theorykit.saddle.domains import AbstractDomain

from .faces.values import unlike

FINITE = st.floats(allow_nan=False, allow_infinity=False)
ARRAYS = hnp.arrays(np.float64, (2, 3), elements=FINITE)
FORMS = {
    "a NumPy array": np.asarray,
    "a JAX array": jnp.asarray,
    "nested lists": lambda array: array.tolist(),
    "a list of arrays": list,
    "an xarray": lambda array: xr.DataArray(array, dims=("rows", "columns")),
    "memory of another order": np.asfortranarray,
    "big-endian numbers": lambda array: array.astype(">f8"),
}


@pytest.mark.parametrize("form", FORMS)
@given(array=ARRAYS)
def test_every_form_of_an_array_of_numbers_is_admitted_with_its_values(form, array):
    found = checked_array("a", FORMS[form](array), "rows columns")
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float16, np.float32, np.longdouble, bool, jnp.bfloat16])
def test_every_type_of_real_number_is_admitted(dtype):
    array = np.array([[0, 1], [1, 0]], dtype=dtype)
    np.testing.assert_array_equal(checked_array("a", array, "rows columns"), [[0.0, 1.0], [1.0, 0.0]])


@given(array=ARRAYS)
def test_what_is_no_array_of_finite_real_numbers_is_refused_by_name(array):
    for name, wrong in unlike(array).items():
        with pytest.raises((TypeError, ValueError), match="heights") as refusal:
            checked_array("heights", wrong, "rows columns")
        assert "\n" not in str(refusal.value), name


def test_a_masked_array_is_refused_wherever_it_hides():
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    for hidden in (masked, [masked], [[1.0], masked], (masked, masked), np.ma.masked_array([1.0])):
        with pytest.raises(TypeError, match="heights is a masked array"):
            checked_array("heights", hidden)
    with pytest.raises(TypeError, match="masked"):
        checked_sequence("heights", masked, "numbers")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Mapping[str, int], "a dictionary, got 3"),
        (AbstractDomain, r"a domain \(Real, .*\), got 3"),
        (Sequence[float], "a sequence of numbers, got 3"),
        (Sequence[Annotated[int, partial(checked_whole_number, least=1)]], "a sequence of whole numbers, got 3"),
        (str | bool, "text or a boolean, got 3"),
    ],
)
def test_types_are_named_in_words(kind, words):
    with pytest.raises(TypeError, match=f"^it must be {words}$"):
        checked("it", 3, kind)


def test_ragged_rows_are_told_to_be_padded():
    with pytest.raises(TypeError, match=r"a must be an array of real numbers, got .* pad rows to one length"):
        checked_array("a", [[1.0], [1.0, 2.0]])
    with pytest.raises(TypeError, match=r"got arrays of shape \(2, 3\) and, at 2, \(1, 3\): pad rows to one length"):
        checked_array("a", [np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((1, 3))])


def test_traced_arrays_are_checked_for_kind_and_shape_at_once_and_for_content_later():
    check = jax.jit(lambda a: checked_array("a", a, "rows columns"))
    np.testing.assert_array_equal(check(jnp.eye(2)), np.eye(2))
    with pytest.raises(TypeError, match="a must be an array of real numbers"):
        check(jnp.eye(2) * 1j)
    with pytest.raises(ValueError, match="a must have shape"):
        check(jnp.ones(2))
    with pytest.raises(RuntimeError, match="a has entries that are not finite"):
        check(jnp.array([[jnp.nan]])).block_until_ready()


@given(number=st.one_of(FINITE, st.integers(-(10**300), 10**300)))
def test_a_number_comes_back_as_it_came(number):
    found = checked_number("x", number)
    # JAX takes no whole number beyond 64 bits, so those come back as floating-point numbers.
    assert found is number or (abs(number) >= 2**63 and found == float(number))


@given(number=st.integers())
def test_whole_numbers_beyond_64_bits_are_refused(number):
    if abs(number) < 2**63:
        assert checked_whole_number("x", number) == number
    else:
        with pytest.raises(ValueError, match="x is beyond 64 bits"):
            checked_whole_number("x", number)


@given(value=st.one_of(st.text(), st.integers(), st.lists(st.text()), st.just(10**5000), ARRAYS))
def test_what_an_error_shows_is_short_and_of_one_line(value):
    assert len(shown(value)) <= 80 and "\n" not in shown(value)


NAMED = xr.DataArray(np.arange(6.0).reshape(1, 2, 3), dims=("examples", "paths", "features"))


@pytest.mark.parametrize("order", list(itertools.permutations(NAMED.dims)))
@pytest.mark.parametrize("names", [{}, {"examples": "sample"}, {"examples": "Batch", "features": "feature"}])
def test_arrays_with_named_axes_are_taken_by_name(order, names):
    given = NAMED.transpose(*order).rename(names)
    np.testing.assert_array_equal(checked_array("a", given, "examples paths features"), NAMED.values)


def test_names_that_say_nothing_leave_the_order_and_those_that_say_half_of_it_are_refused():
    for rename in ({"examples": "x", "paths": "y", "features": "z"}, {"examples": "x"}):
        assert in_order_of_names("a", NAMED.rename(rename), "examples paths features").shape == NAMED.shape
    half = NAMED.rename(examples="x").transpose("paths", "x", "features")
    with pytest.raises(ValueError, match=r"a must have the axes \(examples, paths, features\), got \(paths, x, fea"):
        checked_array("a", half, "examples paths features")


def test_two_arrays_with_other_examples_are_refused():
    one = NAMED.isel(examples=[0, 0]).assign_coords(examples=[3, 4])
    check_aligned(features=one, labels=one[:, 0, 0])
    check_aligned(features=one, labels=np.ones(2))
    with pytest.raises(ValueError, match="features and labels have different coordinates along examples"):
        check_aligned(features=one, labels=one[::-1, 0, 0])


def test_single_precision_is_known_by_its_rounding():
    numbers = np.random.default_rng(0).normal(size=(4, 4))
    assert "single precision" in single_precision_note(numbers.astype(np.float32))
    assert "single precision" in single_precision_note(numbers.astype(np.float32).astype(np.float64))
    assert not single_precision_note(numbers) and not single_precision_note(np.round(numbers))


def test_numbers_beyond_64_bits_become_floats():
    assert type(checked_number("x", 2**64)) is float and type(checked_number("x", 2**63 - 1)) is int
    assert jax.jit(lambda x: x)(checked_number("x", -(2**70))) == -(2.0**70)


def test_a_relative_path_from_a_deleted_folder_is_refused_by_name(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert checked_path("folder", tmp_path / "runs") == tmp_path / "runs"
    with pytest.raises(FileNotFoundError, match="folder='runs' is relative, but the working directory was deleted"):
        checked_path("folder", "runs")
