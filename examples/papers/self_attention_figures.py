"""Trajectories, orbit and phase diagrams of 1-bit self-attention, after Poc-Lopez and Aguilera, arXiv 2406.07247.

    python examples/papers/self_attention_figures.py --output demo

The published network has three patterns and a context of four tokens. Its map settles
at beta = 3; all orbits start from there. A stopped run resumes.
"""

import argparse
from pathlib import Path

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

import theorykit
from theorykit import dmft, dynamics
from theorykit.plots import draw_orbits
from theorykit.plots.style import LIMITS, THEORY, letter_panels, use_style

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--output", type=Path, default=Path("self-attention"))
parser.add_argument("--transient", type=int, default=100_000, help="tokens before")
parser.add_argument("--recorded", type=int, default=40_000, help="tokens of an orbit")
counts = {"default": [701, 4001, 61], "help": "of beta, in the zoom, of a phase axis"}
parser.add_argument("--values", type=int, nargs=3, **counts)
options = parser.parse_args()
theorykit.enable_float64()

CONTEXT, EPSILON, SCALE, SHOWN = 4, 0.02, 100.0, 120
BETAS = (1.255, 1.26451, 1.266, 1.27, 1.28, 1.4)
# lambda_1 by another program, over 75,000 tokens. At 1.26451 and 1.27 attractors
# coexist, and rounding selects one.
REFERENCE = (-1e-5, -0.005, 0.078, -0.048, 0.146, 0.074)
# The published rule counts levels: the most of periodic and quasi-periodic orbits
LEVELS, PERIODIC, QUASI_PERIODIC = np.linspace(-1, 1, 5001), 80, 625
COLORS = {
    "periodic": THEORY,
    "quasi-periodic": LIMITS[2],
    "quasi-periodic (double)": "#7dcea0",
    "chaotic": LIMITS[0],
    "hyperchaotic": LIMITS[1],
    "undecided": "#c4c4c4",
}
BY_REGIME = {"cmap": ListedColormap(COLORS.values()), "vmin": -0.5, "vmax": 5.5}
weights = dmft.Weights.published()
network = dmft.SelfAttention.from_weights(weights, CONTEXT)


def parameters(beta, attention=2.2) -> dmft.Parameters:
    """Return parameters at inverse temperatures of the output and of the attention."""
    return dmft.Parameters(beta, attention * SCALE / np.sqrt(network.patterns), EPSILON)


prompted = network.start(parameters(3.0), weights.prompt(), "window")
settled = dynamics.advance(network, prompted, parameters(3.0), options.transient)


# %% Compute orbits


def overlap(state, at):
    """Return the semantic overlaps of the output, and the first where the second is zero."""
    values = network.overlaps(at, state.attention[0])[dmft.OUTPUT]
    return jnp.append(values, jnp.where(jnp.abs(values[1]) <= 0.001, values[0], jnp.nan))


def orbits(name: str, at: dmft.Parameters, exponents: int, **asked) -> xr.Dataset:
    """Compute the orbits at these parameters from the common window."""
    window = settled.attention, settled.position
    return dynamics.orbits(
        network,
        at,
        lambda parameters: network.resume(parameters, *window),
        transient=options.transient,
        recorded=options.recorded,
        observe=overlap,
        exponents=exponents,
        folder=options.output / "partial" / name,
        **asked,
    )


whole, zoomed, side = options.values
betas, close = np.linspace(0, 3, whole), np.linspace(1.24, 1.28, zoomed)
axis = np.linspace(0, 3, side)
grid = np.meshgrid(axis, axis, indexing="ij")  # attention, output
results = {
    "trajectories": orbits("trajectories", parameters(np.array(BETAS)), CONTEXT * network.patterns),
    "diagram": orbits("diagram", parameters(betas), 3, levels=LEVELS),
    "zoom": orbits("zoom", parameters(close), 3, levels=LEVELS),
    "phases": orbits("phases", parameters(grid[1].ravel(), grid[0].ravel()), 2, levels=LEVELS),
}
for name in ("diagram", "zoom", "phases"):
    results[name]["visited"].encoding = {"zlib": True}  # bytes, nearly all of them zero
xr.DataTree.from_dict(results).to_netcdf(options.output / "self-attention.nc")
for orbit, (beta, reference) in enumerate(zip(BETAS, REFERENCE, strict=True)):
    found = results["trajectories"].isel(orbit=orbit)
    value, error = float(found["exponent"][0]), float(found["exponent_error"][0])
    measured = f"{value:8.5f} +- {error:.5f}, reference {reference:8.5f}"
    print(f"{beta:<8} lambda_1 = {measured}, {found['regime'].item()}")
for name in ("diagram", "zoom", "phases"):
    regimes, counts = np.unique(results[name]["regime"], return_counts=True)
    print(name, *(f"{each} {regime}" for each, regime in zip(counts, regimes, strict=True)))


# %% Draw trajectories

with use_style():
    shape = {"figsize": (7, 9.4), "width_ratios": (1.7, 2.1, 1.15)}
    figure, rows = plt.subplots(len(BETAS), 3, **shape)
    for orbit, (words, series, plane) in enumerate(rows):
        found = results["trajectories"].isel(orbit=orbit)
        regime, values = found["regime"].item(), found["values"].values
        lines = [rf"$\beta = {float(found['beta']):g}$", regime]
        exponents = zip(found["exponent"].values, found["exponent_error"].values, strict=True)
        for i, (value, error) in enumerate([*exponents][:2], 1):
            lines.append(rf"$\lambda_{i} = {value:.4f} \pm {error:.4f}$")
        words.axis("off")
        place = {"va": "top", "transform": words.transAxes, "in_layout": False}
        words.text(0, 1, "\n".join(lines), color=COLORS[regime], **place)
        for i, color in enumerate((THEORY, *LIMITS[:2])):
            label = f"$m^o_{i + 1}$"
            series.plot(values[:SHOWN, i], color=color, linewidth=0.8, label=label)
        # All tokens are pale, and tokens at one position are dark.
        kinds = ((1, "#c9d3e3", "every token"), (CONTEXT, THEORY, "once a context"))
        for each, color, label in kinds:
            points = values[::each][:8192, :2].T
            plane.scatter(*points, s=0.7, color=color, linewidths=0, label=label)
    rows[0, 1].set_title("overlaps")
    rows[0, 2].set_title("plane $m^o_1, m^o_2$")
    series.set_xlabel("token")
    plane.set_xlabel("$m^o_1$")
    drawn = [*rows[0, 1].lines, *rows[0, 2].collections]
    where = {"loc": "outside lower center", "ncols": len(drawn), "markerscale": 5}
    figure.legend(handles=drawn, **where)
    figure.savefig(options.output / "trajectories.png")

# %% Draw orbit diagrams


def regime_legend(figure: plt.Figure, names: np.ndarray) -> None:
    """Explain the colours of regimes below the figure."""
    handles = [Patch(color=color, label=name) for name, color in COLORS.items() if name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def draw_diagram(name: str) -> None:
    """Draw visited overlaps, their section, exponents and regimes over beta."""
    found = results[name]
    beta, regimes = found["beta"].values, found["regime"].values
    shape = {"figsize": (7, 7), "height_ratios": (2, 1.8, 1.6, 0.12)}
    figure, panels = plt.subplots(4, 1, sharex=True, **shape)
    top, middle, bottom, strip = panels
    visited = found["visited"]
    draw_orbits(found, top, over="beta")
    # Periodic orbits may not cross the section.
    first, section = visited.isel(component=[0]), visited.isel(component=[-1])
    section = section.where(found["regime"] != "periodic", first.values)
    shown = found[["regime"]].assign(visited=section)
    draw_orbits(shown, middle, over="beta")
    for axes in (top, middle):
        # Colours are of regimes.
        axes.lines[0].set_color("0.2")
    top.set(title="overlaps that orbits visit", xlabel="", ylabel="overlap $m^o_1$")
    title = "where $m^o_2$ is zero, and all of periodic orbits"
    middle.set(title=title, xlabel="", ylabel="overlap $m^o_1$")
    values, errors = found["exponent"].values, found["exponent_error"].values
    for i, color in ((2, "0.75"), (1, "0.5"), (0, "black")):
        known = np.isfinite(values[:, i])
        look = {"fmt": ".", "markersize": 1.6, "elinewidth": 0.4, "color": color}
        label = rf"$\lambda_{i + 1}$"
        bottom.errorbar(beta[known], values[known, i], errors[known, i], label=label, **look)
    finite = values[np.isfinite(values)]
    bottom.axhline(0, color="0.5", linewidth=0.6)
    limits = np.quantile(finite, 0.001), 1.1 * finite.max()
    bottom.set(title="Lyapunov exponents", ylim=limits, ylabel=r"$\lambda$ per token")
    bottom.legend(title="bars: standard errors", ncols=3, markerscale=5)
    letter_panels(top, middle, bottom)
    codes = [list(COLORS).index(each) for each in regimes]
    strip.pcolormesh(beta, [0, 1], [codes, codes], **BY_REGIME)
    strip.set(yticks=[], xlabel=r"inverse temperature of the output, $\beta$")
    regime_legend(figure, regimes)
    figure.savefig(options.output / f"{name}.png")


# %% Draw the phase diagram
with use_style():
    for name in ("diagram", "zoom"):
        draw_diagram(name)
    phases = results["phases"]
    levels = phases["visited"].isel(component=0).sum("level").values.reshape(side, side)
    limits = [levels <= PERIODIC, levels <= QUASI_PERIODIC]
    by_levels = np.select(limits, ["periodic", "quasi-periodic"], "chaotic")
    by_exponents = phases["regime"].values.reshape(side, side)
    plain = np.char.replace(np.char.replace(by_exponents, " (double)", ""), "hyper", "")
    differs = (plain != by_levels)[by_exponents != "undecided"].mean()
    figure, panels = plt.subplots(1, 2, figsize=(7, 3.6), sharex=True, sharey=True)
    gamma = axis * SCALE / np.sqrt(network.patterns)
    titles = ("by Lyapunov exponents", f"by levels visited, other at {differs:.0%}")
    for axes, regimes, title in zip(panels, (by_exponents, by_levels), titles, strict=True):
        codes = np.vectorize(list(COLORS).index)(regimes)
        axes.pcolormesh(axis, gamma, codes, shading="nearest", **BY_REGIME)
        axes.set(title=title, xlabel=r"inverse temperature of the output, $\beta$")
    panels[0].set_ylabel(r"inverse temperature of the attention, $\gamma$")
    letter_panels(*panels)
    regime_legend(figure, np.concatenate([by_exponents, by_levels]))
    figure.savefig(options.output / "phases.png")
