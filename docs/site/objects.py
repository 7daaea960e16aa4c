# %% [markdown]
# What results look like
#
# You can print any input or result. A prompt shows at most fifteen lines, and a notebook shows the displays below, in
# light or dark mode. `summary()` prints everything. `python docs/site/screens.py` runs the code on this page and takes
# the screenshots.
#
# ## Attention paths

# %%
import jax
import numpy as np

import theorykit
from theorykit import bpkr, dmft, dynamics, testing
from theorykit.bpkr import sampling, sweeps

theorykit.enable_float64()
architecture = bpkr.Architecture(layers=(2, 2), widths=10, temperature=0.1)
architecture

# %%
rng = np.random.default_rng(0)
features = rng.normal(size=(40, architecture.paths, 12)) / np.sqrt(12)
labels = np.sign(features[:, 0, 0] + 0.5 * features[:, 1, 1])
data = bpkr.Data(features[:30], labels[:30], features[30:], labels[30:])
data

# %%
problem = bpkr.Problem(architecture, data)
problem

# %%
bpkr.derive(architecture)

# %%
saddle = bpkr.solve(problem)
saddle

# %%
saddle.order_parameters

# %%
bpkr.predict(problem, saddle, data.test_features)

# %%
bpkr.fluctuations(problem, saddle)

# %%
sampling.sample_order_parameters(
    problem, key=jax.random.key(0), schedule=sampling.Schedule(chains=2, warmup=200, draws=200), progress=False
)

# %%
sweeps.sweep(problem, widths=[10, 100], temperatures=[0.1, 1.0], progress=False)

# %% [markdown]
# ## Your own action

# %%
from sympy import cosh, log, symbols

from theorykit import saddle as points

m, beta = symbols("m", real=True), symbols("beta", positive=True)
action = points.Action(m**2 / 2 - log(cosh(beta * m)) / beta, {m: points.Real()}, [beta])
action

# %%
solution = points.minimise(action, {beta: 1.5}, initial={m: 0.5})
solution

# %%
points.follow(action, {beta: 1.5}, solution, beta, (1.01, 3))

# %%
testing.check_action(action, reference=lambda m, beta: m**2 / 2 - np.log(np.cosh(beta * m)))

# %% [markdown]
# ## Self-attention dynamics

# %%
weights = dmft.published_weights()
weights

# %%
model = dmft.self_attention_limit(weights, context=4)
parameters = dmft.Parameters(beta=1.28, gamma=127.0, epsilon=0.02)
start = dmft.token_start(model, parameters, dmft.pattern_prompt(weights))
trajectory = dmft.run(model, parameters, start, steps=2000)
trajectory

# %%
dmft.lyapunov_spectrum(model, parameters, trajectory.window(model), steps=4000)


# %%
def henon(state, parameter):
    return jax.numpy.array([1 - parameter * state[0] ** 2 + state[1], 0.3 * state[0]])


branch = dynamics.follow(henon, dynamics.find_cycle(henon, [0.5, 0.1], 0.2, 1), (0.0, 1.0))
branch

# %%
branch.events[0]

# %%
dmft.derive()

# %% [markdown]
# Next: follow the [quickstart](quickstart.md) to compute the first of these results.
