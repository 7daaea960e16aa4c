"""Curves and their events, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theorykit import curve


class Landau(curve.System):
    """m^3 - a m = h, with folds at h = -+2 (a / 3)^(3/2)."""

    a: jax.Array

    def residual(self, u):
        m, h = u
        return jnp.array([m**3 - self.a * m - h])


class Pitchfork(curve.System):
    """m^3 + b m^2 = r m, with a branch point at r = 0."""

    b: jax.Array

    def residual(self, u):
        m, r = u
        return jnp.array([m**3 + self.b * m**2 - r * m])


class Coupled(curve.System):
    """x^3 - x + b mean(x) = h for each x, with folds on the diagonal at h = -+2 ((1 - b) / 3)^(3/2)."""

    b: float

    def residual(self, u):
        x, h = u[:-1], u[-1]
        return x**3 - x + self.b * jnp.mean(x) - h


class Circle(curve.System):
    def residual(self, u):
        return jnp.array([u @ u - 1])

    def tests(self, u, tangent):
        return {**super().tests(u, tangent), "axis": u[0] - 0.6}


def events(found):
    at = found.isel(point=found["event"] != "")
    return list(zip(at["event"].values.tolist(), at["parameter"].values.round(10).tolist(), strict=True))


@pytest.fixture(scope="module")
def hysteresis():
    return curve.trace(Landau(jnp.array(1.0)), [1.2, 0.5], (-0.5, 0.6), direction=-1)


def test_both_folds_of_a_cubic_are_points_of_its_curve(hysteresis):
    fold = 2 / np.sqrt(27)
    assert events(hysteresis) == [("fold", round(-fold, 10)), ("fold", round(fold, 10))]
    m, h = hysteresis["unknowns"].values.T
    np.testing.assert_allclose(m**3 - m, h, atol=1e-12)
    assert hysteresis.attrs["ended"] == "parameter reached -0.5" and h[-1] == -0.5


@pytest.mark.parametrize("count", [3, 16])
def test_folds_of_many_unknowns(count):
    h = 1.2**3 - 0.9 * 1.2
    found = curve.trace(Coupled(0.1), np.append(np.full(count, 1.2), h), (-0.6, 0.7), direction=-1)
    folds = found.isel(point=found["event"] == "fold")
    np.testing.assert_allclose(folds["parameter"], [-2 * 0.3**1.5, 2 * 0.3**1.5])


def test_events_are_differentiable_under_grad_and_vmap(hysteresis):
    first = hysteresis.isel(point=hysteresis["event"] == "fold").isel(point=0)

    def fold(a):
        return curve.refine(Landau(a), first)["parameter"]

    a = jnp.array([0.9, 1.0, 1.1])
    np.testing.assert_allclose(jax.vmap(fold)(a), -2 * (a / 3) ** 1.5, rtol=1e-14)
    np.testing.assert_allclose(jax.vmap(jax.grad(fold))(a), -np.sqrt(a / 3), rtol=1e-14)
    np.testing.assert_allclose(jax.grad(jax.grad(fold))(1.0), -1 / np.sqrt(12), rtol=1e-13)
    assert np.isnan(fold(-1.0)) and np.isnan(jax.grad(fold)(-1.0))
    with pytest.raises(ValueError, match="one event"):
        curve.refine(Landau(1.0), hysteresis)
    with pytest.raises(ValueError, match=r"`curve\.refine` finds"):
        jax.grad(lambda a: curve.trace(Landau(a), [1.2, 0.5], (-0.5, 0.6))["parameter"][0])(1.0)


@pytest.mark.parametrize("b", (0.0, 0.3))
def test_crossings_are_found_from_both_branches(b):
    system = Pitchfork(jnp.array(b))
    trivial = curve.trace(system, [0.0, -0.5], (-0.6, 0.7))
    assert events(trivial) == [("branch point", 0.0)]
    other = curve.trace(system, [0.7, 0.49 + 0.7 * b], (-0.6, 0.8), direction=-1)
    expected = [("branch point", 0.0)] if b == 0 else [("branch point", 0.0), ("fold", round(-(b**2) / 4, 10))]
    assert events(other) == expected


def test_a_closed_curve_and_events_of_a_system():
    found = curve.trace(Circle(), [1, 0.0], (-2, 2), largest_step=0.2)
    assert found.attrs["ended"] == "the curve closes on its start"
    assert events(found) == [("axis", 0.8), ("fold", 1.0), ("fold", -1.0), ("axis", -0.8)]


@pytest.mark.parametrize("start", ([0, 1.0], [0.6, 0.8]))
def test_a_curve_that_starts_on_an_event_reports_it(start):
    found = curve.trace(Circle(), start, (-2, 2), largest_step=0.2)
    assert events(found)[0] == ("fold" if start[0] == 0 else "axis", start[1])
    assert len(events(found)) == 4


def test_a_start_without_solution_is_an_error():
    # All derivatives vanish at the centre.
    for start in ([0.5, 1.8], [0.0, 0.0]):
        with pytest.raises(ValueError, match="no solution is near the start"):
            curve.trace(Circle(), start, (-2, 2))
    with pytest.raises(ValueError, match="not within the bounds"):
        curve.trace(Circle(), [1.0, 0.0], (1, 2))
