# %% [markdown]
# # Your own action: when a Hopfield network forgets
#
# Learn how to solve an action that you write yourself, and how to find where a phase ends.
#
# `theorykit.saddle` solves any action that you write down. Our action is the free energy of a Hopfield network that
# stores $\alpha N$ random patterns, in the replica-symmetric theory of [Amit, Gutfreund and Sompolinsky](
# https://doi.org/10.1103/PhysRevLett.55.1530). Its order parameters are the overlap $m$ with one pattern, the noise $r$
# of all others, and the susceptibility $C$. The network loses its memories at a first-order transition: the overlap
# does not shrink to zero, but the branch of retrieval solutions turns back at a fold.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sympy import log, sqrt, symbols

import theorykit
from theorykit.plots.style import LIMITS, THEORY, save, use_style
from theorykit.saddle import Action, Between, Positive, Real, follow, search
from theorykit.symbolic import gaussian_average, log_cosh

theorykit.enable_float64()

# %% [markdown]
# ## Without noise
#
# At temperature zero we need the average of $|m + \sqrt{\alpha r} z|$ over the noise $z$ of the other patterns, which
# is known in closed form. The saddle point is not a minimum: along one direction the free energy is maximal.

# %%
m, z = symbols("m z", real=True)
r, C, alpha, T = symbols("r C alpha T", positive=True)
domains = {m: Real(), r: Positive(), C: Between(0, 1)}
field = m + sqrt(alpha * r) * z
cold = Action(m**2 / 2 + alpha * r * C / 2 - alpha / (2 * (1 - C)) - gaussian_average(abs(field), z), domains, [alpha])
print(cold.latex())


def remembering(action: Action, values: dict, bounds: tuple[float, float]):
    """Follow the branch of retrieval solutions towards more patterns and around its fold."""
    found = [each for each in search(action, values, index=1, progress=False) if each[m] > 0.2]
    return follow(action, values, found[0], alpha, bounds, largest_step=0.05, progress=False)


branch = remembering(cold, {alpha: 0.05}, (0.04, 0.2))
(fold,) = branch.folds
print(f"alpha_c = {fold.parameter:.6f} at m = {fold.order_parameters['m']:.4f}")

# %% [markdown]
# ## With noise
#
# At temperature $T$ we average $T \log 2 \cosh$ by Gauss-Hermite quadrature. Each solution reports the error in its
# order parameters that comes from the finite number of nodes.

# %%
average = gaussian_average(T * log_cosh(field / T), z, nodes=200)
warm = Action(
    m**2 / 2 + alpha * r * C / 2 + alpha * T / 2 * (log(1 - C) - (1 / T - C) / (1 - C)) - T * log(2) - average,
    domains,
    [alpha, T],
)
temperatures, capacities = np.linspace(0.1, 0.9, 9), []
for temperature in temperatures:
    values = {alpha: 0.12 * (1 - temperature) ** 2, T: temperature}
    (turn, *_) = remembering(warm, values, (0.9 * values[alpha], 0.2)).folds
    capacities.append(float(turn.parameter))

# %%
with use_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.5, 2.5))
    stable = branch.index == 1
    for mask, line, label in ((stable, "-", "retrieval state"), (~stable, ":", "unstable")):
        left.plot(branch.parameters[mask], branch.order_parameters["m"][mask], line, color=THEORY, label=label)
    left.plot(
        fold.parameter, fold.order_parameters["m"], "o", color=LIMITS[0], label=r"fold, at the capacity $\alpha_c$"
    )
    left.set(xlabel=r"patterns per neuron $\alpha$", ylabel="overlap $m$", title="retrieval at temperature 0")
    left.legend()
    right.plot([float(fold.parameter), *capacities, 0], [0, *temperatures, 1], "o-", color=LIMITS[0])
    right.text(0.02, 0.15, "retrieval state exists")
    right.set(xlabel=r"patterns per neuron $\alpha$", ylabel="temperature $T$", title=r"capacity $\alpha_c(T)$")
    save(figure, Path(__file__).with_suffix(".png"))

# %% [markdown]
# ## Conclusion
#
# The retrieval branch turns back at $\alpha_c = 0.137906$ with an overlap of $m = 0.9674$: memory is lost abruptly, as
# published. To find such a transition in your own action, follow the branch and read its folds. You do not have to
# solve any equation by hand.
