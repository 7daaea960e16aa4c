"""Two hundred averages that fixed nodes get wrong, with true values: families of integrands at many parameters.

    python -m tests.codegen.hard_averages          shows stated and true errors of both rules, of families if named
    python -m tests.codegen.hard_averages truths   makes the true values again, with mpmath

True values are integrals of 30 digits between all places where the integrand changes fast; an average within an average
is in closed form there. Derivatives are differences of such integrals.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
from sympy import (
    Abs,
    Expr,
    Heaviside,
    Max,
    Symbol,
    cos,
    cosh,
    erf,
    exp,
    lambdify,
    log,
    pi,
    sign,
    sin,
    sqrt,
    symbols,
    tanh,
)  # fmt: skip

from theorykit import enable_float64
from theorykit.codegen import compile_expressions
from theorykit.symbolic import GaussianAverage, log_cosh, refined
from theorykit.symbolic.averages import bounded

TRUTHS = Path(__file__).parent.parent / "data" / "hard_averages.json"
z, w, m, b, h = symbols("z w m b h", real=True)
SIDE = Symbol("side", real=True)
Values = Mapping[str, float]
Places = Callable[[Values], Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Family:
    """An integrand at many values of its parameters; derivatives are taken by the first one.

    - `places`: where it changes fast, and over what distance
    - `closed`: the integrand of one variable, if an average stands in it
    """

    name: str
    integrand: Expr
    values: tuple[Values, ...]
    places: Places = lambda v: ()
    closed: Expr | None = None

    @property
    def parameter(self) -> str:
        """The one by which derivatives are taken."""
        return next(iter(self.values[0]))


def grid(**values: Sequence[float]) -> tuple[Values, ...]:
    """Values side by side; a single one is for all."""
    number = max(map(len, values.values()))
    return tuple({name: given[i % len(given)] for name, given in values.items()} for i in range(number))


def at_root(v: Values) -> Sequence[tuple[float, float]]:
    """The root of b (z - m)."""
    return [(v["m"], 1 / v.get("b", 1.0))]


def near_normal(z):
    """The distribution function of a standard normal number."""
    return (1 + erf(z / sqrt(2))) / 2


CENTRES = [0.0, 0.3, -1.1, 2.7, 0.70710678, -4.2, 1.5, 6.1]
STEEP = [10.0, 50.0, 300.0, 1e3, 1e4, 1e5, 1e6, 2e6]
inside = lambda root: lambda v: [(root(v), 1.0)]  # noqa: E731
RANDOM = tuple(
    dict(zip("mhb", map(float, point), strict=True)) for point in np.random.default_rng(0).normal(size=(13, 3)).round(3)
)
FAMILIES = (
    Family("kink", Abs(z - m) * tanh(z), grid(m=CENTRES), at_root),
    Family(
        "ramp",
        Max(0, b * z + h) * cos(z),
        grid(b=[0.7, -3.0, 1e-3, 20.0], h=[0.3, -1.0, 2.0]),
        inside(lambda v: -v["h"] / v["b"]),
    ),
    Family("step", sign(z - m) * exp(z / 2), grid(m=CENTRES), at_root),
    Family(
        "two steps",
        sign(z - m) * Heaviside(z - h) * cos(z),
        grid(m=CENTRES, h=[0.5, -0.9, 2.2]),
        lambda v: [(v["m"], 1.0), (v["h"], 1.0)],
    ),
    Family(
        "random steps",
        sign(z - m) * sign(z - h) * sign(z - b) * tanh(2 * z + 1),
        RANDOM,
        lambda v: [(v[name], 1.0) for name in "mhb"],
    ),
    Family(
        "many kinks",
        Abs(z - m) * Abs(z + h) * sign(z - m * h),
        grid(m=CENTRES[1:], h=[0.4, -1.7]),
        lambda v: [(v["m"], 1.0), (-v["h"], 1.0), (v["m"] * v["h"], 1.0)],
    ),
    Family(
        "kink of a square",
        Abs(z**2 - m),
        grid(m=[0.5, 2.0, 1e-3, 9.0, 4.1, 0.07, 20.0]),
        lambda v: [(s * v["m"] ** 0.5, 0.1) for s in (1, -1)],
    ),
    Family(
        "kink of a kink",
        Max(Abs(z) - m, 0) * exp(z),
        grid(m=[0.3, 1.0, 2.5, 0.01, 4.0]),
        lambda v: [(s * v["m"], 1.0) for s in (1, -1)],
    ),
    Family(
        "step of a curve",
        sign(exp(z) - m) * z**2,
        grid(m=[0.2, 1.0, 2.0, 9.0, 50.0]),
        lambda v: [(float(np.log(v["m"])), 1.0)],
    ),
    Family(
        "largest of three",
        Max(z, m, z**2 - 1),
        grid(m=[0.3, -0.5, 1.2, 3.0, -2.0]),
        lambda v: [
            ((1 + 5**0.5) / 2, 1.0),
            ((1 - 5**0.5) / 2, 1.0),
            (v["m"], 1.0),
            *((s * max(v["m"] + 1, 0) ** 0.5, 1.0) for s in (1, -1)),
        ],
    ),
    Family("steep tanh", tanh(b * (z - m)), grid(m=[*CENTRES[1:], 0.2], b=STEEP), at_root),
    Family("steep tanh squared", tanh(b * (z - m)) ** 2, grid(m=CENTRES, b=STEEP), at_root),
    Family("steep erf", erf(b * (z - m)) * (1 + z), grid(m=CENTRES, b=STEEP), at_root),
    Family(
        "steep and kink",
        tanh(b * (z - m)) * Abs(z - h),
        grid(m=CENTRES, b=STEEP, h=[0.6, -1.4, 0.1]),
        lambda v: [*at_root(v), (v["h"], 1.0)],
    ),
    Family(
        "steep in a square",
        tanh(b * (z**2 - m)),
        grid(m=[0.5, 1.3, 2.0, 3.9], b=[10.0, 100.0, 1e3, 1e4]),
        lambda v: [(s * v["m"] ** 0.5, 1 / v["b"]) for s in (1, -1)],
    ),
    Family("Fermi function", z / (1 + exp(b * (z - m))), grid(m=CENTRES[1:], b=[15.0, 200.0, 3e3, 1e5]), at_root),
    Family(
        "low temperature",
        log_cosh(b * (z + h)) / b,
        grid(h=CENTRES, b=[5.0, 30.0, 200.0, 1e3, 1e4, 1e5]),
        lambda v: [(-v["h"], 1 / v["b"])],
    ),
    Family(
        "two spins",
        log_cosh(b * (z + h)) * tanh(b * (z - h)) / b,
        grid(h=[0.2, -0.6, 1.9, 0.05], b=[20.0, 500.0, 1e4]),
        lambda v: [(s * v["h"], 1 / v["b"]) for s in (1, -1)],
    ),
    Family(
        "oscillation",
        cos(b * z + h),
        grid(h=[0.1, 1.0, 2.0], b=[3.0, 20.0, 60.0, 150.0, 300.0]),
        lambda v: [(0, 1.0)],
        exp(-(b**2) / 2) * cos(h),
    ),
    Family("oscillation and step", sin(b * z) * sign(z - m), grid(m=CENTRES[1:6], b=[5.0, 25.0, 70.0]), at_root),
    Family("chirp", sin(b * z**2 + h), grid(h=[0.0, 0.5], b=[0.5, 2.0, 6.0, 1.0, 3.0])),
    Family(
        "power",
        Abs(z - m) ** h,
        grid(m=[0.0, 0.0, 0.0, 0.4, 0.4, -1.3, 0.0, 0.6], h=[0.5, -0.25, 0.3, 0.5, 1.5, 0.7, 2.5, 3.5]),
        at_root,
    ),
    Family("weak pole", Abs(b * z) ** h, grid(b=[1.0, 3.0], h=[-0.5, -0.75, -0.3]), lambda v: [(0, 1.0)]),
    Family("logarithm", log(Abs(z - m)), grid(m=[0.0, 0.5, -1.2, 3.0, 0.01, 5.2]), at_root),
    Family(
        "rational",
        1 / (1 + (b * z - h) ** 2),
        grid(b=[3.0, 30.0, 1e3, 1e5], h=[0.0, 1.0, -2.0]),
        lambda v: [(v["h"] / v["b"], 1 / v["b"])],
    ),
    Family(
        "narrow bump",
        exp(-(((z - m) / b) ** 2)) * (1 + tanh(z)),
        grid(m=CENTRES[:6], b=[0.3, 0.03, 1e-3, 1e-4]),
        lambda v: [(v["m"], v["b"])],
    ),
    Family("Laplace bump", exp(-b * Abs(z - m)), grid(m=CENTRES[:5], b=[5.0, 100.0, 1e4, 1e6]), at_root),
    Family("steep slope", b / cosh(b * (z - m)) ** 2, grid(m=CENTRES[:5], b=[5.0, 15.0, 100.0]), at_root),
    Family(
        "wide exponential", exp(m * z**2) * tanh(z) ** 2, grid(m=[0.1, 0.3, 0.45, 0.49, 0.499]), lambda v: [(0, 1.0)]
    ),
    Family("tilted", exp(b * z) * tanh(z) ** 2, grid(b=[0.5, 2.0, 5.0, 12.0]), lambda v: [(v["b"], 1.0)]),
    Family(
        "heavy tails",
        cosh(b * z) * tanh(z + h) ** 2,
        grid(h=[0.3, -0.7], b=[1.0, 4.0, 9.0]),
        lambda v: [(v["b"], 1.0), (-v["b"], 1.0)],
    ),
    Family("high power", Abs(z - m) ** 9 * tanh(z) ** 2, grid(m=[0.2, 1.0, -3.0]), at_root),
    Family(
        "step in an average",
        GaussianAverage(sign(w + b * z + h), w) ** 2,
        grid(h=[0.2, -1.0, 0.0], b=[0.5, 3.0, 30.0, 1e3]),
        lambda v: [(-v["h"] / v["b"], 1 / v["b"])],
        erf((b * z + h) / sqrt(2)) ** 2,
    ),
    Family(
        "ramp in an average",
        log_cosh(b * GaussianAverage(Max(z + h * w, 0), w)) / b,
        grid(b=[1.0, 20.0, 300.0], h=[0.5, 2.0, 0.1, 1.0]),
        lambda v: [(0, 1.0)],
        log_cosh(b * (Abs(h) * exp(-(z**2) / (2 * h**2)) / sqrt(2 * pi) + z * near_normal(z / Abs(h)))) / b,
    ),
)


def cases() -> Iterator[tuple[Family, Values]]:
    """All averages, one by one."""
    return ((family, values) for family in FAMILIES for values in family.values)


def true_mean(family: Family, values: Mapping[str, mpmath.mpf]) -> mpmath.mpf:
    """The mean by mpmath."""
    if family.name == "oscillation":
        return lambdify([b, h], family.closed, "mpmath")(values["b"], values["h"])
    names = list(values)
    function = lambdify(
        [z, *(Symbol(name, real=True) for name in names)],
        family.closed or family.integrand,
        [{"LogCosh": log_cosh_of, "Heaviside": lambda x, _=0: mpmath.mpf(x > 0), "sign": mpmath.sign}, "mpmath"],
    )
    numbers = [values[name] for name in names]
    floats = {name: float(value) for name, value in values.items()}
    # where the density of a tilted average lies
    reach = 60 / mpmath.sqrt(1 - 2 * values["m"]) if family.name == "wide exponential" else mpmath.mpf(60)
    if family.name == "narrow bump":
        reach = abs(values["m"]) + 12 * values["b"]
    edges = {-reach, reach, *(mpmath.mpf(each) for each in np.arange(-8, 8.5) if abs(each) < reach)}
    for centre, scale in exact_places(family, values, floats):
        edges |= {centre}
        distance = mpmath.mpf(scale) / 2
        while distance < 8:
            edges |= {centre - distance, centre + distance}
            distance *= 2
    frequency = values["b"] if "oscillation" in family.name else 12 * values["b"] if family.name == "chirp" else 0
    if frequency:
        edges |= {mpmath.mpf(-12 + 24 * i / max(int(frequency * 6), 1)) for i in range(int(frequency * 6))}
    edges = sorted(each for each in edges if abs(each) <= reach)
    normal = mpmath.sqrt(2 * mpmath.pi)

    def weighted(x):
        value = function(x, *numbers)
        # a node that is rounded to a singularity
        return value * mpmath.exp(-(x**2) / 2) / normal if mpmath.isfinite(value) else mpmath.mpf(0)

    return mpmath.fsum(mpmath.quad(weighted, [left, right]) for left, right in pairwise(edges))


def exact_places(family, values, floats):
    """The places to all digits: those of floats, moved by what the parameter is off."""
    for i, (_, scale) in enumerate(family.places(floats)):
        try:
            exact = list(family.places(values))[i][0]
        except TypeError:
            exact = mpmath.log(values["m"])
        yield mpmath.mpf(exact), scale


def log_cosh_of(x):
    """log cosh x without overflow."""
    return abs(x) + mpmath.log1p(mpmath.exp(-2 * abs(x))) - mpmath.log(2)


def truth(family: Family, values: Values) -> tuple[str, str]:
    """The mean and its derivative, in digits."""
    with mpmath.workdps(34):
        exact = {name: mpmath.mpf(value) for name, value in values.items()}
        step = mpmath.mpf(10) ** -9 / max(1, *(1 / place[1] for place in family.places(values) or [(0, 1)]))
        ends = [
            true_mean(family, {**exact, family.parameter: exact[family.parameter] + sign * step}) for sign in (1, -1)
        ]
        return mpmath.nstr(true_mean(family, exact), 25), mpmath.nstr((ends[0] - ends[1]) / (2 * step), 14)


@dataclass(frozen=True)
class Trial:
    """An average by a rule: its value, true value and stated error, each with that of the derivative."""

    family: Family
    values: Values
    found: tuple[float, float]
    true: tuple[float, float]
    stated: tuple[float, float]

    @property
    def errors(self) -> tuple[float, float]:
        """True errors of the value and of the derivative."""
        return abs(self.found[0] - self.true[0]), abs(self.found[1] - self.true[1])


def trials(family: Family, truths: Mapping[str, Sequence]) -> dict[str, list[Trial]]:
    """A family by the default rule and by the adaptive one."""
    average = GaussianAverage(family.integrand, z)
    names = [Symbol(name, real=True) for name in family.values[0]]
    outputs = {"default": average, "adaptive": refined(average), "bound": bounded(average, SIDE)}
    function = compile_expressions("average", outputs, [*names, SIDE])

    @jax.jit
    def slopes(parameters, side):
        def of(at):
            values = function(**{**parameters, family.parameter: at, "side": side})
            return values, values

        return jax.jacfwd(of, has_aux=True)(parameters[family.parameter])

    results: dict[str, list[Trial]] = {"default": [], "adaptive": []}
    for values, known in zip(family.values, truths[family.name], strict=True):
        parameters = {name: jnp.asarray(value) for name, value in values.items()}
        (slope, value), (_, lower) = (jax.tree.map(float, slopes(parameters, side)) for side in (1.0, -1.0))
        for rule, found in results.items():
            stated = max(abs(value[rule] - each["bound"]) for each in (value, lower)), abs(slope[rule] - slope["bound"])
            found.append(Trial(family, values, (value[rule], slope[rule]), tuple(map(float, known)), stated))
    return results


def show() -> None:
    """Print a line per family, for both rules, and their sums."""
    truths = json.loads(TRUTHS.read_text())
    heads = f"{'covered':>9}{'< 1e-10':>9}{'worst true':>12}{'slopes':>8}"
    print(f"{'':27}{'default rule':>38}{'adaptive rule':>38}")
    print(f"{'family':20}{'number':>7}{heads}{heads}")
    sums = np.zeros(7, int)
    for family in (each for each in FAMILIES if each.name in sys.argv[1:] or not sys.argv[1:]):
        cells, counts = [], [len(family.values)]
        for rule, found in trials(family, truths).items():
            sizes = [max(abs(trial.true[0]), 1.0) for trial in found]
            covered = [is_covered(trial) for trial in found]
            small = [trial.stated[0] < 1e-10 * size for trial, size in zip(found, sizes, strict=True)]
            right = [is_right_slope(trial) for trial in found]
            worst = max(trial.errors[0] / size for trial, size in zip(found, sizes, strict=True))
            cells.append(f"{sum(covered):9d}{sum(small):9d}{worst:12.1e}{sum(right):8d}")
            counts += [sum(covered), sum(small), sum(right)]
            for trial in (t for i, t in enumerate(found) if not (covered[i] and right[i])):
                print("   ", rule, trial.values, trial.found, trial.true, trial.stated, file=sys.stderr)
        print(f"{family.name:20}{len(family.values):7d}" + "".join(cells), flush=True)
        sums += counts
    print(f"{'all':20}{sums[0]:7d}" + "".join(f"{sums[i]:9d}{sums[i + 1]:9d}{'':12}{sums[i + 2]:8d}" for i in (1, 4)))


def is_covered(trial: Trial) -> bool:
    """Whether the stated error covers the true one, up to a few roundings of integrands of about one."""
    return trial.stated[0] + 1e-15 * max(1.0, abs(trial.true[0])) >= trial.errors[0]


def is_right_slope(trial: Trial) -> bool:
    """Whether the derivative is right to its stated error, and to what differences of true values say."""
    rounding = 1e-14 + 1e-9 * max(abs(trial.true[1]), abs(trial.true[0]))
    return trial.errors[1] <= 2 * trial.stated[1] + rounding


if __name__ == "__main__":
    enable_float64()
    if sys.argv[1:] == ["truths"]:
        found = {family.name: [truth(family, values) for values in family.values] for family in FAMILIES}
        TRUTHS.write_text(json.dumps(found, indent=1) + "\n")
    else:
        show()
