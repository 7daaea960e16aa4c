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
from theorykit.plots.style import LIMITS, THEORY, save, use_style

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
# The map has a cycle up to $\beta = 1.243$, then a torus, and is chaotic above about 1.275. The theory predicts
# the same number for all sizes: $\sqrt{N}$ times the root mean square distance over 400 tokens. Nothing fixes the phase
# on a torus, so networks spread around it, and the linear theory fails there and in chaos.

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
# Panel a shows networks after 400 tokens, with the predicted ellipses of one and two standard deviations. Panel b shows
# the amplitude, and panel c the ratio of simulation to theory; triangles are values above 2.

# %%
COLORS = dict(zip((4, 5, 6, 7), (*LIMITS, "black"), strict=True))
with use_style():
    figure, (cloud, size, ratios) = plt.subplots(1, 3, figsize=(9.6, 3.3))
    angle = np.linspace(0, 2 * np.pi, 200)
    for power, (predicted, drawn) in clouds.items():
        look = {"s": 2.5, "alpha": 0.5, "linewidths": 0, "color": COLORS[power], "label": rf"$N = 10^{power}$"}
        cloud.scatter(*drawn[:, -1, :2].T, **look)
        variances, directions = np.linalg.eigh(predicted.attention[-1, :2, :2])
        outline = directions @ (np.sqrt(variances)[:, None] * np.stack([np.cos(angle), np.sin(angle)]))
        for deviations in (1, 2):
            ellipse = predicted.mean[-1, :2, None] + deviations * outline
            cloud.plot(*ellipse, color=THEORY, linewidth=0.8, label="theory" if (power, deviations) == (6, 2) else None)
    cloud.legend(loc="upper left", markerscale=3, handletextpad=0.2)
    cloud.set(xlabel="attention $A_1$", ylabel="attention $A_2$", title=rf"cycle, $\beta = {CYCLE}$")
    size.semilogy(betas, amplitude, color=THEORY, label="theory")
    ratios.axhline(1, color=THEORY)
    for power, (rms, error) in scanned.items():
        size.errorbar(betas, rms, error, fmt=".", color=COLORS[power], markersize=4, label=rf"$N = 10^{power}$")
        ratio, inside = rms / amplitude, rms < 2 * amplitude
        look = {"fmt": ".", "color": COLORS[power], "markersize": 4}
        ratios.errorbar(betas[inside], ratio[inside], (error / amplitude)[inside], **look)
        ratios.plot(
            betas[~inside], np.full(np.sum(~inside), 2.0), "^", color=COLORS[power], markersize=4, clip_on=False
        )
    for axes, ends in ((size, (1.095, 1.293)), (ratios, (1.19, 1.293))):
        for name, onset in {"torus": 1.2434, "chaos": 1.274}.items():
            axes.axvline(onset, color="0.75", linewidth=0.8, zorder=0)
            axes.text(onset, 0.02, f" {name}", transform=axes.get_xaxis_transform(), color="0.4", fontsize=8)
        axes.set(xlabel=r"inverse temperature $\beta$", xlim=ends)
    size.set(ylim=(0.6, 2e3), ylabel=r"$\sqrt{N}$ times rms distance", title="amplitude over 400 tokens")
    size.legend(loc="upper left")
    ratios.set(ylim=(0, 2), ylabel="simulation / theory", title="ratio of the amplitudes")
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# At $\beta = 1.1$ theory and simulation agree within three percent for all $N$ of at least $10^4$. The expansion needs
# larger networks closer to the transition to the torus: at $\beta = 1.2425$ the ratio is 0.68 at $N = 10^4$ and 0.92 at
# $10^6$. In chaos the linear prediction grows without bound and fails.
