"""Classification of hidden Markov chains by how often they change state; Tiberi et al., Sec. 4.1 and App. G.

Chains over two hidden states have two classes: they tend to stay (+1) or to switch (-1). Tokens are noisy vectors of
the hidden state; a zero token begins the sequence, and every token has a one-hot position.
"""

from dataclasses import dataclass, replace
from typing import Literal

import jax
import jax.numpy as jnp
from jax.scipy.linalg import block_diag
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from theorykit._compat import require_float64
from theorykit._jit import jit, usual_settings
from theorykit.checks import checked_instance, checked_key, checked_number, checked_whole_number

from . import Examples

Layer = Literal[1, 2]


@dataclass(frozen=True)
class HiddenMarkovTask:
    """Settings of the task; the defaults are the paper's.

    - `length`: hidden states in a chain.
    - `dimension`: features of a token, even; the two states' vectors are orthogonal, of squared norm `dimension`.
    - `stay_probability`: probability that the hidden state stays in class +1, and that it switches in class -1.
    - `parallel_noise`, `orthogonal_noise`: standard deviation of the tokens' noise in the plane of the two state
      vectors, and orthogonal to it (5 in the paper's noisy variant).
    - `hardness`: the factor on all attention scores.
    """

    length: int = 30
    dimension: int = 200
    stay_probability: float = 0.7
    parallel_noise: float = 1.0
    orthogonal_noise: float = 1.0
    hardness: float = 10.0

    def __post_init__(self):
        checked_whole_number("length", self.length, least=1)
        checked_whole_number("dimension", self.dimension)
        if self.dimension < 2 or self.dimension % 2:
            raise ValueError(f"dimension must be even and positive, half for each state, got {self.dimension}")
        checked_number("stay_probability", self.stay_probability, least=0.0, most=1.0)
        checked_number("hardness", self.hardness)
        for name in ("parallel_noise", "orthogonal_noise"):
            checked_number(name, getattr(self, name), least=0.0)

    @property
    def tokens(self) -> int:
        """Number of tokens in a sequence, including the beginning token."""
        return self.length + 1

    @property
    def input_features(self) -> int:
        """Number of features of a token, including its one-hot position."""
        return self.dimension + self.tokens


def sample_examples(task: HiddenMarkovTask, examples: int, *, key: PRNGKeyArray) -> Examples:
    """Sample `examples` labelled sequences, half of each class (an odd one goes to class +1), in random order."""
    _check_task(task)
    checked_whole_number("examples", examples, least=1)
    noise = task.parallel_noise, task.orthogonal_noise
    return _sample(_noiseless(task), noise, examples, checked_key("key", key))


def _noiseless(task: HiddenMarkovTask) -> HiddenMarkovTask:
    # Functions are compiled for each task. They get the strength of the noise as a number, if they depend on it.
    return replace(task, parallel_noise=0.0, orthogonal_noise=0.0)


@jit
def _sample(task: HiddenMarkovTask, noise: tuple[ArrayLike, ArrayLike], examples: int, key: PRNGKeyArray) -> Examples:
    order_key, chain_key, noise_key = jax.random.split(key, 3)
    labels = jax.random.permutation(order_key, jnp.where(jnp.arange(examples) < (examples + 1) // 2, 1.0, -1.0))
    tokens = _tokens(task, noise, _hidden_states(task, labels, chain_key), noise_key)
    beginning = jnp.zeros((examples, 1, task.dimension))
    positions = jnp.broadcast_to(jnp.eye(task.tokens), (examples, task.tokens, task.tokens))
    return Examples(jnp.concatenate([jnp.concatenate([beginning, tokens], axis=1), positions], axis=2), labels)


@usual_settings()
def good_head(task: HiddenMarkovTask, layer: Layer) -> Float[Array, "features features"]:
    """Build the key-query product of the good head, key index left.

    In layer 1 it attends to the preceding token if that token is in the same hidden state, and to the beginning token
    otherwise. In layer 2 it attends to all tokens equally, and so counts.
    """
    _check_task(task)
    if checked_whole_number("layer", layer) not in (1, 2):
        raise ValueError(f"layer must be 1 or 2, for the task has layers 1 and 2, got {layer}")
    if layer == 2:
        return uniform_head(task)
    stay, switch = _state_vectors(task)
    detector = 2 * (stay - switch) / jnp.sum((stay - switch) ** 2)
    preceding = jnp.eye(task.tokens, k=1)
    to_beginning = jnp.full(task.tokens, 1.5).at[0].set(0.0)
    return task.hardness * block_diag(jnp.outer(detector, detector), preceding.at[0].set(to_beginning))


def uniform_head(task: HiddenMarkovTask) -> Float[Array, "features features"]:
    """Build the key-query product of a head that attends to all tokens equally."""
    _check_task(task)
    no_scores = jnp.zeros((task.dimension, task.dimension))
    return task.hardness * block_diag(no_scores, jnp.ones((task.tokens, task.tokens)))


def random_head(task: HiddenMarkovTask, *, key: PRNGKeyArray) -> Float[Array, "features features"]:
    """Draw the key-query product of a random head: normal entries, scaled by block like the tokens."""
    _check_task(task)
    checked_key("key", key)
    deviation = jnp.concatenate([jnp.full(task.dimension, task.dimension**-0.5), jnp.ones(task.tokens)])
    shape = (task.input_features, task.input_features)
    return task.hardness * jnp.outer(deviation, deviation) * jax.random.normal(key, shape)


def good_and_random_heads(
    task: HiddenMarkovTask, *, key: PRNGKeyArray
) -> tuple[Float[Array, "2 features features"], Float[Array, "2 features features"]]:
    """Build the paper's network, heads (2, 2): in each layer the good head first, then a random one.

    Paths are named by their heads in layers 1 and 2. "11" is good, "21" reduces noise because it averages over tokens,
    and "12" and "22" are harmful.
    """
    _check_task(task)
    return _good_and_random_heads(_noiseless(task), checked_key("key", key))


@jit
def _good_and_random_heads(task: HiddenMarkovTask, key: PRNGKeyArray):
    first, second = jax.random.split(key)
    return (
        jnp.stack([good_head(task, 1), random_head(task, key=first)]),
        jnp.stack([good_head(task, 2), random_head(task, key=second)]),
    )


def _check_task(task: HiddenMarkovTask) -> None:
    require_float64()
    checked_instance("task", task, HiddenMarkovTask)


def _state_vectors(task):
    first_half = jnp.arange(task.dimension) < task.dimension // 2
    return jnp.sqrt(2.0) * first_half, jnp.sqrt(2.0) * ~first_half


def _hidden_states(task, labels, key):
    """Sample whether each token is in the first state (examples, length): a fair start, then a Markov chain."""
    stay = jnp.where(labels > 0, task.stay_probability, 1 - task.stay_probability)[:, None]
    uniform = jax.random.uniform(key, (len(labels), task.length))
    switches = jnp.where(jnp.arange(task.length) == 0, uniform < 0.5, uniform >= stay)
    return jnp.cumsum(switches, axis=1) % 2 == 0


def _tokens(task, strengths, states, key):
    first, second = _state_vectors(task)
    plane = jnp.stack([first, second]) / jnp.sqrt(task.dimension)
    noise = jax.random.normal(key, (*states.shape, task.dimension))
    parallel = noise @ plane.T @ plane
    means = jnp.where(states[..., None], first, second)
    return means + strengths[0] * parallel + strengths[1] * (noise - parallel)
