"""The No-U-Turn sampler of NumPyro, on any posterior."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray

from ...extras import Lazy
from .posterior import OrderParameterPosterior, WeightPosterior
from .settings import NoUTurn

numpyro = Lazy("numpyro", "the No-U-Turn sampler")


class NoUTurnSampler(eqx.Module):
    """NUTS on a posterior, with step size and mass matrix adapted in the first `warmup` steps."""

    posterior: OrderParameterPosterior | WeightPosterior
    settings: NoUTurn = eqx.field(static=True)
    warmup: int = eqx.field(static=True)

    def start(self, key: PRNGKeyArray) -> Any:
        start_key, chain_key = jax.random.split(key)
        return self._kernel_and_state(chain_key, {"coordinates": self.posterior.start(start_key)})[1]

    def step(self, state: Any) -> Any:
        # `init` gives NumPyro's kernel its settings. The state that it returns is not used.
        there = numpyro.infer.util.ParamInfo(state.z, state.potential_energy, state.z_grad)
        kernel, _ = self._kernel_and_state(state.rng_key, there)
        return kernel.sample(state, (), {})

    def draw(self, state: Any) -> Mapping[str, Array]:
        statistics = {
            "lp": -state.potential_energy,
            "energy": state.energy,
            "diverging": state.diverging,
            "acceptance_rate": state.accept_prob,
            "n_steps": state.num_steps,
            "step_size": state.adapt_state.step_size,
        }
        return {**self.posterior.record(state.z["coordinates"]), **statistics}

    def _kernel_and_state(self, key: PRNGKeyArray, initial: Any) -> tuple[Any, Any]:
        # NumPyro names the blocks of coordinates that have a dense mass matrix.
        kernel = numpyro.infer.NUTS(
            potential_fn=lambda z: -self.posterior.log_density(z["coordinates"]),
            target_accept_prob=self.settings.target_accept,
            max_tree_depth=self.settings.max_tree_depth,
            dense_mass=[("coordinates",)] if self.settings.mass_matrix == "dense" else [],
        )
        return kernel, kernel.init(key, self.warmup, initial, (), {})
