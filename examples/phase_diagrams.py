# %% [markdown]
# # Phase diagrams of two ferromagnets
#
# Learn how to draw the phase diagram of an action that you write yourself.
#
# In the Curie-Weiss model, spins interact in pairs. In the second model, they interact in threes. The order parameter
# is the magnetisation $m$. The parameters are the field $h$ and the temperature $T$.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
from sympy import Rational, log, symbols

import theorykit
from theorykit.plots import draw_phase_diagram
from theorykit.plots.style import letter_panels, save, use_style
from theorykit.saddle import Action, Between, phase_diagram

theorykit.enable_float64()

m, h = symbols("m h", real=True)
T = symbols("T", positive=True)
up, down = (1 + m) / 2, (1 - m) / 2
entropy = -up * log(up) - down * log(down)
energies = {"pairs of spins": -Rational(1, 2) * m**2, "three spins": -(m**3)}
ranges = {"pairs of spins": {h: (-1, 1), T: (0.2, 1.5)}, "three spins": {h: (-2, 1), T: (0.2, 3)}}
diagrams = {
    name: phase_diagram(Action(energy - h * m - T * entropy, {m: Between(-1, 1)}, [h, T]), ranges[name])
    for name, energy in energies.items()
}
for name, diagram in diagrams.items():
    lines = diagram[["line", "kind", "h", "T"]].to_dataframe().groupby(["line", "kind"])
    print(name, lines[["h", "T"]].agg(["min", "max"]), sep="\n", end="\n\n")

# %%
with use_style():
    figure, panels = plt.subplots(1, 2, figsize=(7, 3))
    for axes, (name, diagram) in zip(panels, diagrams.items(), strict=True):
        draw_phase_diagram(diagram, axes)
        # One legend below serves both panels.
        axes.get_legend().remove()
        axes.set(xlabel="field $h$", ylabel="temperature $T$", title=name)
        axes.locator_params(axis="x", nbins=5)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    letter_panels(*panels)
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# Below the critical point, two phases coexist on the solid line. One of them is metastable up to a dashed line. With
# pairs of spins, the solid line is at $h = 0$ by symmetry and ends at $T = 1$. With three spins there is no symmetry,
# and it ends at $T = 4 / \sqrt{3}$.
