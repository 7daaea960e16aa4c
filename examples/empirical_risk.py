# %% [markdown]
# # Any convex loss: how ridge, logistic and hinge regression generalise
#
# Learn how to write a theory of empirical risk minimisation for your own loss, and how to find the capacity of the
# perceptron from the same expression.
#
# A student learns the labels of a random linear teacher from $n = \alpha d$ examples. It minimises the sum of a convex
# loss and a ridge $\lambda \lVert w \rVert^2 / 2$. In the limit of large $d$ the minimum is a stationary point of an
# action in three order parameters, see [Aubin et al.](https://arxiv.org/abs/2006.06560). The loss enters through its
# Moreau envelope.

# %%
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sympy import Max, Symbol, exp, log, symbols

import theorykit
from theorykit.plots.style import THEORY, save, use_style
from theorykit.saddle import Action, Positive, stationary
from theorykit.symbolic import gaussian_average, moreau
from theorykit.theories import empirical_risk

theorykit.enable_float64()

# %%
x, y = symbols("x y", real=True)
RIDGES, NOISE = {"ridge": 1e-3, "logistic": 0.1, "hinge": 0.1}, 0.25
LOSSES = {"ridge": (x - y) ** 2 / 2, "logistic": log(1 + exp(-x * y)), "hinge": Max(0, 1 - x * y)}
LABELS = {"ridge": "linear", "logistic": "sign", "hinge": "sign"}
actions = {name: empirical_risk.action(loss, x, y, labels=LABELS[name]) for name, loss in LOSSES.items()}
actions["hinge"]

# %% [markdown]
# We solve each action over the number of examples, and train students with $d = 1000$ weights.

# %%
loads = np.concatenate([np.linspace(0.3, 1.5, 25), np.linspace(1.6, 4.0, 13)])
trained_loads = np.array([0.5, 0.8, 1.2, 2.0, 3.5])


def error(name: str, load: float) -> float:
    student = empirical_risk.solve(actions[name], {"alpha": load, "lambda_": RIDGES[name], "sigma2": NOISE}, throw=True)
    return float(empirical_risk.generalisation_error(student, labels=LABELS[name]))


def trained(name: str, load: float, rng: np.random.Generator, d: int = 1000) -> float:
    """Train one student and compute its error."""
    inputs, teacher = rng.normal(size=(round(load * d), d)) / np.sqrt(d), rng.normal(size=d)
    teacher *= np.sqrt(d) / np.linalg.norm(teacher)
    fields = inputs @ teacher + np.sqrt(NOISE) * rng.normal(size=len(inputs))
    if name == "ridge":
        student = np.linalg.solve(inputs.T @ inputs + RIDGES[name] * np.eye(d), inputs.T @ fields)
        return float(np.mean((student - teacher) ** 2))
    options = {"C": 1 / RIDGES[name], "fit_intercept": False, "tol": 1e-6, "max_iter": 20_000}
    machine = LogisticRegression(**options) if name == "logistic" else LinearSVC(loss="hinge", **options)
    (student,) = machine.fit(inputs, np.sign(fields)).coef_
    return float(np.arccos(student @ teacher / np.linalg.norm(student) / np.sqrt(d)) / np.pi)


curves = {name: [error(name, load) for load in loads] for name in LOSSES}
rng = np.random.default_rng(0)
students = {name: np.array([[trained(name, load, rng) for _ in range(6)] for load in trained_loads]) for name in LOSSES}

# %%
with use_style():
    figure, panels = plt.subplots(1, 2, figsize=(7, 3))
    for name, style, marker in (("ridge", "-", "o"), ("logistic", "-", "s"), ("hinge", "--", "^")):
        axes = panels[int(name != "ridge")]
        axes.plot(loads, curves[name], style, color=THEORY, label=f"{name}, theory")
        means, errors = students[name].mean(axis=1), students[name].std(axis=1, ddof=1) / np.sqrt(6)
        axes.errorbar(
            trained_loads, means, 2 * errors, fmt=marker, color="black", ms=3.5, label=f"{name}, $d = 1000$, 2 s.e."
        )
        off = (means - [error(name, load) for load in trained_loads]) / errors
        print(f"{name}: students are {np.abs(off).max():.1f} standard errors off at most")
    panels[0].set(ylabel="mean square error of the student", yscale="log")
    panels[1].set(ylabel="probability of a wrong sign")
    for axes in panels:
        axes.set(xlabel=r"examples per weight $\alpha$")
        axes.legend()
    save(figure, Path(__file__).with_suffix(".png"))

# %% [markdown]
# ## The capacity of the perceptron
#
# How many random labels can a perceptron learn without an error? We keep the weights on the sphere, with a hinge loss
# without margin for each violated label. The variance $V$ of a field diverges at the capacity: all labels can then be
# learned in more than one way.

# %%
V, alpha, z = Symbol("V", positive=True), Symbol("alpha", positive=True), Symbol("z", real=True)
sphere = Action(alpha * gaussian_average(moreau(Max(0, -x), x, z, V), z) - 1 / (2 * V), {V: Positive()}, [alpha])
for load in (3.0, 2.1, 2 + 1e-3, 2 + 1e-6):
    found = stationary(sphere, {alpha: load}, index=1, initial={V: 3.0})
    print(f"alpha - 2 = {load - 2:.6f}: V = {float(found[V]):.4f}, converged: {bool(found.converged)}")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    below = stationary(sphere, {alpha: 2 - 1e-6}, index=1, initial={V: 3.0})
print(f"alpha - 2 = {-1e-6:.6f}: converged: {bool(below.converged)}")

# %% [markdown]
# ## Conclusion
#
# Students with 1000 weights agree with the theory: of 15 means, the largest difference is 2.4 standard errors. The
# squared error of a student with a weak ridge peaks at one example per weight. Classification with a ridge of 0.1 has
# no peak. The capacity is two: a solution exists $10^{-6}$ above two examples per weight and none $10^{-6}$ below,
# where all labels are learned.
