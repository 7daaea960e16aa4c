"""The No-U-Turn sampler of NumPyro on a density over flat coordinates."""

import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray

from ...extras import Lazy
from .chains import AbstractSampler
from .settings import NoUTurn

numpyro = Lazy("numpyro", "the No-U-Turn sampler")

# NumPyro's stack of handlers, and what a kernel keeps of the function that is traced, belong to the whole process
_TRACING = threading.RLock()


class NoUTurnSampler(AbstractSampler):
    """NUTS on `posterior`, which adapts its step size and mass matrix in `warmup` steps."""

    lockstep: ClassVar[bool] = False

    posterior: eqx.Module
    kernel: Any = eqx.field(static=True)
    warmup: int = eqx.field(static=True)

    def __init__(self, posterior: eqx.Module, settings: NoUTurn, *, warmup: int):
        self.posterior, self.warmup = posterior, warmup
        self.kernel = _kernel(posterior.dimension, settings, warmup)

    def start(self, key: PRNGKeyArray) -> Any:
        start_key, chain_key = jax.random.split(key)
        initial = {"coordinates": self.posterior.start(start_key)}
        with _TRACING:
            return self.kernel.init(chain_key, self.warmup, initial, (self.posterior,), {})

    def step(self, state: Any) -> Any:
        with _TRACING:
            return self.kernel.sample(state, (self.posterior,), {})

    def record(self, state: Any) -> Mapping[str, Array]:
        return self.posterior.record(state.z["coordinates"])

    def stats(self, state: Any) -> Mapping[str, Array]:
        return {
            "lp": -state.potential_energy,
            "energy": state.energy,
            "diverging": state.diverging,
            "acceptance_rate": state.accept_prob,
            "n_steps": state.num_steps,
            "step_size": state.adapt_state.step_size,
        }


@lru_cache
def _kernel(dimension: int, settings: NoUTurn, warmup: int) -> Any:
    # one object for all posteriors of this dimension: compiled code is remembered by it
    def model(posterior):
        support = numpyro.distributions.constraints.real_vector
        density = numpyro.distributions.ImproperUniform(support, (), (dimension,))
        coordinates = numpyro.sample("coordinates", density)
        numpyro.factor("log_density", posterior.log_density(coordinates))

    options = {"target_accept_prob": settings.target_accept, "max_tree_depth": settings.max_tree_depth}
    return numpyro.infer.NUTS(model, dense_mass=settings.mass_matrix == "dense", **options)
