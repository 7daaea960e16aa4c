"""The object for sequences with labels: its numbers are those of the functions below, and scikit-learn runs on it."""

import math
import pickle
import warnings
from functools import cache

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import VotingClassifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from theorykit import bpkr
from theorykit.bpkr import sweeps
from theorykit.plots import sweep as drawing

TRAINING, TEST, TOKENS, FEATURES = 24, 12, 3, 4
RNG = np.random.default_rng(0)
INPUTS, TEST_INPUTS = (RNG.normal(size=(count, TOKENS, FEATURES)) for count in (TRAINING, TEST))
LENGTHS, TEST_LENGTHS = (RNG.integers(1, TOKENS + 1, size=count) for count in (TRAINING, TEST))
NUMBERS, TEST_NUMBERS = (each[:, -1, 0] + 0.1 * each[:, 0, 1] for each in (INPUTS, TEST_INPUTS))
TEXT, TEST_TEXT = (np.where(each > 0, "up", "down") for each in (NUMBERS, TEST_NUMBERS))
THREE, TEST_THREE = (np.array(["a", "b", "c"])[np.digitize(each, [-0.5, 0.5])] for each in (NUMBERS, TEST_NUMBERS))
KEY_QUERY = [RNG.normal(size=(2, FEATURES, FEATURES)) / FEATURES]
SETTINGS = {"layers": (2,), "widths": 20, "temperature": 0.1, "heads": KEY_QUERY}


def padded(inputs, lengths):
    """The inputs with padding, tokens of NaN after the first `lengths` of every example."""
    return inputs if lengths is None else np.where((np.arange(TOKENS) < lengths[:, None])[..., None], inputs, np.nan)


def lower(labels, *, readout="last", mask=None, outputs=1, lengths=None, width=20.0):
    """The architecture, the features of training and test, and the data, by the functions below."""
    architecture = bpkr.Architecture((2,), width, temperature=0.1, outputs=outputs)

    def features(inputs, lengths):
        attention = bpkr.attention(inputs, key_query=KEY_QUERY, mask=mask, real_tokens=lengths)
        return bpkr.path_features(inputs, attention, architecture, readout, real_tokens=lengths)

    train, test = features(INPUTS, lengths), features(TEST_INPUTS, None if lengths is None else TEST_LENGTHS)
    make = bpkr.Data if np.asarray(labels).dtype.kind == "f" else bpkr.Data.of_classes
    return architecture, make(train, labels), test


@pytest.mark.quick("labels2-1-settings2-None")
@pytest.mark.parametrize(
    ("labels", "outputs", "settings", "lengths"),
    [
        (TEXT, 1, {}, None),
        (THREE, 3, {"readout": "mean"}, LENGTHS),
        (NUMBERS, 1, {"mask": "causal"}, None),
        (np.stack([NUMBERS, -NUMBERS], axis=1), 2, {}, None),
    ],
)
def test_every_number_is_that_of_the_functions_below(labels, outputs, settings, lengths):
    model = bpkr.Model(**SETTINGS, **settings).fit(padded(INPUTS, lengths), labels)
    architecture, data, test = lower(labels, outputs=outputs, lengths=lengths, **settings)
    problem = bpkr.Problem(architecture, data)
    saddle = bpkr.solve(problem)
    assert model.log_evidence_ == saddle.log_evidence and model.saddle_.gradient_norm == saddle.gradient_norm
    np.testing.assert_array_equal(model.order_parameters_.first, saddle.order_parameters.first)
    given = padded(TEST_INPUTS, None if lengths is None else TEST_LENGTHS)
    prediction, mine = bpkr.predict(problem, saddle, test), model.predict_distribution(given)
    np.testing.assert_array_equal(mine.mean, prediction.mean)
    np.testing.assert_array_equal(mine.variance, prediction.variance)
    assert model.n_features_in_ == FEATURES
    predicted = model.predict(given)
    if data.classes is None:
        np.testing.assert_array_equal(predicted, prediction.mean)
        assert not hasattr(model, "classes_")
        with pytest.raises(ValueError, match="predict_proba needs classes"):
            model.predict_proba(given)
        return
    np.testing.assert_array_equal(predicted, data.classes.decode(prediction.mean))
    assert tuple(model.classes_) == data.classes.names
    expected = data.classes.probabilities(prediction.mean, prediction.with_noise(0.1))
    np.testing.assert_array_equal(model.predict_proba(given), expected)


def test_scores_are_those_of_scikit_learn():
    assert fitted().score(TEST_INPUTS, TEST_TEXT) == accuracy_score(TEST_TEXT, fitted().predict(TEST_INPUTS))
    pairs, test_pairs = (np.stack([each, each**2], axis=1) for each in (NUMBERS, TEST_NUMBERS))
    for labels, tested in ((NUMBERS, TEST_NUMBERS), (pairs, test_pairs)):
        model = bpkr.Model(**SETTINGS).fit(INPUTS, labels)
        expected = r2_score(tested, model.predict(TEST_INPUTS))
        assert model.score(TEST_INPUTS, tested) == pytest.approx(expected, rel=1e-12)
    assert np.isnan(model.score(TEST_INPUTS, np.full((TEST, 2), 0.3)))


def test_the_infinite_width_is_the_gaussian_process():
    model = bpkr.Model(**{**SETTINGS, "widths": math.inf}).fit(INPUTS, TEXT)
    architecture, data, test = lower(TEXT, width=1.0)
    problem, limit = bpkr.Problem(architecture, data), bpkr.gp_limit(architecture)
    np.testing.assert_array_equal(model.predict_distribution(TEST_INPUTS).mean, bpkr.predict(problem, limit, test).mean)
    assert model.saddle_ is None and "Gaussian process" in repr(model)
    grid = {"width": [math.inf], "temperature": [0.1], "progress": False}
    (evidence,) = sweeps.sweep(problem, **grid)["log_evidence"].values.ravel()
    assert model.log_evidence_ == evidence


def test_attention_can_be_given_instead_of_heads():
    maps, test_maps = (bpkr.attention(each, key_query=KEY_QUERY) for each in (INPUTS, TEST_INPUTS))
    settings = {name: value for name, value in SETTINGS.items() if name not in ("layers", "heads")}
    model, other = bpkr.Model(**settings).fit(INPUTS, TEXT, maps), fitted()
    assert model.problem_.architecture.heads == (2,) and model.heads_ is None
    assert model.log_evidence_ == other.log_evidence_
    np.testing.assert_array_equal(model.predict_proba(TEST_INPUTS, test_maps), other.predict_proba(TEST_INPUTS))
    traced = jax.jit(lambda inputs: other.predict_distribution(inputs).mean)(TEST_INPUTS)
    np.testing.assert_allclose(traced, other.predict_distribution(TEST_INPUTS).mean, rtol=1e-9)
    as_torch = [np.swapaxes(layer, 2, 3) for layer in maps]
    assert bpkr.Model(**settings, layout="torch").fit(INPUTS, TEXT, as_torch).log_evidence_ == other.log_evidence_
    found = model.sweep(INPUTS, TEXT, maps, width=[20], test=(TEST_INPUTS, TEST_TEXT, test_maps), progress=False)
    assert found["log_evidence"].item() == pytest.approx(other.log_evidence_, rel=1e-9)
    with pytest.raises(ValueError, match="attention must be given for all inputs"):
        model.predict(TEST_INPUTS)
    with pytest.raises(ValueError, match="or for none"):
        other.predict(TEST_INPUTS, test_maps)


def test_a_sweep_of_seeds_is_that_of_models_and_its_best_fits_a_model():
    model = bpkr.Model(layers=(2,), random_state=3)
    grid = {"width": [20, math.inf], "temperature": [0.1, 1.0]}
    found = model.sweep(INPUTS, TEXT, test=(TEST_INPUTS, TEST_TEXT), **grid, seeds=2, progress=False)
    assert found["seed"].values.tolist() == [3, 4]
    one = clone(model).set_params(widths=20, temperature=0.1, random_state=4).fit(INPUTS, TEXT)
    at = found.sel(seed=4, width=20, temperature=0.1)
    assert one.score(TEST_INPUTS, TEST_TEXT) == at["test_accuracy"]
    assert one.log_evidence_ == pytest.approx(at["log_evidence"].item(), rel=1e-9)
    hits = np.sign(found["mean"]) == found["test_label"]
    np.testing.assert_allclose(hits.mean("test_example"), found["test_accuracy"])
    best, evidence = sweeps.best(found), found["log_evidence_corrected"].mean("seed")
    assert evidence.sel(width=best["widths"], temperature=best["temperature"]) == evidence.max()
    assert clone(model).set_params(**best).widths == best["widths"]
    axes = drawing.draw_scores_over_width(found, score="test_accuracy")
    assert len(axes.containers) == 2
    axes.figure.clear()
    assert len(one.plot().axes) == 3
    given = bpkr.Model(**SETTINGS).sweep(INPUTS, TEXT, width=[(20, 10), (10, 20)], progress=False)
    assert "seed" not in given.dims and sweeps.best(given)["widths"] in [(20, 10), (10, 20)]
    with pytest.raises(ValueError, match=r"score must be one of .* got 'test_accuracy'"):
        sweeps.best(given, "test_accuracy")


def test_scikit_learn_accepts_the_tags():
    for model in (bpkr.Model(), bpkr.Model(classes=True), bpkr.Model(classes=False)):
        with warnings.catch_warnings():
            # Other checks are of tables.
            warnings.simplefilter("ignore")
            (found,) = check_estimator(model, on_skip=None)
        assert found["status"] == "passed"


def test_cross_validation_grid_search_clone_and_pickle():
    model = bpkr.Model(layers=(2,), temperature=0.1)
    scores = cross_val_score(model, INPUTS, TEXT, cv=KFold(2))
    half = TRAINING // 2
    by_hand = clone(model).fit(INPUTS[half:], TEXT[half:]).score(INPUTS[:half], TEXT[:half])
    assert scores[0] == by_hand and not hasattr(model, "problem_")
    grid = {"widths": [10, math.inf], "temperature": [0.1, 1.0]}
    search = GridSearchCV(model, grid, cv=KFold(2)).fit(INPUTS, TEXT)
    assert search.best_params_.keys() == grid.keys() and np.isfinite(search.cv_results_["mean_test_score"]).all()
    fitted = search.best_estimator_
    loaded = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(loaded.predict(TEST_INPUTS), fitted.predict(TEST_INPUTS))
    of_classes = bpkr.Model(layers=(2,), classes=True)
    assert (cross_val_score(of_classes, INPUTS, TEXT, cv=2, scoring="neg_log_loss") < 0).all()
    options = {"cv": 2, "method": "predict_proba"}
    assert cross_val_predict(of_classes, INPUTS, TEXT, **options).shape == (TRAINING, 2)
    refused = pytest.raises(ValueError, match="pass classes=True")
    with refused, pytest.warns(bpkr.LabelsWarning):
        cross_val_predict(bpkr.Model(layers=(2,)), INPUTS, TEXT, **options)
    vote = VotingClassifier([("a", of_classes)], voting="soft").fit(INPUTS, TEXT)
    assert set(vote.predict(TEST_INPUTS)) <= {"down", "up"}


@cache
def fitted():
    return bpkr.Model(**SETTINGS).fit(INPUTS, TEXT)


def test_padding_is_carried_by_the_data():
    settings = {**SETTINGS, "readout": "mean"}
    architecture, data, test = lower(NUMBERS, readout="mean", lengths=LENGTHS)
    problem = bpkr.Problem(architecture, data)
    saddle = bpkr.solve(problem)
    ragged = [each[:count] for each, count in zip(INPUTS, LENGTHS, strict=True)]
    # Tokens that are not last can be padding too.
    moved = np.array([np.roll(each, 1, axis=0) for each in padded(INPUTS, LENGTHS)])
    for inputs in (padded(INPUTS, LENGTHS), ragged, np.array([*ragged, None], dtype=object)[:-1], moved):
        model = bpkr.Model(**settings).fit(inputs, NUMBERS)
        assert model.log_evidence_ == pytest.approx(float(saddle.log_evidence), rel=1e-12)
        found = model.predict(padded(TEST_INPUTS, TEST_LENGTHS))
        np.testing.assert_allclose(found, bpkr.predict(problem, saddle, test).mean, rtol=1e-9)
    # Padding of recorded maps can be NaN, and they can be of more tokens than a list.
    (maps,) = bpkr.attention(padded(INPUTS, LENGTHS), key_query=KEY_QUERY)
    maps, shortest = padded(maps.swapaxes(1, 3), LENGTHS[:, None]).swapaxes(1, 3), int(np.argmin(LENGTHS))
    model = bpkr.Model(widths=20, readout="mean").fit(ragged, NUMBERS, [maps])
    assert model.log_evidence_ == pytest.approx(float(saddle.log_evidence), rel=1e-12)
    found = model.predict(ragged[shortest : shortest + 1], [maps[shortest : shortest + 1]])
    np.testing.assert_allclose(found, model.predict(ragged, [maps])[shortest], rtol=1e-9)
    model = bpkr.Model(**{**SETTINGS, "readout": "all"}).fit(ragged, NUMBERS)
    np.testing.assert_allclose(model.predict([ragged[shortest]])[0], model.predict(ragged)[shortest], rtol=1e-9)
    with pytest.raises(ValueError, match="one number of features, got"):
        model.predict([INPUTS[0], INPUTS[1, :, :2]])
    with pytest.raises(ValueError, match=r"attention\[0\]\[\d+\] must have the shape .*; pad maps to the most tokens"):
        bpkr.Model(readout="mean").fit(ragged, NUMBERS, [[np.ones((2, count, count)) for count in LENGTHS]])
    with pytest.raises(TypeError, match="classes must be of type bool, got 'yes'"):
        bpkr.Model(classes="yes").fit(INPUTS, NUMBERS)
