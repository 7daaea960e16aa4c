# %% [markdown]
# # When does linear attention learn in context?
#
# Learn how to use a published theory that is written as an action, and how to check it with networks of finite size.
#
# One layer of linear attention sees examples of a linear task in its context. We train it on $\tau d^2$ contexts, with
# tasks from a set of $\kappa d$. It may memorise these tasks, or learn to solve any task. The error on new tasks (ICL)
# and the error on training tasks (IDG) tell the difference. Both are derivatives of one action with respect to its
# sources ([Lu et al.](https://arxiv.org/abs/2405.11751)).

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

import theorykit
from theorykit.plots.style import save, use_style
from theorykit.theories import in_context

theorykit.enable_float64()
print("A =", in_context.action().expression.subs(dict.fromkeys(in_context.SOURCES, 0)))

# %% [markdown]
# We train networks of dimension 16 to 128 to compare. A context enters through $v \propto \sum_i y_i x_i$ alone. Given
# the task, we draw the parts of $v$ parallel and orthogonal to it from their exact distributions. Conjugate gradients
# then solve for the $d^2$ weights.


# %%
def contexts(tasks: np.ndarray, alpha: float, rho: float, rng: np.random.Generator) -> np.ndarray:
    """Draw the vector v of one context for each task."""
    count, d = tasks.shape
    length = round(alpha * d)
    norms = np.linalg.norm(tasks, axis=1, keepdims=True)
    signal, normal = rng.chisquare(length, (count, 1)) / d, rng.normal(size=(count, 1))
    noise = rho * (normal**2 + rng.chisquare(length - 1, (count, 1)))
    product = np.sqrt(rho * signal) * normal
    labels = np.sqrt(norms**2 * signal + 2 * norms * product + noise)
    along, across = tasks / norms, rng.normal(size=tasks.shape)
    across -= along * np.sum(along * across, axis=1, keepdims=True)
    return (along * (norms * signal + product) + labels * across / np.sqrt(d)) * d / length


def trained(d: int, alpha: float, tau: float, kappa: float, rho: float, ridge: float, seed: int) -> list[float]:
    """Train one network of dimension d, and return its errors on new tasks and on training tasks."""
    rng, count = np.random.default_rng(seed), round(tau * d**2)
    pool = rng.normal(size=(round(kappa * d), d))
    tasks, queries = pool[rng.integers(len(pool), size=count)], rng.normal(size=(count, d)) / np.sqrt(d)
    vectors = contexts(tasks, alpha, rho, rng)
    labels = np.sum(queries * tasks, axis=1) + np.sqrt(rho) * rng.normal(size=count)
    weights, residual = np.zeros((d, d)), (queries * labels[:, None]).T @ vectors
    step, squared = residual, np.sum(residual**2)
    tolerance = 1e-12 * squared
    while squared > tolerance:
        outputs = np.sum(queries @ step * vectors, axis=1, keepdims=True)
        applied = queries.T @ (outputs * vectors) + ridge * count / d * step
        size = squared / np.sum(step * applied)
        weights, residual, before = weights + size * step, residual - size * applied, squared
        squared = np.sum(residual**2)
        step = residual + squared / before * step
    tests = rng.normal(size=(2 * d**2, d)), pool[rng.integers(len(pool), size=2 * d**2)]
    return [rho + np.mean((contexts(each, alpha, rho, rng) @ weights.T - each) ** 2) for each in tests]


def extrapolated(**parameters: float) -> tuple[np.ndarray, np.ndarray]:
    """Fit a parabola in 1 / d to both errors, and return its value at infinite d with the standard error."""
    dimensions, networks = np.array([16, 32, 64, 128]), (120, 40, 10, 3)
    of_size = [
        np.array([trained(d, seed=seed, **parameters) for seed in range(count)])
        for d, count in zip(dimensions, networks, strict=True)
    ]
    means = np.array([each.mean(axis=0) for each in of_size])
    deviations = np.array([each.std(axis=0, ddof=1) for each in of_size])
    # Few of the largest networks are affordable. Fluctuations fall at least as 1 / d, so this is an upper bound.
    deviations[-1] = deviations[-2] / 2
    errors = deviations / np.sqrt(networks)[:, None]
    limits = []
    for mean, error in zip(means.T, errors.T, strict=True):
        design = np.stack([dimensions**-0.0, 1 / dimensions, 1.0 / dimensions**2], axis=1) / error[:, None]
        covariance = np.linalg.inv(design.T @ design)
        limits.append((covariance[0] @ design.T @ (mean / error), np.sqrt(covariance[0, 0])))
    return tuple(np.array(limits).T)


# %% [markdown]
# For the transition we use long contexts, little noise and more contexts than weights. For the peak we vary the number
# of contexts. We print how many standard errors the extrapolated networks are away from the theory.

# %%
long = {"alpha": 10.0, "tau": 1.5, "rho": 0.01, "ridge": 0.1}
short = {"alpha": 1.0, "kappa": 0.5, "rho": 0.1, "ridge": 0.1}
panels = [
    (long, "kappa", np.geomspace(0.1, 3, 60), (0.375, 1.25)),
    (short, "tau", np.linspace(0.1, 2.5, 60), (0.5, 1.5)),
]
networks = {}
for fixed, name, _, points in panels:
    for point in points:
        # More threads do not help, because the matrices are small.
        with threadpool_limits(1):
            found, error = networks[name, point] = extrapolated(**fixed, **{name: point})
        theory = in_context.errors(**fixed, **{name: point})
        off = [f"{each:+.1f}" for each in (found - np.array(theory[:2])) / error]
        print(f"{name} = {point}: ICL {off[0]}, IDG {off[1]} standard errors")

# %%
with use_style():
    figure, both = plt.subplots(1, 2, figsize=(7, 3.8), layout="constrained")
    for axes, letter, (fixed, name, grid, points) in zip(both, "ab", panels, strict=True):
        axes.set_title(f"{letter}  ", loc="left")
        theory = in_context.errors(**fixed, **{name: grid})
        for i, (label, marker) in enumerate((("new tasks (ICL)", "o"), ("training tasks (IDG)", "s"))):
            (line,) = axes.plot(grid, theory[i], label=f"{label}, theory")
            means, bars = np.array([[each[i] for each in networks[name, point]] for point in points]).T
            style = {"fmt": marker, "markersize": 3, "capsize": 4, "color": line.get_color()}
            axes.errorbar(points, means, 2 * bars, label=f"{label}, networks, two standard errors", **style)
    limit = in_context.errors(1e6, 1e6, panels[0][2], 0.0, 1e-12)
    both[0].plot(panels[0][2], limit.icl - limit.idg, ":", color="grey", label="ICL - IDG, long contexts without noise")
    both[0].set(xlabel=r"training tasks per dimension, $\kappa$", ylabel="mean-square error", xscale="log")
    both[1].axvline(1.0, color="grey", linestyle="--", label="as many contexts as weights")
    both[1].set(xlabel=r"training contexts per weight, $\tau$", ylabel="mean-square error")
    shown = {label: line for axes in both for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=2, fontsize=7)
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# Panel a: with few tasks the network memorises them, and the error on new tasks is large. In the limit of long contexts
# without noise, the difference of the errors vanishes at as many tasks as dimensions. Panel b: both errors peak near as
# many contexts as weights. Extrapolated networks are at most 1.7 standard errors away from the theory.
