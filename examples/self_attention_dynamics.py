# %% [markdown]
# # Self-attention that generates tokens: from weights to a checked prediction
#
# Learn how to run the mean-field map, classify its regimes by Lyapunov exponents, and check it by simulation.
#
# A layer of self-attention over $\pm 1$ neurons generates its own next token. As the number of neurons grows, their
# noise averages out, and dynamical mean-field theory gives a deterministic map. The orbits of the map are cycles, tori
# or chaotic. We derive the map, run the published network, classify its orbits by Lyapunov exponents, and compare
# finite networks with the map.

# %%
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import theorykit
from theorykit import dmft, dynamics
from theorykit.dmft.diagrams import OrbitSettings, orbit_diagram
from theorykit.plots.phases import REGIME_COLORS
from theorykit.plots.style import LIMITS, THEORY, save, use_style

theorykit.enable_float64()

# %% [markdown]
# ## The map
#
# theorykit sums over the spins, finds the saddle point of the generating functional, and shows that the conjugate
# fields vanish there. It checks each step on random numbers. The code printed below is the code that runs.

# %%
theory = dmft.derive()
print(dmft.render_latex(theory))
print(len(theory.derivation.steps), "steps, all hold:", theory.derivation.verify().holds)

# %% [markdown]
# ## The network
#
# The network has three patterns per family, 99 neurons in three segments of equal weights, and a context of four
# tokens. Copies of the neurons have the same joint law of weights, and the limit depends only on this law.

# %%
CONTEXT = 4
weights = dmft.published_weights()
network = dmft.self_attention_limit(weights, CONTEXT)
prompt = dmft.pattern_prompt(weights)
print("families, patterns, neurons:", weights.semantic.shape, "  classes of neurons:", len(network.directions))


def parameters(beta: float | np.ndarray) -> dmft.Parameters:
    """Return the paper's parameters at inverse temperatures `beta` of the output."""
    return dmft.Parameters(beta, gamma=dmft.attention_gain(2.2, 100, weights.patterns), epsilon=0.02)


# %% [markdown]
# ## Orbits and their exponents
#
# We run several temperatures as one batch. The two largest Lyapunov exponents, with errors, classify an orbit as
# periodic ($\lambda_1 < 0$), quasi-periodic ($\lambda_1 = 0$) or chaotic ($\lambda_1 > 0$).

# %%
betas = np.array([1.27, 1.255, 1.28])
batch = parameters(betas)
window = dmft.discard_transient(network, batch, dmft.window_start(network, batch, prompt), 100_000)
orbits = dmft.run(network, batch, dmft.state_from_window(network, batch, window), steps=1600)
spectrum = dmft.lyapunov_spectrum(network, batch, window, steps=40_000, exponents=3)
regimes = dynamics.classify(spectrum)
dimensions = dynamics.kaplan_yorke_lower_bound(spectrum.exponents.T)
for orbit, beta in enumerate(betas):
    values = zip(spectrum.exponents[:, orbit], spectrum.errors[:, orbit], strict=True)
    shown = ", ".join(f"{value:.4f} +- {error:.4f}" for value, error in values)
    print(f"beta = {beta}: {regimes[orbit]}, exponents {shown}, dimension {dimensions[orbit]:.2f}")

# %% [markdown]
# Between these three temperatures the network passes from one regime to another, and back. We compute an orbit diagram,
# in which every orbit starts from the same window of attentions.

# %%
hot = parameters(3.0)
common = dmft.discard_transient(network, hot, dmft.window_start(network, hot, prompt), 20_000)
diagram = orbit_diagram(
    network,
    parameters(np.linspace(1.235, 1.285, 101)),
    lambda network, parameters: dmft.state_from_window(network, parameters, common),
    OrbitSettings(transient=40_000, recorded=40_000, exponents=2),
)

# %% [markdown]
# ## Finite networks
#
# Given the past, the spins of neurons of one class are independent. Their sum is binomial, so the cost of a simulation
# does not depend on the size of the network. The distance of a network from the map is of order $N^{-1/2}$, but the map
# amplifies this distance. In chaos it grows as $e^{\lambda_1 t}$, and the prediction holds for about
# $\log N / 2 \lambda_1$ tokens.

# %%
TOKENS, COLD, CHAOTIC = 60, 0.5, 1.28
start = dmft.token_start(network, parameters(CHAOTIC), prompt)
predicted = dmft.run(network, parameters(CHAOTIC), start, steps=TOKENS).attention
drawn = {}
for repeats in (10, 10_000, 10_000_000):
    finite = dmft.network.class_sum_network(weights, CONTEXT, repeats)
    path = dmft.network.run(finite, parameters(CHAOTIC), start, steps=TOKENS, key=jax.random.key(1))
    drawn[repeats * weights.neurons] = path.attention[..., 0]

studies = {}
for beta in (COLD, CHAOTIC):
    start = dmft.token_start(network, parameters(beta), prompt)
    study = dmft.convergence(
        weights, CONTEXT, parameters(beta), start, repeats=10 ** np.arange(2, 9), samples=64, key=jax.random.key(2)
    )
    studies[beta] = study
    print(f"beta = {beta}: distance goes as N to the power {study.slope:.4f} +- {study.slope_error:.4f},", end=" ")
    print(f"chi^2 per degree of freedom {study.chi_square:.1f}")

# %% [markdown]
# The top row shows orbits in the plane of two attentions: all tokens are pale, and tokens at one position are dark. The
# bottom row shows, from left to right, exponents against $\beta$; a mean-field run (pale) with networks that leave it
# one after the other; and the distance of the networks from the run. In chaos the law of the distance holds only if $N$
# is so large that the noise is still small after 60 tokens.


# %%
def draw_plane(axes: plt.Axes, orbit: int) -> None:
    """Draw an orbit, coloured by regime."""
    regime, exponent = regimes[orbit], float(spectrum.exponents[0, orbit])
    first, second = orbits.attention[1:, 0, orbit], orbits.attention[1:, 1, orbit]
    size = 14 if regime == "periodic" else 1
    axes.scatter(first, second, s=size, color="0.8", linewidths=0)
    axes.scatter(first[::CONTEXT], second[::CONTEXT], s=size, color=REGIME_COLORS[regime], linewidths=0)
    axes.scatter([], [], s=14, color="0.8", label="every token")
    axes.scatter([], [], s=14, color=REGIME_COLORS[regime], label=f"every {CONTEXT}th token")
    axes.legend(loc="lower right", fontsize=7, handletextpad=0.1)
    axes.set(xlabel="attention $A_1$", ylabel="attention $A_2$")
    axes.set_title(rf"{regime}, $\beta = {betas[orbit]}$")
    axes.text(0.03, 0.97, rf"$\lambda_1 = {round(exponent, 3) + 0.0:.3f}$", transform=axes.transAxes, va="top")


def draw_exponents(axes: plt.Axes) -> None:
    """Draw the two largest exponents against beta, the largest coloured by regime."""
    axes.axhline(0, color="0.6", linewidth=0.6)
    second = diagram["exponent"].sel(number=2)
    axes.plot(diagram["beta"], second, ".", color="0.75", markersize=3, label=r"$\lambda_2$")
    for regime, color in REGIME_COLORS.items():
        largest = diagram["exponent"].sel(number=1)[diagram["regime"].values == regime]
        if largest.size:
            axes.plot(largest["beta"], largest, ".", color=color, markersize=4, label=rf"$\lambda_1$, {regime}")
    axes.set(xlabel=r"inverse temperature $\beta$", ylabel=r"$\lambda$ per token", title="Lyapunov exponents")
    axes.legend(loc="upper left", handletextpad=0.1)


def draw_paths(axes: plt.Axes) -> None:
    """Draw one attention over tokens, for the mean field and for networks."""
    axes.plot(predicted[:, 0], color=THEORY, alpha=0.25, linewidth=5, label=r"$N = \infty$")
    for (neurons, attention), color in zip(drawn.items(), (LIMITS[1], LIMITS[0], THEORY), strict=True):
        axes.plot(attention[:, 0], color=color, linewidth=0.9, label=rf"$N = 99 \cdot 10^{{{len(str(neurons)) - 2}}}$")
    axes.set(xlabel="token", ylabel="attention $A_1$", title=rf"single networks, $\beta = {CHAOTIC}$")
    axes.set(ylim=(None, 0.68))
    axes.legend(ncols=2, loc="upper right", handlelength=1.2)


def draw_law(axes: plt.Axes) -> None:
    """Draw distances between networks and mean field."""
    for (beta, study), color in zip(studies.items(), (THEORY, LIMITS[0]), strict=True):
        style = {"fmt": "o", "color": color, "markersize": 4, "label": rf"$\beta = {beta}$"}
        axes.errorbar(study["neurons"], study["rms"], study["rms_error"], **style)
    cold = studies[COLD]
    axes.loglog(
        cold["neurons"],
        cold["rms"][-1] * np.sqrt(cold["neurons"][-1] / cold["neurons"]),
        "k:",
        linewidth=1,
        label="slope $-1/2$",
    )
    axes.set(xlabel="neurons $N$", ylabel="rms distance from the map", title=f"mean over {TOKENS} tokens")
    axes.legend()


with use_style():
    figure, (above, below) = plt.subplots(2, 3, figsize=(9, 5.2))
    for orbit, axes in enumerate(above):
        draw_plane(axes, orbit)
    for axes, draw in zip(below, (draw_exponents, draw_paths, draw_law), strict=True):
        draw(axes)
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# At the three temperatures the network has a cycle, a torus and chaos, with largest Lyapunov exponents -0.0478, 0.0000
# and 0.1402. Finite networks approach the map as $N^{-0.5002 \pm 0.0014}$ on the cycle. In chaos the power is
# $-0.52 \pm 0.07$, but the fit is poor: compare only the tokens before the noise has grown.
