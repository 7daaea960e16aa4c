# %% [markdown]
# # Cycles of self-attention, followed through their bifurcations
#
# Learn how to continue stable and unstable cycles in a parameter, and how to locate their bifurcations.
#
# A simulation shows only stable states. Newton's method finds cycles whether they are stable or not, continues them in
# a parameter, and locates their bifurcations. This shows how attractors form and disappear. We study a pitchfork that
# is known in closed form, the birth of the torus of the published network, and two coexisting attractors.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import theorykit
from theorykit import dmft, dynamics
from theorykit.plots.style import LIMITS, THEORY, letter_panels, save, use_style

theorykit.enable_float64()
CONTEXT = 4


def events(branch: xr.Dataset) -> xr.Dataset:
    """Return the points of a branch at which events happen."""
    return branch.isel(point=branch["event"] != "")


# %% [markdown]
# ## A pitchfork
#
# We take one pattern, no positions, and a value that agrees with the output in four of five neurons, so that their
# correlation is $c = 3/5$. At a fixed point all tokens are equal, so attention has no effect, and
# $A = c \tanh \beta A$. For $\beta > 1/c$ this equation has solutions other than $A = 0$.
#
# `stroboscope` returns the map as a function of one parameter. Without positions, one application advances one token.

# %%
correlation = 0.6
# Correlations of output, value, query and key with the output
network = dmft.SelfAttention.from_correlations({(0,): [[1], [correlation], [1], [1]]}, np.zeros((CONTEXT, 4, 1)))
token = dmft.stroboscope(network, dmft.Parameters(1.0, gamma=3.0, epsilon=0.0), tokens=1)
silent = dynamics.follow(token, dynamics.find_cycle(token, np.zeros(CONTEXT), 1.2, 1), (1.2, 2.4), largest_step=0.02)
loud = dynamics.cycle_near(token, np.full(CONTEXT, 0.5), 2.4, 1)
speaking = dynamics.follow(token, loud, (1.2, 2.4), direction=-1)
for name, branch in (("A = 0", silent), ("A = c tanh(beta A)", speaking)):
    event = events(branch).squeeze("point")
    print(f"{name:19} has a {event['event'].item()} at beta = {event['parameter']:.12f}; 1/c = {1 / correlation:.12f}")

# %% [markdown]
# ## From a cycle to a torus
#
# The published network is driven by the positions of its tokens, so its simplest state repeats with the period of the
# positions, four tokens. If the state is sampled once per period, it is a fixed point. We follow it from small $\beta$,
# at which the output is close to zero.

# %%
weights = dmft.Weights.published()
network = dmft.SelfAttention.from_weights(weights, CONTEXT)
parameters = dmft.Parameters(3.0, gamma=2.2 * 100 / np.sqrt(network.patterns), epsilon=0.02)
turn = dmft.stroboscope(network, parameters)  # a function of beta
nearly_silent = dynamics.find_cycle(turn, np.zeros(CONTEXT * network.patterns), 0.5, 1)
driven = dynamics.follow(turn, nearly_silent, (0.5, 1.29), largest_step=0.005)
onset = events(driven).squeeze("point")
print(f"the cycle has a {onset['event'].item()} bifurcation at beta = {onset['parameter']:.9f}")

# %% [markdown]
# ## Two attractors on one curve
#
# At $\beta = 1.27$ the final state depends on the start. Of many nearly equal starts, a few end on a different
# attractor from the others. Both attractors are cycles, one of seven and one of fourteen periods.

# %%
BETA, STARTS = 1.27, 32
start = network.start(parameters, weights.prompt(), "window")
settled = dynamics.advance(network, start, parameters, 20_000)  # at beta = 3
noise = 1e-3 * np.random.default_rng(0).normal(size=(STARTS, CONTEXT, network.patterns))
windows = np.reshape(settled.attention + noise, (STARTS, -1))
ends = [dynamics.cycle_near(turn, window, BETA, 32, transient=20_000) for window in windows]
cycles = {cycle.sizes["time"]: cycle for cycle in ends}
for periods, cycle in sorted(cycles.items()):
    exponent = np.log(cycle["multiplier_modulus"].values[0]) / (periods * CONTEXT)
    share = np.mean([end.sizes["time"] == periods for end in ends])
    error = np.sqrt(share * (1 - share) / STARTS)
    print(f"{share:.2f} +- {error:.2f} of starts: a cycle of {periods} periods, lambda_1 = {exponent:.4f}")

# %% [markdown]
# We follow the first cycle through its period doublings and past its folds. It is unstable most of the way, and reaches
# another period doubling. The second cycle, followed towards smaller $\beta$, ends at this period doubling. So the two
# attractors lie on one curve.

# %%
BOUNDS = 1.266, 1.275
branches = {}
for periods in (7, 14):
    branches[periods] = dynamics.follow(turn, cycles[periods], BOUNDS, direction=0, largest_step=3e-4)
    at = zip(events(branches[periods])["event"].values, events(branches[periods])["parameter"].values, strict=True)
    print(f"from the cycle of {periods} periods:", *(f"{kind} {value:.6f}," for kind, value in at))
birth = float(events(branches[14])["parameter"][0])
passed = events(branches[7])["parameter"].values
passed = passed[np.argmin(np.abs(passed - birth))]
print(f"the period doubling that both reach: {passed:.12f} and {birth:.12f}")

# %%
MARKERS = {"branch point": "o", "Neimark-Sacker": "D", "period doubling": "s", "fold": "X"}


def draw(axes, branch: xr.Dataset, heights: np.ndarray, color: str, label: str) -> None:
    """Plot heights of cycles over beta; markers are bifurcations."""
    beta = branch["parameter"].values
    axes.plot(beta, heights, "--", color="0.5", linewidth=0.8, label="unstable")
    axes.plot(beta, np.where(branch["stable"], heights, np.nan), color=color, linewidth=2, label=label)
    for kind, marker in MARKERS.items():
        at = branch["event"].values == kind
        look = {"color": "black", "markersize": 5, "markerfacecolor": "white", "linestyle": ""}
        axes.plot(beta[at], heights[at], marker=marker, label=kind, **look)


with use_style():
    figure, panels = plt.subplot_mosaic([["fork", "torus"], ["curve", "curve"]], figsize=(7, 6))
    fork, torus, curve = panels.values()
    draw(fork, silent, silent["points"].values[:, 0, 0], "black", "$A = 0$")
    draw(fork, speaking, speaking["points"].values[:, 0, 0], THEORY, r"$A \neq 0$")
    fork.set(ylabel="attention $A$", title="one pattern: a pitchfork")
    draw(torus, driven, driven["multiplier_modulus"].values[:, 0], LIMITS[2], "cycle of 4 tokens")
    torus.set(xlim=(1.1, 1.29), ylim=(0.8, 1.1), ylabel=r"multiplier $|\mu_1|$", title="a cycle becomes a torus")
    for (periods, branch), color in zip(branches.items(), (LIMITS[1], LIMITS[0]), strict=True):
        # The first pattern of all tokens of a cycle
        attention = branch["points"].isel(state=slice(None, None, network.patterns))
        height = np.sqrt((attention**2).mean(("time", "state"))).values
        draw(curve, branch, height, color, f"cycle of {periods} periods")
    curve.set(xlim=BOUNDS, ylabel="rms of $A_1$ over a cycle", title=rf"two attractors at $\beta = {BETA}$, one curve")
    labels = {}
    for axes in panels.values():
        axes.set_xlabel(r"inverse temperature $\beta$")
        labels |= {line.get_label(): line for line in axes.lines}
    figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=4)
    letter_panels(*panels.values())
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# Continuation locates bifurcations to all printed digits: the branch point at $\beta = 1/c = 1.666666666667$ and the
# birth of the torus at $\beta = 1.243444548$. At $\beta = 1.27$, shares of 0.88 ± 0.06 and 0.12 ± 0.06 of the
# starts reach different attractors. Both branches end at the same period doubling, $\beta = 1.269384750250$.
