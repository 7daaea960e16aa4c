"""Queries and keys as random variables: their evidence, its gradient, draws and maxima.

The reference was computed by other programs, without theorykit: log evidences, gradients
by formula, exact log evidences by quasi-Monte Carlo, and averages over NUTS on all weights.
"""

import math
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import arviz_stats
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from theorykit import bpkr
from theorykit.bpkr import sampling
from theorykit.bpkr.network.network import network_of_whitened
from theorykit.bpkr.sampling import QueryKeyPrior, Schedule
from theorykit.bpkr.sampling.posteriors import split_weights
from theorykit.bpkr.sampling.queries_keys import make_posterior

REFERENCE = dict(np.load(Path(__file__).parents[2] / "data" / "queries_keys" / "reference.npz"))
INPUTS, LABELS = REFERENCE["inputs"], REFERENCE["labels"]
CUES = np.argmax(INPUTS[:, :, 0], axis=1)
QUERY_KEY = "query_1", "key_1"
LAYERS = {"one": (2,), "two": (2, 2)}
GRADIENT = eqx.filter_jit(eqx.filter_value_and_grad(lambda coordinates, of: of.log_density(coordinates)))
RECORD = eqx.filter_jit(lambda of, coordinates: of.record(coordinates))


def posterior(evidence="leading", layers=(2,), widths=10, kind="softmax", rank=2, variances=(1.0, 1.0), **options):
    architecture = bpkr.Architecture(layers, widths, temperature=0.2)
    return make_posterior(architecture, INPUTS, LABELS, QueryKeyPrior(rank, *variances, kind), evidence, **options)


def evidence_at(of, query_key, others=()):
    """The log evidence and its gradient at queries and keys of unit variance."""
    value, slope = GRADIENT(jnp.concatenate([np.ravel(query_key), np.asarray(others)]), of)
    return value + np.sum(query_key**2) / 2, slope[: query_key.size].reshape(query_key.shape) + query_key


@pytest.mark.parametrize("name", ["one", pytest.param("two", marks=pytest.mark.slow)])
def test_log_evidence_and_its_gradient_are_those_of_another_program(name):
    value, slope = evidence_at(posterior(layers=LAYERS[name]), REFERENCE[f"{name}_query_key"])
    np.testing.assert_allclose(value, REFERENCE[f"{name}_log_evidence"], rtol=1e-10)
    np.testing.assert_allclose(slope, REFERENCE[f"{name}_gradient"], rtol=1e-8, atol=1e-8)
    value, _ = evidence_at(posterior("infinite width", LAYERS[name]), REFERENCE[f"{name}_query_key"])
    np.testing.assert_allclose(value, REFERENCE[f"{name}_infinite_width"], rtol=1e-12)


@pytest.mark.slow
def test_the_leading_order_is_off_by_one_over_n():
    """Corrected evidences at solutions are off by its square."""
    query, key = REFERENCE["one_query_key"]
    attention, exact = bpkr.attention(INPUTS, query=[query], key=[key]), REFERENCE["scan_exact"]
    leading, following = [], []
    for width in REFERENCE["scan_width"]:
        network = bpkr.Architecture((2,), width, temperature=0.2)
        problem = bpkr.Problem(network, bpkr.Data(bpkr.path_features(INPUTS, attention, network), LABELS))
        saddle = bpkr.solve(problem)
        leading.append(abs(float(saddle.log_evidence - exact[len(leading)])))
        following.append(abs(float(bpkr.fluctuations(problem, saddle).log_evidence - exact[len(following)])))
    assert 1.9 < leading[-2] / leading[-1] < 2.1
    assert 3.5 < following[-2] / following[-1] < 4.5
    assert np.all(np.divide(following, leading) < 1 / 8)


def test_the_evidence_depends_on_the_products_of_queries_and_keys_alone():
    query_key, rng = REFERENCE["one_query_key"], np.random.default_rng(0)
    query, key = query_key
    turn = rng.normal(size=(2, 2, 2))
    same = np.stack([turn @ query, np.linalg.inv(turn).swapaxes(1, 2) @ key])
    # The last feature is one, so this adds a number to the scores of each query.
    shifted = np.stack([query, key + rng.normal(size=(2, 2, 1)) * [0, 0, 0, 1]])
    mirrored = query_key * np.array([1, -1])[:, None, None, None]
    one_mirrored = np.stack([query, key * np.array([1, -1])[:, None, None]])
    for kind, alike, unlike in (("softmax", [shifted], [mirrored]), ("linear", [mirrored, one_mirrored], [shifted])):
        of = posterior(kind=kind)
        expected, _ = evidence_at(of, query_key)
        for other in (same, query_key[:, ::-1], *alike):
            np.testing.assert_allclose(evidence_at(of, other)[0], expected, rtol=1e-9)
        for other in unlike:
            assert abs(evidence_at(of, other)[0] - expected) > 0.1


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_the_gradient_at_fixed_order_parameters_is_its_formula(kind):
    """Of d log Z = -tr[(A^-1 - v v^T) dK] / 2, v = A^-1 y, for the token that is read."""
    (query, key), rank = REFERENCE["one_query_key"], 2
    of = posterior("exact", kind=kind)
    others = of.law.sample(jax.random.key(0))
    first = np.asarray(of.law.order_parameters(others).first)
    last = INPUTS[:, -1]
    scores = np.einsum("psi,hgi,hgj,pj->phs", INPUTS, key, query, last) / np.sqrt(rank)
    weights = scores
    if kind == "softmax":
        weights = np.exp(scores) / np.sum(np.exp(scores), axis=2, keepdims=True)
    scale = np.sqrt(1 / (4 * 2))  # of N_0 features and H heads
    features = scale * np.einsum("phs,psi->phi", weights, INPUTS)
    inverse = np.linalg.inv(np.einsum("ab,pai,qbi->pq", first, features, features) + 0.2 * np.eye(12))
    represented = inverse @ LABELS
    in_kernel = inverse - np.outer(represented, represented)
    in_features = -np.einsum("pq,hb,qbi->phi", in_kernel, first, features)
    gamma = scale * np.einsum("phi,psi->phs", in_features, INPUTS)
    if kind == "softmax":
        gamma = weights * (gamma - np.sum(weights * gamma, axis=2, keepdims=True))
    in_products = np.einsum("phs,psi,pj->hij", gamma, INPUTS, last) / np.sqrt(rank)
    expected = np.stack([key @ in_products, query @ in_products.swapaxes(1, 2)])
    np.testing.assert_allclose(evidence_at(of, np.stack([query, key]), others)[1], expected, rtol=1e-9, atol=1e-9)


def test_with_all_weights_the_network_is_that_of_its_layers():
    of = posterior("weights", widths=3, variances=(0.5, 2.0))
    coordinates = np.random.default_rng(0).normal(size=of.dimension + sum(map(math.prod, of.weight_shapes)))
    white, others = jnp.split(coordinates, [of.dimension])
    query, key = white.reshape(2, 2, 2, 4) * np.sqrt([0.5, 2.0])[:, None, None, None]
    heads = bpkr.Heads(query=[query], key=[key])
    architecture = bpkr.Architecture((2,), 3, temperature=0.2)
    outputs = network_of_whitened(architecture, split_weights(others, of.weight_shapes), heads)(INPUTS)
    expected = -(np.sum((LABELS - outputs) ** 2) / 0.2 + np.sum(coordinates**2)) / 2
    np.testing.assert_allclose(GRADIENT(coordinates, of)[0], expected, rtol=1e-10)


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_invariants_are_recorded(readout):
    lengths, cues, variances = np.repeat([3, 4], 6), np.minimum(CUES, 2), np.array([0.5, 2.0])
    given = {"mask": "causal", "readout": readout, "real_tokens": np.r_[lengths, 4, 4]}
    of = posterior("exact", variances=variances, tests=INPUTS[:2], cues=cues, **given)
    others = of.law.sample(jax.random.key(0))
    white = 3 * np.random.default_rng(0).normal(size=(2, 2, 2, 4))
    found = RECORD(of, jnp.concatenate([white.ravel(), others]))
    query, key = np.asarray(found["query_1"]), np.asarray(found["key_1"])
    np.testing.assert_allclose([query, key], white * np.sqrt(variances)[:, None, None, None])
    heads = bpkr.Heads(query=[query], key=[key])
    attention = heads(INPUTS, "causal", real_tokens=lengths)
    read = [np.arange(length) if readout == "mean" else [length - 1] for length in lengths]
    by_head = np.array([each[:, :, at].mean(axis=2) for each, at in zip(attention[0], read, strict=True)])
    at_cue = by_head[np.arange(12), :, cues]
    values = np.linalg.svd(key.swapaxes(1, 2) @ query, compute_uv=False)[:, :2]
    point = of.law.order_parameters(others)
    expected = {"attention_1": by_head.mean(axis=1), "cue_1": at_cue.mean(), "trace_1": np.trace(point.first) / 2}
    expected |= {"best_cue_1": at_cue.mean(axis=0).max(), "singular_values_1": values[np.argsort(-values[:, 0])]}
    # The prediction of the theory for these features and order parameters.
    network = bpkr.Architecture((2,), 10, temperature=0.2)
    features = bpkr.path_features(INPUTS, attention, network, readout, real_tokens=lengths)
    test_features = bpkr.path_features(INPUTS[:2], heads(INPUTS[:2], "causal"), network, readout)
    prediction = bpkr.predict(bpkr.Problem(network, bpkr.Data(features, LABELS)), point, test_features)
    for name, value in {**expected, "mean": prediction.mean, "variance": prediction.variance}.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-8, err_msg=name)


SHORT = Schedule(2, 150, 400)


def drawn(layers=(2,), variances=(1.0, 1.0), inputs=INPUTS, labels=LABELS, **options):
    names = ("widths", "richness", "embedding", "temperature")
    numbers = {"widths": 10, "temperature": 0.2} | {name: options.pop(name) for name in names if name in options}
    options = {"key": jax.random.key(0), "cues": CUES[: len(labels)], "progress": False, **options}
    architecture, prior = bpkr.Architecture(layers, **numbers), QueryKeyPrior(2, *variances)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sampling.MixingWarning)
        return sampling.sample_queries_keys(architecture, inputs, labels, prior, **options)


@pytest.mark.slow
def test_labels_without_weight_leave_the_prior(tmp_path):
    options = {"temperature": 1e8, "schedule": SHORT, "folder": tmp_path}
    tree = drawn(variances=(0.5, 2.0), **options)
    query, key = np.random.default_rng(0).normal(size=(2, 20_000, 2, 4)) * np.sqrt([0.5, 2.0])[:, None, None, None]
    scores = np.einsum("psi,ngi,ngj,pj->nps", INPUTS, key, query, INPUTS[:, -1], optimize=True) / math.sqrt(2)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    found = xr.Dataset({name: (tree["weights"][name] ** 2).mean(("head_1", "row", "feature")) for name in QUERY_KEY})
    found["attention_1"] = tree["posterior"]["attention_1"].mean("example")
    expected = {"query_1": 0.5, "key_1": 2.0}
    expected["attention_1"] = np.mean(weights / weights.sum(axis=2, keepdims=True), axis=(0, 1))
    error = arviz_stats.mcse(found, method="mean")
    for name, value in expected.items():
        assert np.all(np.abs(found[name].mean(("chain", "draw")) - value) < 5 * error[name]), name
    # A run resumes from its folder, and draws more.
    longer = drawn(variances=(0.5, 2.0), **{**options, "schedule": Schedule(2, 150, 450)})
    np.testing.assert_array_equal(longer["posterior"]["cue_1"][:, :400], tree["posterior"]["cue_1"])
    with pytest.raises(FileExistsError, match="posterior"):
        drawn(variances=(0.5, 1.0), **options)


@pytest.mark.slow
@pytest.mark.parametrize("evidence", ["exact", "weights"])
def test_attention_is_that_of_another_sampler_of_all_weights(evidence):
    tree = drawn(evidence=evidence, schedule=Schedule(4, 500, 1500))
    posterior = tree["posterior"].to_dataset()
    maps = posterior["attention_1"].mean("example")
    series = posterior[["cue_1", "best_cue_1", "trace_1"]].assign({f"map_{i}": maps[..., i] for i in range(4)})
    mean, error = series.mean(("chain", "draw")), arviz_stats.mcse(series, method="mean")
    expected = {"cue_1": (0.4424, 0.0016), "best_cue_1": (0.6023, 0.0026), "trace_1": (1.811, 0.007)}
    expected |= {f"map_{i}": (value, 9e-4) for i, value in enumerate((0.2159, 0.2327, 0.3280, 0.2234))}
    for name, (value, spread) in expected.items():
        assert abs(float(mean[name]) - value) < 3 * math.hypot(spread, float(error[name])), name
        assert error[name] < 0.02, name


@pytest.mark.slow
def test_chains_start_from_weak_and_from_strong_attention():
    of, key = posterior("exact"), jax.random.key(0)
    weak, strong = (eqx.filter_jit(of.start)(key, jnp.asarray(chain))[: of.dimension] for chain in (0, 1))
    wide = replace(of, evidence="infinite width")
    assert np.linalg.norm(weak) < 0.2 * np.linalg.norm(strong)
    assert wide.log_density(strong) > wide.log_density(weak) + 1
    assert np.linalg.norm(GRADIENT(strong, wide)[1]) < 0.5


@pytest.mark.parametrize(
    ("evidence", "best", "values", "zero_modes"),
    [
        ("infinite width", 22.861254006808, [[4.267550, 1.238889], [0, 0]], 1),
        pytest.param("leading", 20.274916, [[2.470, 1.681], [0.787, 0.057]], 2, marks=pytest.mark.slow),
    ],
)
def test_maxima_are_those_of_another_program(evidence, best, values, zero_modes):
    architecture, options = bpkr.Architecture((2,), 10, temperature=0.2), {"key": jax.random.key(0), "starts": 8}
    with pytest.warns(UserWarning, match="32 entries of queries and keys for 12 labels"):
        modes = sampling.maximise_evidence(architecture, INPUTS, LABELS, QueryKeyPrior(2), evidence=evidence, **options)
    mode = modes[0]
    np.testing.assert_allclose(-mode.log_posterior, best, atol=1e-6)
    np.testing.assert_allclose(mode.singular_values[0], values, atol=1e-3)
    assert mode.zero_modes == zero_modes
    ranks = [int(np.sum(each > 1e-4)) for each in mode.singular_values[0]]
    assert zero_modes == sum(1 - math.comb(2 - rank, 2) for rank in ranks)
    assert all(lower.log_posterior <= higher.log_posterior for higher, lower in pairwise(modes))
    # At a maximum, the prior is the nuclear norm of K^T Q.
    nuclear = np.sum(mode.singular_values[0])
    np.testing.assert_allclose(mode.log_evidence - mode.log_posterior, nuclear, rtol=1e-6)
    assert "nuclear norm" in repr(mode) and sum(mode.reached for mode in modes) <= 8


REFUSED = {
    "no variance": (lambda: QueryKeyPrior(2, key_variance=0.0), "key_variance", "0.0"),
    "no heads": (lambda: drawn(layers=[bpkr.Dense()]), "need heads, got 1 layer"),
    "a richness": (lambda: drawn(richness=0.5), "need no richness, got", "richness 0.5"),
    "nonlinear units": (lambda: drawn(embedding="erf"), "need linear hidden units, got"),
    "no noise": (lambda: drawn(temperature=0.0), "need temperature > 0, got", "temperature 0"),
    "wide test inputs": (lambda: drawn(test_inputs=INPUTS[:, :3]), "test_inputs", "(12, 3, 4)"),
    "a cue too far": (lambda: drawn(cues=np.full(12, 4)), "cues", "[4.0, 4.0"),
    "a query without a key": (lambda: drawn(mask=np.zeros((4, 4), dtype=bool)), "mask"),
    "long sequences": (lambda: drawn(inputs=np.ones((2, 400_000, 1)), labels=np.ones(2)), "400000 tokens", "bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_sampled_is_refused(name):
    call, *words = REFUSED[name]
    with pytest.raises(ValueError) as error:
        call()
    assert all(word in str(error.value) for word in words), str(error.value)
