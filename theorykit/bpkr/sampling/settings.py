"""Settings of samplers: the length of a run, and the steps of the No-U-Turn sampler."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from ...checks import Count, Index, check_fields, checked_number, checked_whole_number


@dataclass(frozen=True)
class Schedule:
    """The length of a run of a sampler, and the quantities that it keeps.

    - `chains`: number of Markov chains, from independent starts.
    - `warmup`: number of discarded steps per chain, in which NUTS adapts its step size and mass matrix.
    - `draws`: number of recorded steps per chain.
    - `keep_weights`: whether samplers of weights also keep the weights of each draw.
    """

    chains: Count
    warmup: Index
    draws: Count
    keep_weights: bool = False

    def __post_init__(self):
        check_fields(self)


_Rate = Annotated[float, partial(checked_number, above=0.0, below=1.0)]
# NumPyro counts the steps of a trajectory in 32 bits.
_Depth = Annotated[int, partial(checked_whole_number, least=1, most=30)]


@dataclass(frozen=True)
class NoUTurn:
    """Settings of the No-U-Turn sampler: M. D. Hoffman and A. Gelman, J. Mach. Learn. Res. 15 (2014).

    - `target_accept`: warm-up adapts the step size to this acceptance rate, between 0 and 1.
    - `max_tree_depth`: a draw takes up to 2^max_tree_depth gradients.
    - `mass_matrix`: "diagonal" estimates the variances of the coordinates in warm-up. "dense" estimates all their
      covariances, which needs several times as many warm-up steps as there are coordinates.
    """

    target_accept: _Rate = 0.8
    max_tree_depth: _Depth = 10
    mass_matrix: Literal["dense", "diagonal"] = "diagonal"

    def __post_init__(self):
        check_fields(self)
        object.__setattr__(self, "target_accept", float(self.target_accept))


DEFAULT_SCHEDULES = {
    "exact": Schedule(chains=4, warmup=500, draws=1000),
    "gibbs": Schedule(chains=4, warmup=1000, draws=4000),
    "nuts": Schedule(chains=4, warmup=500, draws=500),
}
