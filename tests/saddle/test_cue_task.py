"""The cue task: does attention learn where to look? Transitions against values of an independent program."""

import jax
import numpy as np
import pytest
from sympy import exp, log, sqrt, symbols

from theorykit.saddle import Action, Positive, Real, follow, minimise, near, phase_diagram, stationary, transition

w = symbols("w", real=True)
U, n, alpha, T, g2, eta, nu = symbols("U n alpha T g2 eta nu", positive=True)
OTHERS = {alpha: 1.0, T: 0.1, g2: 1.0}
PITCHFORK = 0.1**2 / (2 - 0.1)
"""The value of eta above which linear attention learns the cue, T^2 / (g2 (1 + alpha) - T)."""


def cue_task(attention, finite_width=False):
    """Return minus the log posterior of the score w of the cue, per example.

    One of n tokens is the cue, which carries the label. There are alpha examples per feature, and eta examples per
    score parameter, in units of the prior variance. At a width of nu per example, U is the renormalisation.
    """
    if attention == "softmax":
        weight, share = 1 / (1 + (n - 1) * exp(-w)), 1 / (1 + (n - 1) * exp(-2 * w))
    else:
        weight, share = w, 1
    kernel = weight**2 / share * (U if finite_width else 1)
    # Mean of 1 / (kernel x + T) over the Marchenko-Pastur law of x, without a division by the kernel.
    rest = T + (1 - alpha) * kernel
    resolvent = 2 / (rest + sqrt(rest**2 + 4 * alpha * T * kernel))
    factor = 1 + alpha * kernel * resolvent
    log_det = log(factor) / alpha - log(resolvent) + T * resolvent - 1
    misfit = g2 * resolvent * (share / factor + 1 - share)
    entropy = nu / 2 * (2 * sqrt(U) - log(U) - 2) if finite_width else 0
    orders = {w: Real(), **({U: Positive()} if finite_width else {})}
    parameters = [eta, *OTHERS, *([n] if attention == "softmax" else []), *([nu] if finite_width else [])]
    return Action(w**2 / (2 * eta) + (log_det + misfit) / 2 + entropy, orders, parameters)


SOFTMAX, LINEAR = cue_task("softmax"), cue_task("linear")
WIDE = {"softmax": cue_task("softmax", finite_width=True), "linear": cue_task("linear", finite_width=True)}


def test_the_action_is_the_limit_of_exact_evidences():
    values = {"alpha": 1.0, "T": 0.1, "g2": 1.0, "eta": 1e300}
    softmax = SOFTMAX(w=np.array([0.0, 1.0, 4.0]), n=64.0, **values)
    assert softmax == pytest.approx([3.30482190855351, 3.23814005765422, 0.513901799858672], rel=1e-12)
    linear = LINEAR(w=np.array([0.05, 0.2, 1.0]), **values)
    assert linear == pytest.approx([3.62551464864077, 1.92907609958154, 0.157462378301924], rel=1e-12)


# eta and both w at the transition, the barrier, and eta at which the lower minimum ends and the upper one appears
TABLE = {
    (16, 1, None): (1.3383411409, 0.3696010933, 1.4774974363, 0.0104513043, 1.4241096503, 1.2953195781),
    (64, 1, None): (2.5325149645, 0.0469413478, 3.2366689061, 0.2871406171, 9.0228236887, 1.8999766389),
    (64, 2, None): (2.0485419106, 0.0720352789, 3.0498691098, 0.2807017692, 5.6415759196, 1.5815214252),
    (64, 1, 10): (2.4101718662, 0.0506073694, 3.0925766759, 0.2716454849, 8.0612936884, 1.8118294547),
    (64, 1, 1): (2.2022891853, 0.0993012685, 2.5588768734, 0.1407201731, 4.4522033831, 1.8020835442),
}


@pytest.mark.slow
@pytest.mark.parametrize(("tokens", "ratio", "width"), TABLE)
def test_softmax_attention_has_a_first_order_transition(tokens, ratio, width):
    known = TABLE[tokens, ratio, width]
    action, values = SOFTMAX, {**OTHERS, eta: 0.99 * known[0], n: float(tokens), alpha: float(ratio)}
    beside = {}
    if width:
        action, values, beside = WIDE["softmax"], {**values, nu: float(width)}, {U: 1.0}
    low, high = (minimise(action, values, initial={w: start, **beside}) for start in (0.05, 2.5))
    found = transition(low, high, eta, (1, 10))
    assert found["kind"] == "first-order"
    branch = follow(action, values, low, eta, (1, 10))
    folds = branch["eta"].values[branch["event"] == "fold"]
    top = stationary(action, {**values, eta: found["eta"].item()}, index=1, initial=near(branch, found["eta"])[1])
    barrier = float(top.action - found["action"][0])
    assert [found["eta"].item(), *found["w"].values, barrier, *folds] == pytest.approx(known, rel=1e-8)


@pytest.mark.slow
def test_the_transition_is_differentiable():
    """The actions of both minima are equal, so d eta / d T is minus a ratio of derivatives of their difference."""

    def minima(temperature, control):
        values = {**OTHERS, n: 64.0, T: temperature, eta: control}
        return [minimise(SOFTMAX, values, initial={w: start}) for start in (0.05, 3.2)]

    def difference(*at):
        low, high = minima(*at)
        return high.action - low.action

    below, middle, above = (transition(*minima(at, 2.5), eta, (2, 3))["eta"].item() for at in (0.0999, 0.1, 0.1001))
    by_temperature, by_eta = jax.grad(difference, argnums=(0, 1))(0.1, middle)
    assert -by_temperature / by_eta == pytest.approx((above - below) / 2e-4, rel=1e-5)


@pytest.mark.slow
def test_linear_attention_has_a_continuous_transition():
    known = {1.02: 0.0196564834, 1.1: 0.0436499073, 1.5: 0.0946454458, 3.0: 0.1742610812, 10.0: 0.3054910939}

    def score(ratio):
        return float(minimise(LINEAR, {**OTHERS, eta: ratio * PITCHFORK}, initial={w: 0.05})[w])

    assert {ratio: score(ratio) for ratio in known} == pytest.approx(known, rel=1e-8)
    # w^2 = A^2 (1 - eta_c / eta) next to the transition. Two values remove the next order.
    amplitudes = [score(1 / (1 - share)) ** 2 / share for share in (1e-3, 5e-4)]
    assert np.sqrt(2 * amplitudes[1] - amplitudes[0]) == pytest.approx(0.1392399192, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("width", [20, 10, 7, 2])
def test_a_small_width_makes_the_transition_of_linear_attention_first_order(width):
    # eta and w at the transition and at the spinodal
    known = {
        7: (0.00526037010, 0.0278364191, 0.00525943290, 0.0227649069),
        2: (0.00364263794, 0.0814993543, 0.00316175952, 0.0653050938),
    }
    action, start = WIDE["linear"], known.get(width, (1.2 * PITCHFORK, 0.06))
    values = {**OTHERS, nu: float(width), eta: start[0]}
    learned = minimise(action, values, initial={w: start[1], U: {2: 3.7}.get(width, 1.05)})
    blind = stationary(action, values, index=0 if width in known else 1, initial={w: 0.0, U: 1.0})
    found = transition(learned, blind, eta, (0.5 * start[0], 1.2 * start[0]))
    if width not in known:
        assert found["kind"] == "continuous" and found["eta"].item() == pytest.approx(PITCHFORK, rel=1e-12)
        return
    branch = follow(action, values, learned, eta, (0.5 * start[0], 1.2 * start[0]), direction=-1)
    fold = branch.isel(point=branch["event"].values == "fold").isel(point=0)
    results = [found["eta"], found["w"][0], fold["eta"], fold["w"]]
    assert found["kind"] == "first-order" and np.array(results, float) == pytest.approx(known[width], rel=1e-8)


ENDS = {
    "critical point": (SOFTMAX, {eta: (1, 2), n: (8, 20)}, (1.16742056, 12.62405709)),
    "tricritical point": (WIDE["linear"], {eta: (0.004, 0.006), nu: (5, 10)}, (PITCHFORK, 361 / 49)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENDS)
def test_lines_of_first_order_transitions_end(kind):
    action, ranges, known = ENDS[kind]
    diagram = phase_diagram(action, ranges, OTHERS, scans=2, starts=8, progress=False)
    end = diagram.isel(point=diagram["kind"].values == kind)
    assert [end[symbol.name].item() for symbol in ranges] == pytest.approx(known, rel=1e-7)
