# %% [markdown]
# # A layer of your own
#
# Learn how to define a new layer, and how to derive and check its theory.
#
# You define a layer by its forward map, which is linear in its weights, and its prior. This example defines heads whose
# weights have unequal prior variances. theorykit derives the action, checks every step, compiles the action and solves
# for the saddle point. We compare it with the exact posterior at finite width, by sampling networks.

# %%
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array, Float
from sympy import Identity, KroneckerProduct, sqrt

import theorykit
from theorykit import bpkr
from theorykit.plots.style import LIMITS, THEORY, save, use_style

theorykit.enable_float64()

# %% [markdown]
# ## Unequal heads
#
# The forward map is the forward map of attention, with one weight block per head. The prior covariance between blocks
# is a diagonal matrix. This matrix is a parameter of the layer, with a symbol in the formulas and an array in the
# computation.


# %%
class UnequalHeads(bpkr.AbstractLayer):
    """Attention whose heads have separate prior variances, relative to the layer's."""

    variances: Float[Array, " heads"]
    heads: int = eqx.field(static=True)

    def __init__(self, variances):
        self.variances = jnp.asarray(variances)
        self.heads = len(variances)

    def forward(self, layer):
        values = layer.weights(layer.heads) * KroneckerProduct(Identity(layer.heads), layer.hidden)
        return values * layer.attention / sqrt(layer.heads * layer.width)

    def prior(self, layer):
        return layer.variance * layer.covariance("D", layer.heads)

    def parameters(self, layer):
        return {layer.covariance("D", layer.heads): jnp.diag(self.variances)}


# %% [markdown]
# ## Derivation and verification


# %%
def network(width: int) -> bpkr.Architecture:
    return bpkr.Architecture((UnequalHeads([2.0, 0.5]), 2), widths=width, temperature=0.2)


action = bpkr.derive(network(10))
print("S_1 =", action.entropies[0])
print("all steps hold:", action.derivation.verify().holds)
print("differences from the entropies of the second route:", action.route_differences)

# %% [markdown]
# ## Solution, and comparison with sampling
#
# The network depends on its weights through $U_1$, so the exact posterior mean of $U_1$ is an average over networks
# from the prior, weighted by the likelihood $\mathcal N(y; 0, K(U_1) + T)$. The task is small, so that the likelihood
# weights do not degenerate.

# %%
data_key, label_key = jax.random.split(jax.random.key(0))
inputs = jax.random.normal(data_key, (6, 4, 5))
labels = 2 * jax.random.normal(label_key, (6,))


def heads_of(architecture: bpkr.Architecture) -> bpkr.Heads:
    keys = jax.random.split(jax.random.key(1), architecture.depth)
    counts = zip(keys, architecture.heads, strict=True)
    return bpkr.Heads(key_query=[jax.random.normal(key, (count, 5, 5)) for key, count in counts])


def sampled_posterior_mean(architecture, heads, features, draws=20_000):
    """Estimate the posterior mean of U_1 from prior networks; return it with standard error and effective draws."""

    def overlap(key):
        drawn = bpkr.sample_network(architecture, heads, input_features=5, key=key)
        return bpkr.empirical_order_parameters(drawn).matrices[0]

    def log_likelihood(overlap):
        kernel = jnp.einsum("ab,pai,qbi->pq", overlap, features, features)
        factor = jnp.linalg.cholesky(kernel + architecture.temperature * jnp.eye(len(labels)))
        white = jax.scipy.linalg.solve_triangular(factor, labels, lower=True)
        return -jnp.sum(jnp.log(jnp.diagonal(factor))) - jnp.sum(white**2) / 2

    overlaps = jax.lax.map(overlap, jax.random.split(jax.random.key(2), draws), batch_size=1000)
    weights = jax.nn.softmax(jax.vmap(log_likelihood)(overlaps))
    mean = jnp.einsum("d,dab->ab", weights, overlaps)
    error = jnp.sqrt(jnp.einsum("d,dab->ab", weights**2, (overlaps - mean) ** 2))
    return mean, error, 1 / jnp.sum(weights**2)


# %%
WIDTHS, results = (10, 30, 100), {}
for width in WIDTHS:
    architecture = network(width)
    heads = heads_of(architecture)
    features = bpkr.path_features(inputs, heads(inputs), architecture)
    saddle = bpkr.solve(architecture, bpkr.Data(features, labels))
    mean, error, effective = sampled_posterior_mean(architecture, heads, features)
    theory = saddle.order_parameters.first
    results[width] = theory, mean, error
    gap = float(jnp.max(jnp.abs(theory - mean)))
    print(
        f"N = {width:3}: largest gap to sampling {gap:.3f}, standard error {float(jnp.max(error)):.3f}, "
        f"{float(effective):.0f} effective draws"
    )

# %% [markdown]
# The saddle point is exact in the limit of large width: its distance from the exact posterior mean falls as $1/N$, down
# to the sampling error. Bars are two standard errors.

# %%
with use_style():
    figure, ax = plt.subplots(figsize=(4, 3.4))
    for width, color in zip(WIDTHS, (LIMITS[0], LIMITS[1], THEORY), strict=True):
        theory, mean, error = (np.ravel(part) for part in results[width])
        ax.errorbar(theory, mean, 2 * error, fmt="o", markersize=4, color=color, label=f"$N = {width}$")
    ax.axline((0, 0), slope=1, color="k", linestyle=":", linewidth=1, label="equal")
    ax.set(xlabel="saddle point", ylabel="posterior mean, sampled")
    ax.legend(title="entries of $U_1$,\nbars: two standard errors", alignment="left")
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# The layer needed only a forward map and a prior. All steps of its derivation hold, and the second derivation, which is
# exact at finite width, has the same leading order. The gap between saddle point and sampled networks falls from 0.128
# at width 10 to 0.013 at width 100, within two standard errors of the sampling at all widths.
