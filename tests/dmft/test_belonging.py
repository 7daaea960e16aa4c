"""States, windows, prompts and trajectories of another network are refused by every function that takes one."""

import inspect
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theorykit import dmft
from theorykit.dmft import network
from theorykit.dmft.diagrams import attractors, continuation, orbits, phases

CONTEXT, PATTERNS = 3, 2
KEY = jax.random.key(0)
BRIEF = orbits.OrbitSettings(transient=0, recorded=20, exponents=0, sections=())
CARRIED = orbits.OrbitSettings(transient=CONTEXT, recorded=20, exponents=0, sections=())


def weights_of(patterns=PATTERNS):
    return dmft.iid_weights(patterns, 12, 2, key=jax.random.key(1))


def model_of(context=CONTEXT, patterns=PATTERNS):
    return dmft.self_attention_limit(weights_of(patterns), context)


def parameters_of(batch=()):
    return dmft.Parameters(np.full(batch, 0.9), 3.0, 0.1)


WEIGHTS, MODEL, PARAMETERS = weights_of(), model_of(), parameters_of()
BATCH = parameters_of((2,))
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


def start_of(*of):
    return lambda model, parameters: state_of(*of)


def prompt_of(patterns):
    return dmft.pattern_prompt(weights_of(patterns))


# each by the names of the function and of the argument that has to belong to the network
OF_STATES = {
    "SelfAttention.step: state": lambda state: MODEL.step(PARAMETERS, state),
    "advance: state": lambda state: dmft.advance(MODEL, PARAMETERS, state, CONTEXT),
    "run: start": lambda start: dmft.run(MODEL, PARAMETERS, start, **ONE),
    "discard_transient: start": lambda start: dmft.discard_transient(MODEL, PARAMETERS, start, CONTEXT),
    "network.AbstractNetwork.token: state": lambda state: NETWORK.token(PARAMETERS, state, KEY),
    "network.AbstractNetwork.step: state": lambda state: NETWORK.step(PARAMETERS, state, KEY),
    "network.fluctuations: start": lambda start: network.fluctuations(NETWORK, PARAMETERS, start, **ONE),
    "network.run: start": lambda start: network.run(NETWORK, PARAMETERS, start, **MANY),
    "network.run_with_spins: start": lambda start: network.run_with_spins(NETWORK, PARAMETERS, start, **MANY),
    "orbits.orbit_diagram: start": lambda state: orbits.orbit_diagram(MODEL, BATCH, lambda *_: state, BRIEF),
    "phases.phase_diagram: start": lambda state: phases.phase_diagram(
        MODEL, dmft.Parameters(np.ones(1), np.ones((1, 1)), 0.1), lambda *_: state, BRIEF
    ),
    "continuation.continuation_diagram: start": lambda state: continuation.continuation_diagram(
        MODEL, BATCH, lambda *_: state, CARRIED
    ),
    "convergence: start": lambda state: dmft.convergence(
        WEIGHTS, CONTEXT, PARAMETERS, state, repeats=(1, 2), samples=2, key=KEY
    ),
}
OF_WINDOWS = {
    "state_from_window: window": lambda window: dmft.state_from_window(MODEL, PARAMETERS, window),
    "lyapunov_spectrum: window": lambda window: dmft.lyapunov_spectrum(
        MODEL, PARAMETERS, window, **EXPONENTS, blocks=2
    ),
    "local_exponents: window": lambda window: dmft.local_exponents(MODEL, PARAMETERS, window, **EXPONENTS),
    "Stroboscope.state: window": lambda window: dmft.Stroboscope(MODEL, PARAMETERS).state(window),
    "attractors.coexisting_attractors: windows": lambda windows: attractors.coexisting_attractors(
        MODEL, PARAMETERS, eqx.tree_at(lambda at: at.attention, windows, windows.attention[..., None]), BRIEF
    ),
}
OF_TRAJECTORIES = {
    "Trajectory.window: self": lambda trajectory: trajectory.window(MODEL),
    "Trajectory.overlaps: self": lambda trajectory: trajectory.overlaps(MODEL, PARAMETERS),
}
OF_PROMPTS = {
    "token_start: of": lambda of: dmft.token_start(MODEL, PARAMETERS, of),
    "window_start: of": lambda of: dmft.window_start(MODEL, PARAMETERS, of),
}
OF_ATTENTIONS = {
    "semantic_overlap: attention": lambda attention: dmft.semantic_overlap(MODEL, 0, PARAMETERS, attention),
    "Stroboscope.__call__: state": lambda state: dmft.Stroboscope(MODEL, PARAMETERS)(state, jnp.asarray(1.0)),
    "SelfAttention.overlap: attention": lambda attention: MODEL.overlap(
        0, PARAMETERS, tuple(attention), jnp.asarray(0)
    ),
}
BELONGS = {"state", "start", "window", "windows", "of", "prompt", "attention"}


def faces():
    """Public functions and methods of theory 2, by name."""
    modules = {"": dmft, "network.": network, "orbits.": orbits, "attractors.": attractors, "phases.": phases}
    for prefix, module in {**modules, "continuation.": continuation}.items():
        for name in getattr(module, "__all__", dir(module)):
            found = getattr(module, name)
            home = getattr(found, "__module__", "")
            if (
                name.startswith("_")
                or not home.startswith("theorykit.d")
                or (prefix and not home.startswith(module.__name__))
            ):
                continue
            if inspect.isclass(found):
                methods = inspect.getmembers(found, lambda member: inspect.isfunction(inspect.unwrap(member)))
                yield from ((f"{prefix}{name}.{method}", function) for method, function in methods)
            elif callable(found):
                yield f"{prefix}{name}", found


def test_every_function_that_takes_such_an_object_is_among_them():
    every = OF_STATES | OF_WINDOWS | OF_TRAJECTORIES | OF_PROMPTS | OF_ATTENTIONS
    known = {case.partition(":")[0] for case in every}
    # of subclasses that inherit them; of one window or start alone, with nothing that it could not belong to
    inherited = ("network.SpinNetwork.", "network.ClassSumNetwork.", "Window.", "State.", "Trajectory.")
    alone = {"attractors.nearby_windows", "orbits.checked_begin", "orbits.checked_settings"}
    for name, function in faces():
        # what is called unchecked is for compiled loops, which have checked before
        if name.startswith(inherited) or name in alone or name.rpartition(".")[2].startswith(("__", "unchecked")):
            continue
        taken = BELONGS & set(inspect.signature(function).parameters)
        assert not taken or name in known, f"{name} takes {taken}: say here how it refuses those of another network"


OTHERS = {"of another context": (4, PATTERNS), "of another number of patterns": (CONTEXT, 3)}


def assert_refused(case, call, given):
    """By an error that names the argument."""
    name = case.partition(": ")[2]
    with pytest.raises((ValueError, TypeError)) as raised:
        call(given)
    # an error of one line by theorykit itself, not of an array in the depths
    message = str(raised.value)
    assert ("trajectory" if name == "self" else name) in message and "\n" not in message


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize(
    "make, calls", [(state_of, OF_STATES), (window_of, OF_WINDOWS), (trajectory_of, OF_TRAJECTORIES)]
)
def test_those_of_another_network_are_refused(make, calls, other):
    given = make(*OTHERS[other])
    for case, call in calls.items():
        assert_refused(case, call, given)


@pytest.mark.parametrize("calls, make", [(OF_STATES, state_of), (OF_WINDOWS, window_of)])
def test_positions_out_of_the_context_and_numbers_that_are_not_finite_are_refused(calls, make):
    for position in (-1, CONTEXT, 7):
        given = eqx.tree_at(lambda at: at.position, make(), jnp.asarray(position))
        for case, call in calls.items():
            assert_refused(case, call, given)
    for number in (jnp.nan, jnp.inf):
        right = make()
        wrong = jax.tree.map(partial(jnp.full_like, fill_value=number), right.attention)
        for case, call in calls.items():
            assert_refused(case, call, eqx.tree_at(lambda at: at.attention, right, wrong))


def test_batch_shapes_that_do_not_broadcast_are_refused():
    three = parameters_of((3,))
    for start, call in (
        (state_of(batch=(2,)), lambda start: dmft.run(MODEL, three, start, **ONE)),
        (state_of(batch=(2,)), lambda start: dmft.advance(MODEL, three, start, 1)),
        (state_of(batch=(2,)), lambda start: network.run(NETWORK, three, start, **MANY)),
        (window_of(batch=(2,)), lambda window: dmft.state_from_window(MODEL, three, window)),
        (trajectory_of(batch=(2,)), lambda trajectory: trajectory.overlaps(MODEL, three)),
    ):
        with pytest.raises(ValueError, match=r"batch shapes do not broadcast: parameters has \(3,\)"):
            call(start)
    with pytest.raises(ValueError, match=r"parameters have batch shape \(3,\), state only of \(\)"):
        MODEL.step(three, state_of())


def test_prompts_of_another_number_of_patterns_and_impossible_ones_are_refused():
    for wrong in (prompt_of(3), prompt_of(PATTERNS)[:3], 2 * np.ones((4, 2)), np.full((4, 2), np.nan)):
        for case, call in OF_PROMPTS.items():
            assert_refused(case, call, wrong)


def test_attentions_of_another_number_are_refused():
    for wrong in (jnp.zeros(3), jnp.zeros(5)):
        for case, call in OF_ATTENTIONS.items():
            assert_refused(case, call, wrong)


def test_a_state_whose_parts_do_not_fit_each_other_is_refused():
    state = state_of()
    for changed in (
        {"attention": state.attention[:1]},
        {"keys": state.keys[:1]},
        {"keys": tuple(slots[1:] for slots in state.keys)},
        {"attention": (state.attention[0], jnp.zeros(2))},
    ):
        # the types of tests are checked before
        with pytest.raises((ValueError, TypeError), match=r"one state|different shapes|type"):
            dmft.State(**{**vars(state), **changed})


def test_a_state_that_all_orbits_share_is_whole_though_there_are_as_many_orbits_as_slots():
    """Of 64 orbits in two blocks: the slots of a context of 64 are not taken for orbits."""
    weights = dmft.iid_weights(1, 12, 6, key=KEY)
    model, betas = dmft.self_attention_limit(weights, 64), np.linspace(0.5, 1.5, 64)
    state = dmft.token_start(model, parameters_of(), dmft.pattern_prompt(weights))
    assert orbits._select_orbits(state, np.arange(32)).keys[0].shape == (64,)
    assert len(betas) == model.context
