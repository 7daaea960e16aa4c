"""Every computation that resumes: its run is known by all values that its numbers depend on, however they are written.

The public function is called with a folder, up to where it says what its run is of. Any leaf of any argument, changed
by 1e-12 relative, must make another run or be refused; the same value written as another kind of scalar must not.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from jaxtyping import TypeCheckError

from papers import hidden_markov, self_attention_dynamics
from papers.one_shot import SMALL, stages
from papers.one_shot import sources as one_shot_sources
from papers.tasks.images import image_set
from papers.tasks.one_shot import Episodes, OneShotTask
from tests.bpkr.sampling.problems import problem
from tests.bpkr.training.test_gradient_descent import ARCHITECTURE, FEATURES, Direction
from tests.dmft.diagrams.networks import GAMMA, published
from tests.leaves import barely_changed, leaves, replaced, written_otherwise
from tests.marks import slow
from theorykit import bpkr, dmft, store
from theorykit.bpkr import sampling, sweeps
from theorykit.bpkr.training import TrainingSettings, initial_network, train
from theorykit.bpkr.training.gradient_descent import Trained
from theorykit.dmft import diagrams


class Computation(NamedTuple):
    """A function of keyword `arguments` and a folder.

    `free`: beginnings of the paths of leaves that decide how far a run goes, not which it is.
    """

    function: Callable[..., Any]
    arguments: Callable[[], Mapping[str, Any]]
    free: tuple[tuple[Any, ...], ...] = ()


class _Stopped(Exception):
    pass


def settings_of(computation: Computation, arguments: Mapping[str, Any], folder: Path, monkeypatch) -> list[str]:
    """All settings that the computation states before it is stopped at the first."""
    found: list[str] = []
    original = store.settings_of

    def stated(*positional, **described):
        found.append(store.as_text(original(*positional, **described)))
        raise _Stopped

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(store, "settings_of", stated)
        try:
            computation.function(**arguments, folder=folder)
        except _Stopped:
            return found
    pytest.fail("the computation did not say what its run is of")


def sampled(keep_weights=False, **changes):
    architecture, features, labels, test_features = problem("skip")
    data = bpkr.Data(features, labels, test_features, np.ones(len(test_features)))
    schedule = {"chains": 2, "warmup": 7, "draws": 5} | ({"keep_weights": True} if keep_weights else {})
    return {"problem": architecture, "data": data, "key": jax.random.key(3), "schedule": schedule, **changes}


def _sample(sampler, schedule, no_u_turn=None, **arguments):
    settings = {} if no_u_turn is None else {"no_u_turn": sampling.NoUTurn(**no_u_turn)}
    return sampler(schedule=sampling.Schedule(**schedule), **settings, progress=False, **arguments)


def _compare(schedule, **arguments):
    options = {"gibbs": {"schedule": sampling.Schedule(**schedule)}}
    return sampling.compare(approaches=("gibbs",), options=options, progress=False, **arguments)


def trained():
    network = initial_network(ARCHITECTURE, 3, FEATURES, key=jax.random.key(0))
    return {
        "network": network,
        "training": Direction(jnp.arange(1.0, FEATURES + 1)),
        "validation": _episodes(),
        "key": jax.random.key(1),
        "settings": TrainingSettings(steps=10, batch=4, learning_rate=0.005),
        "progress": False,
    }


def _episodes() -> Episodes:
    pixels = np.arange(4 * 2 * 2, dtype=np.uint8).reshape(4, 2, 2)
    task = OneShotTask(image_size=2, patch_size=1, channels=FEATURES)
    return Episodes(task, image_set(pixels, np.array([0, 0, 1, 1]), ["a", "b"]))


def swept():
    architecture, features, labels, test_features = problem("skip")
    data = bpkr.Data(features, labels, test_features, np.ones(3))
    options = {"tolerance": 1e-8, "solver": bpkr.Newton(), "max_steps": 20}
    return {"problem": architecture, "data": data, "widths": (3, 5.5), "temperatures": (0.1, 1.0), **options}


def _data(labels, seed):
    features = problem("skip")[1]
    return bpkr.Data(features, labels + seed)


def _sweep_seeds(data, **arguments):
    return sweeps.sweep_seeds(data=partial(_data, data), **arguments)


def _without_data():
    given = swept()
    architecture = given.pop("problem")
    return {**given, "architecture": architecture, "data": problem("skip")[2], "seeds": (3, 4)}


SHORT = diagrams.OrbitSettings(transient=8, recorded=20, exponents=2, levels=11)
NOT_CARRIED = tuple(field.name for field in dataclasses.fields(SHORT) if field.name != "transient")


def model():
    return dmft.SelfAttention(
        dmft.ColumnLaw(np.asarray(published().directions), np.asarray(published().moments)),
        np.asarray(published().positional),
    )


def window():
    return dmft.Window(np.linspace(-0.5, 0.5, 12).reshape(4, 3), 1)


def _from(window: dmft.Window, diagram, **arguments):
    return diagram(start=partial(dmft.state_from_window, window=window), **arguments)


def diagrammed(**more):
    return {"model": model(), "window": window(), "settings": SHORT, **more}


def _attracted(spread, **arguments):
    return diagrams.coexisting_attractors(
        **arguments, windows=diagrams.nearby_windows(window(), 3, spread, key=jax.random.key(0))
    )


def _phases(**arguments):
    return _from(diagram=diagrams.phase_diagram, **arguments)


def _trajectories(folder, settings, model, window):
    return self_attention_dynamics._trajectories(settings, model, window, folder=folder, progress=False)


DYNAMICS = self_attention_dynamics.SelfAttentionDynamics(betas=(1.0, 1.3), transient=8, recorded=400, shown=40)


def _sources():
    return one_shot_sources.Sources(_episodes(), _episodes(), {})


def _stage(folder, **arguments):
    return stages.theory_of_heads(made=_sources(), folder=folder, **arguments)


def _variant(folder, network, settings):
    """All later stages of a variant: nothing is trained or solved before they say what they are of."""
    original = stages.theory_of_heads
    trained = Trained(network, xr.Dataset())
    stages.theory_of_heads = lambda *_, **_options: None
    try:
        stages.run_network(settings.variants[0], settings, _sources(), trained, folder)
    finally:
        stages.theory_of_heads = original


def _characters(folder, settings):
    return one_shot_sources._characters(settings, folder / "characters.npz")


def _how_solved(architecture):
    """Numbers of a sweep that are the place of a solution or how it is found, not the run that it is of."""
    names = ("widths", "temperatures", "solver", "max_steps")
    return (*((name,) for name in names), (architecture, "widths"), (architecture, "temperature"))


# how many draws, and what samplers do not look at
_HOW_FAR = (("schedule", "draws"), ("data", "test_labels"))
_OF_CHAINS = ("chains", "warmup", "draws", "check_warmup", "check_draws")
_OTHER_STAGES = ("training", "training_seeds", "width", *_OF_CHAINS, "orders", "seeds", "variants")
COMPUTATIONS = {
    "sample_order_parameters": Computation(
        partial(_sample, sampling.sample_order_parameters),
        partial(sampled, no_u_turn={"target_accept": 0.7, "max_tree_depth": 5}),
        _HOW_FAR,
    ),
    "sample_weights": Computation(
        partial(_sample, sampling.sample_weights),
        partial(sampled, no_u_turn={"target_accept": 0.7, "max_tree_depth": 4}, keep_weights=True),
        _HOW_FAR,
    ),
    "sample_weights_by_gibbs": Computation(
        partial(_sample, sampling.sample_weights_by_gibbs), partial(sampled, keep_weights=True), _HOW_FAR
    ),
    "compare": Computation(_compare, sampled, _HOW_FAR),
    "train": Computation(train, trained, (("settings", "steps"), ("progress",))),
    "sweep": Computation(
        sweeps.sweep,
        swept,
        _how_solved("problem"),
    ),
    "sweep_seeds": Computation(
        _sweep_seeds,
        _without_data,
        (*_how_solved("architecture"), ("seeds", 1)),
    ),
    "orbit_diagram": Computation(
        partial(_from, diagram=diagrams.orbit_diagram),
        partial(diagrammed, parameters=dmft.Parameters(np.array([1.0, 1.2]), GAMMA, 0.02)),
    ),
    "phase_diagram": Computation(
        _phases,
        partial(diagrammed, parameters=dmft.Parameters(np.array([1.0, 1.2]), np.array([[1.0], [2.0]]), 0.02)),
        (("settings", "levels"), ("settings", "sections")),
    ),
    "continuation_diagram": Computation(
        partial(_from, diagram=diagrams.continuation_diagram),
        partial(diagrammed, parameters=dmft.Parameters(np.array([1.0, 1.1, 1.2]), GAMMA, 0.02), centre=1),
        # what the orbits that are recorded afterwards are of: those of `orbit_diagram`
        tuple(("settings", name) for name in NOT_CARRIED),
    ),
    "coexisting_attractors": Computation(
        _attracted,
        lambda: {
            **{"model": model(), "parameters": dmft.Parameters(1.27, GAMMA, 0.02), "spread": 1e-3},
            **{"settings": SHORT, "tolerance": 0.01},
        },
        (("tolerance",),),
    ),
    "papers hidden-markov": Computation(
        lambda folder, settings: hidden_markov.run(settings, folder),
        lambda: {"settings": hidden_markov.HiddenMarkov(widths=(10, 30), seeds=2)},
        (("settings", "seeds"),),
    ),
    "papers self-attention-dynamics": Computation(
        _trajectories,
        lambda: {"settings": DYNAMICS, "model": model(), "window": window()},
        tuple(("settings", name) for name in ("diagram", "zoom", "phases", "exponents", "start", "seed")),
    ),
    "papers one-shot, characters": Computation(_characters, lambda: {"settings": SMALL.images}),
    "papers one-shot, theory": Computation(
        _stage,
        lambda: {"heads": trained()["network"].heads, "settings": SMALL},
        tuple(("settings", name) for name in _OTHER_STAGES),
    ),
    "papers one-shot, later stages": Computation(
        _variant,
        lambda: {"network": trained()["network"], "settings": SMALL},
        (("settings", "variants", 1), ("settings", "variants", 2), ("settings", "training_seeds")),
    ),
}


# the others are quick beside them
_LONG = ("train", "coexisting_attractors", "phase_diagram", "compare", "sweep_seeds", "papers one-shot, later stages")
EVERY = [*(name for name in COMPUTATIONS if name not in _LONG), *slow(_LONG)]


def is_free(computation: Computation, path: tuple[Any, ...]) -> bool:
    return any(path[: len(free)] == free for free in computation.free)


@pytest.mark.parametrize("name", EVERY)
def test_any_other_value_is_another_run_and_another_way_to_write_it_is_not(name, tmp_path, monkeypatch):
    computation = COMPUTATIONS[name]
    arguments = dict(computation.arguments())
    stated = partial(settings_of, computation, folder=tmp_path, monkeypatch=monkeypatch)
    here, changed, rewritten = stated(arguments), 0, 0
    assert here == stated(dict(computation.arguments()))
    if not name.startswith("papers"):
        assert here == stated(arguments, folder=str(tmp_path)), "a folder may be text"
        with pytest.raises((TypeError, ValueError), match="folder"):
            stated(arguments, folder=3)
    for number, (path, leaf) in enumerate(leaves(arguments)):
        if is_free(computation, path):
            continue
        other = barely_changed(leaf, entry=7 * number)
        if other is not None:
            changed += 1
            with_other = replaced(arguments, path, other)
            with suppress(TypeError, ValueError):  # refused before, as no value that fits
                assert stated(with_other) != here, f"{path} may change unseen"
        for same in written_otherwise(leaf):
            # kinds that the annotation does not admit, or JAX where a whole number must be known beforehand
            with suppress(TypeError if isinstance(leaf, int) else TypeCheckError):
                assert stated(replaced(arguments, path, same)) == here, f"{path} as {type(same)} is another run"
                rewritten += 1
    assert changed >= 2
    print(f"{name}: {changed} leaves changed, {rewritten} written otherwise")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPUTATIONS)
def test_how_far_a_run_goes_does_not_make_another_of_it(name, tmp_path, monkeypatch):
    computation = COMPUTATIONS[name]
    arguments = dict(computation.arguments())
    stated = partial(settings_of, computation, folder=tmp_path, monkeypatch=monkeypatch)
    here = stated(arguments)
    for path, leaf in itertools.islice((p for p in leaves(arguments) if is_free(computation, p[0])), 12):
        if isinstance(leaf, (int, float)) and not isinstance(leaf, bool):
            with suppress(ValueError):  # of some numbers, twice as much is not to be had
                assert stated(replaced(arguments, path, leaf * 2)) == here
