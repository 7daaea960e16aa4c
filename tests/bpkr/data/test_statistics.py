"""One pass over the data: the same sums whatever the batches, their source and the workers; resumed, and refused."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from threading import Lock
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr
from theorykit.bpkr import Data
from theorykit.bpkr.data import reading
from theorykit.bpkr.data.statistics import FeatureStatistics

from ..cases import SEEDS, assert_close, changed, refused

EXAMPLES, PATHS, FEATURES = 50, 4, 3
FIELDS = ("gram", "projection", "label_square", "examples")


def random_data(seed: int = 0, outputs: int | None = None):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(EXAMPLES, PATHS, FEATURES))
    return features, rng.normal(size=(EXAMPLES,) if outputs is None else (EXAMPLES, outputs))


def dense(features, labels) -> dict:
    """Every sum over all examples at once."""
    flat, targets = features.reshape(len(features), -1), labels.reshape(len(labels), -1)
    moments = flat.T @ flat, flat.T @ targets, np.sum(targets**2), len(features)
    return dict(zip(FIELDS, moments, strict=True))


def assert_statistics(found: FeatureStatistics, features, labels) -> None:
    for name, value in dense(features, labels).items():
        assert_close(getattr(found, name), value, 1e-12)
    assert (found.paths, found.features) == (PATHS, FEATURES)


def assert_identical(found: FeatureStatistics, expected: FeatureStatistics) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def batches_of(features, labels, size: int):
    for start in range(0, len(features), size):
        yield features[start : start + size], labels[start : start + size]


@given(seed=SEEDS, chunk=st.integers(1, EXAMPLES + 5), outputs=st.sampled_from([None, 1, 3]))
def test_streaming_is_dense_for_any_chunks(seed, chunk, outputs):
    features, labels = random_data(seed, outputs)
    found = Data.of_arrays(features, labels, chunk=chunk).moments
    assert_statistics(found, features, labels)
    assert found.outputs == (outputs or 1)
    assert_identical(Data.of_batches(batches_of(features, labels, chunk)).moments, found)


@given(seed=SEEDS, cuts=st.lists(st.integers(1, EXAMPLES - 1), max_size=4, unique=True))
def test_statistics_of_parts_add_up(seed, cuts):
    features, labels = random_data(seed)
    parts = zip(np.split(features, sorted(cuts)), np.split(labels, sorted(cuts)), strict=True)
    first, *others = [Data.of_batches([part]).moments for part in parts]
    assert_statistics(sum(others, start=first), features, labels)


@pytest.mark.parametrize("dtype", [np.float32, np.int16, bool])
def test_other_types_of_numbers_are_summed_in_double_precision(dtype):
    features, labels = (np.round(5 * array).astype(dtype) for array in random_data())
    found = Data.of_arrays(features, labels, chunk=7).moments
    assert_statistics(found, features.astype(float), labels.astype(float))


def test_batches_may_be_jax_arrays_of_path_features():
    rng = np.random.default_rng(1)
    architecture = bpkr.Architecture((2, 2), widths=10, temperature=0.1)
    inputs, labels = rng.normal(size=(20, 3, FEATURES)), rng.normal(size=20)
    key_query = [rng.normal(size=(2, FEATURES, FEATURES)) for _ in range(2)]

    def features_of(inputs):
        return bpkr.path_features(inputs, bpkr.attention(inputs, key_query=key_query), architecture)

    batches = ((features_of(inputs[k : k + 10]), jnp.asarray(labels[k : k + 10])) for k in (0, 10))
    found, whole = Data.of_batches(batches).moments, np.asarray(features_of(inputs))
    for name, value in dense(whole, labels).items():
        assert_close(getattr(found, name), value, 1e-12)


class Slices:
    """An array that notes what is read of it."""

    def __init__(self, array):
        self.array, self.shape, self.read = array, array.shape, []

    def __getitem__(self, part):
        self.read.append(part)
        return self.array[part]


def load(number: int):
    """A batch made from its number; at module level, so that a process can be told to call it."""
    rng = np.random.default_rng(number)
    return rng.normal(size=(6, PATHS, FEATURES)), rng.normal(size=6)


def loaded(count: int, load=load):
    """Batches that the worker makes."""
    return [partial(load, number) for number in range(count)]


WORKER = """
import sys
import numpy as np
from theorykit.bpkr.data.reading import sum_batch

sum_batch(0, (np.ones((3, 4, 3)), np.ones(3)), True)
assert "jax" not in sys.modules
"""


def test_a_worker_uses_numpy_alone():
    subprocess.run([sys.executable, "-c", WORKER], check=True)


@pytest.mark.parametrize("in_flight", [1, 3])
def test_a_bounded_number_of_batches_is_read_ahead(in_flight):
    lock, under_way, most, tasks = Lock(), [], [], []

    class Watched(ThreadPoolExecutor):
        def submit(self, function, *arguments):
            with lock:
                under_way.append(arguments[0])
                tasks.append(function)
                most.append(len(under_way))
            future = super().submit(function, *arguments)
            result = future.result

            def consumed(*args):
                with lock:
                    under_way.pop()
                return result(*args)

            future.result = consumed
            return future

    with Watched(2) as executor:
        Data.of_batches(loaded(8), executor=executor, batches_per_task=2, in_flight=in_flight)
    assert max(most) == in_flight and not under_way and len(tasks) == 4


class Killed(Exception):
    pass


def cut_short(batches, after: int):
    yield from islice(batches, after)
    raise Killed


def test_a_pass_that_was_cut_short_goes_on_from_its_checkpoint(tmp_path):
    features, labels = random_data(4)
    path, few = tmp_path / "sums.npz", {"batches_per_task": 2}
    whole = Data.of_batches(batches_of(features, labels, 6), **few).moments
    with pytest.raises(Killed):
        Data.of_batches(cut_short(batches_of(features, labels, 6), 5), checkpoint=path, **few)
    with np.load(path) as stored:
        assert stored["examples"] == 24, "of the two tasks that were done"
    assert_identical(Data.of_batches(batches_of(features, labels, 6), checkpoint=path, **few).moments, whole)
    # complete now: what is there is the result
    assert_identical(Data.of_batches(batches_of(features, labels, 6), checkpoint=str(path), **few).moments, whole)
    assert [entry.name for entry in tmp_path.iterdir()] == ["sums.npz"]
    with pytest.raises(FileExistsError, match="batches_per_task: 2 there, 3 now"):
        Data.of_batches(batches_of(features, labels, 6), checkpoint=path, batches_per_task=3)


def test_functions_that_were_done_are_not_called_again_but_for_the_first_and_last(tmp_path):
    path, called = tmp_path / "sums.npz", []
    with pytest.raises(Killed):
        Data.of_batches(cut_short(loaded(10), 7), batches_per_task=2, checkpoint=path)

    def counted(number):
        called.append(number)
        return load(number)

    found = Data.of_batches(loaded(10, counted), batches_per_task=2, checkpoint=path).moments
    assert_identical(found, Data.of_batches(map(load, range(10)), batches_per_task=2).moments)
    assert called == [0, 5, 6, 7, 8, 9]


def test_a_checkpoint_is_written_when_its_time_has_come(tmp_path, monkeypatch):
    written = []
    write = reading.store.write_arrays
    monkeypatch.setattr(
        reading.store, "write_arrays", lambda *given: written.append(len(given[0]["digests"])) or write(*given)
    )
    monkeypatch.setattr(reading, "time", SimpleNamespace(monotonic=iter(range(0, 1000, 8)).__next__))
    Data.of_batches(loaded(10), batches_per_task=1, checkpoint=tmp_path / "sums.npz")
    assert written == [3, 6, 9, 10]


def test_only_what_is_not_done_is_read_of_arrays(tmp_path):
    features, labels = random_data(5)
    path = tmp_path / "sums.npz"
    with refused("batch 4: labels is not finite in 1 entry"):
        Data.of_arrays(features, changed(labels, 25, np.inf), chunk=6, checkpoint=path)
    watched = Slices(features)
    found = Data.of_arrays(watched, labels, chunk=6, checkpoint=path).moments
    assert watched.read == [slice(start, start + 6) for start in (0, 18, 24, 30, 36, 42, 48)]
    assert_identical(found, Data.of_arrays(features, labels, chunk=6).moments)


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    features, labels = random_data(6)
    path = tmp_path / "sums.npz"
    whole = Data.of_arrays(features, labels, chunk=10, checkpoint=path).moments
    assert_identical(Data.of_batches(batches_of(features, labels, 10), checkpoint=path).moments, whole)
    with refused("batch 0 differs from the data"):
        Data.of_arrays(features, labels, chunk=5, checkpoint=path)
    with refused("is a checkpoint of 5 batches, but there are only 4"):
        Data.of_arrays(features[:40], labels[:40], chunk=10, checkpoint=path)
    # on disk the first and the last are compared
    for index, batch in ((0, 0), (EXAMPLES - 1, 4)):
        with refused(f"batch {batch} differs from the data"):
            Data.of_arrays(Slices(changed(features, index, 0.0)), labels, chunk=10, checkpoint=path)


def test_every_value_that_was_done_is_compared_of_arrays_in_memory_and_iterables(tmp_path):
    data = dict(zip(("features", "labels"), random_data(8), strict=True))
    path = tmp_path / "sums.npz"
    whole = Data.of_arrays(**data, chunk=6, checkpoint=path).moments
    for index in range(0, EXAMPLES, 3):
        for name, array in data.items():
            place = (index, index % PATHS, index % FEATURES)[: array.ndim]
            other = {**data, name: changed(array, place, array[place] * (1 + 1e-12))}
            for again in (
                lambda o=other: Data.of_arrays(**o, chunk=6, checkpoint=path).moments,
                lambda o=other: Data.of_batches(batches_of(**o, size=6), checkpoint=path).moments,
            ):
                with refused(f"batch {index // 6} differs from the data"):
                    again()
    same = jnp.asarray(data["features"]), np.asfortranarray(data["labels"])
    assert_identical(Data.of_batches(batches_of(*same, 6), checkpoint=path).moments, whole)
