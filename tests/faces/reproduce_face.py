"""The parameters of reproduce: nothing is computed from refused arguments."""

import tempfile
from pathlib import Path

import numpy as np

from theorykit import dmft, reproduce
from theorykit.bpkr.training import TrainingSettings
from theorykit.reproduce import hidden_markov, one_shot, self_attention_dynamics
from theorykit.tasks.hidden_markov import HiddenMarkovTask
from theorykit.tasks.one_shot import OneShotTask

from .engine import Face
from .values import EMPTY, KEY, NUMBERS, Kind, number, of, text, whole_number

_FOLDER = tempfile.TemporaryDirectory(prefix="theorykit-faces-")
SETTINGS = self_attention_dynamics.SelfAttentionDynamics()
LONG = "it runs an experiment; tests.reproduce do, small ones"
WEIGHTS = dmft.published_weights(1)
MODEL = dmft.self_attention_limit(WEIGHTS, 4)
PARAMETERS = SETTINGS.parameters(MODEL, np.array([3.0]))
SMALL = one_shot.SMALL.variants
DYNAMICS = "self_attention_dynamics"


def several(example):
    """Numbers above zero, at least one."""
    return of((example,), below_zero=(-example,))


def settings(made):
    return of(made, as_a_dictionary={"seeds": 1})


FACE = Face(
    reproduce,
    {
        "seeds training_examples test_examples orders chains draws check_draws training_seeds width recorded shown": 2,
        "warmup check_warmup first_seed seed transient": whole_number(2, least=0),
        "training validation test head_dimension measured": 2,
        "drawings values": whole_number(3, least=2),
        "widths": several(10),
        "temperatures": several(0.1),
        "temperature": 0.1,
        "name": text("default"),
        "heads": several(2),
        "hidden_markov.Variant.heads": of((2, 2), three=(3, 1)),
        "hidden_markov.Variant.settings": settings(HiddenMarkovTask()),
        "second_head": "random",
        "key": KEY,
        "progress": False,
        "variant": of(hidden_markov.VARIANTS[0], another=SMALL[0]),
        "hidden_markov.run.settings hidden_markov.run_seed.settings": settings(hidden_markov.HiddenMarkov()),
        "one_shot.run.settings": settings(one_shot.SMALL),
        "settings": settings(SETTINGS),
        "partial_results stages": Path(_FOLDER.name),
        "executor": None,
        "variants": SMALL,
        "images": one_shot.Strokes(),
        "unseen": of(("digits",), admits=EMPTY, unknown=("letters",)),
        "task": OneShotTask(),
        "one_shot.OneShot.training": TrainingSettings(),
        "lowest": number(0.0, least=0, most=2.9),
        "highest": 3.0,
        f"{DYNAMICS}.Range.highest": of(3.0, "low"),
        "betas": several(1.255),
        "diagram": of(SETTINGS.diagram, phases=SETTINGS.phases),
        "zoom": of(SETTINGS.zoom, phases=SETTINGS.phases),
        "phases": of(SETTINGS.phases, range=SETTINGS.zoom),
        "exponents": whole_number(2, least=2),
        "attention start": number(2.2, least=0),
        "epsilon": number(0.02, least=0, most=1),
        "model": of(MODEL, weights=WEIGHTS),
        "weights": of(WEIGHTS, model=MODEL),
        "window": of(dmft.window_start(MODEL, PARAMETERS, dmft.pattern_prompt(WEIGHTS)), array=np.ones(3)),
        "parameters": PARAMETERS,
        # an array, of any axes, in which truth counts as a number
        "beta": Kind(lambda: 3.0, (*NUMBERS, "True", "an array of seven axes")),
    },
    instances={"hidden_markov.Variant": hidden_markov.VARIANTS[0], f"{DYNAMICS}.SelfAttentionDynamics": SETTINGS},
    examples={
        "hidden_markov.run hidden_markov.run_seed one_shot.run": LONG,
        " ".join(f"{DYNAMICS}.{name}" for name in ("run", "orbit", "settle_window")): LONG,
    },
)
