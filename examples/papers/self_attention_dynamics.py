"""Trajectories and orbit diagrams of a 1-bit self-attention network, as published by Poc-Lopez and Aguilera.

The mean-field map settles to a window of attentions at one beta. Orbits at all other betas start from this window.
The result is one labelled tree.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import xarray as xr
from jax.typing import ArrayLike
from theorykit.dmft.diagrams import ORBIT, OrbitSettings, describe_exponents, in_blocks, orbit_diagram, phase_diagram
from theorykit.dynamics.orthonormal import gram_schmidt
from theorykit.dynamics.time_series import amplitude_spectrum, autocorrelation, detect_period, zero_one_test

from theorykit import dmft, store
from theorykit.checks import (
    check_fields,
    checked_arguments,
    checked_array,
    checked_instance,
    checked_number,
    checked_whole_number,
)
from theorykit.workers import Workers, check_executor

# The published network has position bits for this many tokens, and this scale of its attention scores.
_CONTEXT = 4
_SCALE = 100
# Lags of the autocorrelation, the longest period searched, and the fewest values for the 0-1 test for chaos.
_LAGS = 256
_LONGEST_PERIOD = 512
_TESTED = 100
# Increase this number whenever the same arguments give different trajectories.
_VERSION = 1
# lambda_1 of the published network by another program, over 75,000 tokens.
_REFERENCE = {1.255: -1e-5, 1.26451: -0.005, 1.266: 0.078, 1.27: -0.048, 1.28: 0.146, 1.4: 0.074}


@dataclass(frozen=True)
class Range:
    """An orbit diagram over evenly spaced inverse temperatures of the output."""

    lowest: float
    highest: float
    values: int
    """Number of inverse temperatures."""
    recorded: int
    """Tokens of each orbit used for marks and exponents."""
    transient: int = 100_000
    """Tokens discarded before recording."""

    def __post_init__(self):
        check_fields(self)
        checked_number("lowest", self.lowest, least=0.0)
        for name, least in {"recorded": 1, "transient": 0}.items():
            checked_whole_number(name, getattr(self, name), least=least)
        if self.values < 2 or not self.lowest < self.highest:
            raise ValueError(f"a diagram needs at least two values of beta, from a low to a high one, got {self}")

    def betas(self) -> np.ndarray:
        """Return the inverse temperatures."""
        return np.linspace(self.lowest, self.highest, self.values)


@dataclass(frozen=True)
class Phases:
    """A phase diagram over both inverse temperatures, from zero.

    The published diagram has 200 values of each and discards 100,000 tokens.
    """

    values: int = 61
    """Number of values of each inverse temperature."""
    highest: float = 3.0
    """Largest value of both. For the attention, the value before its scores are scaled."""
    transient: int = 20_000
    """Tokens discarded before recording."""
    recorded: int = 20_000
    """Tokens of each orbit used to count levels."""
    measured: int = 100_000
    """Tokens of each orbit used for its two largest exponents and its regime."""

    def __post_init__(self):
        check_fields(self)
        for name, least in {"transient": 0, "recorded": 1, "measured": 1}.items():
            checked_whole_number(name, getattr(self, name), least=least)
        if self.values < 2 or not self.highest > 0:
            raise ValueError(f"a phase diagram needs at least two values, up to one above zero, got {self}")


@dataclass(frozen=True)
class SelfAttentionDynamics:
    """Trajectories, exponents and orbit diagrams of the published network, with a context of 4 tokens and 3 patterns.

    All orbits start from the window of attentions to which the network has settled at one inverse temperature.
    """

    betas: tuple[float, ...] = (1.255, 1.26451, 1.266, 1.27, 1.28, 1.4)
    """Inverse temperatures of the output for single orbits."""
    transient: int = 100_000
    """Tokens discarded before these orbits, and before the common initial window."""
    recorded: int = 65_536
    """Tokens of these orbits used for exponents, spectra and correlations."""
    shown: int = 8192
    """Number of first tokens kept for the figure."""
    diagram: Range = Range(0.0, 3.0, 701, recorded=75_000)
    """The whole range."""
    zoom: Range = Range(1.24, 1.28, 4001, recorded=40_000)
    """The transition from a torus to chaos."""
    phases: Phases = Phases()
    """Regimes over the inverse temperatures of the output and of the attention."""
    exponents: int = 3
    """Number of leading Lyapunov exponents in the diagrams."""
    attention: float = 2.2
    """Inverse temperature of the attention."""
    epsilon: float = 0.02
    """Share of the positions in the overlaps."""
    start: float = 3.0
    """Inverse temperature at which the common initial window settles."""
    seed: int = 1
    """Seed of the weights, drawn as in the published program."""

    def __post_init__(self):
        check_fields(self)
        checked_whole_number("seed", self.seed, least=0)
        for name in ("attention", "start"):
            checked_number(name, getattr(self, name), least=0.0)
        checked_number("epsilon", self.epsilon, least=0.0, most=1.0)
        if not self.betas or min(self.betas) <= 0:
            raise ValueError(
                f"trajectories need betas above zero, for at zero the semantic bits are fair coins: {self.betas}"
            )
        if self.recorded < _TESTED * _CONTEXT or not 1 <= self.shown <= self.recorded:
            raise ValueError(
                f"record {_TESTED * _CONTEXT} tokens at least, and show no more: recorded={self.recorded}, "
                f"shown={self.shown}"
            )
        if self.transient < _CONTEXT or self.exponents < 2:
            raise ValueError(
                f"transient={self.transient} must fill a context of {_CONTEXT}, and a regime needs two exponents at "
                f"least, not {self.exponents}"
            )

    @property
    def is_published(self) -> bool:
        """Check whether the network and the start are the published ones."""
        return (self.attention, self.epsilon, self.start, self.seed) == (2.2, 0.02, 3.0, 1)

    def parameters(self, model: dmft.SelfAttention, beta: ArrayLike) -> dmft.Parameters:
        """Return the network's parameters at `beta`, a number or an array."""
        checked_instance("model", model, dmft.SelfAttention)
        if checked_array("beta", beta).size == 0:
            raise ValueError("beta must be at least one number, got none")
        return dmft.Parameters(beta, dmft.attention_gain(self.attention, _SCALE, model.patterns), self.epsilon)


@checked_arguments
def run(
    settings: SelfAttentionDynamics, partial_results: Path, *, executor: Workers = None, progress: bool = True
) -> xr.DataTree:
    """Compute `trajectories`, `diagram` and `zoom`, datasets over `beta`, and `phases`, over `gamma` and `beta`.

    The diagrams are described in `theorykit.dmft.diagrams`, and the node `trajectories` in `orbit`. For the published
    network, `reference` has exponents from another program. Finished orbits are kept in `partial_results`, and an
    interrupted run resumes from there. An `executor` computes the orbits, as in `orbit_diagram`. `progress` shows bars.
    """
    check_executor(executor)
    weights = dmft.published_weights(settings.seed)
    model = dmft.self_attention_limit(weights, _CONTEXT)
    window = settle_window(settings, model, weights)

    def start(model: dmft.SelfAttention, parameters: dmft.Parameters) -> dmft.State:
        return dmft.state_from_window(model, parameters, window)

    def place(name: str) -> dict[str, Any]:
        return {"folder": partial_results / name, "executor": executor, "progress": progress}

    def diagram(name: str, over: Range) -> xr.Dataset:
        parameters = settings.parameters(model, over.betas())
        long = OrbitSettings(over.transient, over.recorded, settings.exponents)
        found = orbit_diagram(model, parameters, start, long, label=name, **place(name))
        for marks in ("visited", "in_section"):
            found[marks].encoding = {"zlib": True}  # bytes, nearly all of them zero
        return found

    nodes = {
        "trajectories": _trajectories(settings, model, window, **place("trajectories")),
        "diagram": diagram("diagram", settings.diagram),
        "zoom": diagram("zoom", settings.zoom),
    }
    nodes = {name: node.swap_dims({ORBIT: "beta"}) for name, node in nodes.items()}
    over = settings.phases
    values = np.linspace(0.0, over.highest, over.values)
    gammas = dmft.attention_gain(values, _SCALE, model.patterns)
    nodes["phases"] = phase_diagram(
        model,
        dmft.Parameters(values, gammas[:, None], settings.epsilon),
        start,
        OrbitSettings(over.transient, over.recorded, exponents=2, measured=over.measured),
        **place("phases"),
    )
    if settings.is_published:
        nodes["reference"] = xr.Dataset({"exponent": ("beta", [*_REFERENCE.values()])}, {"beta": [*_REFERENCE]})
    about = xr.Dataset(attrs={"settings": msgspec.json.encode(settings).decode()})
    return xr.DataTree.from_dict({"/": about, **nodes})


@checked_arguments
def settle_window(settings: SelfAttentionDynamics, model: dmft.SelfAttention, weights: dmft.Weights) -> dmft.Window:
    """Run from the first output pattern as prompt, at beta = `settings.start`, and return the settled window."""
    parameters = settings.parameters(model, np.array([settings.start]))  # one orbit, as single orbits are
    prompted = dmft.window_start(model, parameters, dmft.pattern_prompt(weights))
    return dmft.discard_transient(model, parameters, prompted, settings.transient)


def _trajectories(
    settings: SelfAttentionDynamics,
    model: dmft.SelfAttention,
    window: dmft.Window,
    **place: Any,
) -> xr.Dataset:
    betas = np.asarray(settings.betas)
    run = store.settings_of(
        "trajectories",
        _VERSION,
        **{name: getattr(settings, name) for name in ("transient", "recorded", "shown")},
        model=model,
        parameters=settings.parameters(model, betas),
        window=window,
    )
    # Use blocks of one orbit. Rounding decides between coexisting attractors, and it must not depend on other orbits.
    alone = partial(_orbits_of, settings, model, window)
    return in_blocks(alone, len(betas), settings=run, orbits_per_block=1, label="trajectories", **place)


def _orbits_of(
    settings: SelfAttentionDynamics, model: dmft.SelfAttention, window: dmft.Window, numbers: np.ndarray
) -> xr.Dataset:
    """Compute the trajectories with these numbers."""
    return orbit(settings, model, settings.parameters(model, np.asarray(settings.betas)[numbers]), window)


@checked_arguments
def orbit(
    settings: SelfAttentionDynamics, model: dmft.SelfAttention, parameters: dmft.Parameters, window: dmft.Window
) -> xr.Dataset:
    """Compute the orbits from `window` at parameters that have one axis, once they have settled.

    - `overlap`, `attention` (orbit, pattern, token): the semantic overlap of the output, (1 - epsilon) <w^o tanh>, and
      the attention of the token; coordinate `position` (token).
    - `exponent`, `exponent_error` (orbit, number): all exponents.
    - `regime` (orbit): regime from the two largest exponents, as in orbit diagrams.
    - `dimension` (orbit): the Kaplan-Yorke dimension.
    - `chaos` (orbit): K of the 0-1 test for the first pattern, sampled once per context.
    - `period` (orbit): period of the overlaps in tokens, or 0 if there is none up to 512.
    - `amplitude` (orbit, pattern, frequency), `autocorrelation` (orbit, pattern, lag): statistics of the overlaps.
    """
    settled = dmft.discard_transient(
        model, parameters, dmft.state_from_window(model, parameters, window), settings.transient
    )
    # Householder reflections do not suit blocks in several threads.
    spectrum = dmft.lyapunov_spectrum(model, parameters, settled, steps=settings.recorded, orthonormalise=gram_schmidt)
    start = dmft.state_from_window(model, parameters, settled)
    trajectory = dmft.run(model, parameters, start, steps=settings.recorded)
    before = jnp.moveaxis(trajectory.attention[:-1], 1, 0)
    overlap = np.moveaxis(np.asarray(dmft.semantic_overlap(model, dmft.OUTPUT, parameters, before)), -1, 0)
    attention = np.moveaxis(np.asarray(trajectory.attention[1:]), (-1, 0), (0, -1))
    seen = slice(settings.shown)
    by_token = (ORBIT, "pattern", "token")
    return xr.Dataset(
        {
            "overlap": (by_token, overlap[..., seen]),
            "attention": (by_token, attention[..., seen]),
            **describe_exponents(spectrum),
            **_describe(overlap),
        },
        {
            "beta": (ORBIT, np.asarray(parameters.beta)),
            "pattern": np.arange(1, model.patterns + 1),
            "token": np.arange(settings.shown),
            "position": ("token", np.asarray(trajectory.positions[seen])),
        },
    )


def _describe(overlap: np.ndarray) -> dict:
    """Describe overlaps `(orbit, pattern, token)` as time series."""
    amplitude = amplitude_spectrum(overlap, (ORBIT, "pattern"))
    lags = min(_LAGS, overlap.shape[-1] - 1)
    periods = detect_period(overlap, min(_LONGEST_PERIOD, overlap.shape[-1] // 2))
    return {
        "amplitude": amplitude,
        "autocorrelation": ((ORBIT, "pattern", "lag"), autocorrelation(overlap, lags)),
        "lag": np.arange(lags + 1),
        "period": (ORBIT, np.lcm.reduce(periods, axis=-1)),
        "chaos": (ORBIT, zero_one_test(overlap[:, 0, ::_CONTEXT], key=jax.random.key(0))),
    }
