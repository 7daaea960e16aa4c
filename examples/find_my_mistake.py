# %% [markdown]
# # Find my mistake
#
# You learn to check a layer of your own against a few lines of NumPy.
#
# A layer of one's own is two formulas, and a sign, a factor or a transpose in them gives an action that is derived,
# verified and solved, of another layer than the one that was meant. What was meant is usually there as a few lines of
# NumPy. `check_layer` takes both, and says by what they differ.

# %%
import equinox as eqx
import numpy as np
from sympy import Identity, KroneckerProduct, sqrt

import theorykit
from theorykit import bpkr, testing

theorykit.enable_float64()

# %% [markdown]
# The layer is attention with a skip connection, of a strength that is learned elsewhere, and given as a variance
# $g^2$. The statement has three mistakes.


# %%
class Residual(bpkr.AbstractLayer):
    """Attention beside a skip connection."""

    gain: float
    heads: int = eqx.field(static=True)

    def forward(self, layer):
        values = layer.weights(layer.heads) * KroneckerProduct(Identity(layer.heads), layer.hidden)
        return layer.number("g") ** 2 * layer.hidden - values * layer.attention / sqrt(layer.heads)

    def prior(self, layer):
        return layer.variance * Identity(layer.heads)

    def parameters(self, layer):
        return {layer.number("g"): self.gain}


# %% [markdown]
# What was meant, for one example: `weights` has one matrix a block, `attention` a matrix (keys, queries) a head.


# %%
def reference(weights, hidden, attention, parameters):
    mixed = sum(block @ hidden @ mixing for block, mixing in zip(weights, attention, strict=True))
    return parameters["g"] * hidden + mixed / np.sqrt(len(attention) * len(hidden))


report = testing.check_layer(Residual(0.7, heads=3), reference=reference, checks=["reference"])
print(report)

# %% [markdown]
# The power of $g$ in one term, the sign and the missing $1/\sqrt N$ in the other. The last was seen without the
# reference too: such a network has no limit of large width. Corrected:


# %%
class Corrected(Residual):
    """The same without the mistakes."""

    def forward(self, layer):
        return layer.number("g") * layer.hidden + bpkr.Attention(self.heads).forward(layer)


# %% [markdown]
# Weights may be drawn by code of one's own, as well. Here it draws with a standard deviation where the theory has a
# variance:


# %%
def draw_weights(rng, shape, variance, parameters):
    return variance * rng.normal(size=shape)


report = testing.check_layer(Corrected(0.7, heads=3), reference=reference, draw_weights=draw_weights)
for finding in report.findings:
    print(finding)

# %% [markdown]
# All else holds: the steps of the derivation, both routes, sampled networks, and the code that runs.

# %%
for passed in report.passed:
    print(passed.check)

# %% [markdown]
# ## Conclusion
#
# One call found both mistakes in the layer, a power of $g$ and a sign with a missing factor, and named each. A second
# one found that weights were drawn with a standard deviation for a variance, 94 standard errors off. Run `check_layer`
# before you trust a layer of your own.
