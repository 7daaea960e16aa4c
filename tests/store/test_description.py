"""Descriptions of trees: the same for the same values however they are written, and for no others."""

import functools
import threading
from collections import namedtuple
from dataclasses import dataclass
from enum import Enum
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.leaves import barely_changed, leaves, replaced, written_otherwise
from theorykit import bpkr, store
from theorykit.store.description import UNKNOWN

FINITE = st.floats(allow_nan=False, allow_infinity=False)
Pair = namedtuple("Pair", "one other")


class Colour(Enum):
    RED = 1
    BLUE = 2


class Module(eqx.Module):
    array: Any
    static: Any = eqx.field(static=True)


@dataclass(frozen=True)
class Plain:
    number: Any
    text: str = "a"


class Bare:
    def __init__(self, number):
        self.number = number


@jax.tree_util.register_pytree_node_class
class Registered:
    def __init__(self, child, static):
        self.child, self.static = child, static

    def tree_flatten(self):
        return (self.child,), self.static

    @classmethod
    def tree_unflatten(cls, static, children):
        return cls(*children, static)


def function():
    pass


def of(value) -> dict[str, str]:
    return store.describe(value=value)


@given(number=FINITE)
def test_a_number_is_its_value_however_it_is_written(number):
    number, short = number + 0.0, float(np.float32(np.clip(number, -1e38, 1e38)))
    for value in (number, short):
        for same in written_otherwise(value):
            assert of(same) == of(value)
    if number.is_integer():
        assert of(int(number)) == of(number)


@given(number=st.integers(-(2**70), 2**70))
def test_a_whole_number_is_itself(number):
    assert of(number) != of(number + 1)
    assert (of(number) == of(float(number))) == (number == int(float(number)))


@given(number=FINITE.filter(lambda x: 1e-290 < abs(x) < 1e300))
def test_numbers_that_differ_in_the_last_place_are_two(number):
    assert of(number) != of(np.nextafter(number, np.inf))
    assert of(jnp.asarray(number)) != of(np.nextafter(number, np.inf))


def test_kinds_of_one_value_are_told_apart():
    kinds = [True, 1, "1", b"1", (1,), np.ones(1), np.ones(1, int), np.ones(1, np.float32), {"1": 1}, {1: 1}, None, ()]
    kinds += [np.ones((1, 1)), frozenset({1}), Colour.RED, int, function, jax.random.key(1), Plain(1), Bare(1)]
    kinds += [{}, frozenset(), 1j, np.ones(1, bool), np.array(["1"]), Pair(1, 2), [1, 2], Module(1, 2), Module(2, 1)]
    described = [store.as_text(of(kind)) for kind in kinds]
    assert len(set(described)) == len(kinds)
    assert not any(UNKNOWN in text for text in described)


def test_the_same_value_is_the_same_in_another_container():
    assert of([1, 2.0]) == of((1, 2)) == of(range(1, 3))
    assert of({"a": 1, "b": 2}) == of({"b": 2, "a": 1})
    assert of(np.asfortranarray(np.eye(3))) == of(np.eye(3)) == of(jnp.eye(3)) == of(np.eye(3).astype(">f8"))
    assert of(np.zeros(2)) == of(-np.zeros(2)) and of(0.0) == of(-0.0)
    assert of(np.array(3.0)) == of(3) and of(np.bool_(True)) == of(jnp.asarray(True)) == of(True)
    assert of(jax.random.key(3)) == of(jax.random.key(3)) != of(jax.random.key(4))
    assert of(jax.random.key(3)) != of(jax.random.key(3, impl="rbg"))


TREE = {
    "architecture": bpkr.Architecture((2, bpkr.Skip(bpkr.Attention(2), 0.5)), 8, (1.0, 0.9, 1.1, 1.0), temperature=0.1),
    "solver": optx.BFGS(1e-6, 1e-5),
    "ours": bpkr.AcceleratedSweeps(memory=3),
    "module": Module((np.arange(6.0).reshape(2, 3), jnp.arange(3)), static=Plain(0.3)),
    "plain": [Plain(1.5, "text"), [True, 2**60 + 1]],
}


def place(path):
    return str(path[0]) + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path[1:])


def numbered(tree=TREE):
    return [(path, leaf) for path, leaf in leaves(tree) if barely_changed(leaf) is not None]


@given(data=st.data(), which=st.integers(0, len(numbered()) - 1), entry=st.integers(0, 1000))
def test_a_change_of_any_leaf_is_seen_and_named(data, which, entry):
    path, leaf = numbered()[which]
    changed = replaced(TREE, path, barely_changed(leaf, entry))
    found = store.differences(store.describe(**TREE), store.describe(**changed))
    assert len(found) == 1 and found[0].startswith(f"{place(path)}: ")


def test_every_leaf_is_described():
    assert set(store.describe(**TREE)) >= {place(path) for path, _ in numbered()}


@pytest.mark.parametrize(
    "value",
    [
        lambda: 0,
        (i for i in range(3)),
        threading.Lock(),
        functools.partial(lambda x: x, 2),
        jax.jit(lambda x: x),
        [{"a": lambda: 0}],
        Module(lambda: 0, 1),
        open,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_values_is_not_described(value, tmp_path):
    described = store.settings_of("a run", 1, part=value)
    if value is open:  # found by its name
        assert not any(UNKNOWN in text for text in described.values())
        return
    with pytest.raises(ValueError, match=r"^part.* is .*, which cannot identify a run"):
        store.resume(tmp_path / "part.nc", described, lambda: pytest.fail("computed"))
    with pytest.raises(ValueError, match=r"^part.*cannot identify a run"):
        store.read_arrays(tmp_path / "run.npz", "training", described)
    assert not list(tmp_path.iterdir())


def test_objects_of_other_kinds_are_taken_apart():
    for one, other in (
        (Registered(1.0, "a"), Registered(1.0, "b")),
        (Pair(1.0, 2), Pair(1.0, 3)),
        (np.ma.masked_array([1.0, 2.0], mask=[True, False]), np.ma.masked_array([1.0, 2.0], mask=[False, True])),
        (Registered(1.0, "a"), Registered(2.0, "a")),
        (Bare(1.0), Bare(2.0)),
        (functools.partial(function, 1), functools.partial(function, 2)),
        (functools.partial(function, 1), functools.partial(len, 1)),
        (Bare(1.0).__init__, Bare(2.0).__init__),
        (np.random.default_rng(1), np.random.default_rng(2)),
        ({1, 2}, {1, 3}),
        (jax.random.split(jax.random.key(0)), jax.random.split(jax.random.key(1))),
    ):
        assert of(one) != of(other)
        assert not any(UNKNOWN in text for text in of(one).values())


def test_a_tree_that_contains_itself_comes_to_an_end():
    tree: list = []
    tree.append(tree)
    assert of(tree)["value[0]"].startswith(UNKNOWN)
