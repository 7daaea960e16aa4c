"""check_action finds the mistakes that people make in actions, and names them; what is right comes out clean."""

import re

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from sympy import MatrixSymbol, Trace, cosh, log, sinh, sqrt, symbols

from theorykit import bpkr
from theorykit.derivation import Step, claims
from theorykit.saddle import Action, Between, Positive, PositiveDefinite, Real
from theorykit.symbolic import GaussianAverage, log_cosh, log_det, positive_definite
from theorykit.testing import check_action

from ..derivation.mistakes import planted
from ..marks import slow
from .layers import NAMES

m, h, z = symbols("m h z", real=True)
beta, q, N = symbols("beta q N", positive=True)
U, K = positive_definite("U", 3), positive_definite("K", 3)
x, A, b = MatrixSymbol("x", 3, 1), MatrixSymbol("A", 3, 3), MatrixSymbol("b", 3, 1)

SPIN = log(2 * cosh(beta * (m + h))) / beta
POINTS, WEIGHTS = hermegauss(100)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def curie_weiss(expression, domain=None):
    return Action(expression, {m: domain or Real()}, [beta, h])


def of_curie_weiss(m, beta, h):
    return m**2 / 2 - np.log(2 * np.cosh(beta * (m + h))) / beta


def wishart(expression):
    return Action(expression, {U: PositiveDefinite()}, [K])


def of_wishart(U, K):
    return np.trace(K @ U) - np.linalg.slogdet(U)[1]


def linear(expression):
    return Action(expression, {x: Real()}, [A, b])


def of_linear(x, A, b):
    return np.sum(x * x) / 2 - float((x.T @ A @ b)[0, 0])


def spin_glass(width, nodes=64):
    """The replica-symmetric free energy of the Sherrington-Kirkpatrick model, at fields of this standard deviation."""
    average = GaussianAverage(log_cosh(beta * width * z), z, nodes)
    return Action(-(beta**2) * (1 - q) ** 2 / 4 - average, {q: Between(0, 1)}, [beta])


def of_spin_glass(q, beta):
    return -(beta**2) * (1 - q) ** 2 / 4 - WEIGHTS @ np.log(np.cosh(beta * np.sqrt(q) * POINTS))


RIGHT = {
    "Curie-Weiss": (curie_weiss(m**2 / 2 - SPIN), {"reference": of_curie_weiss}),
    "Wishart": (wishart(Trace(K * U) - log_det(U)), {"reference": of_wishart}),
    "linear": (linear(Trace(x.T * x) / 2 - Trace(x.T * A * b)), {"reference": of_linear}),
    "spin glass": (spin_glass(sqrt(q)), {"reference": of_spin_glass}),
    "scaled": (Action(N * (q - log(q)), {q: Positive()}, [N], scale=N), {}),
}

# the action, what else the call is given, and what the report says
PLANTED = {
    "complex numbers": (
        curie_weiss(m**2 / 2 - SPIN),
        {"reference": lambda m, beta, h: of_curie_weiss(m, beta, h) + 0j},
        "it returns complex128",
    ),
    "sign of all": (curie_weiss(-(m**2) / 2 + SPIN), {"reference": of_curie_weiss}, "-1 times -m.*2/2, log"),
    "factor of a parameter": (curie_weiss(m**2 / 2 - beta * SPIN), {"reference": of_curie_weiss}, "1/beta times"),
    "extra term": (curie_weiss(m**2 / 2 + m**4 - SPIN), {"reference": of_curie_weiss}, "no m.*4"),
    "function": (curie_weiss(m**2 / 2 - log(2 * sinh(beta * m + h))), {}, "domain is too wide: m in Real"),
    "domain too wide": (Action(beta * m - log(m), {m: Real()}, [beta]), {}, "domain is too wide: m in Real"),
    "variance of an average": (spin_glass(q), {"reference": of_spin_glass}, r"sqrt\(q\) in place of q"),
    "factor in an average": (spin_glass(sqrt(2 * q)), {"reference": of_spin_glass}, "q/2 in place of q"),
    "a reference that fails": (
        curie_weiss(m**2 / 2 - SPIN),
        {"reference": lambda m, b: m},
        "unexpected keyword argument",
    ),
}


@pytest.mark.quick("Curie-Weiss")
@pytest.mark.parametrize("name", RIGHT)
def test_an_action_that_is_right_comes_out_clean(name):
    action, given = RIGHT[name]
    report = check_action(action, **given)
    assert report.holds, str(report)
    assert ": 0 of " in str(report)


@pytest.mark.parametrize("name", ["Curie-Weiss", "Wishart", "linear", *slow(["spin glass"])])
def test_mistakes_of_every_kind_are_found_and_named(name):
    """By comparison with the reference, or because the action is no number somewhere."""
    right, given = RIGHT[name]
    ignored = claims.EqualUpToConstant(tuple(right.order_parameters))
    found = list(planted(Step("the action", right.expression, right.expression, ignored)))
    assert len(found) >= 8
    for kind, step in found:
        action = Action(step.after, right.order_parameters, right.parameters)
        report = check_action(action, reference=given["reference"])
        # an average is no simple term
        words = "no factor" if (name, kind) == ("spin glass", "dropped") else NAMES[kind]
        assert any(re.search(words, finding.meaning) for finding in report.findings), (kind, action, report)


@pytest.mark.quick("sign of all", "domain too wide")
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found_and_named(name):
    action, given, words = PLANTED[name]
    report = check_action(action, **given)
    assert not report.holds
    texts = [f"{finding.measured} {finding.meaning}" for finding in report.findings]
    assert any(re.search(words, text) for text in texts), str(report)


@pytest.mark.slow
def test_the_action_of_the_theory_is_clean():
    architecture = bpkr.Architecture(layers=(2, 2), widths=10, temperature=0.1)
    rng = np.random.default_rng(0)
    values = bpkr.parameter_values(
        bpkr.Problem(architecture, bpkr.Data(rng.normal(size=(6, 4, 3)), rng.normal(size=6)))
    )
    report = check_action(bpkr.derive(architecture).of_free_order_parameters, values)
    assert report.holds, str(report)
