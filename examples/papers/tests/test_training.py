"""Training: it learns, goes on exactly where it stopped, keeps the best network, and refuses what does not belong."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from papers import training
from papers.tasks import Examples
from papers.training import TrainingSettings, initial_network, label_network, train
from theorykit import bpkr

FEATURES, TOKENS = 6, 4
ARCHITECTURE = bpkr.Architecture((2, bpkr.Skip(bpkr.Attention(2), 0.5)), 8, temperature=0.1)
SETTINGS = TrainingSettings(steps=60, batch=32, learning_rate=0.005, validate_every=20, validation_examples=200)


class Direction(eqx.Module):
    """Tokens are noise; the label is the sign of the sequence's mean along a direction."""

    direction: jax.Array

    def __call__(self, examples, *, key):
        inputs = jax.random.normal(key, (examples, TOKENS, FEATURES))
        return Examples(inputs, jnp.where(inputs.mean(axis=1) @ self.direction > 0, 1.0, -1.0))


DATA = Direction(jnp.arange(1.0, FEATURES + 1))


def trained(**options):
    network = options.pop("network", None)
    if network is None:
        network = initial_network(ARCHITECTURE, 3, FEATURES, key=jax.random.key(0))
    defaults = {"key": jax.random.key(1), "settings": SETTINGS, "progress": False}
    return train(network, DATA, DATA, **{**defaults, **options})


@pytest.fixture(scope="module")
def result():
    return trained(settings=replace(SETTINGS, steps=200))


def test_the_network_learns(result):
    history = result.history
    assert history["step"].values.tolist() == list(range(20, 201, 20))
    assert float(history["loss"][-1]) < 0.8 * float(history["loss"][0])
    assert float(history["validation_accuracy"].max()) > 0.85


def test_the_result_is_the_network_that_did_best(result):
    held_out = DATA(SETTINGS.validation_examples, key=jax.random.fold_in(jax.random.key(1), 0))
    accuracy = np.mean(np.asarray(jnp.sign(result.network(held_out.inputs)) == held_out.labels))
    assert accuracy == float(result.history["validation_accuracy"].max())
    assert accuracy == float(result.history["validation_accuracy"].sel(step=result.best_step))


def test_all_weights_are_trained_and_no_number_of_the_kinds(result):
    before = initial_network(ARCHITECTURE, 3, FEATURES, key=jax.random.key(0))
    for name in ("embedding", "weights", "readout_weights", "heads"):
        moved = jax.tree.map(
            lambda a, b: float(jnp.max(jnp.abs(a - b))), getattr(before, name), getattr(result.network, name)
        )
        assert min(jax.tree.leaves(moved)) > 1e-3
    assert eqx.tree_equal(before.architecture, result.network.architecture)


def test_a_step_is_adam_on_the_squared_error_of_the_forward_pass():
    # the first step of Adam moves every weight against the sign of its slope, by the learning rate times sqrt(N_0)
    network = initial_network(ARCHITECTURE, 3, FEATURES, key=jax.random.key(0))
    after = trained(settings=replace(SETTINGS, steps=1)).network
    examples = DATA(SETTINGS.batch, key=jax.random.fold_in(jax.random.key(1), 1))

    def loss(embedding):
        outputs = eqx.tree_at(lambda n: n.embedding, network, embedding)(examples.inputs)
        return jnp.mean((outputs - examples.labels) ** 2)

    slope = np.asarray(jax.grad(loss)(network.embedding))
    moved = np.asarray(after.embedding - network.embedding)
    np.testing.assert_allclose(
        moved, -SETTINGS.learning_rate * FEATURES**0.5 * slope / (np.abs(slope) + 1e-8), rtol=1e-6
    )


def test_stopped_training_goes_on_exactly_and_finished_training_is_read(tmp_path, monkeypatch):
    whole = trained(folder=tmp_path / "whole")
    trained(folder=tmp_path / "parts", settings=replace(SETTINGS, steps=20))
    resumed = trained(folder=tmp_path / "parts")
    assert eqx.tree_equal(whole.network, resumed.network)
    assert whole.history.identical(resumed.history)
    with monkeypatch.context() as patch:
        patch.setattr(training, "_step", None)
        again = trained(folder=tmp_path / "parts")
    assert eqx.tree_equal(whole.network, again.network) and whole.history.identical(again.history)
    assert eqx.tree_equal(trained().network, whole.network)


def test_a_killed_run_keeps_its_last_validation(tmp_path, monkeypatch):
    step, left, first = training._step, iter(range(30)), replace(SETTINGS, steps=20)
    with monkeypatch.context() as patch:
        patch.setattr(training, "_step", lambda *given: (next(left), step(*given))[1])
        with pytest.raises(StopIteration):
            trained(folder=tmp_path)
        patch.setattr(training, "_step", None)
        kept = trained(folder=tmp_path, settings=first)
    assert eqx.tree_equal(kept.network, trained(settings=first).network)


def test_training_of_something_else_is_refused(tmp_path):
    trained(folder=tmp_path, settings=replace(SETTINGS, steps=20))
    other = bpkr.Architecture((2, 2), 8, temperature=0.1)
    network = initial_network(other, 3, FEATURES, key=jax.random.key(0))
    with pytest.raises(FileExistsError, match="another training, which differs in network"):
        trained(folder=tmp_path, network=network)
    with pytest.raises(FileExistsError, match=r"differs in settings\.learning_rate: 0\.005 there, 0\.01 now"):
        trained(folder=tmp_path, settings=replace(SETTINGS, learning_rate=0.01))


def test_more_steps_than_asked_for_are_not_passed_off_as_fewer(tmp_path):
    trained(folder=tmp_path, settings=replace(SETTINGS, steps=40))
    with pytest.raises(ValueError, match=r"training\.npz has 40 steps, more than steps=20"):
        trained(folder=tmp_path, settings=replace(SETTINGS, steps=20))
    longer = trained(folder=tmp_path, settings=replace(SETTINGS, steps=50))
    assert longer.history["step"].values.tolist() == [20, 40, 50]


def test_training_stops_where_validation_has_not_improved(tmp_path):
    # too small steps for any accuracy to change: the first validation is the best, of equals
    still = replace(SETTINGS, steps=10**6, learning_rate=1e-12)
    for patience in (1, 2):
        stopped = trained(settings=replace(still, patience=patience), folder=tmp_path)
        assert stopped.history["step"].values.tolist() == [20 * (1 + validation) for validation in range(1 + patience)]
        assert stopped.best_step == 20
    with pytest.raises(ValueError, match=r"training\.npz has 60 steps, more than patience=1 allows"):
        trained(settings=replace(still, patience=1), folder=tmp_path)
    # as long as it improves it goes on: of three validations none can be the third that is no better
    assert trained(settings=replace(SETTINGS, patience=3)).history.sizes["step"] == 3


def test_a_loss_that_is_no_number_is_told():
    network = initial_network(ARCHITECTURE, 3, FEATURES, key=jax.random.key(0))
    broken = eqx.tree_at(lambda n: n.embedding, network, network.embedding * 1e200)
    with pytest.raises(ValueError, match=r"loss is (nan|inf) before step 20, with learning_rate=0\.005"):
        trained(network=broken)


def test_the_initial_network_has_the_stated_variances():
    architecture = bpkr.Architecture((4, 4), 40, temperature=0.1)
    network = initial_network(architecture, 30, 50, key=jax.random.key(2))
    for projections in (*network.heads.query, *network.heads.key):
        assert projections.shape == (4, 30, 50)
        np.testing.assert_allclose(np.var(projections) * 50, 1, atol=0.1)


def test_the_weights_of_a_network_are_labelled():
    architecture = bpkr.Architecture((2, bpkr.Dense(), 3), (6, 7, 8, 9), temperature=0.1, outputs=2)
    network = initial_network(architecture, 3, 5, readout="first", key=jax.random.key(0))
    weights = label_network(network)
    layers = [weights[name].values for name in ("embedding", "values_1", "values_2", "values_3", "readout")]
    heads = bpkr.Heads(**{name: [weights[f"{name}_{layer}"].values for layer in (1, 2)] for name in ("query", "key")})
    again = bpkr.Network.of_weights(architecture, layers, heads, readout=weights.attrs["readout"])
    assert eqx.tree_equal(network, again)
