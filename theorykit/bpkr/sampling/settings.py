"""How long samplers run, and how the No-U-Turn sampler takes its steps."""

from dataclasses import dataclass
from typing import Literal

from ...checks import checked_choice, checked_flag, checked_number, checked_whole_number

# doublings of a trajectory; NumPyro counts its steps in 32 bits
_DEEPEST_TREE = 30


@dataclass(frozen=True)
class Schedule:
    """How long a sampler runs, and what it keeps.

    - `chains`: Markov chains from independent starts, run side by side.
    - `warmup`: steps of each that are not kept; the No-U-Turn sampler adapts its step size and mass matrix in them.
    - `draws`: steps of each that are kept.
    - `keep_weights`: whether the weights of each draw are kept too, and not only what follows from them; of samplers
      of weights alone.

    Raises `TypeError` or `ValueError` for what is no whole number, or too small a one.
    """

    chains: int
    warmup: int
    draws: int
    keep_weights: bool = False

    def __post_init__(self):
        checked_flag("keep_weights", self.keep_weights)
        for name, least in (("chains", 1), ("warmup", 0), ("draws", 1)):
            object.__setattr__(self, name, checked_whole_number(name, getattr(self, name), least=least))


@dataclass(frozen=True)
class NoUTurn:
    """How the No-U-Turn sampler takes its steps: M. D. Hoffman and A. Gelman, J. Mach. Learn. Res. 15 (2014).

    - `target_accept`: the acceptance rate, between 0 and 1, that warm-up adapts the step size to; a higher one makes
      shorter steps.
    - `max_tree_depth`: how often a trajectory is doubled at most; a draw takes up to 2^max_tree_depth gradients.
    - `mass_matrix`: whether warm-up estimates variances of the coordinates alone, "diagonal", or "dense" covariances.
      Dense is for few coordinates: warm-up needs several times as many steps as there are coordinates, or trajectories
      grow to their full length.

    Raises `TypeError` or `ValueError` for what is no such number or word.
    """

    target_accept: float = 0.8
    max_tree_depth: int = 10
    mass_matrix: Literal["dense", "diagonal"] = "diagonal"

    def __post_init__(self):
        share = float(checked_number("target_accept", self.target_accept, above=0.0, below=1.0))
        object.__setattr__(self, "target_accept", share)
        depth = checked_whole_number("max_tree_depth", self.max_tree_depth, least=1, most=_DEEPEST_TREE)
        object.__setattr__(self, "max_tree_depth", depth)
        checked_choice("mass_matrix", self.mass_matrix, ("dense", "diagonal"))


DEFAULT_SCHEDULES = {
    "exact": Schedule(chains=4, warmup=500, draws=1000),
    "gibbs": Schedule(chains=4, warmup=1000, draws=4000),
    "nuts": Schedule(chains=4, warmup=500, draws=500),
}
"""The schedule of each sampler, by the approach that `compare` calls it."""
