"""States, windows, prompts and trajectories of another network are refused by every function that takes one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theorykit import dmft
from theorykit.dmft import diagrams, network

CONTEXT, PATTERNS = 3, 2
KEY = jax.random.key(0)
BRIEF = diagrams.OrbitSettings(transient=CONTEXT, recorded=20, exponents=0, sections=())


def weights_of(patterns=PATTERNS):
    return dmft.iid_weights(patterns, 12, 2, key=jax.random.key(1))


def model_of(context=CONTEXT, patterns=PATTERNS):
    return dmft.self_attention_limit(weights_of(patterns), context)


def parameters_of(batch=()):
    return dmft.Parameters(np.full(batch, 0.9), 3.0, 0.1)


WEIGHTS, MODEL, PARAMETERS, BATCH = weights_of(), model_of(), parameters_of(), parameters_of((2,))
PHASES = dmft.Parameters(np.ones(1), np.ones((1, 1)), 0.1)
NETWORK = network.class_sum_network(WEIGHTS, CONTEXT)
ONE, MANY = {"steps": CONTEXT}, {"steps": CONTEXT, "samples": 2, "key": KEY}
EXPONENTS = {"steps": 2 * CONTEXT, "exponents": 1}


def state_of(context=CONTEXT, patterns=PATTERNS, batch=()):
    overlaps = dmft.pattern_prompt(weights_of(patterns))
    return dmft.window_start(model_of(context, patterns), parameters_of(batch), overlaps)


def window_of(context=CONTEXT, patterns=PATTERNS, batch=()):
    return dmft.Window(np.full((context, patterns, *batch), 0.1))


def trajectory_of(context=CONTEXT, patterns=PATTERNS, batch=()):
    model, start = model_of(context, patterns), state_of(context, patterns, batch)
    return dmft.run(model, parameters_of(batch), start, steps=context)


# each with the name of the argument that has to belong to the network
OF_STATES = (
    ("state", lambda it: MODEL.step(PARAMETERS, it)),
    ("state", lambda it: dmft.advance(MODEL, PARAMETERS, it, CONTEXT)),
    ("start", lambda it: dmft.run(MODEL, PARAMETERS, it, **ONE)),
    ("start", lambda it: dmft.discard_transient(MODEL, PARAMETERS, it, CONTEXT)),
    ("start", lambda it: network.fluctuations(NETWORK, PARAMETERS, it, **ONE)),
    ("start", lambda it: network.run(NETWORK, PARAMETERS, it, **MANY)),
    ("start", lambda it: diagrams.orbit_diagram(MODEL, BATCH, lambda *_: it, BRIEF)),
    ("start", lambda it: diagrams.phase_diagram(MODEL, PHASES, lambda *_: it, BRIEF)),
    ("start", lambda it: diagrams.continuation_diagram(MODEL, BATCH, lambda *_: it, BRIEF)),
    ("start", lambda it: dmft.convergence(WEIGHTS, CONTEXT, PARAMETERS, it, repeats=(1, 2), samples=2, key=KEY)),
)
OF_WINDOWS = (
    ("window", lambda it: dmft.state_from_window(MODEL, PARAMETERS, it)),
    ("window", lambda it: dmft.lyapunov_spectrum(MODEL, PARAMETERS, it, **EXPONENTS, blocks=2)),
    ("window", lambda it: dmft.Stroboscope(MODEL, PARAMETERS).state(it)),
    (
        "windows",
        lambda it: diagrams.coexisting_attractors(
            MODEL, PARAMETERS, eqx.tree_at(lambda at: at.attention, it, it.attention[..., None]), BRIEF
        ),
    ),
)
OF_TRAJECTORIES = (
    ("trajectory", lambda it: it.window(MODEL)),
    ("trajectory", lambda it: it.overlaps(MODEL, PARAMETERS)),
)
OF_PROMPTS = (
    ("of", lambda it: dmft.token_start(MODEL, PARAMETERS, it)),
    ("of", lambda it: dmft.window_start(MODEL, PARAMETERS, it)),
)
OF_ATTENTIONS = (
    ("attention", lambda it: dmft.semantic_overlap(MODEL, 0, PARAMETERS, it)),
    ("state", lambda it: dmft.Stroboscope(MODEL, PARAMETERS)(it, jnp.asarray(1.0))),
)


def assert_refused(calls, given):
    """By an error of one line that names the argument, not by an array in the depths."""
    for name, call in calls:
        with pytest.raises((ValueError, TypeError)) as raised:
            call(given)
        assert name in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("other", [(4, PATTERNS), (CONTEXT, 3)], ids=["of another context", "of other patterns"])
def test_those_of_another_network_are_refused(other):
    for make, calls in ((state_of, OF_STATES), (window_of, OF_WINDOWS), (trajectory_of, OF_TRAJECTORIES)):
        assert_refused(calls, make(*other))


@pytest.mark.parametrize("calls, make", [(OF_STATES, state_of), (OF_WINDOWS, window_of)])
def test_positions_out_of_the_context_and_numbers_that_are_not_finite_are_refused(calls, make):
    for position in (-1, CONTEXT):
        assert_refused(calls, eqx.tree_at(lambda at: at.position, make(), jnp.asarray(position)))
    for number in (jnp.nan, jnp.inf):
        wrong = jax.tree.map(lambda entry, number=number: jnp.full_like(entry, number), make().attention)
        assert_refused(calls, eqx.tree_at(lambda at: at.attention, make(), wrong))


def test_batch_shapes_that_do_not_broadcast_are_refused():
    three = parameters_of((3,))
    for start, call in (
        (state_of(batch=(2,)), lambda start: dmft.run(MODEL, three, start, **ONE)),
        (state_of(batch=(2,)), lambda start: network.run(NETWORK, three, start, **MANY)),
        (window_of(batch=(2,)), lambda window: dmft.state_from_window(MODEL, three, window)),
        (trajectory_of(batch=(2,)), lambda trajectory: trajectory.overlaps(MODEL, three)),
    ):
        with pytest.raises(ValueError, match=r"batch shapes do not broadcast: parameters has \(3,\)"):
            call(start)
    with pytest.raises(ValueError, match=r"parameters have batch shape \(3,\), state only of \(\)"):
        MODEL.step(three, state_of())


def test_prompts_and_attentions_of_another_number_of_patterns_and_impossible_ones_are_refused():
    right = dmft.pattern_prompt(WEIGHTS)
    for wrong in (dmft.pattern_prompt(weights_of(3)), right[:3], 2 * np.ones((4, 2)), np.full((4, 2), np.nan)):
        assert_refused(OF_PROMPTS, wrong)
    for wrong in (jnp.zeros(3), jnp.zeros(5)):
        assert_refused(OF_ATTENTIONS, wrong)


def test_a_state_that_all_orbits_share_is_whole_though_there_are_as_many_orbits_as_slots():
    """Of 64 orbits in two blocks: the slots of a context of 64 are not taken for orbits."""
    weights = dmft.iid_weights(1, 12, 6, key=KEY)
    model = dmft.self_attention_limit(weights, 64)
    state = dmft.token_start(model, parameters_of(), dmft.pattern_prompt(weights))
    assert diagrams._select_orbits(state, np.arange(32)).keys[0].shape == (64,)
