"""What the parameters of the public callables of reproduce are: nothing is computed of what is refused."""

import tempfile
from functools import cache
from pathlib import Path

import jax
import numpy as np

from theorykit import dmft, reproduce
from theorykit.bpkr.training import TrainingSettings
from theorykit.reproduce import hidden_markov, one_shot, self_attention_dynamics
from theorykit.tasks.hidden_markov import HiddenMarkovTask
from theorykit.tasks.one_shot import OneShotTask

from .engine import Face
from .values import Kind, flag, instance, number, path, text, whole_number

_FOLDER = tempfile.TemporaryDirectory(prefix="theorykit-faces-")
FOLDER = Path(_FOLDER.name)
SETTINGS = self_attention_dynamics.SelfAttentionDynamics()
LONG = "it runs an experiment; tests.reproduce do, small ones"


@cache
def weights():
    return dmft.published_weights(1)


@cache
def model():
    return dmft.self_attention_limit(weights(), 4)


def several(example):
    """Numbers above zero, at least one."""
    return Kind(lambda: (example,), {}, lambda: {"of text": ("1",), "one": example, "below zero": (-example,)})


def settings(make):
    return instance(make, also=lambda: {"as a dictionary": {"seeds": 1}})


@cache
def window():
    parameters = SETTINGS.parameters(model(), np.array([3.0]))
    return dmft.window_start(model(), parameters, dmft.pattern_prompt(weights()))


AT_LEAST_ONE = (
    "seeds",
    "training_examples",
    "test_examples",
    "orders",
    "chains",
    "draws",
    "check_draws",
    "training_seeds",
    "width",
    "recorded",
    "shown",
)
DYNAMICS = "self_attention_dynamics"

FACE = Face(
    reproduce,
    {
        **dict.fromkeys(AT_LEAST_ONE, whole_number(2, least=1)),
        **dict.fromkeys(("warmup", "check_warmup", "first_seed", "seed", "transient"), whole_number(2, least=0)),
        **dict.fromkeys(("training", "validation", "test", "head_dimension", "measured"), whole_number(2, least=1)),
        "drawings": whole_number(2, least=2),
        "values": whole_number(3, least=2),
        "widths": several(10),
        "temperatures": several(0.1),
        "temperature": number(0.1, above=0),
        "name": text("default", any_text=True),
        "heads": several(2),
        "hidden_markov.Variant.heads": Kind(lambda: (2, 2), also=lambda: {"three": (3, 1), "of text": ("1", "1")}),
        "hidden_markov.Variant.settings": settings(HiddenMarkovTask),
        "second_head": text("random"),
        "key": instance(lambda: jax.random.key(0), also=lambda: {"two keys": jax.random.split(jax.random.key(0))}),
        "progress": flag(),
        "variant": instance(lambda: hidden_markov.VARIANTS[0], also=lambda: {"another": one_shot.SMALL.variants[0]}),
        "hidden_markov.run.settings": settings(hidden_markov.HiddenMarkov),
        "hidden_markov.run_seed.settings": settings(hidden_markov.HiddenMarkov),
        "one_shot.run.settings": settings(lambda: one_shot.SMALL),
        "settings": settings(lambda: SETTINGS),
        **dict.fromkeys(("partial_results", "stages"), path(lambda: FOLDER)),
        "executor": Kind(lambda: None),
        "variants": Kind(lambda: one_shot.SMALL.variants, also=lambda: {"one": one_shot.SMALL.variants[0]}),
        "images": Kind(one_shot.Strokes),
        "unseen": Kind(
            lambda: ("digits",),
            dict.fromkeys(("an empty list", "an empty array"), "tests in distribution alone"),
            lambda: {"one": "digits", "unknown": ("letters",)},
        ),
        "task": instance(OneShotTask),
        "one_shot.OneShot.training": instance(TrainingSettings),
        "lowest": number(0.0, least=0, most=2.9),
        "highest": number(3.0, above=0),
        f"{DYNAMICS}.Range.highest": Kind(lambda: 3.0, number(3.0, above=0).admits, called=("low",)),
        "betas": several(1.255),
        "diagram": instance(lambda: SETTINGS.diagram, also=lambda: {"phases": SETTINGS.phases}),
        "zoom": instance(lambda: SETTINGS.zoom, also=lambda: {"phases": SETTINGS.phases}),
        "phases": instance(lambda: SETTINGS.phases, also=lambda: {"a range": SETTINGS.zoom}),
        "exponents": whole_number(2, least=2),
        "attention": number(2.2, least=0),
        "epsilon": number(0.02, least=0, most=1),
        "start": number(3.0, least=0),
        "model": instance(model, also=lambda: {"weights": weights()}),
        "weights": instance(weights, also=lambda: {"a model": model()}),
        "window": instance(window, also=lambda: {"an array": np.ones(3)}),
        "parameters": instance(lambda: SETTINGS.parameters(model(), np.array([3.0]))),
        "beta": Kind(
            lambda: 3.0,
            {
                **number(3.0).admits,
                "True": "truth counts as a number, as in every array",
                "an array of seven axes": "a batch of any axes",
            },
        ),
    },
    instances={
        "hidden_markov.Variant": lambda: hidden_markov.VARIANTS[0],
        f"{DYNAMICS}.SelfAttentionDynamics": lambda: SETTINGS,
    },
    examples={
        **dict.fromkeys(("hidden_markov.run", "hidden_markov.run_seed", "one_shot.run"), LONG),
        **{f"{DYNAMICS}.{name}": LONG for name in ("run", "orbit", "settle_window")},
    },
)
