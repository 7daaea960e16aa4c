# %% [markdown]
# # Queries and keys learned by the evidence of the theory
#
# Learn how to optimise queries and keys by the evidence, without training a network.
#
# The theory takes queries and keys as given and averages over all other weights. The log evidence, the log probability
# of the training labels, is therefore a differentiable function of queries and keys. We maximise it with Adam over the
# queries and keys of all heads; no other weight is trained. For comparison, gradient descent trains all weights of one
# network. Both methods use the same architecture, initial queries and keys, and examples. Which finds the better
# attention?

# %%
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from jaxtyping import Array, Float

import theorykit
from papers.tasks import hidden_markov
from papers.tasks.one_shot import OneShotTask, episodes
from papers.tasks.strokes import stroke_characters
from theorykit import bpkr
from theorykit.bpkr.training import Examples, TrainingSettings, initial_network, train
from theorykit.plots.style import LIMITS, THEORY, save, use_style

theorykit.enable_float64()

SEEDS = 3
STEPS, EVERY = 100, 10  # for the evidence; gradient descent takes three times as many steps
RATES = (0.01, 0.03)  # for gradient descent, in separate runs; the evidence uses the last
TEMPERATURE = 0.3
RANK = 4  # rows of the query and key matrices
architecture = bpkr.Architecture(layers=(2, 2), widths=10, temperature=TEMPERATURE)

# %% [markdown]
# ## Two tasks
#
# The first task has 400 training chains of a hidden Markov model, with 15 states, 8 features and little noise. The
# second task is one-shot images. A sequence shows two labelled characters and a third, which is one of the two, with 8
# x 8 pixels in four patches. There are 2000 training sequences of 200 characters, and we test on 200 other characters.
# Both tasks are smaller than in the paper, so that the queries and keys of all four heads have few parameters: 768 and
# 512.


# %%
class Problem(NamedTuple):
    """Training and test examples, the token that is read out, and the initial network."""

    training: Examples
    test: Examples
    readout: str
    network: bpkr.Network


chains = hidden_markov.HiddenMarkovTask(length=15, dimension=8, parallel_noise=0.3, orthogonal_noise=0.3)
images = OneShotTask(image_size=8, patch_size=4, channels=1)
known, unknown = (episodes(images, stroke_characters(200, 20, key=jax.random.key(n), size=8)) for n in (1, 2))
draws = {
    "hidden Markov chains": (
        partial(hidden_markov.sample_examples, chains, 400),
        partial(hidden_markov.sample_examples, chains, 1000),
        "last",
    ),
    "one-shot images": (partial(known, 2000), partial(unknown, 1000), "mean"),
}


def problem_of(task: str, seed: int) -> Problem:
    draw_training, draw_test, readout = draws[task]
    training_key, test_key, network_key = jax.random.split(jax.random.key(seed), 3)
    training, test = draw_training(key=training_key), draw_test(key=test_key)
    size = training.inputs.shape[2]
    return Problem(training, test, readout, initial_network(architecture, RANK, size, readout=readout, key=network_key))


# %% [markdown]
# ## A step up the evidence
#
# One function of queries and keys computes attention, path features, saddle point and evidence. At the saddle point the
# action is stationary in the order parameters, so the gradient with respect to queries and keys does not need the
# derivative of the saddle point itself. Each solve starts from the order parameters of the previous step, and then
# takes four or five evaluations of the action instead of seven to nine. `theorykit.jit` is Equinox's `jit` with faster
# compilation. The learned parameters are arrays from the first step: for a Python number or a weakly typed array, JAX
# would trace and compile the step again.


# %%
class Numbers(NamedTuple):
    """The learned parameters."""

    queries: tuple[Array, ...]
    keys: tuple[Array, ...]
    log_temperature: Array


ADAM = optax.scale_by_adam()


def features(numbers: Numbers, inputs: Float[Array, "examples tokens features"], readout: str) -> Array:
    attention = bpkr.attention(inputs, query=numbers.queries, key=numbers.keys)
    return bpkr.path_features(inputs, attention, architecture, readout)


def at_temperature(log_temperature: Array) -> bpkr.Architecture:
    return bpkr.Architecture(architecture.layers, 10, temperature=jnp.exp(log_temperature))


@theorykit.jit
def step(numbers: Numbers, moments, start: bpkr.OrderParameters, rates: Numbers, training: Examples, readout: str):
    """Take one step. Return the new numbers and moments of Adam, and the saddle point before the step."""

    def cost(numbers):
        found = features(numbers, training.inputs, readout)
        saddle = bpkr.solve(at_temperature(numbers.log_temperature), bpkr.Data(found, training.labels), initial=start)
        return -saddle.log_evidence, saddle

    slope, saddle = jax.grad(cost, has_aux=True)(numbers)
    updates, moments = ADAM.update(slope, moments)
    return jax.tree.map(lambda number, rate, update: number - rate * update, numbers, rates, updates), moments, saddle


@eqx.filter_jit
def accuracy(log_temperature, order_parameters, training_features, labels, test_features, test_labels):
    network = at_temperature(log_temperature)
    mean = bpkr.predict(
        bpkr.Problem(network, bpkr.Data(training_features, labels)), order_parameters, test_features
    ).mean
    return bpkr.sign_accuracy(mean, test_labels)


@eqx.filter_jit
def held_out(numbers: Numbers, saddle: bpkr.Saddle, problem: Problem) -> Array:
    """Compute the accuracy of the theory's prediction on the test set."""
    found = [features(numbers, data.inputs, problem.readout) for data in (problem.training, problem.test)]
    order_parameters, labels = saddle.order_parameters, problem.training.labels
    return accuracy(numbers.log_temperature, order_parameters, found[0], labels, found[1], problem.test.labels)


class Course(NamedTuple):
    """History of learning: log evidence per label, accuracy at every tenth step, seconds per step, learned numbers."""

    evidence: np.ndarray
    accuracy: np.ndarray
    seconds: float
    numbers: Numbers


def climb(problem: Problem, numbers: Numbers, temperature_rate: float = 0.0, steps: int = STEPS) -> Course:
    rates = jax.tree.map(lambda _: jnp.asarray(RATES[-1]), numbers)
    rates = rates._replace(log_temperature=jnp.asarray(temperature_rate))
    moments, start = ADAM.init(numbers), bpkr.gp_limit(architecture)
    evidence, accuracies, seconds = [], [], []
    for count in range(steps + 1):
        begun = time.perf_counter()
        after, moments, saddle = jax.block_until_ready(
            step(numbers, moments, start, rates, problem.training, problem.readout)
        )
        seconds.append(time.perf_counter() - begun)
        assert saddle.converged, saddle.diagnosis
        if count % EVERY == 0:
            evidence.append(saddle.log_evidence / len(problem.training.labels))
            accuracies.append(held_out(numbers, saddle, problem))
        found, numbers, start = numbers, after, saddle.order_parameters
    return Course(np.array(evidence), np.array(accuracies), float(np.median(seconds)), found)


# %% [markdown]
# ## Gradient descent on all weights
#
# We train with `bpkr.training` on all examples in every step, and test equally often. For gradient descent we report
# the best accuracy on the test set over the run, for the better of two learning rates. In practice this optimum is not
# known. For the evidence we report the last step.


# %%
class SameExamples(eqx.Module):
    """The same examples in every step."""

    examples: Examples

    def __call__(self, count: int, *, key: Array) -> Examples:
        return Examples(self.examples.inputs[:count], self.examples.labels[:count])


def descend(problem: Problem, rate: float) -> tuple[np.ndarray, Numbers]:
    settings = TrainingSettings(
        steps=3 * STEPS,
        batch=len(problem.training.labels),
        learning_rate=rate,
        validate_every=EVERY,
        validation_examples=len(problem.test.labels),
    )
    streams = SameExamples(problem.training), SameExamples(problem.test)
    trained = train(problem.network, *streams, key=jax.random.key(0), settings=settings, progress=False)
    return trained.history["validation_accuracy"].to_numpy(), numbers_of(trained.network)


def numbers_of(network: bpkr.Network) -> Numbers:
    return Numbers(network.heads.query, network.heads.key, jnp.asarray(np.log(TEMPERATURE)))


# %% [markdown]
# ## Results
#
# For comparison we also evaluate the theory at the heads that gradient descent found. This separates the effect of
# these heads from the effect of the other trained weights. For the chains, another run also learns the temperature, and
# we evaluate the theory at the ideal heads of the paper.


# %%
def ideal_accuracy(problem: Problem, seed: int) -> float:
    key_query = hidden_markov.good_and_random_heads(chains, key=jax.random.key(100 + seed))
    found = [
        bpkr.path_features(data.inputs, bpkr.attention(data.inputs, key_query=key_query), architecture, "last")
        for data in (problem.training, problem.test)
    ]
    saddle = bpkr.solve(architecture, bpkr.Data(found[0], problem.training.labels))
    mean = bpkr.predict(
        bpkr.Problem(architecture, bpkr.Data(found[0], problem.training.labels)), saddle.order_parameters, found[1]
    ).mean
    return float(bpkr.sign_accuracy(mean, problem.test.labels))


def likeness(numbers: Numbers) -> float:
    """Compute the largest absolute cosine between the key-query products of two heads of a layer."""
    products = [jnp.einsum("hgi,hgj->hij", *layer) for layer in zip(numbers.keys, numbers.queries, strict=True)]
    flat = [product.reshape(2, -1) / jnp.linalg.norm(product, axis=(1, 2))[:, None] for product in products]
    return max(float(jnp.abs(first @ second)) for first, second in flat)


def run(task: str) -> dict[str, np.ndarray]:
    """Run every kind of learning. Arrays have a leading axis of seeds."""
    found = []
    for seed in range(SEEDS):
        problem = problem_of(task, seed)
        start = numbers_of(problem.network)
        climbed = climb(problem, start)
        descents = [descend(problem, rate) for rate in RATES]
        best = max(descents, key=lambda descent: descent[0].max())
        row = {
            "evidence": climbed.evidence,
            "accuracy": climbed.accuracy,
            "seconds": climbed.seconds,
            "likeness": likeness(climbed.numbers),
            "gradient descent": best[0],
            "theory at its heads": climb(problem, best[1], steps=0).accuracy[0],
        }
        if task == "hidden Markov chains":
            cooled = climb(problem, start, temperature_rate=0.1)
            row["evidence, temperature too"], row["accuracy, temperature too"] = cooled.evidence, cooled.accuracy
            row["last temperature"] = float(jnp.exp(cooled.numbers.log_temperature))
            row["ideal heads"] = ideal_accuracy(problem, seed)
        found.append(row)
    return {name: np.array([row[name] for row in found]) for name in found[0]}


def shown(values: np.ndarray) -> str:
    return f"{values.mean():.3f} +- {values.std(ddof=1) / np.sqrt(len(values)):.3f}"


results = {}
for task in draws:
    results[task] = result = run(task)
    print(f"{task}, accuracy on the test set, mean and standard error of {SEEDS} draws of data and heads")
    print("  theory, random heads                ", shown(result["accuracy"][:, 0]))
    print("  theory, heads by evidence           ", shown(result["accuracy"][:, -1]))
    print("    the best on the way               ", shown(result["accuracy"].max(axis=1)))
    print("  gradient descent, best on the way   ", shown(result["gradient descent"].max(axis=1)))
    print("    the last step                     ", shown(result["gradient descent"][:, -1]))
    print("  theory, heads by gradient descent   ", shown(result["theory at its heads"]))
    if "ideal heads" in result:
        print("  theory, ideal heads                 ", shown(result["ideal heads"]))
        print("  theory, heads and temperature       ", shown(result["accuracy, temperature too"][:, -1]))
        print("    the temperature                   ", shown(result["last temperature"]))
    print("  largest cosine of two heads         ", shown(result["likeness"]))
    per_label = result["evidence"]
    print(f"  log evidence per label {shown(per_label[:, 0])} to {shown(per_label[:, -1])}")
    print(f"  a step takes {1e3 * result['seconds'].mean():.0f} ms", flush=True)

# %% [markdown]
# Both methods learn from the same random heads, and over three draws we see no difference between them. On the chains
# the evidence ends at an accuracy of 0.71 and gradient descent at 0.71, or 0.74 with early stopping on the test set. On
# the images they end at 0.70 and 0.69, or 0.70 with early stopping. Each number has a standard error of 0.02 to 0.04.
# The evidence needs fewer steps, most of all on the images: it reaches 0.70 in twenty steps, and gradient descent in
# three hundred, at about the same cost per step. The theory at the heads of gradient descent predicts as well as the
# trained network, so the attention determines the accuracy, not the other weights.
#
# The evidence does not guard against overfitting in the queries and keys, because they are optimised and not averaged
# over. The evidence still rises after the accuracy has passed its maximum. Ideal heads reach 0.89, which neither method
# finds. If the temperature of the chains is learned with the heads, it falls to a seventh, the evidence rises further,
# and the accuracy drops to 0.67. We therefore keep the temperature fixed. Overfitting is worse if the heads have more
# parameters. With the paper's 231 features per token, 100 chains, rank 8 and a learned temperature, 200 steps raised
# the log evidence from -167 to 95. Ideal heads have a log evidence of about -100, and the accuracy stayed at chance.
# The two heads of a layer stay different, although they differ only in their random start. No solve failed.
#
# ## Figure


# %%
def band(axes: plt.Axes, steps: np.ndarray, values: np.ndarray, color: str, label: str, line: str = "-") -> None:
    mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
    axes.plot(steps, mean, line, color=color, label=label)
    axes.fill_between(steps, mean - error, mean + error, color=color, alpha=0.2, linewidth=0)


def draw() -> plt.Figure:
    figure, rows = plt.subplots(2, len(results), figsize=(8.5, 5.6), height_ratios=(1, 1.5))
    ours, theirs = np.arange(0, STEPS + 1, EVERY), np.arange(EVERY, 3 * STEPS + 1, EVERY)
    for (above, below), (task, result) in zip(rows.T, results.items(), strict=True):
        band(above, ours, result["evidence"], THEORY, "")
        above.set(title=task, xlabel="steps", ylabel="log evidence per label")
        band(below, ours, result["accuracy"], THEORY, "heads by evidence")
        band(below, theirs, result["gradient descent"], LIMITS[2], "gradient descent of all weights")
        below.axhline(result["accuracy"][:, 0].mean(), color="0.6", linestyle=":", label="theory, random heads")
        if "ideal heads" in result:
            band(above, ours, result["evidence, temperature too"], LIMITS[0], "", "--")
            band(below, ours, result["accuracy, temperature too"], LIMITS[0], "heads and temperature by evidence", "--")
            below.axhline(result["ideal heads"].mean(), color="0.2", linestyle="-.", label="theory, ideal heads")
        below.set(title=task, xlabel="steps", ylabel="accuracy on the test set")
    figure.legend(*rows[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


with use_style():
    figure = draw()
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# Maximising the evidence finds attention as good as gradient descent: 0.71 against 0.71 on the chains and 0.70 against
# 0.69 on the images, with errors of 0.02 to 0.04. Ideal heads reach 0.89 on the chains. Keep the temperature fixed, and
# stop early.
