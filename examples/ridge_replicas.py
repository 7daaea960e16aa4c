# %% [markdown]
# # Your own action: how well ridge regression generalises
#
# Learn how to solve a replica calculation from its action, without simplifying the action by hand.
#
# A student learns a random linear teacher from $P = \alpha N$ examples with noise of variance $\sigma^2$ and a ridge
# $\lambda$. The replica-symmetric action has six order parameters: the overlap $m$ with the teacher, the norm $q$, the
# variance $V$, and the conjugate of each. We write down the action without simplifying it, and find a stationary point
# that is a minimum in three directions and a maximum in three. Compare [Krogh and
# Hertz](https://doi.org/10.1088/0305-4470/25/5/020).

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sympy import symbols

import theorykit
from theorykit.plots.style import THEORY, save, use_style
from theorykit.saddle import Action, Positive, Real, follow, near, stationary

theorykit.enable_float64()

# %%
m, m_hat = symbols("m m_hat", real=True)
q, q_hat, V, V_hat, alpha, ridge, noise = symbols("q q_hat V V_hat alpha lambda_ sigma2", positive=True)
overlaps = m * m_hat - (q * V_hat - V * q_hat) / 2
of_prior = (m_hat**2 + q_hat) / (2 * (ridge + V_hat))
of_examples = alpha * (1 - 2 * m + q + noise) / (2 * (1 + V))
domains = {m: Real(), m_hat: Real(), **{symbol: Positive() for symbol in (q, q_hat, V, V_hat)}}
action = Action(overlaps - of_prior + of_examples, domains, [alpha, ridge, noise])
for symbol, equation in action.equations.items():
    print(symbol, ":", equation)

# %% [markdown]
# We find one solution, and follow the branch from there. The error on new examples has a peak at equal numbers of
# examples and weights, unless the ridge is strong.

# %%
values = {alpha: 1.5, noise: 0.25}
curves = {}
for strength in (0.001, 0.1):
    solution = stationary(action, {**values, ridge: strength}, index=3)
    for direction in (-1, 1):
        curves[strength, direction] = follow(
            action, {**values, ridge: strength}, solution, alpha, (0.3, 3), direction=direction
        )


def error(order_parameters):
    """Compute the mean square distance from the teacher, per weight."""
    return 1 - 2 * order_parameters["m"] + order_parameters["q"]


def trained(examples: int, strength: float, rng: np.random.Generator, weights: int = 300) -> float:
    """Train one student and compute its error."""
    inputs, teacher = rng.normal(size=(examples, weights)) / np.sqrt(weights), rng.normal(size=weights)
    labels = inputs @ teacher + np.sqrt(values[noise]) * rng.normal(size=examples)
    student = np.linalg.solve(inputs.T @ inputs + strength * np.eye(weights), inputs.T @ labels)
    return float(np.mean((student - teacher) ** 2))


# %%
with use_style():
    figure, axes = plt.subplots(figsize=(5, 3))
    rng, loads = np.random.default_rng(0), np.array([0.4, 0.7, 0.9, 1.1, 1.3, 1.7, 2.5])
    for strength, style in ((0.001, ":"), (0.1, "-")):
        for direction in (-1, 1):
            branch = curves[strength, direction]
            label = rf"replica theory, $\lambda = {strength}$" if direction == 1 else None
            axes.plot(branch["alpha"], error(branch), style, color=THEORY, label=label)
        students = np.array([[trained(round(300 * load), strength, rng) for _ in range(20)] for load in loads])
        means, errors = students.mean(axis=1), students.std(axis=1, ddof=1) / np.sqrt(20)
        face = {":": "white", "-": "black"}[style]
        look = {"fmt": "o", "markersize": 4, "color": "black", "markerfacecolor": face}
        axes.errorbar(loads, means, 2 * errors, label=rf"20 students, $\lambda = {strength}$", **look)
        points = [at for load in loads for at in near(curves[strength, 1 if load > 1.5 else -1], load)]
        off = (means - [error(at) for at in points]) / errors
        print(f"lambda = {strength}: students are {np.abs(off).max():.1f} standard errors off at most")
    axes.set(xlabel=r"examples per weight $\alpha$", ylabel="mean square error of the student", ylim=(0, 5))
    axes.legend(title="bars: two standard errors")
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# Simulated students agree with the theory: the largest difference is 1.1 standard errors at $\lambda = 0.001$ and 1.9
# at $\lambda = 0.1$. The peak of the error at one example per weight disappears with the stronger ridge. It was enough
# to solve for one stationary point: following it in both directions gave both curves.
