"""Queries and keys as random variables: their posterior, and the maxima of their evidence.

Their prior is Gaussian. Given them, all other weights are integrated out:

    p(Q, K, U, u | D) ~ p(Q, K) p(U, u) N(y; 0, K(U_1; Q, K) + T I).

The law of the order parameters does not depend on queries and keys, so this posterior
is exact at every width. The question is from L. Tiberi et al., arXiv 2405.15926.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import xarray as xr
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from ..._compat import needed
from ..._jit import jit, usual_settings
from ...checks import (
    checked_choice,
    checked_instance,
    checked_number,
    checked_whole_number,
    finite_array,
    refuse_traced,
)
from ...runs import Folder
from ...saddle.solve import distinct
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Table, Text
from ...symbolic.documents.values import brief, number
from ..data.data import Data
from ..evaluation.problem import Problem
from ..network.attention import (
    Heads,
    Kind,
    Mask,
    Readout,
    added_scores,
    checked_reading,
    checked_real_tokens,
    unchecked_path_features,
)
from ..network.network import weight_shapes
from ..order_parameters import FiniteWidthLaw, OrderParameters, finite_width_law, gp_limit, order_parameter_rows
from ..saddle.gaussian_fluctuations import corrected_evidence
from ..saddle.solve import solve
from ..specification.architecture import Architecture, check_fits, checked_architecture
from .chains import DEFAULT_SCHEDULES, Schedule, run_chains
from .posteriors import Coordinates, NoUTurn, Number, WeightPosterior, recorded, split_weights
from .sample import MixingWarning, label_draws

# Increase it if draws change for the same arguments.
_VERSION = 1
# Copies of the attention in a gradient.
_COPIES = 6
# Factor of weak starts, and most steps of the ascent to strong ones.
_WEAK, _ASCENT = 0.1, 50
# Largest gradient norm of a mode, and most steps to it.
_GRADIENT, _STEPS, _CLOSE = 1e-5, 2000, 1e-10
# Singular values or log posteriors that are closer are the same.
_SAME = 1e-4
# Step of central differences, and largest eigenvalue of a zero mode relative to others.
_STEP, _ZERO = 1e-4, 1e-6

Integral = Literal["leading", "next order", "infinite width"]
Evidence = Literal["exact", "next order", "leading", "infinite width", "weights"]
_NAMES = {
    "exact": "NUTS on queries, keys and order parameters",
    "weights": "NUTS on queries, keys and all other weights",
    **{kind: f"NUTS on queries and keys, evidence: {kind}" for kind in get_args(Integral)},
}


_NO_SUMMARY = (
    "A maximum is no summary of the posterior: the prior of queries and keys acts as a "
    "nuclear norm of K^T Q, which can switch heads off. Use `sample_queries_keys`."
)


class QueryKeyPrior(eqx.Module):
    """The prior of queries and keys: independent Gaussian entries.

    - `rank`: G, the number of rows of Q and of K per head.
    - `query_variance`, `key_variance`: variances of the entries.
    - `kind`: of attention, as in `bpkr.Heads`.
    """

    rank: int = eqx.field(static=True)
    query_variance: float = 1.0
    key_variance: float = 1.0
    kind: Kind = eqx.field(default="softmax", static=True)

    def __check_init__(self):
        checked_whole_number("rank", self.rank, least=1)
        checked_number("query_variance", self.query_variance, above=0.0)
        checked_number("key_variance", self.key_variance, above=0.0)
        checked_choice("kind", self.kind, get_args(Kind))


class Sequences(eqx.Module):
    """Tokens, terms that masks add to scores, and weights of the tokens that are read."""

    inputs: Float[Array, "examples tokens features"]
    added: Float[Array, "examples heads keys queries"] | None
    read: Float[Array, "examples tokens read"]

    def attention(self, heads: Heads) -> tuple[Array, ...]:
        return heads.unchecked(self.inputs, self.added)

    def features(self, heads: Heads, architecture: Architecture) -> Array:
        return unchecked_path_features(self.inputs, self.attention(heads), architecture, self.read)


class QueryKeyPosterior(eqx.Module):
    """The posterior of queries and keys, and of order parameters or weights.

    Coordinates are whitened queries of all layers, whitened keys, and the coordinates
    of `law` or all other weights, of `weight_shapes`. `heads` has the shapes of queries
    and keys.
    """

    problem: Problem
    prior: QueryKeyPrior
    heads: Heads
    examples: Sequences
    tests: Sequences | None
    cues: Array | None
    law: FiniteWidthLaw | None
    weight_shapes: tuple[tuple[int, int], ...] = eqx.field(static=True)
    evidence: Evidence = eqx.field(static=True)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(layer.shape for layer in (*self.heads.query, *self.heads.key))

    @property
    def dimension(self) -> int:
        """Number of entries of queries and keys."""
        return sum(map(math.prod, self.shapes))

    def split(self, coordinates: Coordinates) -> tuple[Heads, Coordinates]:
        """Return the heads, and the coordinates of order parameters or weights."""
        white, others = jnp.split(coordinates, [self.dimension])
        layers, count = split_weights(white, self.shapes), len(self.heads.query)
        query = tuple(jnp.sqrt(self.prior.query_variance) * layer for layer in layers[:count])
        key = tuple(jnp.sqrt(self.prior.key_variance) * layer for layer in layers[count:])
        return eqx.tree_at(lambda heads: (heads.query, heads.key), self.heads, (query, key)), others

    def start(self, key: PRNGKeyArray, chain: Number = 0) -> Coordinates:
        """Start even chains from nearly uniform attention, and odd ones from a maximum.

        If the posterior has one mode of weak and one of strong attention, R-hat shows it.
        """
        key, others_key = jax.random.split(key)
        draw = jax.random.normal(key, (self.dimension,))
        wide = replace(self, evidence="infinite width")
        lbfgs = optx.LBFGS(rtol=1e-3, atol=1e-3)
        ascent = partial(optx.minimise, lambda at, wide: -wide.log_density(at), max_steps=_ASCENT, throw=False)
        first = jnp.where(chain % 2 == 0, _WEAK * draw, ascent(lbfgs, draw, wide).value)
        others = jax.random.normal(others_key, (sum(map(math.prod, self.weight_shapes)),))
        others = self.law.sample(others_key) if self.law is not None else others
        return jnp.concatenate([first, others])

    def log_density(self, coordinates: Coordinates) -> Float[Array, ""]:
        """Return the log posterior density of the coordinates, up to a constant."""
        heads, others = self.split(coordinates)
        log_prior = -jnp.sum(coordinates[: self.dimension] ** 2) / 2
        if self.evidence == "weights":
            return log_prior + self._weights(*self._features(heads)).log_density(others)
        problem = self.problem.at_features(self.examples.features(heads, self.problem.architecture))
        if self.evidence == "exact":
            first = self.law.order_parameters(others).first
            return log_prior + self.law.log_prior(others) + problem.energy.log_likelihood(first)
        return log_prior + log_evidence(problem, self.evidence)[0]

    def record(self, coordinates: Coordinates) -> Mapping[str, Array]:
        """Return invariants of the symmetries, with queries and keys, by name."""
        heads, others = self.split(coordinates)
        features, test_features = self._features(heads)
        if self.evidence == "weights":
            found = dict(self._weights(features, test_features).record(others))
        else:
            problem = self.problem.at_features(features)
            exact = self.evidence == "exact"
            point = self.law.order_parameters(others) if exact else log_evidence(problem, self.evidence)[1]
            found = recorded(problem, point, test_features)
        for layer in range(1, self.problem.architecture.depth + 1):
            matrix = found.pop(f"U_{layer}")
            found[f"trace_{layer}"] = jnp.trace(matrix) / len(matrix)
        weights = jnp.sum(self.examples.read, axis=2)
        weights = weights / jnp.sum(weights, axis=1, keepdims=True)
        layers = zip(self.layers, self.examples.attention(heads), heads.query, heads.key, strict=True)
        for layer, attention, query, key in layers:
            by_head = jnp.einsum("phst,pt->phs", attention, weights)
            found |= {f"query_{layer}": query, f"key_{layer}": key}
            found[f"attention_{layer}"] = jnp.mean(by_head, axis=1)
            found[f"singular_values_{layer}"] = singular_values(query, key)
            if self.cues is not None:
                at_cue = jnp.mean(by_head[np.arange(len(self.cues)), :, self.cues], axis=0)
                found |= {f"cue_{layer}": jnp.mean(at_cue), f"best_cue_{layer}": jnp.max(at_cue)}
        return found

    @property
    def layers(self) -> tuple[int, ...]:
        """Numbers of the layers with heads, from 1."""
        return tuple(layer for layer, count in enumerate(self.problem.architecture.heads, 1) if count)

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """Axes of the recorded invariants of each layer with heads."""
        found = {}
        for layer in range(1, self.problem.architecture.depth + 1):
            found[f"trace_{layer}"] = ()
        for layer in self.layers:
            found[f"attention_{layer}"] = ("example", "token")
            found[f"singular_values_{layer}"] = (f"ranked_head_{layer}", "singular_value")
            found |= {f"{name}_{layer}": () for name in ("cue", "best_cue") if self.cues is not None}
        return found

    def _features(self, heads: Heads) -> tuple[Array, Array]:
        features = self.examples.features(heads, self.problem.architecture)
        if self.tests is None:
            return features, features[:0]
        return features, self.tests.features(heads, self.problem.architecture)

    def _weights(self, features: Array, test_features: Array) -> WeightPosterior:
        architecture = self.problem.architecture
        return WeightPosterior(architecture, features, self.problem.data.labels, test_features, self.weight_shapes)


def log_evidence(problem: Problem, evidence: Integral) -> tuple[Float[Array, ""], OrderParameters]:
    """Return log p(y | Q, K), and the order parameters of the saddle point."""
    limit = gp_limit(problem.architecture)
    if evidence == "infinite width":
        return problem.energy.log_likelihood(limit.first), limit
    if evidence == "next order":
        point = solve(problem).order_parameters
        return corrected_evidence(problem, point), point
    # The action is stationary, so its derivative is that at fixed order parameters.
    point = jax.lax.stop_gradient(solve(jax.lax.stop_gradient(problem)).order_parameters)
    of_prior = problem.bound.entropy(limit) - problem.bound.entropy(point)
    return of_prior / 2 + problem.energy.log_likelihood(point.first), point


def singular_values(query: Array, key: Array) -> Float[Array, "heads values"]:
    """Return the singular values of K^T Q of each head; heads by their largest."""
    # Those of the triangular factors, which are small.
    of_query, of_key = (jnp.linalg.qr(each.swapaxes(1, 2), mode="r") for each in (query, key))
    found = jnp.linalg.svd(of_key @ of_query.swapaxes(1, 2), compute_uv=False)
    return found[jnp.argsort(-found[:, 0])]


def _posterior(
    architecture, inputs, labels, prior, evidence, *, readout, mask, real_tokens, test_inputs=None, cues=None
) -> QueryKeyPosterior:
    """Check the arguments of the public functions."""
    checked_architecture(architecture)
    checked_instance("prior", prior, QueryKeyPrior)
    if not any(architecture.heads):
        raise ValueError(f"architecture must have heads, got heads={architecture.heads}")
    if not architecture.is_linear:
        raise ValueError("queries and keys need linear hidden units: nonlinear ones have no exact law")
    if architecture.richness is not None:
        raise ValueError(f"queries and keys need richness=None, got {architecture.richness}")
    if float(architecture.temperature) == 0:
        raise ValueError("temperature=0: the posterior of queries and keys has no density")
    architecture = architecture.with_arrays()
    inputs = finite_array("inputs", inputs, "examples tokens features")
    count, tokens, width = inputs.shape
    if test_inputs is not None:
        test_inputs = finite_array("test_inputs", test_inputs, "examples tokens features")
        if test_inputs.shape[1:] != inputs.shape[1:]:
            raise ValueError(f"test_inputs must have shape (_, {tokens}, {width}), got {test_inputs.shape}")
        inputs = jnp.concatenate([inputs, test_inputs])
    heads = tuple(filter(None, architecture.heads))
    what = f"attention among {tokens} tokens of {count} examples"
    check_fits(architecture, what, _COPIES * sum(heads) * count * tokens**2)
    real = checked_real_tokens(real_tokens, *inputs.shape[:2])
    added = added_scores(mask, real, inputs.shape, heads, None)
    if added is not None:
        added = jnp.broadcast_to(added, (len(inputs), *added.shape[1:3], tokens))
    read = checked_reading(architecture, readout, *inputs.shape[:2], real)
    read = jnp.broadcast_to(read, (len(inputs), *read.shape[-2:]))
    sequences = Sequences(inputs, added, read)
    examples = jax.tree.map(lambda each: each[:count], sequences)
    tests = None if test_inputs is None else jax.tree.map(lambda each: each[count:], sequences)
    if cues is not None:
        cues = finite_array("cues", cues, "examples")
        if cues.shape != (count,) or not np.all(np.isin(cues, np.arange(tokens))):
            raise ValueError(f"cues must be the position of a token for each of {count} examples")
        cues = jnp.asarray(cues, dtype=int)
    rng = np.random.default_rng(0)
    query, key = ([rng.normal(size=(each, prior.rank, width)) for each in heads] for _ in range(2))
    template = Heads(query=query, key=key, kind=prior.kind)
    problem = Problem(architecture, Data(examples.features(template, architecture), labels))
    law = finite_width_law(architecture) if evidence in ("exact", "next order") else None
    if evidence == "next order" and not law.is_regular:
        raise ValueError(f"widths={architecture.widths}: a layer has fewer units than partial paths")
    shapes = weight_shapes(architecture, width) if evidence == "weights" else ()
    law = law if evidence == "exact" else None
    return QueryKeyPosterior(problem, prior, template, examples, tests, cues, law, shapes, evidence)


def sample_queries_keys(
    architecture: Architecture,
    inputs: ArrayLike,
    labels: ArrayLike,
    prior: QueryKeyPrior,
    *,
    key: PRNGKeyArray,
    test_inputs: ArrayLike | None = None,
    evidence: Evidence = "exact",
    cues: ArrayLike | None = None,
    readout: Readout | ArrayLike | None = None,
    mask: Mask | None = None,
    real_tokens: ArrayLike | None = None,
    schedule: Schedule | None = None,
    target_accept: float = 0.8,
    folder: Path | str | None = None,
    n_jobs: int = 1,
    progress: bool = True,
) -> xr.DataTree:
    """Draw queries and keys from their posterior.

    Args:
        architecture: with heads, and linear hidden units.
        inputs: (examples, tokens, features).
        labels: (examples,), or (examples, outputs) for several outputs.
        prior: of queries and keys.
        key: JAX random key.
        test_inputs: the same for test examples.
        evidence: how all other weights are integrated out, one of

            - `exact`: they are sampled through the order parameters, at any width.
            - `next order`, `leading`: by the theory, up to O(1/N^2) and O(1/N) for a
              fixed number of examples; order parameters and outputs are at the saddle point.
            - `infinite width`: U = I.
            - `weights`: not at all: NUTS on all weights, a check.
        cues: a position per training example, whose attention is recorded.
        readout, mask, real_tokens: as in `bpkr.path_features` and `bpkr.attention`.
            Arrays with one entry per example continue with the test examples.
        schedule, target_accept, folder, n_jobs, progress: as in `sample`. Chains start
            from weak and from strong attention in turn.

    Returns:
        A tree as from `sample`. Its `posterior` has invariants of the symmetries. For
        every layer l with heads:

        - `attention_l` (example, token) of the token that is read, mean over heads.
        - `singular_values_l` of K^T Q; heads are sorted by their largest.
        - `cue_l`, the mean attention to cues; `best_cue_l`, its maximum over heads.

        Also u, `trace_l` = tr U_l / n_l, and `mean` and `variance`, or `sampled_output`.
        The group `weights` has `query_l` and `key_l`, which are known up to rotations
        and permutations of heads only.

    Raises:
        ValueError: the arguments do not fit, or the posterior has no density.

    Warns:
        MixingWarning: the chains did not mix, for example between weak and strong attention.
    """
    refuse_traced("sample_queries_keys", architecture, inputs, labels, prior, test_inputs, key)
    needed("arviz_stats", "sampling")
    checked_choice("evidence", evidence, get_args(Evidence))
    checked_number("target_accept", target_accept, above=0.0, below=1.0)
    schedule = DEFAULT_SCHEDULES["nuts" if evidence == "weights" else "exact"] if schedule is None else schedule
    checked_instance("schedule", schedule, Schedule)
    given = {"readout": readout, "mask": mask, "real_tokens": real_tokens, "test_inputs": test_inputs, "cues": cues}
    with usual_settings():
        posterior = _posterior(architecture, inputs, labels, prior, evidence, **given)
    numbers = {"chains": schedule.chains, "warmup": schedule.warmup, "target_accept": target_accept}
    kept = Folder.of(folder, "queries and keys", _VERSION, key=key, posterior=posterior, **numbers)
    make = partial(NoUTurn, posterior, target_accept, schedule.warmup)
    drawn = run_chains(make, schedule, key=key, folder=kept, n_jobs=n_jobs, progress=progress)
    weights = {}
    for name in (f"{kind}_{layer}" for kind in ("query", "key") for layer in posterior.layers):
        axes = ("chain", "draw", f"head_{name.rpartition('_')[2]}", "row", "feature")
        weights[name] = axes, drawn.pop(name)
    tree = label_draws(posterior.problem.architecture, drawn, posterior.axes)
    tree["weights"] = xr.DataTree(xr.Dataset(weights, tree["posterior"].coords))
    tree.attrs |= {"sampler": _NAMES[evidence], "problem": posterior.problem.description}
    if not tree.attrs["mixed"]:
        warnings.warn(f"{_NAMES[evidence]}: {tree.attrs['diagnosis']}", MixingWarning, stacklevel=2)
    return tree


class QueryKeyMode(DisplayMixin, eqx.Module):
    """A local maximum of the posterior of queries and keys, no summary of it.

    - `heads`: queries and keys.
    - `log_evidence`: log p(y | Q, K).
    - `log_posterior`: log_evidence - |Q|^2 / (2 s_Q^2) - |K|^2 / (2 s_K^2).
    - `singular_values`: of K^T Q (heads, values) per layer with heads, heads by their
      largest.
    - `zero_modes`: number of zero eigenvalues of the Hessian; `rotations`: number of
      rotations of queries and keys that change nothing, which must be equal.
    - `order_parameters`: the saddle point there.
    - `gradient_norm`: of the log posterior in whitened queries and keys.
    - `reached`: number of starts that ended here.
    """

    heads: Heads
    log_evidence: Float[Array, ""]
    log_posterior: Float[Array, ""]
    singular_values: tuple[Float[Array, "heads values"], ...]
    order_parameters: OrderParameters
    gradient_norm: Float[Array, ""]
    zero_modes: int = 0
    reached: int = 1

    @property
    def rotations(self) -> int:
        count = 0
        for query, values in zip(self.heads.query, self.singular_values, strict=True):
            rank = query.shape[1]
            for off in rank - np.sum(values > _SAME, axis=1):
                count += math.comb(rank, 2) - math.comb(int(off), 2)
        return count

    def _view(self):
        names = ("log_posterior", "log_evidence", "gradient_norm", "zero_modes", "rotations", "reached")
        rows = [(name.replace("_", " "), number(getattr(self, name), 8)) for name in names]
        rows += [("singular values", brief(values)) for values in self.singular_values]
        yield Table((*rows, *order_parameter_rows(self.order_parameters)))
        yield Text(_NO_SUMMARY)
        if self.zero_modes != self.rotations:
            yield Text("The Hessian has other zero modes than rotations of queries and keys.")


@jit
def _maximised(posterior: QueryKeyPosterior, start: Coordinates):
    """Return the end of an ascent from `start`, and its mode."""
    found = optx.minimise(
        lambda at, posterior: -posterior.log_density(at),
        optx.BFGS(rtol=_CLOSE, atol=_CLOSE),
        start,
        posterior,
        max_steps=_STEPS,
        throw=False,
    ).value
    value, slope = jax.value_and_grad(posterior.log_density)(found)
    heads, _ = posterior.split(found)
    features = posterior.examples.features(heads, posterior.problem.architecture)
    evidence, point = log_evidence(posterior.problem.at_features(features), posterior.evidence)
    values = tuple(map(singular_values, heads.query, heads.key))
    return found, QueryKeyMode(heads, evidence, value, values, point, jnp.linalg.norm(slope))


@jit
def _curvatures(posterior: QueryKeyPosterior, at: Coordinates) -> Float[Array, " coordinates"]:
    """Return the eigenvalues of minus the Hessian, from central differences of the gradient.

    The solve at every point makes exact second derivatives costly to compile.
    """
    slope = jax.grad(posterior.log_density)
    step = _STEP * jnp.eye(len(at))
    hessian = jax.lax.map(lambda step: (slope(at - step) - slope(at + step)) / (2 * _STEP), step)
    return jnp.linalg.eigvalsh((hessian + hessian.T) / 2)


def maximise_evidence(
    architecture: Architecture,
    inputs: ArrayLike,
    labels: ArrayLike,
    prior: QueryKeyPrior,
    *,
    key: PRNGKeyArray,
    evidence: Integral = "leading",
    starts: int = 8,
    readout: Readout | ArrayLike | None = None,
    mask: Mask | None = None,
    real_tokens: ArrayLike | None = None,
) -> list[QueryKeyMode]:
    """Maximise the posterior density of queries and keys from random points.

    Maxima are no summary of the posterior: minimised over Q and K at fixed B = K^T Q, the
    prior is a nuclear norm of B, which switches heads off. Other maxima may exist.

    Args:
        architecture, inputs, labels, prior, readout, mask, real_tokens: as in
            `sample_queries_keys`.
        key: JAX random key.
        evidence: "leading", "next order" or "infinite width".
        starts: number of draws from the prior.

    Returns:
        The distinct maxima, highest density first.

    Warns:
        UserWarning: queries and keys have more entries than there are labels.
    """
    refuse_traced("maximise_evidence", architecture, inputs, labels, prior, key)
    checked_choice("evidence", evidence, get_args(Integral))
    checked_whole_number("starts", starts, least=1)
    given = {"readout": readout, "mask": mask, "real_tokens": real_tokens}
    with usual_settings():
        posterior = _posterior(architecture, inputs, labels, prior, evidence, **given)
        draws = jax.random.normal(key, (starts, posterior.dimension))
    if posterior.dimension > (count := np.size(labels)):
        message = f"queries and keys have {posterior.dimension} entries, but there are {count} labels: maxima overfit"
        warnings.warn(message, stacklevel=2)
    found, points = [], []
    for draw in draws:
        at, mode = _maximised(posterior, draw)
        if mode.gradient_norm <= _GRADIENT:
            curvatures = _curvatures(posterior, at)
            zero = _ZERO * curvatures[-1]
            if curvatures[0] > -zero:
                found.append(replace(mode, zero_modes=int(np.sum(curvatures < zero))))
                points.append(np.concatenate([mode.log_posterior[None], *map(np.ravel, mode.singular_values)]))
    groups = distinct([-mode.log_posterior for mode in found], points, _SAME)
    return [replace(found[group[0]], reached=len(group)) for group in groups]
