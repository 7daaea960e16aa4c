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
print(f"the cycle has a {onset['event'].item()} bifurcation at beta = {onset['parameter']:.9f}")

# %% [markdown]
# On a cycle, the Lyapunov exponents of the orbit are the logarithms of its Floquet multipliers, per token. Beyond the
# bifurcation the cycle is unstable, and the orbit is on a torus, with an exponent of zero.

# %%
betas = np.concatenate([np.linspace(1.2, 1.243, 15), np.linspace(1.244, 1.2635, 40)])


def largest_exponent(at: dmft.Parameters) -> jax.Array:
    return dynamics.lyapunov_spectrum(network, settled(at, 60_000), at, steps=20_000, exponents=1).exponents[0]


exponents = np.asarray(jax.vmap(largest_exponent)(parameters(betas)))

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
branches = [
    (cycle, dynamics.follow(turn, cycle, bounds, direction=direction, largest_step=longest))
    for cycle in (seven, fourteen)
    for direction in (1, -1)
]
for cycle, branch in branches:
    at = zip(events(branch)["event"].values, events(branch)["parameter"].values, strict=True)
    print(f"from the cycle of {cycle.sizes['time']} periods:", *(f"{kind} {value:.6f}," for kind, value in at))
birth = float(events(branches[3][1])["parameter"][-1])
passed = events(branches[0][1])["parameter"].values
passed = passed[np.argmin(np.abs(passed - birth))]
print(f"the period doubling that both reach: {passed:.12f} and {birth:.12f}")

# %% [markdown]
# Solid lines are stable and dashed lines are unstable.

# %%
MARKERS = {"branch point": "o", "Neimark-Sacker": "D", "period doubling": "s", "fold": "x"}


def draw(axes, branch: xr.Dataset, heights, color: str) -> None:
    """Plot a height over the parameter, for every cycle of a branch, and mark the events."""
    axes.plot(branch.parameter, heights, "--", color=color, linewidth=0.7)
    axes.plot(branch.parameter, np.where(branch.stable, heights, np.nan), color=color, linewidth=2)
    for at in np.flatnonzero(branch["event"] != ""):
        look = {"color": "black", "markersize": 4.5, "markerfacecolor": "white"}
        axes.plot(branch.parameter[at], heights[at], MARKERS[branch["event"].item(at)], **look)


def size(branch: xr.Dataset) -> np.ndarray:
    """Compute the root mean square of A_1 over all tokens of cycles."""
    points = branch["points"].values
    attention = points.reshape(*points.shape[:-1], CONTEXT, network.patterns)[..., 0]
    return np.sqrt(np.mean(attention**2, axis=(-2, -1)))


with use_style():
    figure, (fork, torus, curve) = plt.subplots(1, 3, figsize=(9.6, 3.3), width_ratios=(1, 1, 1.4))
    for branch, color, label in ((silent, "0.4", "$A = 0$"), (speaking, THEORY, r"$A \neq 0$")):
        draw(fork, branch, branch["points"].values[:, 0, 0], color)
        fork.plot([], [], color=color, label=label)
    fork.plot([], [], "--", color="0.4", linewidth=0.7, label="unstable")
    fork.set(xlabel=r"inverse temperature $\beta$", ylabel="attention $A$", title="one pattern: a pitchfork")
    draw(torus, driven, np.log(driven["multiplier_modulus"].values[:, 0]) / CONTEXT, "0.4")
    torus.plot([], [], color="0.4", label=r"cycle, $\log|\mu_1|/4$")
    torus.plot(betas, exponents, ".", color=THEORY, markersize=4, label="orbits")
    torus.set(xlabel=r"inverse temperature $\beta$", ylabel=r"exponent $\lambda_1$", title="a cycle becomes a torus")
    torus.set(xlim=(1.2, 1.28), ylim=(-0.017, 0.016))
    for cycle, branch in branches:
        draw(curve, branch, size(branch), THEORY if cycle is seven else LIMITS[0])
    for cycle, color in ((seven, THEORY), (fourteen, LIMITS[0])):
        curve.plot(BETA, size(cycle), "o", color=color, label=f"attractor, {cycle.sizes['time']} periods")
    for name, marker in MARKERS.items():
        curve.plot([], [], marker, color="black", markerfacecolor="white", markersize=4.5, linestyle="", label=name)
    curve.set(xlim=bounds, xlabel=r"inverse temperature $\beta$", ylabel="rms of $A_1$ over a cycle")
    curve.set_title(rf"two attractors at $\beta = {BETA}$, one curve")
    for axes in (fork, torus, curve):
        axes.legend(loc="upper left", fontsize=7)
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# Continuation locates bifurcations to all printed digits: the branch point at $\beta = 1/c = 1.666666666667$ and the
# birth of the torus at $\beta = 1.243444548$. Two attractors coexist near $\beta = 1.27$, reached from about 0.8 and
# 0.2 of the starts. Both branches end at the same period doubling, $\beta = 1.269384750250$.
