# %% [markdown]
# # The action of a new depth
#
# Learn how to derive, read and compile the action of an architecture that no paper covers.
#
# We write down an architecture, derive its action, print it, and print the function that will run. The LaTeX, the
# saddle-point equations and the generated JAX code all come from the same SymPy expression.

# %%
from theorykit import bpkr

architecture = bpkr.Architecture(layers=(3, 2, 2), widths=50, temperature=0.01)
action = bpkr.derive(architecture)

# %% [markdown]
# Three layers of attention make 3 x 2 x 2 = 12 paths from the input to the output. The order parameter of a layer holds
# the overlaps between the partial paths that start at this layer. The first one, $U_1$, weights all pairs of paths in
# the kernel.

# %%
for matrix, symbol in action.symbols.written.items():
    print(f"{symbol}: {matrix.shape[0]} x {matrix.shape[1]}")

# %% [markdown]
# The action is the sum of one entropy per layer, one for the readout, and the energy.

# %%
print(action.render_latex())

# %% [markdown]
# The saddle-point equations are the gradients of the action, computed with matrix differentials. The equation of the
# middle layer couples this layer to both neighbours:

# %%
middle = action.symbols.matrices[1]
print(f"dS/d{middle} =", action.saddle_point_equations[middle])

# %% [markdown]
# This is the code that runs. Log-determinants and solves share Cholesky factors, and partial traces are computed with
# reshapes. The Kronecker product of $U_1$ with the identity is never formed.

# %%
print(bpkr.generate_source(action))

# %% [markdown]
# ## Conclusion
#
# Three lines derive the action for a depth that no paper covers. The network has 12 paths and order parameters of sizes
# 12, 4, 2 and 1, and the action has one entropy per layer. The same call works for any number of layers and heads.
