"""The papers' tasks, training and scripts."""

import gzip
import io
import math
import runpy
import struct
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest
import tasks
import xarray as xr
from PIL import Image
from training import Training, initial_network, train

from theorykit import bpkr

ROOT = Path(__file__).parents[1]
KEY = jax.random.key(0)


def run(monkeypatch, script: str, *arguments) -> dict:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr("sys.argv", [script, *map(str, arguments)])
    return runpy.run_path(str(ROOT / "examples/papers" / script))


def test_chains_stay_as_often_as_their_class_says():
    inputs, labels = map(np.asarray, tasks.HiddenMarkovTask()(400, key=KEY))
    first, second = inputs[:, 1:, :100].mean(-1), inputs[:, 1:, 100:200].mean(-1)
    stays = np.diff(first > second, axis=1) == 0
    for label, probability in ((1.0, 0.7), (-1.0, 0.3)):
        assert stays[labels == label].mean() == pytest.approx(probability, abs=0.02)


def test_the_good_head_attends_to_a_predecessor_in_the_same_state():
    task = tasks.HiddenMarkovTask(parallel_noise=0.0, orthogonal_noise=0.0)
    inputs = task(20, key=KEY).inputs
    (weights,) = bpkr.attention(inputs, key_query=[task.good_head()[None]])
    is_first = np.asarray(inputs[:, 1:, 0] > 0)
    to_predecessor = np.diagonal(weights[:, 0], 1, 1, 2)[:, 1:]
    same = is_first[:, 1:] == is_first[:, :-1]
    assert to_predecessor[same].min() > 0.95 and to_predecessor[~same].max() < 0.05


def test_patches_are_normalised_and_labels_are_added():
    task = tasks.OneShotTask(tasks.characters(4, 3, key=KEY))
    drawn = task(6, key=KEY)
    assert drawn.inputs.shape == (6, 48, 64) and set(np.unique(drawn.labels)) <= {-1, 1}
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32))
    labels = np.array([[0, 1, 2]] * 2)
    ink, inverted, blank = (task.tokens(each, labels) for each in (pixels, 255 - pixels, 0 * pixels))
    np.testing.assert_allclose(inverted - blank, blank - ink, atol=1e-12)
    np.testing.assert_allclose(((ink - blank) ** 2).mean(-1), 1, rtol=1e-4)


def test_published_formats(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    header = struct.pack(">4I", 2051, 3, 28, 28), struct.pack(">2I", 2049, 3)
    contents = header[0] + pixels.tobytes(), header[1] + bytes([1, 0, 1])
    for file, content in zip((tasks.IMAGES, tasks.LABELS), contents, strict=True):
        (tmp_path / file).write_bytes(gzip.compress(content))
    monkeypatch.setattr(tasks, "fetch", lambda source, file, md5: tmp_path / file)
    found = tasks.mnist()
    assert found.counts.tolist() == [1, 2] and found.pixels.shape == (3, 32, 32)
    ink = np.where(np.arange(32)[:, None] < 16, 0, 255) + np.zeros((32, 32))
    file = io.BytesIO()
    Image.fromarray(ink.astype(np.uint8)).convert("1").save(file, "PNG")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("Greek/character01/1.png", "Greek/character02/1.png"):
            archive.writestr(f"images/{name}", file.getvalue())
    found = tasks.read_omniglot([tmp_path / "a.zip"])
    np.testing.assert_array_equal(found.pixels, [ink, ink])


def test_finished_training_is_read_again(tmp_path):
    task = tasks.OneShotTask(tasks.characters(4, 3, key=KEY))
    architecture = bpkr.Architecture((2, 2), 4, temperature=1.0)
    network = initial_network(architecture, 3, task.features, key=KEY)
    settings = Training(3, batch=8, validate_every=1, validation_examples=10)
    call = {"settings": settings, "key": KEY, "path": tmp_path / "training.eqx"}
    trained, history = train(network, task, task, **call)
    assert history["step"].values.tolist() == [1, 2, 3]
    again, read = train(network, None, None, **call)
    xr.testing.assert_identical(history, read)
    assert jax.tree.all(jax.tree.map(np.array_equal, trained, again))


@pytest.mark.slow
def test_figure_2_has_the_published_numbers(tmp_path, monkeypatch):
    arguments = "--output", tmp_path, "--datasets", 1, "--widths", 10
    variables = run(monkeypatch, "fig2_hidden_markov.py", *arguments)
    with np.load(ROOT / "tests/data/bpkr/hidden_markov.npz") as found:
        published = dict(found)
    features, tests = (published[name].transpose(0, 2, 1) for name in ("phi", "phi_test200"))
    truth = published["y_test200"]
    architecture = bpkr.Architecture((2, 2), 1, temperature=0.01)
    data = bpkr.Data(features, published["y"], tests, truth)
    namespace = variables["solve"].__globals__
    monkeypatch.setitem(namespace, "sample", lambda *_: (architecture, data))
    solved = variables["solve"]("default", 0)
    matrix = solved["U_1"].sel(width=10)
    np.testing.assert_allclose(matrix, published["N10_U1"], rtol=1e-6, atol=1e-6)
    accuracy = solved["test_accuracy"].sel(width=[10, math.inf]).values
    assert accuracy[0] == np.mean(np.sign(published["N10_mean200"]) == truth)
    # Gaussian processes with sums of the paths' kernels
    limits = [accuracy[1], *solved["subset_accuracy"].values]
    for found, paths in zip(limits, ([0, 1, 2, 3], [0], [0, 2]), strict=True):
        flat, flat_tests = (each[:, paths].reshape(len(each), -1) for each in (features, tests))
        kernel = flat @ flat.T + 0.01 * np.eye(len(flat))
        mean = flat_tests @ flat.T @ np.linalg.solve(kernel, published["y"])
        assert found == np.mean(np.sign(mean) == truth)


@pytest.mark.slow
def test_figure_3_at_a_tiny_size(tmp_path, monkeypatch):
    arguments = "--preset", "tiny", "--variants", "L2H4", "--seeds", 1
    run(monkeypatch, "fig3_one_shot.py", *arguments, "--training-seeds", 1, "--output", tmp_path)
    found = xr.open_datatree(tmp_path / "one-shot.nc")["L2H4"].to_dataset()
    assert found["converged"].all() and (tmp_path / "figure-3.png").exists()
    # Without any head removed, all orders leave the whole network.
    assert np.ptp(found["pruned"].isel(removed=0, distribution=0).values) < 1e-12
