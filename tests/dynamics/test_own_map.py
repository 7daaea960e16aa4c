"""Your own map of two variables, studied in fifteen lines, against a program in NumPy."""

import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq

from theorykit import dynamics


def step(state, height):
    return np.array([1 - height * state[0] ** 2 + 0.3 * state[1], 0.9 * np.sin(state[0])])


def jacobian(x, height):
    return np.array([[-2 * height * x, 0.3], [0.9 * np.cos(x), 0.0]])


def orbit(height, steps):
    """The orbit after 1000 steps, and its exponents by QR after every step."""
    state, states, basis, total = np.array([0.1, 0.1]), [], np.eye(2), np.zeros(2)
    for number in range(1000 + steps):
        if number >= 1000:
            basis, triangle = np.linalg.qr(jacobian(state[0], height) @ basis)
            total += np.log(np.abs(np.diag(triangle)))
        state = step(state, height)
        states.append(state)
    return np.array(states[1000:]), total / steps


def fixed_point(height):
    return brentq(lambda x: 1 - height * x**2 + 0.27 * np.sin(x) - x, 0, 2, xtol=1e-15)


def test_your_own_map_in_fifteen_lines():
    def mine(state, height):
        x, y = state
        return jnp.array([1 - height * x**2 + 0.3 * y, 0.9 * jnp.sin(x)])

    heights, start = np.array([0.6, 1.4]), np.array([0.1, 0.1])
    found = dynamics.orbits(mine, heights, start, recorded=4000, exponents=2, progress=False)
    fixed = dynamics.find_cycle(mine, [0.8, 0.6], 0.4, period=1)
    branch = dynamics.follow(mine, fixed, (0.4, 0.9))
    doubling = branch.isel(point=branch["event"] == "period doubling").squeeze("point")
    doubled = dynamics.double_period(mine, doubling)
    settled = dynamics.cycle_near(mine, start, 0.6, max_period=8)

    regular, exponents = orbit(0.6, 4000)
    np.testing.assert_allclose(found["values"][0], regular, atol=1e-9)
    np.testing.assert_allclose(found["exponent"][0], exponents, atol=2e-3)
    np.testing.assert_allclose(found["exponent"][1], orbit(1.4, 4000)[1], atol=6 * found["exponent_error"][1, 0] + 2e-3)
    assert found["regime"].values.tolist() == ["periodic", "chaotic"]
    np.testing.assert_allclose(fixed["points"][0], [fixed_point(0.4), 0.9 * np.sin(fixed_point(0.4))], atol=1e-12)
    multipliers = np.linalg.eigvals(jacobian(fixed_point(0.4), 0.4))
    np.testing.assert_allclose(fixed["multiplier_modulus"], np.sort(np.abs(multipliers))[::-1], atol=1e-12)
    # A multiplier is -1 where the determinant of the Jacobian plus one vanishes.
    expected = brentq(lambda height: np.linalg.det(jacobian(fixed_point(height), height) + np.eye(2)), 0.4, 0.9)
    np.testing.assert_allclose(doubling["parameter"], expected, atol=1e-8)
    first, second = doubled["points"].values
    np.testing.assert_allclose(step(first, doubled["parameter"].item()), second, atol=1e-12)
    np.testing.assert_allclose(np.sort(settled["points"][:, 0]), np.sort(regular[-2:, 0]), atol=1e-9)
