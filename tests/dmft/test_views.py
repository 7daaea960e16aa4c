"""Objects of the dynamics show themselves: at most fifteen lines, HTML, and numbers that are their own."""

import jax
import numpy as np
import pytest

import theorykit
from theorykit import dmft, dynamics
from theorykit.dmft.weights import column_law

WEIGHTS = dmft.published_weights(neurons=9)


def henon(state, parameter):
    return jax.numpy.array([1 - parameter * state[0] ** 2 + state[1], 0.3 * state[0]])


@pytest.fixture(scope="module")
def objects():
    """By a text that its representation has, one object of each class."""
    model = dmft.self_attention_limit(WEIGHTS, 4)
    parameters = dmft.Parameters(1.3, 127.0, 0.02)
    batch = dmft.Parameters(np.array([0.5, 1.5]), 127.0, 0.02)
    start = dmft.token_start(model, parameters, dmft.pattern_prompt(WEIGHTS))
    trajectory = dmft.run(model, parameters, start, steps=40)
    window = trajectory.window(model)
    spectrum = dmft.lyapunov_spectrum(model, parameters, window, steps=40)
    network = dmft.network.class_sum_network(WEIGHTS, 4, repeats=10)
    cycle = dynamics.find_cycle(henon, [0.5, 0.1], 0.2, 1)
    branch = dynamics.follow(henon, cycle, (0.0, 0.5))
    return {
        "neurons, N                  9\n": WEIGHTS,
        "classes of output weights": column_law(WEIGHTS),
        "gamma    127 ": parameters,
        "beta     0.5, 1.5 ": batch,
        "1 of 4 tokens remembered": start,
        "Trajectory of 40 tokens.": trajectory,
        "Window of the 4 most recent attentions.": window,
        f"{float(spectrum.exponents[0]):.4g}": spectrum,
        "3 Lyapunov exponents per token of 2 orbits": dmft.lyapunov_spectrum(
            model, batch, window, steps=40, exponents=3
        ),
        "over 4 tokens, a function of beta": dmft.Stroboscope(model, parameters),
        "tokens in the context ": model,
        "Network of 90 neurons": network,
        "2 sampled networks over 5 tokens": dmft.network.run(
            network, parameters, start, steps=5, samples=2, key=jax.random.key(0)
        ),
        "root mean square deviation": dmft.network.fluctuations(network, parameters, start, steps=5),
        "Stable cycle of period 1 at parameter 0.2.": cycle,
        "period doubling  0.3675": theorykit.summary(branch),
        "Derivation in 42 steps": dmft.derive(),
    }


@pytest.mark.slow
def test_objects_show_themselves(objects):
    for text, shown in objects.items():
        assert text in repr(shown), (text, repr(shown))
        assert len(repr(shown).splitlines()) <= 15
        assert shown._repr_markdown_().endswith("\n")


def test_a_tree_without_values_has_the_usual_representation():
    """As under `jit`, and in errors of JAX about trees."""
    model = dmft.self_attention_limit(WEIGHTS, 4)
    parameters = dmft.Parameters(1.3, 127.0, 0.02)

    def dynamics_of(parameters):
        start = dmft.token_start(model, parameters, dmft.pattern_prompt(WEIGHTS))
        trajectory = dmft.run(model, parameters, start, steps=4)
        window = trajectory.window(model)
        spectrum = dmft.lyapunov_spectrum(model, parameters, window, steps=40)
        network = dmft.network.class_sum_network(WEIGHTS, 4, repeats=10)
        draws = {"samples": 2, "key": jax.random.key(0)}
        sampled = dmft.network.run(network, parameters, start, steps=5, **draws)
        deviations = dmft.network.fluctuations(network, parameters, start, steps=5)
        return parameters, start, trajectory, window, spectrum, network, sampled, deviations

    def cycles_of(guess):
        cycle = dynamics.find_cycle(henon, guess, 0.2, 1)
        return cycle, dmft.Stroboscope(model, parameters)

    # Nothing of the mean field is computed: its results are traced.
    traced = jax.eval_shape(dynamics_of, parameters)
    cycles = jax.tree.map(np.asarray, cycles_of([0.5, 0.1]))
    names = ["Parameters", "State", "Trajectory", "Window", "LyapunovSpectrum"]
    for shown in (*traced, *jax.eval_shape(lambda values: values, cycles)):
        assert repr(shown).startswith(f"{type(shown).__name__}(")
    assert [type(shown).__name__ for shown in traced[:5]] == names
