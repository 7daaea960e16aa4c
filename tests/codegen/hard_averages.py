"""Two hundred averages that fixed nodes get wrong, with true values: families of integrands at many parameters.

The true values were computed with mpmath: integrals to 30 digits, split at all places where the integrand changes fast,
with inner averages in closed form. Derivatives are differences of such integrals.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from sympy import sign

from theorykit.codegen import compile_expressions
from theorykit.symbolic import GaussianAverage, log_cosh
from theorykit.symbolic.averages import with_nodes

TRUTHS = json.loads((Path(__file__).parent.parent / "data" / "hard_averages.json").read_text())
"""Mean and derivative of every member, by family."""
z, w, m, b, h = sp.symbols("z w m b h", real=True)
SIDE = sp.Symbol("side", real=True)
Values = Mapping[str, float]


@dataclass(frozen=True)
class Family:
    """An integrand at many values of its parameters; derivatives are in the first parameter."""

    name: str
    integrand: sp.Expr
    values: tuple[Values, ...]

    @property
    def parameter(self) -> str:
        """The parameter of the derivatives."""
        return next(iter(self.values[0]))


def grid(**values: Sequence[float]) -> tuple[Values, ...]:
    """Combine values of several parameters; a single value is repeated for all."""
    number = max(map(len, values.values()))
    return tuple({name: given[i % len(given)] for name, given in values.items()} for i in range(number))


CENTRES = [0.0, 0.3, -1.1, 2.7, 0.70710678, -4.2, 1.5, 6.1]
STEEP = [10.0, 50.0, 300.0, 1e3, 1e4, 1e5, 1e6, 2e6]
RANDOM = tuple(
    dict(zip("mhb", map(float, point), strict=True)) for point in np.random.default_rng(0).normal(size=(13, 3)).round(3)
)
FAMILIES = (
    Family("kink", sp.Abs(z - m) * sp.tanh(z), grid(m=CENTRES)),
    Family("ramp", sp.Max(0, b * z + h) * sp.cos(z), grid(b=[0.7, -3.0, 1e-3, 20.0], h=[0.3, -1.0, 2.0])),
    Family("step", sign(z - m) * sp.exp(z / 2), grid(m=CENTRES)),
    Family("two steps", sign(z - m) * sp.Heaviside(z - h) * sp.cos(z), grid(m=CENTRES, h=[0.5, -0.9, 2.2])),
    Family("random steps", sign(z - m) * sign(z - h) * sign(z - b) * sp.tanh(2 * z + 1), RANDOM),
    Family("many kinks", sp.Abs(z - m) * sp.Abs(z + h) * sign(z - m * h), grid(m=CENTRES[1:], h=[0.4, -1.7])),
    Family("kink of a square", sp.Abs(z**2 - m), grid(m=[0.5, 2.0, 1e-3, 9.0, 4.1, 0.07, 20.0])),
    Family("kink of a kink", sp.Max(sp.Abs(z) - m, 0) * sp.exp(z), grid(m=[0.3, 1.0, 2.5, 0.01, 4.0])),
    Family("step of a curve", sign(sp.exp(z) - m) * z**2, grid(m=[0.2, 1.0, 2.0, 9.0, 50.0])),
    Family("largest of three", sp.Max(z, m, z**2 - 1), grid(m=[0.3, -0.5, 1.2, 3.0, -2.0])),
    Family("steep tanh", sp.tanh(b * (z - m)), grid(m=[*CENTRES[1:], 0.2], b=STEEP)),
    Family("steep tanh squared", sp.tanh(b * (z - m)) ** 2, grid(m=CENTRES, b=STEEP)),
    Family("steep erf", sp.erf(b * (z - m)) * (1 + z), grid(m=CENTRES, b=STEEP)),
    Family("steep and kink", sp.tanh(b * (z - m)) * sp.Abs(z - h), grid(m=CENTRES, b=STEEP, h=[0.6, -1.4, 0.1])),
    Family("steep in a square", sp.tanh(b * (z**2 - m)), grid(m=[0.5, 1.3, 2.0, 3.9], b=[10.0, 100.0, 1e3, 1e4])),
    Family("Fermi function", z / (1 + sp.exp(b * (z - m))), grid(m=CENTRES[1:], b=[15.0, 200.0, 3e3, 1e5])),
    Family("low temperature", log_cosh(b * (z + h)) / b, grid(h=CENTRES, b=[5.0, 30.0, 200.0, 1e3, 1e4, 1e5])),
    Family(
        "two spins",
        log_cosh(b * (z + h)) * sp.tanh(b * (z - h)) / b,
        grid(h=[0.2, -0.6, 1.9, 0.05], b=[20.0, 500.0, 1e4]),
    ),
    Family("oscillation", sp.cos(b * z + h), grid(h=[0.1, 1.0, 2.0], b=[3.0, 20.0, 60.0, 150.0, 300.0])),
    Family("oscillation and step", sp.sin(b * z) * sign(z - m), grid(m=CENTRES[1:6], b=[5.0, 25.0, 70.0])),
    Family("chirp", sp.sin(b * z**2 + h), grid(h=[0.0, 0.5], b=[0.5, 2.0, 6.0, 1.0, 3.0])),
    Family(
        "power",
        sp.Abs(z - m) ** h,
        grid(m=[0.0, 0.0, 0.0, 0.4, 0.4, -1.3, 0.0, 0.6], h=[0.5, -0.25, 0.3, 0.5, 1.5, 0.7, 2.5, 3.5]),
    ),
    Family("weak pole", sp.Abs(b * z) ** h, grid(b=[1.0, 3.0], h=[-0.5, -0.75, -0.3])),
    Family("logarithm", sp.log(sp.Abs(z - m)), grid(m=[0.0, 0.5, -1.2, 3.0, 0.01, 5.2])),
    Family("rational", 1 / (1 + (b * z - h) ** 2), grid(b=[3.0, 30.0, 1e3, 1e5], h=[0.0, 1.0, -2.0])),
    Family(
        "narrow bump", sp.exp(-(((z - m) / b) ** 2)) * (1 + sp.tanh(z)), grid(m=CENTRES[:6], b=[0.3, 0.03, 1e-3, 1e-4])
    ),
    Family("Laplace bump", sp.exp(-b * sp.Abs(z - m)), grid(m=CENTRES[:5], b=[5.0, 100.0, 1e4, 1e6])),
    Family("steep slope", b / sp.cosh(b * (z - m)) ** 2, grid(m=CENTRES[:5], b=[5.0, 15.0, 100.0])),
    Family("wide exponential", sp.exp(m * z**2) * sp.tanh(z) ** 2, grid(m=[0.1, 0.3, 0.45, 0.49, 0.499])),
    Family("tilted", sp.exp(b * z) * sp.tanh(z) ** 2, grid(b=[0.5, 2.0, 5.0, 12.0])),
    Family("heavy tails", sp.cosh(b * z) * sp.tanh(z + h) ** 2, grid(h=[0.3, -0.7], b=[1.0, 4.0, 9.0])),
    Family("high power", sp.Abs(z - m) ** 9 * sp.tanh(z) ** 2, grid(m=[0.2, 1.0, -3.0])),
    Family(
        "step in an average",
        GaussianAverage(sign(w + b * z + h), w) ** 2,
        grid(h=[0.2, -1.0, 0.0], b=[0.5, 3.0, 30.0, 1e3]),
    ),
    Family(
        "ramp in an average",
        log_cosh(b * GaussianAverage(sp.Max(z + h * w, 0), w)) / b,
        grid(b=[1.0, 20.0, 300.0], h=[0.5, 2.0, 0.1, 1.0]),
    ),
)


@dataclass(frozen=True)
class Trial:
    """An average by a rule: its value, true value and stated error, each with that of the derivative."""

    family: Family
    values: Values
    found: tuple[float, float]
    true: tuple[float, float]
    stated: tuple[float, float]


def trials(family: Family) -> dict[str, list[Trial]]:
    """A family by the default rule and by the adaptive one."""
    average = GaussianAverage(family.integrand, z)
    names = [sp.Symbol(name, real=True) for name in family.values[0]]
    bound = average.replace(GaussianAverage, lambda *args: GaussianAverage(*args[:2], "adaptive", SIDE))
    outputs = {"default": average, "adaptive": with_nodes(average, "adaptive"), "bound": bound}
    function = compile_expressions("average", outputs, [*names, SIDE])

    @jax.jit
    def slopes(parameters, side):
        def of(at):
            values = function(**{**parameters, family.parameter: at, "side": side})
            return values, values

        return jax.jacfwd(of, has_aux=True)(parameters[family.parameter])

    results: dict[str, list[Trial]] = {"default": [], "adaptive": []}
    for values, known in zip(family.values, TRUTHS[family.name], strict=True):
        parameters = {name: jnp.asarray(value) for name, value in values.items()}
        (slope, value), (_, lower) = (jax.tree.map(float, slopes(parameters, side)) for side in (1.0, -1.0))
        for rule, found in results.items():
            stated = max(abs(value[rule] - each["bound"]) for each in (value, lower)), abs(slope[rule] - slope["bound"])
            found.append(Trial(family, values, (value[rule], slope[rule]), tuple(map(float, known)), stated))
    return results
