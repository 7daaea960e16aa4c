# %% [markdown]
# # How many sequences does it take to learn an attention matrix?
#
# Learn how to use a theory of learned queries and keys.
#
# The scores of a sequence of $L$ tokens in $D$ dimensions are $x_a^T S x_b$, with an attention matrix
# $S = W W^T / \sqrt{R D}$ of rank $R = \rho D$. For $\alpha D^2$ sequences we see the softmax of every row of
# scores, or only which token has the largest, the hardmax. From this we estimate $S$. Theory:
# [Boncoraglio et al.](https://arxiv.org/abs/2506.01582), for large $D$.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import theorykit
from theorykit.plots.style import save, use_style
from theorykit.saddle import follow
from theorykit.theories import learned_attention

theorykit.enable_float64()
RANKS, TOKENS = (0.1, 0.5, 1.0, 2.0), (2, 3, 5)
action = learned_attention.action()
for symbol, equation in action.equations.items():
    print(symbol, ":", equation)

# %% [markdown]
# Each curve is one branch of solutions. It ends where the error vanishes, the threshold of perfect recovery.

# %%
curves = {}
for rho in RANKS:
    threshold = learned_attention.recovery_threshold(rho)
    start = learned_attention.solve(threshold / 2, rho)
    values = {"alpha": threshold / 2, "rho": rho, "L": 2}
    halves = [
        follow(action, values, start, "alpha", (threshold / 200, 2 * threshold), direction=direction, progress=False)
        for direction in (-1, 1)
    ]
    alpha = np.concatenate([halves[0].parameters[::-1], halves[1].parameters])
    noise = np.concatenate([halves[0].order_parameters["Delta"][::-1], halves[1].order_parameters["Delta"]])
    curves[rho] = alpha, 4 * alpha * noise
    print(f"rho = {rho}: the branch ends at alpha = {alpha[-1]:.8f}, the threshold is {threshold:.8f}")

# %% [markdown]
# The hardmax of two tokens reveals less, and no number of sequences determines $S$.

# %%
loads = {0.1: np.geomspace(0.01, 1.5, 8), 1.0: np.geomspace(0.01, 7, 10)}
hard = {rho: [learned_attention.mmse(load, rho, output="hardmax") for load in loads[rho]] for rho in loads}

# %% [markdown]
# The threshold is $\alpha_c = (1 - \max(0, 1 - \rho)^2) / (L^2 + L - 2)$. Longer sequences have more scores.

# %%
with use_style():
    figure, (left, right, last) = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
    for rho, (alpha, error) in curves.items():
        left.plot(alpha, error / (1 + rho), label=rf"rank $\rho = {rho}$")
    left.set(xlabel=r"sequences per $D^2$, $\alpha$", ylabel="error / mean square of $S$", ylim=(0, 1), xlim=(0, 0.3))
    left.set_title("a  ", loc="left")
    ranks = np.linspace(0.01, 2, 200)
    for tokens, style in zip(TOKENS, ("-", "--", ":"), strict=True):
        thresholds = [learned_attention.recovery_threshold(rank, tokens) for rank in ranks]
        right.plot(ranks, thresholds, style, color="black", label=f"{tokens} tokens")
    ends = [alpha[-1] for alpha, _ in curves.values()]
    right.plot(RANKS, ends, "o", color="black", markersize=4, label="ends of the branches in a")
    right.set(xlabel=r"rank per dimension, $\rho$", ylabel=r"threshold $\alpha_c$", ylim=(0, 0.3))
    right.set_title("b  ", loc="left")
    for (rho, errors), marker in zip(hard.items(), "os", strict=True):
        (alpha, error), color = curves[rho], f"C{RANKS.index(rho)}"
        last.loglog(alpha, error / (1 + rho), color=color, label=rf"softmax, $\rho = {rho}$")
        last.loglog(loads[rho], np.array(errors) / (1 + rho), f"--{marker}", ms=3, color=color, label="hardmax")
    last.set(
        xlim=(1e-4, 10), xlabel=r"sequences per $D^2$, $\alpha$", ylabel="error / mean square of $S$", ylim=(1e-4, 1)
    )
    last.set_title("c  ", loc="left")
    for axes in (left, right, last):
        axes.legend(fontsize=7)
    save(figure, Path(__file__).with_suffix(".png"))

# %% [markdown]
# ## Conclusion
#
# Panel a: the error falls with the number of sequences, and vanishes at a threshold (two tokens). Panel b: up to full
# rank, more sequences are needed for a larger rank. From full rank on, the number does not depend on the rank. Five
# tokens need seven times fewer sequences than two. In practice, the number of sequences grows as the square of the
# dimension. Panel c: if only the largest scores are seen, the error falls as a power of the number of sequences.
