"""Attention-indexed models: reference errors, thresholds, the steps of the derivation, and planted mistakes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sympy import Rational, S

from theorykit.derivation import Derivation
from theorykit.saddle import Action, ConvergenceWarning, follow, minimise
from theorykit.testing import check_action
from theorykit.theories import learned_attention
from theorykit.theories.spectral_laws import CubeOfDensity

ROWS = json.loads((Path(__file__).parents[1] / "data" / "learned_attention" / "softmax.json").read_text())


@pytest.mark.slow
def test_the_reference_errors():
    """Made by another quadrature: 600 Gauss-Legendre nodes in an angle."""
    assert len(ROWS) > 20
    for row in ROWS:
        assert learned_attention.mmse(row["alpha"], row["rho"], row["tokens"]) == pytest.approx(row["mmse"], abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(("rho", "tokens"), [(0.1, 3), (0.5, 2), (1.0, 5), (2.0, 2)])
def test_a_branch_ends_at_the_recovery_threshold(rho, tokens):
    exact = (2 * rho - rho**2 if rho < 1 else 1.0) / (tokens**2 + tokens - 2)
    assert learned_attention.recovery_threshold(rho, tokens) == pytest.approx(exact, rel=1e-14)
    start = learned_attention.solve(exact / 2, rho, tokens)
    values = {"alpha": exact / 2, "rho": rho, "L": tokens}
    branch = follow(learned_attention.action(), values, start, "alpha", (exact / 4, 2 * exact))
    assert branch["alpha"][-1] == pytest.approx(exact, abs=1e-6)
    assert branch["Delta"][-1] < 1e-6


def test_no_error_is_left_above_the_threshold():
    assert learned_attention.mmse(0.19, 0.5, 2) == 0.0
    assert 0 < learned_attention.mmse(0.1874, 0.5, 2) < 1e-3
    with pytest.warns(ConvergenceWarning, match="falls without bound"):
        minimise(learned_attention.action(), {"alpha": 0.3, "rho": 0.5, "L": 2})


def test_without_data_the_error_is_the_variance_of_the_prior():
    # the mean square of S is 1 + rho, and that of its mean is rho
    assert learned_attention.mmse(1e-7, 0.5, 2) == pytest.approx(1, rel=1e-5)


def test_the_action_passes_the_checks_of_any_action():
    whole = learned_attention.action()
    of_three_tokens = whole.expression.xreplace({learned_attention.L: S(3)})
    parameters = [learned_attention.alpha, learned_attention.rho]
    assert check_action(Action(of_three_tokens, whole.order_parameters, parameters), seed=1).holds


def steps():
    limit, entropy, elimination = learned_attention.action().derivation.steps
    return limit, entropy, elimination


def verified(*some):
    return Derivation(tuple(some), ({}, {})).verify().holds


def test_planted_mistakes_in_the_entropy_and_the_elimination_are_found():
    _, entropy, elimination = steps()
    assert verified(entropy, elimination)
    for wrong in (-entropy.after, 2 * entropy.after, entropy.after + Rational(1, 10)):
        assert not verified(replace(entropy, after=wrong))
    assert not verified(replace(elimination, after=elimination.after + 1))


def of_cube(limit):
    """The term with the integral of the cube of the density."""
    return limit.after - limit.after.subs({node: S.Zero for node in limit.after.atoms(CubeOfDensity)})


def test_the_limit_of_the_spherical_integral_and_planted_mistakes_in_it():
    limit, *_ = steps()
    assert verified(limit)
    # a sign, a factor of two, and a term that is left out
    for wrong in (limit.after - 2 * of_cube(limit), limit.after + of_cube(limit), limit.after - of_cube(limit)):
        assert not verified(replace(limit, after=wrong))


def posterior_overlaps(size, values, rng):
    """Draw S and noise, sample S from its posterior by Hamiltonian Monte Carlo, and return the overlaps with S."""
    draws, trajectories, steps, noise = 3072 // size, 120, 12, values["Delta"]
    rank = round(values["rho"] * size)
    square = lambda w: w @ w.swapaxes(1, 2) / np.sqrt(rank * size)  # noqa: E731
    w = rng.normal(size=(draws, size, rank))
    true, z = square(w), rng.normal(size=(draws, size, size))
    observed = true + np.sqrt(noise / (2 * size)) * (z + z.swapaxes(1, 2))

    def energy(w):
        return np.sum(w**2, (1, 2)) / 2 + size / (4 * noise) * np.sum((observed - square(w)) ** 2, (1, 2))

    def force(w):
        return size / (noise * np.sqrt(rank * size)) * (observed - square(w)) @ w - w

    found = []
    for i in range(trajectories):
        step = rng.uniform(0.5, 1.0) * 0.5 * min(1.0, np.sqrt(noise)) / np.sqrt(1 + 1 / np.sqrt(rank / size))
        moved, momentum = w, rng.normal(size=w.shape)
        before = energy(w) + np.sum(momentum**2, (1, 2)) / 2
        momentum = momentum + step / 2 * force(moved)
        for j in range(steps):
            moved = moved + step * momentum
            momentum = momentum + (step if j < steps - 1 else step / 2) * force(moved)
        rise = energy(moved) + np.sum(momentum**2, (1, 2)) / 2 - before
        w = np.where((np.log(rng.uniform(size=draws)) < -rise)[:, None, None], moved, w)
        if i >= trajectories // 3:
            found.append(np.sum(true * square(w), (1, 2)) / size)
    return np.mean(found, axis=0)


@pytest.mark.slow
def test_samples_of_the_posterior_have_the_same_overlap():
    limit, *_ = steps()
    assert verified(sampled := replace(limit, claim=replace(limit.claim, sample=posterior_overlaps)))
    assert not verified(replace(sampled, after=limit.after + of_cube(limit)))
