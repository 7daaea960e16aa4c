"""Sizes that do not fit in memory are refused in words and bytes, and long solves announce themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import theorykit
from theorykit import bpkr, memory
from theorykit.bpkr.specification import architecture as specification

INPUTS = np.random.default_rng(0).normal(size=(6, 40, 3))


@pytest.fixture
def small_machine(monkeypatch):
    monkeypatch.setattr(memory, "memory", lambda: 1e5)


def test_the_memory_of_this_machine_is_known():
    assert 2**28 < memory.memory() < 2**50


def test_attention_that_does_not_fit_is_refused_by_its_sizes(small_machine):
    with pytest.raises(
        ValueError, match=r"of 6 examples, 2 heads and 40 tokens takes about 3\.07e\+05 bytes of the 1e\+05"
    ):
        bpkr.attention(INPUTS, key_query=[np.ones((2, 3, 3))])
    assert bpkr.attention(INPUTS[:1], key_query=[np.ones((2, 3, 3))])[0].shape == (1, 2, 40, 40)


def test_solves_that_do_not_fit_are_refused_before_they_are_compiled(small_machine):
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(5, 36, 2)), np.ones(5)
    architecture = bpkr.Architecture((6, 6), 10.0, temperature=0.1)
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    with pytest.raises(
        ValueError, match=r"make 36 paths, and solving for U_1, 36 x 36, with a matrix of 5 rows, takes about"
    ):
        bpkr.solve(architecture, bpkr.Data(features, labels))
    assert len(compiled) < 5  # checks of the data, and not the solve


def test_long_solves_say_so_before_they_start(monkeypatch):
    monkeypatch.setattr(specification, "_LONG", 0.0)
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match=r"make 2 paths: solving for U_1, 2 x 2, takes about 0 minutes"):
        bpkr.solve(bpkr.Architecture((2,), 10.0, temperature=0.1), bpkr.Data(rng.normal(size=(5, 2, 2)), np.ones(5)))


def test_what_does_not_fit_all_the_same_is_an_error_in_words():
    @theorykit.jit
    def large_kernel(number):
        return jnp.full((2**21, 2**21), number)

    with pytest.raises(MemoryError, match=r"large kernel needs 3\.52e\+13 bytes at once, and this machine has"):
        large_kernel(jnp.asarray(1.0))


def test_networks_and_classes_that_do_not_fit_are_refused(small_machine):
    heads, key = bpkr.heads(key_query=[np.ones((2, 3, 3))]), jax.random.key(0)
    with pytest.raises(ValueError, match=r"a network of widths 400, 400 takes about .* of the 1e\+05"):
        bpkr.sample_network(bpkr.Architecture((2,), 400, temperature=0.1), heads, input_features=3, key=key)
    with pytest.raises(ValueError, match=r"takes about .* of the 1e\+05"):
        bpkr.sample_network(bpkr.Architecture((2**40,), 4, temperature=0.1), heads, input_features=3, key=key)
    numbers = np.arange(100.0)
    with pytest.raises(ValueError, match=r"each of 100 classes.* if labels are numbers rather than classes"):
        bpkr.find_classes(numbers).encode(numbers)
