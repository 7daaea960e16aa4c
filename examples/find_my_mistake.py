# %% [markdown]
# # Find my mistake
#
# Learn how to check your own layer against a few lines of NumPy.
#
# You define a layer by two formulas. If a formula has a wrong sign, factor or transpose, theorykit still derives,
# verifies and solves an action, but for a different layer. Usually you can write the intended layer in a few lines of
# NumPy. `check_layer` takes both and reports the differences.

# %%
import equinox as eqx
import numpy as np
from sympy import Identity, KroneckerProduct, sqrt

import theorykit
from theorykit import bpkr, testing

theorykit.enable_float64()

# %% [markdown]
# The layer is attention with a skip connection. The strength of the skip connection is given as a variance $g^2$. The
# definition has three mistakes.


# %%
class Residual(bpkr.AbstractLayer):
    """Attention with a skip connection, and three mistakes."""

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
# This is the intended layer, for one example. `weights` has one matrix per block, and `attention` has one matrix (keys,
# queries) per head.


# %%
def reference(weights, hidden, attention, parameters):
    mixed = sum(block @ hidden @ mixing for block, mixing in zip(weights, attention, strict=True))
    return parameters["g"] * hidden + mixed / np.sqrt(len(attention) * len(hidden))


report = testing.check_layer(Residual(0.7, heads=3), reference=reference)
print(report)

# %% [markdown]
# The check finds the power of $g$ in one term, and the sign and the missing $1/\sqrt N$ in the other. It finds the
# missing factor even without the reference, because such a network does not have a large-width limit. We correct the
# layer:


# %%
class Corrected(Residual):
    """The layer without the mistakes."""

    def forward(self, layer):
        return layer.number("g") * layer.hidden + bpkr.Attention(self.heads).forward(layer)


# %% [markdown]
# You can also write the prior a second time, as the covariance of the weight blocks. This function wrongly takes the
# variance for a standard deviation:


# %%
def prior(variance, parameters):
    return variance**2 * np.eye(3)


report = testing.check_layer(Corrected(0.7, heads=3), reference=reference, prior=prior)
print(report)

# %% [markdown]
# ## Conclusion
#
# One call found and named all three mistakes in the layer: a power of $g$, a sign and a missing factor. A second call
# found the wrong power of the variance. Run `check_layer` before you trust a new layer.
