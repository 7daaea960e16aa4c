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

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import theorykit
from theorykit import dmft, dynamics
from theorykit.plots.style import LIMITS, THEORY, save, use_style

theorykit.enable_float64()

CONTEXT = 4

# %% [markdown]
# ## A pitchfork
#
# We take one pattern, no positions, and a value that agrees with the output in four of five neurons, so that their
# correlation is $c = 3/5$. At a fixed point all tokens are equal, so attention has no effect, and
# $A = c \tanh \beta A$. For $\beta > 1/c$ this equation has solutions other than $A = 0$.

# %%
output = np.ones((1, 10))
value = np.where(np.arange(10) < 8, output, -output)
signs = np.stack([output, value, output, output])  # of the output, value, query and key
one_pattern = dmft.Weights(np.concatenate([signs, np.ones((4, 1, 2))], axis=-1), position_bits=2)
correlation = float(np.mean(output * value))

# %% [markdown]
# `stroboscope` returns the map as a function of one parameter. Without positions, one application advances one token.

# %%
token = dmft.stroboscope(
    dmft.SelfAttention.from_weights(one_pattern, CONTEXT), dmft.Parameters(1.0, gamma=3.0, epsilon=0.0), tokens=1
)
silent = dynamics.follow(token, dynamics.find_cycle(token, np.zeros(CONTEXT), 1.2, 1), (1.2, 2.4), largest_step=0.02)
loud = dynamics.cycle_near(token, np.full(CONTEXT, 0.5), 2.4, 1)
speaking = dynamics.follow(token, loud, (1.2, 2.4), direction=-1)


def events(branch: xr.Dataset) -> xr.Dataset:
    """Return the points of a branch at which events happen."""
    return branch.isel(point=branch["event"] != "")


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


def parameters(beta: float | jax.Array) -> dmft.Parameters:
    """Return the paper's parameters at an inverse temperature `beta` of the output."""
    return dmft.Parameters(beta, gamma=2.2 * 100 / np.sqrt(network.patterns), epsilon=0.02)


def settled(at: dmft.Parameters, tokens: int) -> dmft.State:
    """Return the state to which a run from the published prompt has settled."""
    return dynamics.advance(network, network.start(at, weights.prompt(), "window"), at, tokens)


turn = dmft.stroboscope(network, parameters(1.0))
nearly_silent = dynamics.cycle_near(turn, settled(parameters(0.5), 2000).attention.ravel(), 0.5, 1)
driven = dynamics.follow(turn, nearly_silent, (0.5, 1.29), largest_step=0.005)
onset = events(driven).squeeze("point")
kind, beta_onset, turn_onset = (
    onset["event"].item(),
    float(onset["parameter"]),
    float(onset["multiplier_angle"][0]) / (2 * np.pi),
)
print(f"the cycle of the positions has a {kind} bifurcation at beta = {beta_onset:.9f}, ", end="")
print(f"where a perturbation turns by {turn_onset:.6f} of a circle per period of the positions")

# %% [markdown]
# On a cycle, the Lyapunov exponents of the orbit are the logarithms of its multipliers, per token. Beyond the
# bifurcation the two differ: the cycle is unstable, and the orbit is on a torus, with an exponent of zero. At the
# bifurcation, the rotation angle on the torus is the angle of the multiplier. The angle increases with $\beta$, except
# on an interval on which the rotation locks to a quarter of a circle.

# %%
betas = np.concatenate([np.linspace(1.2, 1.243, 15), np.linspace(1.244, 1.2635, 40)])
on_torus = betas > beta_onset
TURNS = 4096


def orbit(at: dmft.Parameters) -> tuple[jax.Array, jax.Array]:
    """Compute the largest exponent of an orbit, and its attention once per period of the positions."""
    state = settled(at, 60_000)
    spectrum = dynamics.lyapunov_spectrum(network, state, at, steps=20_000, exponents=1)
    path = dmft.run(network, state, at, steps=TURNS * CONTEXT)
    return spectrum.exponents[0], path.attention[CONTEXT::CONTEXT]


exponents, once_a_turn = map(np.asarray, jax.vmap(orbit)(parameters(betas)))  # (orbits,), (orbits, turns, patterns)
centred = once_a_turn[..., 0] - once_a_turn[..., 0].mean(axis=1, keepdims=True)
spectrum = np.abs(np.fft.rfft(centred * np.hanning(TURNS)))
rotations = np.fft.rfftfreq(TURNS)[np.argmax(spectrum, axis=1)]

# %% [markdown]
# ## Two attractors on one curve
#
# At $\beta = 1.27$ the final state depends on the start. Of many nearly equal starts, about a fifth end on a different
# attractor from the others.

# %%
BETA, STARTS = 1.27, 32
noise = 1e-3 * np.random.default_rng(0).normal(size=(STARTS, CONTEXT, network.patterns))
windows = settled(parameters(3.0), 20_000).attention + noise
at_beta = parameters(BETA)


def end(window: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the window at the end of an orbit, and the largest attention of its first pattern."""
    state = dynamics.advance(network, network.resume(at_beta, window), at_beta, 40_000)
    path = dmft.run(network, state, at_beta, steps=4000)
    return state.attention, jnp.max(path.attention[:, 0])


ends, largest = jax.vmap(end)(windows)
# Orbits on one attractor have the same range.
_, typical, members = np.unique(np.round(largest, 2), return_index=True, return_counts=True)
attractors = []
for start, count in sorted(zip(typical, members, strict=True), key=lambda each: -each[1]):
    cycle = dynamics.cycle_near(turn, ends[start].ravel(), BETA, 32)
    exponent = np.log(cycle["multiplier_modulus"].values[0]) / (cycle.sizes["time"] * CONTEXT)
    share = count / STARTS
    error = np.sqrt(share * (1 - share) / STARTS)
    print(f"{share:.2f} +- {error:.2f} of starts: a cycle of {cycle.sizes['time']} periods, lambda_1 = {exponent:.4f}")
    attractors.append(cycle)

# %% [markdown]
# Both attractors are cycles, one of seven and one of fourteen periods. We follow the first cycle through its period
# doublings and past its folds. It is unstable most of the way, and reaches another period doubling. The second cycle,
# followed towards smaller $\beta$, ends at this period doubling. So the two attractors lie on one curve.

# %%
seven, fourteen = attractors
bounds, longest = (1.266, 1.275), 3e-4
branches = {
    "seven periods, from 1.27 up": dynamics.follow(turn, seven, bounds, largest_step=longest),
    "seven periods, down": dynamics.follow(turn, seven, bounds, direction=-1, largest_step=longest),
    "fourteen periods, up": dynamics.follow(turn, fourteen, bounds, largest_step=longest),
    "fourteen periods, down": dynamics.follow(turn, fourteen, bounds, direction=-1, largest_step=longest),
}
for name, branch in branches.items():
    kinds = zip(events(branch)["event"].values, events(branch)["parameter"].values, strict=True)
    print(f"{name}:", *(f"{kind} {value:.6f}," for kind, value in kinds), branch.ended)
birth = float(events(branches["fourteen periods, down"])["parameter"][-1])
passed = events(branches["seven periods, from 1.27 up"])["parameter"].values
passed = passed[np.argmin(np.abs(passed - birth))]
print(f"the period doubling that both reach: {passed:.12f} and {birth:.12f}")

# %% [markdown]
# Solid lines are stable and dashed lines are unstable.

# %%
MARKERS = {"branch point": "o", "Neimark-Sacker": "D", "period doubling": "s", "fold": "x"}


def draw_branch(axes: plt.Axes, branch: xr.Dataset, heights: np.ndarray, color: str) -> None:
    """Plot a height over the parameter, for every cycle of a branch."""
    axes.plot(branch.parameter, heights, "--", color=color, linewidth=0.7)
    axes.plot(branch.parameter, np.where(branch.stable, heights, np.nan), color=color, linewidth=2)


def mark(axes: plt.Axes, event: xr.Dataset, height: float) -> None:
    """Mark an event."""
    axes.plot(
        event["parameter"],
        height,
        MARKERS[event["event"].item()],
        color="black",
        markersize=4.5,
        markerfacecolor="white",
    )


def size(points: xr.DataArray | jax.Array) -> np.ndarray:
    """Compute the root mean square of A_1 over all tokens of cycles, (..., turns, state)."""
    attention = np.reshape(np.asarray(points), (*points.shape[:-1], CONTEXT, network.patterns))[..., 0]
    return np.sqrt(np.mean(attention**2, axis=(-2, -1)))


def draw_pitchfork(axes: plt.Axes) -> None:
    """Draw both branches for the single pattern."""
    for branch, color in ((silent, "0.4"), (speaking, THEORY)):
        draw_branch(axes, branch, branch.points[:, 0, 0], color)
    mark(axes, events(silent).squeeze("point"), 0.0)
    for style, color, label in (
        ("-", THEORY, r"stable, $A \neq 0$"),
        ("-", "0.4", "stable, $A = 0$"),
        ("--", "0.4", "unstable"),
    ):
        axes.plot([], [], style, color=color, label=label)
    axes.plot([], [], "o", color="black", markerfacecolor="white", markersize=4.5, label=r"branch point, $\beta = 1/c$")
    axes.legend(loc="upper left", fontsize=7)
    axes.set(xlabel=r"inverse temperature $\beta$", ylabel="attention $A$", title="one pattern: a pitchfork")
    axes.set_ylim(-0.6, 1.1)


def draw_exponents(axes: plt.Axes) -> None:
    """Draw exponents of the driven cycle, from its multipliers, and of orbits."""
    draw_branch(axes, driven, np.log(driven.multiplier_modulus[:, 0]) / CONTEXT, "0.4")
    axes.plot(betas, exponents, ".", color=THEORY, markersize=4, label="orbits")
    axes.plot([], [], color="0.4", linewidth=2, label=r"cycle, $\log|\mu_1|/4$, dashed unstable")
    mark(axes, onset, 0.0)
    axes.plot([], [], MARKERS[kind], color="black", markerfacecolor="white", linestyle="", label=kind)
    axes.set(
        xlim=(1.2, 1.28), ylim=(-0.017, 0.016), xlabel=r"inverse temperature $\beta$", ylabel=r"exponent $\lambda_1$"
    )
    axes.set_title("the orbit leaves the cycle")
    axes.legend(loc="upper left", fontsize=7)


def draw_rotation(axes: plt.Axes) -> None:
    """Draw the rotation speed of orbits on the torus against beta, starting at the bifurcation."""
    axes.axhline(0.25, color="0.7", linewidth=0.6)
    axes.text(betas[-1], 0.2503, "locked to 1/4", ha="right", color="0.4", fontsize=8)
    axes.plot(betas[on_torus], rotations[on_torus], ".", color=THEORY, markersize=4, label="peak of the spectrum")
    mark(axes, onset, turn_onset)
    axes.plot([], [], MARKERS[kind], color="black", markerfacecolor="white", label=r"angle of $\mu_1$", linestyle="")
    axes.set(xlabel=r"inverse temperature $\beta$", ylabel="rotations per period", title="rotation on the torus")
    axes.legend(loc="upper left")


def draw_tori(axes: plt.Axes) -> None:
    """Draw orbits once per period of the positions, at growing distance from the bifurcation."""
    for beta, color in zip((1.2445, 1.2485, 1.258), (LIMITS[2], LIMITS[1], THEORY), strict=True):
        orbit = np.argmin(np.abs(betas - beta))
        axes.scatter(*once_a_turn[orbit, :, :2].T, s=1, linewidths=0, color=color)
        axes.scatter([], [], s=14, color=color, label=rf"$\beta = {betas[orbit]:.4f}$")
    axes.set(xlabel="attention $A_1$", ylabel="attention $A_2$", title="the torus, once per period")
    axes.legend(loc="upper left", handletextpad=0.1)


def draw_curve(axes: plt.Axes) -> None:
    """Draw the curve through both attractors."""
    for name, branch in branches.items():
        draw_branch(axes, branch, size(branch.points), THEORY if name.startswith("seven") else LIMITS[0])
        for number in range(events(branch).sizes["point"]):
            event = events(branch).isel(point=number)
            mark(axes, event, size(event.points))
    for cycle, color in ((seven, THEORY), (fourteen, LIMITS[0])):
        axes.plot(BETA, size(cycle.points), "o", color=color, label=f"attractor of {cycle.sizes['time']} periods")
    for name, marker in MARKERS.items():
        if name != "branch point":
            axes.plot([], [], marker, color="black", markerfacecolor="white", markersize=4.5, linestyle="", label=name)
    axes.set(xlim=bounds, xlabel=r"inverse temperature $\beta$", ylabel="rms of $A_1$ over a cycle")
    axes.plot([], [], "--", color="0.4", label="unstable")
    axes.set_title(rf"two attractors at $\beta = {BETA}$, one curve")
    axes.legend(loc="upper left", ncols=2)


with use_style():
    figure = plt.figure(figsize=(8.8, 5.6))
    grid = figure.add_gridspec(2, 3)
    places = (grid[0, 0], grid[0, 1], grid[0, 2], grid[1, 0], grid[1, 1:])
    for place, draw in zip(places, (draw_pitchfork, draw_exponents, draw_rotation, draw_tori, draw_curve), strict=True):
        draw(figure.add_subplot(place))
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# Continuation locates bifurcations to all printed digits: the branch point at $\beta = 1/c = 1.666666666667$ and the
# birth of the torus at $\beta = 1.243444548$. Two attractors coexist near $\beta = 1.27$, reached from about 0.8 and
# 0.2 of the starts. Both branches end at the same period doubling, $\beta = 1.269384750250$.
