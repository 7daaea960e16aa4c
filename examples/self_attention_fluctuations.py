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
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import theorykit
from theorykit import dmft
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
# ## On cycles
#
# All networks start in the same state on the attractor of the map. We simulate 2000 networks, and divide their root
# mean square distance from the map over 100 tokens by the predicted distance. We use the published weights, and random
# weights with one, two and four patterns.


# %%
def attractor(weights: dmft.Weights, context: int, parameters: dmft.Parameters) -> dmft.map.State:
    """Run the map from the first pattern as a prompt until it settles."""
    limit = dmft.self_attention_limit(weights, context)
    start = dmft.start(limit, parameters, weights.prompt(), "window")
    return dmft.advance(limit, parameters, start, 60_000)


def distances(predicted: dmft.network.Fluctuations, sampled: dmft.map.Trajectory) -> tuple[np.ndarray, ...]:
    """Compute the root mean square distance of samples from the map over tokens and patterns, with standard error."""
    difference = sampled.attention[..., 1:, :] - predicted.mean[..., None, 1:, :]
    squares = np.mean(difference**2, axis=(-2, -1))
    rms, samples = np.sqrt(np.mean(squares, axis=-1)), squares.shape[-1]
    return rms, np.std(squares, axis=-1, ddof=1) / np.sqrt(samples) / (2 * rms)


published = dmft.Weights.published()
random_keys = jax.random.split(jax.random.key(0), 3)
CASES = (
    (published, 4, dmft.Parameters(0.5, 127.0, 0.02), 102),
    (published, 4, dmft.Parameters(1.0, 127.0, 0.02), 1010),
    (published, 4, dmft.Parameters(1.2, 127.0, 0.02), 10_101),
    (dmft.Weights.iid(1, 10, 2, segments=10, key=random_keys[0]), 4, dmft.Parameters(1.0, 3.0, 0.1), 1000),
    (dmft.Weights.iid(2, 60, 2, segments=12, key=random_keys[1]), 4, dmft.Parameters(2.0, 20.0, 0.1), 500),
    (dmft.Weights.iid(4, 40, 3, segments=10, key=random_keys[2]), 8, dmft.Parameters(1.0, 10.0, 0.1), 500),
)
for weights, context, parameters, repeats in CASES:
    finite = dmft.network.class_sum_network(weights, context, repeats)
    start = attractor(weights, context, parameters)
    predicted = dmft.network.fluctuations(finite, parameters, start, steps=100)
    sampled = dmft.network.run(finite, parameters, start, steps=100, samples=2000, key=jax.random.key(1))
    rms, error = distances(predicted, sampled)
    print(
        f"M = {weights.patterns}, L = {context}, {len(finite.counts):2} classes, N = {int(finite.neurons):7},", end=" "
    )
    print(f"beta = {float(parameters.beta):.1f}: {rms / predicted.rms:.4f} +- {error / predicted.rms:.4f}")

# %% [markdown]
# ## Across the transitions
#
# The published network settles on a cycle up to $\beta = 1.243$, then on a torus, and is chaotic above about 1.275. We
# run networks of four sizes at many temperatures in one batch, for 400 tokens from the attractor. The theory predicts
# the same number for all sizes: $\sqrt{N}$ times the root mean square distance.

# %%
CONTEXT, TOKENS = 4, 400


def settings(beta: float | np.ndarray) -> dmft.Parameters:
    """Return the paper's parameters at inverse temperatures `beta` of the output."""
    return dmft.Parameters(beta, gamma=dmft.attention_gain(2.2, 100, published.patterns), epsilon=0.02)


def published_network(power: int) -> dmft.network.FiniteNetwork:
    """Copy the published weights to the largest multiple of their number of neurons up to 10**`power`."""
    return dmft.network.class_sum_network(published, CONTEXT, 10**power // published.neurons)


betas = np.concatenate([np.linspace(1.1, 1.2, 6), np.arange(1.205, 1.292, 0.0025)])
starts = attractor(published, CONTEXT, settings(betas))
scan = dmft.network.fluctuations(published_network(4), settings(betas), starts, steps=TOKENS)
amplitude = np.sqrt(scan.neurons) * scan.rms
scanned = {}
for power in (4, 5, 6, 7):
    finite = published_network(power)
    sampled = dmft.network.run(finite, settings(betas), starts, steps=TOKENS, samples=96, key=jax.random.key(power))
    scanned[power] = np.sqrt(finite.neurons) * np.stack(distances(scan, sampled))
for at in (0, 5, 21, 26):
    ratios = {power: found[:, at] / amplitude[at] for power, found in scanned.items()}
    shown = ", ".join(f"{ratio:.2f} +- {error:.2f} (10^{power})" for power, (ratio, error) in ratios.items())
    print(f"beta = {betas[at]:.4f}: simulation over theory {shown}")

# %% [markdown]
# We also show single networks on the cycle, on the torus, and in chaos.

# %%
CYCLE, TORUS, CHAOS = 1.2, 1.255, 1.28


def follow(beta: float, power: int, tokens: int, samples: int) -> tuple[dmft.network.Fluctuations, np.ndarray]:
    """Predict fluctuations of networks from the attractor, and simulate the attentions of some."""
    finite, start = published_network(power), attractor(published, CONTEXT, settings(beta))
    drawn = dmft.network.run(finite, settings(beta), start, steps=tokens, samples=samples, key=jax.random.key(3))
    return dmft.network.fluctuations(finite, settings(beta), start, steps=tokens), np.asarray(drawn.attention)


on_cycle = {power: follow(CYCLE, power, TOKENS, 1500) for power in (4, 5, 6)}
on_torus = follow(TORUS, 5, TOKENS, 1500)
in_chaos = {power: follow(CHAOS, power, 140, 200) for power in (6, 10, 14)}
torus_start = attractor(published, CONTEXT, settings(TORUS))
torus = dmft.run(published_network(4).limit, settings(TORUS), torus_start, steps=8000).attention[::CONTEXT]

# %% [markdown]
# The top row shows networks as dots in the plane of two attentions, with the predicted ellipses of one and two standard
# deviations. The left panel shows the cycle after 400 tokens, and the middle panel the torus (black) after 40 and 400
# tokens. Nothing fixes the phase on a torus, so networks spread around it; the linear theory describes only the spread
# along the tangent. The top right panel shows the distance in chaos. It grows in spurts as $e^{\lambda_1 t}$ and
# saturates after $\log N / 2 \lambda_1$ tokens at the distance of two arbitrary points of the attractor. The bottom row
# shows the amplitude, and the ratio of simulation to theory with a band of 2 %; triangles are values beyond the axis.
# Near $\beta = 1.27$ the map is locked to a cycle, and noise kicks networks to other phases of the cycle, and a few to
# another attractor.

# %%
COLORS = dict(zip((4, 5, 6, 7, 10, 14), (*LIMITS, "black", "#7d3c98", "0.5"), strict=True))
ONSETS = {"cycle": 0.0, "torus": 1.2434, "chaos": 1.274}


def draw_ellipses(axes: plt.Axes, predicted: dmft.network.Fluctuations, token: int) -> None:
    """Draw one and two standard deviations of the first two attentions about the map."""
    angle = np.linspace(0, 2 * np.pi, 200)
    variances, directions = np.linalg.eigh(predicted.attention[token, :2, :2])
    outline = directions @ (np.sqrt(variances)[:, None] * np.stack([np.cos(angle), np.sin(angle)]))
    for deviations, width in ((1, 1.1), (2, 0.7)):
        axes.plot(*(predicted.mean[token, :2, None] + deviations * outline), color=THEORY, linewidth=width)


def draw_cycle(axes: plt.Axes) -> None:
    """Draw networks of three sizes at one token."""
    for power, (_, drawn) in on_cycle.items():
        label = rf"$N = 10^{power}$"
        axes.scatter(*drawn[:, -1, :2].T, s=2.5, color=COLORS[power], alpha=0.5, linewidths=0, label=label)
    for predicted, _ in on_cycle.values():
        draw_ellipses(axes, predicted, -1)
    axes.plot([], [], color=THEORY, linewidth=1, label=r"theory, 1$\sigma$, 2$\sigma$")
    axes.legend(loc="upper left", markerscale=3, handletextpad=0.1, borderpad=0, handlelength=1)
    axes.locator_params(nbins=5)
    axes.set(xlabel="attention $A_1$", ylabel="attention $A_2$")
    axes.set_title(rf"cycle, $\beta = {CYCLE}$, after {TOKENS} tokens")


def draw_torus(axes: plt.Axes) -> None:
    """Draw networks of one size at an early and at a late token."""
    predicted, drawn = on_torus
    for token, color in ((TOKENS, COLORS[5]), (40, "#7e5109")):
        axes.scatter(*drawn[:, token, :2].T, s=2.5, color=color, alpha=0.5, linewidths=0, label=f"after {token} tokens")
        draw_ellipses(axes, predicted, token)
    axes.scatter(*torus[:, :2].T, s=0.7, color="black", linewidths=0, zorder=3)
    axes.scatter([], [], s=2.5, color="black", label="the map")
    axes.legend(loc="upper left", markerscale=3, handletextpad=0.1, borderpad=0)
    axes.set(xlabel="attention $A_1$", ylabel="attention $A_2$", title=rf"torus, $\beta = {TORUS}$, $N = 10^5$")


def draw_chaos(axes: plt.Axes) -> None:
    """Draw the deviation over tokens for three sizes."""
    for power, (predicted, drawn) in in_chaos.items():
        deviation = np.sqrt(np.mean(predicted.attention_deviation**2, axis=1))
        squares = np.mean((drawn - predicted.mean) ** 2, axis=2).T
        tokens, label = np.arange(2, len(squares), 4), rf"$N = 10^{{{power}}}$"
        axes.semilogy(np.arange(1, len(squares)), deviation[1:], color=THEORY, linewidth=0.9)
        axes.plot(tokens, np.sqrt(np.mean(squares, axis=1))[tokens], ".", color=COLORS[power], label=label)
    axes.plot([], [], color=THEORY, linewidth=0.9, label="theory")
    axes.legend(loc="lower right", handletextpad=0.1, borderpad=0, handlelength=1)
    axes.set(xlabel="token", ylim=(1e-9, 30), ylabel="rms distance from the map", title=rf"chaos, $\beta = {CHAOS}$")


def mark_onsets(axes: plt.Axes) -> None:
    """Mark where the map passes from one regime to the next."""
    left, right = axes.get_xlim()
    for name, beta in ONSETS.items():
        if beta > left:
            axes.axvline(beta, color="0.75", linewidth=0.8, zorder=0)
        axes.text(max(beta, left) + 0.01 * (right - left), 1.0, name, transform=axes.get_xaxis_transform(), color="0.4")


def draw_amplitude(axes: plt.Axes) -> None:
    """Draw sqrt(N) times the distance against beta."""
    for power, (rms, error) in scanned.items():
        axes.errorbar(betas, rms, error, fmt=".", color=COLORS[power], markersize=4, label=rf"$N = 10^{power}$")
    axes.semilogy(betas, amplitude, color=THEORY, linewidth=1.2, label="theory")
    axes.set(xlabel=r"inverse temperature $\beta$", xlim=(1.095, 1.293), ylim=(0.6, 2e3))
    axes.set_ylabel(r"$\sqrt{N}$ times rms distance")
    axes.set_title(f"amplitude over {TOKENS} tokens", pad=14)
    axes.legend(loc="upper left", handletextpad=0.3)
    mark_onsets(axes)


def draw_ratio(axes: plt.Axes) -> None:
    """Draw simulation over theory near the first transition, where the theory begins to fail."""
    top = 2.0
    axes.axhspan(0.98, 1.02, color=THEORY, alpha=0.15, linewidth=0, label="within 2 %")
    axes.axhline(1, color=THEORY, linewidth=1.2)
    for power, (rms, error) in scanned.items():
        ratio = rms / amplitude
        inside = ratio < top
        axes.errorbar(betas[inside], ratio[inside], (error / amplitude)[inside], fmt=".", color=COLORS[power])
        above = betas[~inside] + 0.0007 * (power - 5.5)
        axes.plot(above, np.full(len(above), top), "^", color=COLORS[power], markersize=4, clip_on=False)
    axes.plot([], [], "^", color="0.4", markersize=4, label=f"above {top:g}, colours as in d")
    axes.legend(loc="lower left")
    axes.set(xlabel=r"inverse temperature $\beta$", xlim=(1.19, 1.293), ylim=(0, top), ylabel="simulation / theory")
    axes.set_title("ratio of the amplitudes", pad=14)
    mark_onsets(axes)


with use_style():
    figure = plt.figure(figsize=(9, 5.9))
    grid = figure.add_gridspec(2, 6)
    for place, draw in enumerate((draw_cycle, draw_torus, draw_chaos)):
        draw(figure.add_subplot(grid[0, 2 * place : 2 * place + 2]))
    for place, draw in enumerate((draw_amplitude, draw_ratio)):
        draw(figure.add_subplot(grid[1, 3 * place : 3 * place + 3]))
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# Theory and simulation agree within two percent at $\beta = 1.1$ for all $N$ of at least $10^4$. Near the transition to
# the torus, at $\beta = 1.2425$, the ratio is 0.72 at $N = 10^4$ and 0.98 at $10^6$: closer to the transition, the
# expansion needs larger networks.
