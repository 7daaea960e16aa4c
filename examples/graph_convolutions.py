# %% [markdown]
# # Linear graph convolutions: heads are powers of a graph's adjacency
#
# Learn how to express a graph convolution as attention, and how to read from head scores how many hops the network
# uses.
#
# Tokens are the nodes of one graph. The heads of a layer mix them by $A^0, A^1, A^2, \dots$, powers of the normalised
# adjacency matrix. An attention path is then a number of hops in every layer, and `head_scores` shows how far the
# network looks. The readout takes the node to be classified. The network is linear, so the theory does not need an
# ansatz.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import theorykit
from theorykit import bpkr
from theorykit.plots.style import LIMITS, THEORY, save, use_style

theorykit.enable_float64()

# %% [markdown]
# ## Two communities
#
# The graph is a stochastic block model. The features of a node indicate its community, with noise. The larger the
# noise, the more information the neighbours add.

# %%
nodes, features, hops = 120, 10, 4
rng = np.random.default_rng(1)
community = np.repeat([1.0, -1.0], nodes // 2)
same = community[:, None] == community
links = np.triu(rng.uniform(size=(nodes, nodes)) < np.where(same, 0.12, 0.02), 1)
links = links + links.T + np.eye(nodes)
degree = links.sum(axis=0)
adjacency = links / np.sqrt(degree[:, None] * degree)
powers = np.stack([np.linalg.matrix_power(adjacency, hop) for hop in range(hops)])
direction = rng.normal(size=features) / np.sqrt(features)
known = rng.permutation(nodes)[:40]
asked = np.setdiff1d(np.arange(nodes), known)
noise = rng.normal(size=(nodes, features))


def learned(level: float) -> tuple[np.ndarray, float, float]:
    """Return head scores, and the error rates of the network and of one that ignores neighbours."""
    tokens = community[:, None] * direction + level * noise
    tokens = np.broadcast_to(tokens / tokens.std(), (nodes, nodes, features))
    scores, shares = None, []
    for heads in (hops, 1):
        arch = bpkr.Architecture((heads,), 20, temperature=0.1)
        data = bpkr.path_features(tokens, [powers[:heads]], arch, np.arange(nodes), layout="keys-first")
        saddle = bpkr.solve(arch, bpkr.Data(data[known], community[known]), throw=True)
        prediction = bpkr.predict(bpkr.Problem(arch, bpkr.Data(data[known], community[known])), saddle, data[asked])
        shares.append(1 - float(bpkr.sign_accuracy(prediction.mean, community[asked])))
        scores = np.asarray(bpkr.head_scores(arch, saddle)[0]) if heads == hops else scores
    return scores, *shares


# %%
levels = np.linspace(0.25, 3, 8)
scores, with_neighbours, alone = zip(*map(learned, levels), strict=True)
print(f"noise {levels[-1]}: {with_neighbours[-1]:.3f} wrong with neighbours, {alone[-1]:.3f} without")

# %%
with use_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.5, 2.4))
    for hop, color in enumerate((THEORY, *LIMITS)):
        left.plot(
            levels,
            [score[hop] for score in scores],
            "o-",
            color=color,
            label=f"{hop} hop{'s' * (hop != 1)}",
            markersize=3,
        )
    left.set(xlabel="noise of the features", ylabel="head score", title="how far it looks", ylim=(0, 1.05))
    left.legend(loc="center right", bbox_to_anchor=(1, 0.66))
    for errors, style, color, label in (
        (with_neighbours, "o-", THEORY, "network up to 3 hops"),
        (alone, "s:", LIMITS[0], "network of the node alone"),
    ):
        errors = np.array(errors)
        spreads = np.sqrt(errors * (1 - errors) / len(asked))
        right.errorbar(levels, errors, spreads, fmt=style, color=color, label=label)
    right.set(xlabel="noise of the features", ylabel="share of errors", title="nodes without label", ylim=(0, 0.85))
    right.legend(title="bars: standard errors")
    save(figure, Path(__file__).with_suffix(".png"))

# %% [markdown]
# ## Conclusion
#
# Neighbours help most if features are noisy. At noise 3, a network that looks up to three hops away misclassifies 0.112
# of the other nodes; a network that sees only the node itself misclassifies 0.475. Head scores show how far a network
# looks before you test it.
