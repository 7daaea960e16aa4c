# %% [markdown]
# # Fluctuations of finite self-attention networks
#
# Learn how to predict how far a network of $N$ neurons deviates from its infinite-size map, and see when the prediction
# fails.
#
# Self-attention follows a deterministic map in the limit of many neurons. A network of $N$ neurons deviates from the
# map by a distance of order $N^{-1/2}$. In this example we compute the prefactor. Spins are independent given the
# attention before them, so the noise of a token is known, and the derivative of the map propagates the noise. This is
# van Kampen's expansion, to first order in $1/N$. We compare the expansion with simulations: on cycles, where it
# becomes exact as $N$ grows, and across the transitions to a torus and to chaos, where it fails.

# %%
from functools import partial
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import theorykit
from theorykit import dmft, dynamics
from theorykit.plots.style import LIMITS, THEORY, letter_panels, save, use_style

theorykit.enable_float64()

# %% [markdown]
# ## The noise of a token
#
# We need $N$ times the covariance of a token's overlaps with the patterns, given the attention $A$ before it. theorykit
# derives this covariance from the spins, and checks the derivation by summing over all spin configurations.

# %%
theory = dmft.derive()
print(theory.noise)
print(len(theory.derivation.steps), "steps, all hold:", theory.derivation.verify().holds)

# %% [markdown]
# ## Simulate and predict
#
# All networks start in the same state on the attractor of the map. We divide their root mean square distance from the
# map by the predicted distance.


# %%
CONTEXT, TOKENS = 4, 400
published = dmft.Weights.published()


def settings(beta: float | np.ndarray) -> dmft.Parameters:
    """Return the paper's parameters at inverse temperatures `beta` of the output."""
    return dmft.Parameters(beta, gamma=2.2 * 100 / np.sqrt(3), epsilon=0.02)


def network(power: int) -> dmft.FiniteNetwork:
    """Copy the published 99 neurons to the largest multiple of their number up to 10**`power`."""
    return dmft.FiniteNetwork(published, CONTEXT, 10**power // 99)


def attractor(network: dmft.FiniteNetwork, parameters: dmft.Parameters) -> dmft.State:
    """Run the map from the first pattern as a prompt until it settles."""
    start = network.limit.start(parameters, published.prompt(), "window")
    return dynamics.advance(network.limit, start, parameters, 60_000)


def simulate(network, start: dmft.State, parameters: dmft.Parameters, samples: int) -> jax.Array:
    """Simulate the attentions (samples, times, patterns) of independent networks."""
    run = jax.vmap(lambda key: dmft.run(network, start, parameters, steps=TOKENS, key=key).attention)
    return run(jax.random.split(jax.random.key(0), samples))


# %% [markdown]
# ## On a cycle
#
# At $\beta = 1.2$ the map has a cycle. The law of the networks is Gaussian about it, with the predicted covariance.

# %%
CYCLE = 1.2
clouds = {}
for power in (4, 5, 6):
    finite, at = network(power), settings(CYCLE)
    start = attractor(finite, at)
    predicted = dmft.fluctuations(finite, start, at, steps=TOKENS)
    drawn = np.asarray(simulate(finite, start, at, 1500))
    clouds[power] = predicted, drawn
    ratio = np.sqrt(np.mean((drawn[:, 1:] - predicted.mean[1:]) ** 2)) / predicted.rms
    print(f"beta = {CYCLE}, N = 10^{power}: simulation over theory {ratio:.3f}")

# %% [markdown]
# ## Across the transitions
#
# The map has a cycle up to $\beta = 1.243$, a torus up to 1.265, then long cycles next to chaos, and is chaotic above
# 1.274. The theory predicts the same number for all sizes: $\sqrt{N}$ times the root mean square distance over 400
# tokens. Nothing fixes the phase on a torus, so networks spread around it, and the linear theory fails there and in
# chaos.

# %%
betas = np.concatenate([np.linspace(1.1, 1.2, 6), np.arange(1.205, 1.292, 0.0025)])
smallest = network(4)
starts = jax.vmap(lambda at: attractor(smallest, at))(settings(betas))
scan = jax.vmap(lambda *given: dmft.fluctuations(smallest, *given, steps=TOKENS))(starts, settings(betas))
amplitude = np.sqrt(smallest.neurons) * scan.rms
scanned = {}
for power in (4, 5, 6, 7):
    of_size = partial(simulate, network(power), samples=96)
    drawn = jax.vmap(of_size)(starts, settings(betas))[..., 1:, :]
    squares = np.mean((drawn - scan.mean[:, None, 1:]) ** 2, axis=(-2, -1))
    rms = np.sqrt(np.mean(squares, axis=-1))
    error = np.std(squares, axis=-1, ddof=1) / np.sqrt(squares.shape[-1]) / (2 * rms)
    scanned[power] = np.sqrt(network(power).neurons) * np.stack([rms, error])
for at in (0, 5, 21, 26):
    ratios = {power: found[:, at] / amplitude[at] for power, found in scanned.items()}
    shown = ", ".join(f"{ratio:.2f} +- {error:.2f} (10^{power})" for power, (ratio, error) in ratios.items())
    print(f"beta = {betas[at]:.4f}: simulation over theory {shown}")

# %% [markdown]
# Panel a shows networks after 400 tokens, and ellipses of two predicted standard deviations. Panel b shows amplitudes.

# %%
COLORS = dict(zip((4, 5, 6, 7), (*LIMITS, "black"), strict=True))
with use_style():
    figure, (cloud, size) = plt.subplots(1, 2, figsize=(7, 3.8))
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    for power, (predicted, drawn) in clouds.items():
        cloud.scatter(*drawn[:, -1, :2].T, s=2.5, alpha=0.5, linewidths=0, color=COLORS[power])
        variances, directions = np.linalg.eigh(predicted.attention[-1, :2, :2])
        ellipse = directions @ (2 * np.sqrt(variances)[:, None] * circle)
        cloud.plot(*(predicted.mean[-1, :2, None] + ellipse), color=THEORY, linewidth=0.8)
    cloud.set(xlabel="attention $A_1$", ylabel="attention $A_2$", title=rf"cycle, $\beta = {CYCLE}$")
    size.semilogy(betas, amplitude, color=THEORY, label="theory")
    for power, (rms, error) in scanned.items():
        size.errorbar(betas, rms, error, fmt=".", color=COLORS[power], markersize=4, label=rf"$N = 10^{power}$")
    for name, onset in {"torus": 1.2434, "chaos": 1.274}.items():
        size.axvline(onset, color="0.75", linewidth=0.8, zorder=0)
        size.text(onset, 0.02, f" {name}", transform=size.get_xaxis_transform(), color="0.4", fontsize=8)
    size.set(xlabel=r"inverse temperature $\beta$", xlim=(1.19, 1.293), title="amplitude over 400 tokens")
    size.set(ylim=(0.6, 2e3), ylabel=r"$\sqrt{N}$ times rms distance")
    figure.legend(title="bars: standard errors over networks", loc="outside lower center", ncols=5)
    letter_panels(cloud, size)
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# At $\beta = 1.1$ theory and simulation agree within three percent for all $N$ of at least $10^4$. The expansion needs
# larger networks closer to the transition to the torus: at $\beta = 1.2425$ the ratio is 0.68 at $N = 10^4$ and 0.92 at
# $10^6$. In chaos the linear prediction grows without bound and fails.
