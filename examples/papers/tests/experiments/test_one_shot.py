"""Tests of a tiny one-shot experiment: every stage is labelled, agrees with its definition, and resumes."""

import shutil
import warnings
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
import xarray as xr

from papers import one_shot
from papers.one_shot import sources as sources_module
from papers.one_shot import stages, theory
from papers.one_shot.comparison import (
    _agreement,
    _with_errors,
    block_strength,
    correlation,
    shared_heads,
    sign_agreement,
)
from papers.one_shot.pruning import Outputs, _stays
from papers.one_shot.sources import sources
from papers.tasks.published_images import OmniglotSplit
from papers.tasks.strokes import stroke_characters
from papers.training import TrainingSettings
from theorykit import bpkr
from theorykit.bpkr.sampling import MixingWarning

VARIANT = one_shot.Variant("L2H32", (3, 2), 4)
SETTINGS = one_shot.OneShot(
    variants=(VARIANT,),
    images=one_shot.Strokes(training=6, validation=3, test=4, drawings=4),
    width=8,
    training=TrainingSettings(steps=4, batch=8, validate_every=2, validation_examples=20),
    widths=(8, 100),
    temperatures=(0.1, 1.0),
    seeds=2,
    training_examples=24,
    test_examples=30,
    chains=2,
    training_seeds=1,
    warmup=50,
    draws=600,
    check_warmup=200,
    check_draws=300,
    orders=3,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stages")


@pytest.fixture(scope="module")
def result(folder) -> xr.DataTree:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MixingWarning)  # the verdict on such short chains is random
        run = one_shot.run(SETTINGS, folder)
    # Drop the axis of the single network.
    return run.map_over_datasets(lambda node: node.squeeze("training_seed") if "training_seed" in node.dims else node)


@pytest.fixture(scope="module")
def network(folder) -> bpkr.Network:
    return stages.load_or_train(
        VARIANT, SETTINGS, sources(SETTINGS, folder), folder / "L2H32" / "training-seed=0"
    ).network


@pytest.mark.slow
def test_every_stage_is_there_and_labelled(result):
    variant = result["L2H32"]
    assert set(variant.children) == {"training", "network", "theory", "kernel", "order_parameters", "check", "pruning"}
    found = variant["theory"].to_dataset()
    assert dict(found["accuracy"].sizes) == {"seed": 2, "width": 2, "temperature": 2, "distribution": 2}
    assert bool((found["converged"] == 1).all())
    for dataset in (node.to_dataset() for node in variant.subtree):
        for name, values in dataset.data_vars.items():
            if np.issubdtype(values.dtype, np.floating):
                assert np.isfinite(values).all(), name


@pytest.mark.slow
def test_the_theory_is_that_of_the_trained_heads(result, network, folder):
    found = result["L2H32/theory"].to_dataset().sel(seed=1, width=8, temperature=0.1)
    data = theory.examples_of_seed(network.heads, sources(SETTINGS, folder), SETTINGS, 1)
    architecture = bpkr.Architecture((3, 2), 8, temperature=0.1)
    problem = bpkr.Problem(architecture, bpkr.Data(data.features, data.labels))
    saddle = bpkr.solve(problem)
    matrix = saddle.order_parameters.matrices[0]
    # A gradient at the tolerance leaves a relative distance to the minimum of the tolerance over the curvature.
    distance = theory._TOLERANCE / saddle.min_hessian_eigenvalue
    np.testing.assert_allclose(found["U_1"], matrix, rtol=0, atol=distance * np.linalg.norm(matrix, 2))
    prediction = bpkr.predict(problem, saddle, data.test_features)
    right = np.sign(prediction.mean) == data.test_labels
    np.testing.assert_allclose(found["accuracy"], [right[:30].mean(), right[30:].mean()])


@pytest.mark.slow
def test_the_limit_is_that_of_wide_networks(folder, network):
    made = sources(SETTINGS, folder)
    data = theory.examples_of_seed(network.heads, made, SETTINGS, 0)
    limit = theory._gp_limit(network.heads, data, list(made.tests), 0.1)
    wide = bpkr.Architecture((3, 2), 10**8, temperature=0.1)
    problem = bpkr.Problem(wide, bpkr.Data(data.features, data.labels))
    saddle = bpkr.solve(problem)
    assert float(limit["gp_log_evidence"]) == pytest.approx(float(saddle.log_evidence), abs=1e-4)
    prediction = bpkr.predict(problem, saddle, data.test_features)
    np.testing.assert_allclose(limit["gp_accuracy"], theory.accuracies(prediction.mean, data, list(made.tests)))


@pytest.mark.slow
def test_temperatures_are_chosen_by_what_the_rules_say(result):
    found = result["L2H32/theory"].to_dataset()
    for width in found["width"].values:
        at = found.sel(width=width)
        accuracy = at["accuracy"].sel(distribution="in distribution").mean("seed")
        chosen = at["chosen_temperature"]
        assert float(accuracy.sel(temperature=float(chosen.sel(rule="accuracy")))) == float(accuracy.max())
        evidence = at["log_evidence"].mean("seed")
        assert float(evidence.sel(temperature=float(chosen.sel(rule="evidence")))) == float(evidence.max())
    limit = found["gp_log_evidence"].mean("seed")
    assert float(limit.sel(temperature=float(found["gp_chosen_temperature"].sel(rule="evidence")))) == float(
        limit.max()
    )


@pytest.mark.slow
def test_kernel_components_share_out_the_labels(result):
    found = result["L2H32/kernel"].to_dataset()
    assert found["kernel_width"].values.tolist() == [8.0, 100.0, np.inf]
    np.testing.assert_allclose((found["alignment"] ** 2).sum("component"), 1.0, rtol=1e-9)


@pytest.mark.slow
def test_three_order_parameters_side_by_side(result, network):
    found = result["L2H32/order_parameters"].to_dataset()
    trained = bpkr.empirical_order_parameters(network).matrices[0]
    for seed in (0, 1):
        at_seed = found.sel(seed=seed)
        np.testing.assert_allclose(at_seed["U_1"].sel(origin="trained"), trained, rtol=1e-9)
        theory_matrix = at_seed["U_1"].sel(origin="theory").values
        above = np.triu_indices(6, 1)
        expected = np.corrcoef(theory_matrix[above], np.asarray(trained)[above])[0, 1]
        assert float(at_seed["correlation"].sel(of="theory", origin="trained")) == pytest.approx(expected)
        assert float(at_seed["correlation_of_width"].sel(width=8)) == pytest.approx(expected)
    deviations = (found["U_1"].sel(origin="sampled") - found["U_1"].sel(origin="theory")) / found["U_1_error"]
    assert float(np.abs(deviations).median()) < 10  # a short chain at a small width gives only the right size


@pytest.mark.slow
def test_two_samplers_of_one_posterior_agree(result):
    check = result["L2H32/check"].to_dataset()
    between = result["L2H32/order_parameters"].to_dataset().sel(seed=0)
    difference = between["U_1"].sel(origin="sampled", drop=True) - check["U_1"]
    expected = difference / np.hypot(between["U_1_error"], check["U_1_error"])
    np.testing.assert_allclose(check["U_1_deviation"], expected.transpose(*check["U_1_deviation"].dims))
    deviations = check["U_1_deviation"].values[np.triu_indices(6)]
    # For 21 independent entries the mean square is between 0.28 and 2.34 except once in 1000. These are correlated.
    assert 0.1 < np.mean(deviations**2) < 4 and np.abs(deviations).max() < 5
    assert check["r_hat"] < 1.1 and check["ess"] > 20


@pytest.mark.slow
def test_monte_carlo_errors_are_of_what_is_sampled_alone(result):
    found = result["L2H32/order_parameters"].to_dataset()
    for name in ("correlation", "sign_agreement", "block_sign_agreement"):
        errors = found[f"{name}_error"]
        assert float(errors.sel(of="theory", origin="trained").max()) == 0.0
        assert float(errors.sel(of="sampled", origin="sampled").max()) < 1e-12
    for name in ("correlation_error", "block_strength_error"):
        sampled = found[name].sel(origin="sampled")
        assert bool((sampled.sel(of="theory") if "of" in sampled.dims else sampled).min() > 0)
    assert float(found["accuracy_error"].sel(origin=["theory", "trained"]).max()) == 0.0


@pytest.mark.slow
def test_monte_carlo_errors_are_the_scatter_over_runs():
    shared = shared_heads(bpkr.Architecture((2, 2), 4, temperature=1.0))
    rng = np.random.default_rng(0)
    truth = np.where(shared, 2.0, -1.0) * np.array([[1.0, 1.2, 0.8, 1.1]])
    theory = truth + np.outer([1.0, -1.0, 2.0, 0.5], [2.0, 1.0, -1.0, 1.0])  # correlations below one, the maximum
    noise = rng.normal(size=(60, 2, 100, 4, 4))
    runs = truth + noise + np.swapaxes(noise, -1, -2)
    measure = partial(_agreement, shared=shared)
    found = [_with_errors(measure, {"theory": theory, "sampled": run.mean((0, 1))}, run) for run in runs]
    for name, place in (
        ("correlation", {"of": "theory", "origin": "sampled"}),
        ("block_strength", {"origin": "sampled"}),
    ):
        values, errors = ([float(one[of].sel(place)) for one in found] for of in (name, f"{name}_error"))
        # 60 runs determine a standard deviation to one part in eleven.
        assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(values), rel=0.3)


@pytest.mark.slow
def test_accuracies_of_three_origins_are_of_the_same_examples(result, network, folder):
    found = result["L2H32/order_parameters"].to_dataset()
    solved = result["L2H32/theory"].to_dataset()
    of_theory = solved["accuracy"].sel(width=8, temperature=float(found["temperature"]))
    np.testing.assert_allclose(found["accuracy"].sel(origin="theory"), of_theory.transpose("seed", "distribution"))
    data = theory.examples_of_seed(network.heads, sources(SETTINGS, folder), SETTINGS, 1)
    right = np.sign(network.path_outputs(data.test_features).sum(axis=1)) == data.test_labels
    trained = found["accuracy"].sel(origin="trained", seed=1)
    np.testing.assert_allclose(trained, [np.mean(right[:30]), np.mean(right[30:])], rtol=1e-6)
    assert abs(float((found["accuracy"].sel(origin="sampled") - of_theory).mean())) < 0.2


def test_agreement_of_known_matrices():
    matrix = np.array([[1.0, 2.0, -3.0], [2.0, 5.0, 1.0], [-3.0, 1.0, 9.0]])
    assert correlation(matrix, 2 * matrix) == pytest.approx(1.0)
    assert sign_agreement(matrix, -matrix) == 0.0
    other = matrix.copy()
    other[0, 2] = other[2, 0] = 3.0
    assert sign_agreement(matrix, other) == pytest.approx(2 / 3)
    shared = shared_heads(bpkr.Architecture((2, 2), 4, temperature=1.0))
    np.testing.assert_array_equal(shared, np.kron(np.eye(2), np.ones((2, 2))))
    signs = np.where(shared, 2.0, -1.0)
    assert sign_agreement(signs, np.ones((4, 4))) == pytest.approx(1 / 3)
    assert sign_agreement(signs, np.ones((4, 4)), shared) == 1.0
    assert block_strength(signs, shared) == 2.0


@pytest.mark.slow
def test_pruned_accuracies_are_those_of_the_smaller_networks(result, network, folder):
    found = result["L2H32/pruning"].to_dataset()
    heads = [tuple(map(int, label.split("."))) for label in found["order"].sel(order_of="score").values[1:]]
    assert len(heads) == 2 + 1  # each layer keeps one
    inputs = sources(SETTINGS, folder).validation(20, key=jax.random.key(3)).inputs
    architecture = bpkr.Architecture((3, 2), 8, temperature=1.0)
    features = bpkr.path_features(inputs, network.heads(inputs), architecture, "mean")
    by_path = network.path_outputs(features)
    for count in range(4):
        removed = [bpkr.Head(*head) for head in heads[:count]]
        smaller = bpkr.without_heads(network, removed)
        np.testing.assert_allclose(by_path[:, _stays(architecture, removed)].sum(axis=1), smaller(inputs), atol=1e-10)
        assert int(found["parameters"].sel(removed=count)) == smaller.parameter_count
    assert bool((found["parameters"].diff("removed") < 0).all())
    np.testing.assert_allclose(
        found["accuracy"].sel(removed=0, removal="score"), found["accuracy"].sel(removed=0, removal="random")
    )


@pytest.mark.slow
def test_the_order_of_removal_is_that_of_the_scores(result):
    found = result["L2H32/pruning"].to_dataset()
    scores = found["score"].to_series()
    order = [label for label in found["order"].sel(order_of="score").values if label]
    for layer in "12":
        of_layer = [label for label in order if label.startswith(layer)]
        assert of_layer == sorted(of_layer, key=lambda label: scores[label])
    theory_of_width = result["L2H32/theory"].to_dataset().sel(width=8)
    chosen = float(theory_of_width["chosen_temperature"].sel(rule="accuracy"))
    expected = theory_of_width.sel(temperature=chosen)["head_score_2"].mean("seed")
    np.testing.assert_allclose([scores["2.1"], scores["2.2"]], expected)


def test_accuracy_of_a_subset_of_paths():
    outputs = Outputs(np.array([[1.0, -3.0], [2.0, 1.0]]), np.array([1.0, 1.0]))
    assert outputs.accuracy(np.array([True, True])) == 0.5
    assert outputs.accuracy(np.array([True, False])) == 1.0


def forbidden(*_, **_options):
    raise AssertionError("computed again")


@pytest.mark.slow
def test_a_finished_run_is_read_and_more_seeds_extend_it(result, folder, monkeypatch):
    for name in ("pruning", "theory_of_seed", "order_parameters", "check", "kernel_components"):
        monkeypatch.setattr(stages, name, forbidden)
    again = one_shot.run(SETTINGS, folder)
    assert again["L2H32/theory"].sizes["training_seed"] == 1
    xr.testing.assert_identical(
        again["L2H32/theory"].to_dataset().squeeze("training_seed").drop_attrs(),
        result["L2H32/theory"].to_dataset().drop_attrs(),
    )
    asked = []

    def recorded(*arguments, **_options):
        asked.append(arguments[3])
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "theory_of_seed", recorded)
    with pytest.raises(KeyboardInterrupt):
        one_shot.run(replace(SETTINGS, seeds=3), folder)
    assert asked == [2]


@pytest.mark.slow
def test_a_network_of_other_heads_does_not_go_on_from_this_one(result, folder):
    other = replace(SETTINGS, variants=(replace(VARIANT, heads=(2, 2)),))
    with pytest.raises(FileExistsError, match=r"another training, which differs in network.architecture"):
        one_shot.run(other, folder)


@pytest.mark.slow
def test_heads_of_ones_own_serve_as_well(folder, tmp_path):
    rng = np.random.default_rng(0)
    heads = bpkr.Heads(key_query=[0.1 * rng.normal(size=(2, 64, 64)), np.zeros((1, 64, 64))])
    few = replace(SETTINGS, seeds=1, widths=(20,))
    found = stages.theory_of_heads(heads, few, sources(SETTINGS, folder), tmp_path)
    assert found["U_1"].sizes["path_1"] == 2
    assert bool((found["converged"] == 1).all())
    assert set(np.unique(found["chosen_temperature"])) <= {0.1, 1.0}


@pytest.mark.slow
def test_longer_training_goes_on_beside_what_there_was(result, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "stages")
    longer = replace(SETTINGS, seeds=1, widths=(100,), training=replace(SETTINGS.training, steps=6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MixingWarning)
        again = one_shot.run(longer, tmp_path / "stages")
    assert len(list((tmp_path / "stages" / "L2H32").glob("network-*"))) == 2
    assert again["L2H32/training"].sizes["step"] == 3


@pytest.mark.slow
def test_more_networks_stand_beside_the_first(result, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "stages")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MixingWarning)
        both = one_shot.run(replace(SETTINGS, training_seeds=2), tmp_path / "stages")["L2H32"]
    xr.testing.assert_allclose(
        both["theory"].to_dataset().isel(training_seed=0, drop=True).drop_attrs(),
        result["L2H32/theory"].to_dataset().drop_vars("training_seed").drop_attrs(),
    )
    for stage in set(both.children) - {"check"}:
        assert both[stage].sizes["training_seed"] == 2, stage
    first, second = (both["network"].to_dataset().isel(training_seed=number) for number in (0, 1))
    assert not np.allclose(first["query_1"], second["query_1"])
    assert not np.allclose(*both["theory"]["accuracy"])


@pytest.mark.slow
def test_the_published_sets_take_the_places_of_our_own(tmp_path, monkeypatch):
    images = [stroke_characters(3, 2, key=jax.random.key(seed)) for seed in range(5)]
    monkeypatch.setattr(sources_module, "omniglot", lambda: OmniglotSplit(*images[:3]))
    for name, one in zip(("mnist", "fashion-mnist"), images[3:], strict=True):
        monkeypatch.setitem(sources_module._UNSEEN, name, lambda one=one: one)
    made = sources(one_shot.PAPER, tmp_path)
    assert list(made.tests) == ["in distribution", "fashion-mnist", "mnist"]
    drawn = [made.training, made.validation, *made.tests.values()]
    for episodes, expected in zip(drawn, (images[0], images[1], images[2], images[4], images[3]), strict=True):
        np.testing.assert_array_equal(episodes.images.pixels, expected.pixels)
    assert made.training(2, key=jax.random.key(0)).inputs.shape == (2, 48, 192)
    assert not list(tmp_path.iterdir())


def test_the_published_size_is_the_published_one():
    paper = one_shot.PAPER
    assert [variant.heads for variant in paper.variants] == [(4, 4), (3, 3, 3), (8, 8)]
    assert (paper.width, paper.training_examples, paper.test_examples) == (512, 600, 1000)
    assert len(paper.widths) == len(paper.temperatures) == 10
