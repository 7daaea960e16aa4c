"""Simulation-based calibration: the rank of the truth among posterior draws is uniform.

S. Talts et al., "Validating Bayesian inference algorithms with simulation-based calibration", arXiv 1804.06788. Truth
and data are drawn from sampled networks, not from the law that is tested.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from theorykit import bpkr
from theorykit.bpkr.sampling import Schedule
from theorykit.bpkr.sampling.chains import run_chains
from theorykit.bpkr.sampling.sample import sampler_of

WARMUP, RANKS, EXAMPLES, INPUT_FEATURES, TOKENS = 200, 16, 4, 3, 3
# architectures on both sides of the singular width
ARCHITECTURES = {
    "regular": bpkr.Architecture((2,), 3, temperature=0.3),
    "singular": bpkr.Architecture((3,), 2, temperature=0.3),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "replications", "thinning"), [("gibbs", 160, 20), ("exact", 320, 6), ("nuts", 320, 6)]
)
@pytest.mark.parametrize("width", [*ARCHITECTURES])
def test_ranks_are_uniform(kind, replications, thinning, width):
    architecture = ARCHITECTURES[width]
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=(EXAMPLES, TOKENS, INPUT_FEATURES)))
    key_query = [rng.normal(size=(heads, INPUT_FEATURES, INPUT_FEATURES)) for heads in architecture.heads]
    heads = bpkr.Heads(key_query=key_query)
    features = bpkr.path_features(inputs, heads(inputs), architecture)

    @jax.jit
    def simulate(key):
        network = bpkr.sample_network(architecture, heads, input_features=INPUT_FEATURES, key=key)
        return bpkr.empirical_order_parameters(network), network(inputs)

    ranks = []
    for replication in range(replications):
        truth_key, noise_key, chain_key = jax.random.split(jax.random.key(replication), 3)
        truth, outputs = simulate(truth_key)
        labels = outputs + jnp.sqrt(architecture.temperature) * jax.random.normal(noise_key, outputs.shape)
        schedule = Schedule(chains=1, warmup=WARMUP, draws=thinning * (RANKS - 1))
        problem = bpkr.Problem(architecture, bpkr.Data(features, labels))
        sampler = sampler_of(kind, problem, WARMUP)
        drawn = run_chains(lambda sampler=sampler: sampler, schedule, key=chain_key, progress=False)
        kept = {name: values[0, ::thinning] for name, values in drawn.items() if np.ndim(values) > 1}
        of_first = np.sum(kept["U_1"][:, 0, :2] < truth.first[0, :2], axis=0)
        ranks.append([*of_first, np.sum(kept["u"] < truth.readout)])
    for of_one in np.transpose(ranks):
        counts = np.bincount(of_one, minlength=RANKS).reshape(8, -1).sum(axis=1)
        assert chisquare(counts).pvalue > 1e-3
