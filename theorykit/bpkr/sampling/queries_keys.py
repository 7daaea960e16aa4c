"""Queries and keys as random variables: their posterior, and the maxima of their evidence.

Their prior is Gaussian. Given them, all other weights are integrated out:

    p(Q, K, U, u | D) ~ p(Q, K) p(U, u) N(y; 0, K(U_1; Q, K) + T I).

The law of the order parameters does not depend on queries and keys, so this posterior
is exact at every width.
"""

import warnings
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
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from ... import checks
from ..._jit import jit, usual_settings
from ...runs import Folder
from ...saddle.newton import Newton
from ...saddle.solve import distinct
from ...symbolic.documents import DisplayMixin, Table, Text, brief
from ..data.data import Data
from ..evaluation.problem import Problem
from ..network import network as of_network
from ..network.network import Heads, Kind, Mask, Readout, weight_shapes
from ..order_parameters import FiniteWidthLaw, OrderParameters, finite_width_law, gp_limit, order_parameter_rows
from ..saddle.solve import solve
from ..specification.architecture import Architecture, architecture_line, check_fits, checked_architecture
from .chains import Schedule, run_chains
from .posteriors import Coordinates, NoUTurn, OrderParameterPosterior, WeightPosterior, recorded
from .sample import checked_run, described, label_draws

# Increase it if draws change for the same arguments.
_VERSION = 1
# Copies of the attention in a gradient.
_COPIES = 6
# Factor of weak starts, and most steps of the ascent to strong ones.
_WEAK, _ASCENT = 0.1, 50
# Tolerance and most steps to a mode, and its largest gradient norm.
_CLOSE, _STEPS, _GRADIENT = 1e-10, 2000, 1e-5
# Singular values or log posteriors that are closer are the same.
_SAME = 1e-4
# Step of central differences, and largest eigenvalue of a zero mode relative to others.
_STEP, _ZERO = 1e-4, 1e-6
# Axes of what is recorded per layer. Heads are ranked by singular values.
_AXES = {
    "attention": ("example", "token"),
    "singular_values": ("ranked_head_{}", "singular_value"),
    "query": ("head_{}", "row", "feature"),
    "key": ("head_{}", "row", "feature"),
    **dict.fromkeys(("trace", "cue", "best_cue"), ()),
}

Evidence = Literal["leading", "infinite width"]
Posterior = Literal[Evidence, "exact", "weights"]


class QueryKeyPrior(eqx.Module):
    """The prior of queries and keys: independent Gaussian entries.

    - `rank`: G, the number of rows of Q and of K per head.
    - `query_variance`, `key_variance`: variances of the entries.
    - `kind`: of attention, as in `bpkr.Heads`.
    """

    rank: int = eqx.field(static=True, converter=partial(checks.checked_whole_number, "rank", least=1))
    query_variance: Any = eqx.field(default=1.0, converter=partial(checks.checked_number, "query_variance", above=0.0))
    key_variance: Any = eqx.field(default=1.0, converter=partial(checks.checked_number, "key_variance", above=0.0))
    kind: Kind = eqx.field(default="softmax", static=True)

    def __check_init__(self):
        checks.checked_choice("kind", self.kind, get_args(Kind))


class _Integrated(eqx.Module):
    """The theory, as a posterior without coordinates: other weights are integrated out."""

    problem: Problem
    test_features: Array
    evidence: Evidence = eqx.field(static=True)

    def start(self, key: PRNGKeyArray) -> Coordinates:
        return jnp.zeros(0)

    def solved(self) -> tuple[Float[Array, ""], OrderParameters]:
        """Return log p(y), and the order parameters that it was computed at."""
        problem, limit = self.problem, gp_limit(self.problem.architecture)
        if self.evidence == "infinite width":
            return problem.energy.log_likelihood(limit.first), limit
        # The action is stationary: fix its point. Sweeps would double the time.
        saddle = solve(jax.lax.stop_gradient(problem), solver=Newton())
        point = jax.lax.stop_gradient(saddle.order_parameters)
        of_prior = problem.bound.entropy(limit) - problem.bound.entropy(point)
        return of_prior / 2 + problem.energy.log_likelihood(point.first), point

    def log_density(self, coordinates: Coordinates) -> Float[Array, ""]:
        return self.solved()[0]

    def record(self, coordinates: Coordinates) -> dict[str, Array]:
        return recorded(self.problem, self.solved()[1], self.test_features)


class _Sequences(eqx.Module):
    """Tokens, terms that masks add to scores, and weights of the tokens that are read."""

    inputs: Float[Array, "examples tokens features"]
    added: Float[Array, "examples heads keys queries"] | None
    read: Float[Array, "examples tokens read"]

    def attention(self, heads: Heads) -> tuple[Array, ...]:
        return of_network.unchecked_attention(heads, self.inputs, self.added)

    def features(self, heads: Heads, architecture: Architecture) -> Array:
        attention = self.attention(heads)
        return of_network.unchecked_path_features(self.inputs, attention, architecture, self.read)


class QueryKeyPosterior(eqx.Module):
    """The posterior of queries and keys, with order parameters, all weights or neither.

    Coordinates are whitened queries and keys, of the shapes in `heads`, and others.
    `problem` has the labels.
    """

    problem: Problem
    prior: QueryKeyPrior
    heads: Heads
    examples: _Sequences
    tests: _Sequences | None
    cues: Array | None
    law: FiniteWidthLaw | None
    weight_shapes: tuple[tuple[int, int], ...] = eqx.field(static=True)
    evidence: Posterior = eqx.field(static=True)

    @property
    def dimension(self) -> int:
        return sum(layer.size for layer in jax.tree.leaves(self.heads))

    def split(self, coordinates: Coordinates) -> tuple[Heads, Float[Array, " others"]]:
        white, others = jnp.split(coordinates, [self.dimension])
        heads = ravel_pytree(self.heads)[1](white)
        query = tuple(jnp.sqrt(self.prior.query_variance) * layer for layer in heads.query)
        key = tuple(jnp.sqrt(self.prior.key_variance) * layer for layer in heads.key)
        return eqx.tree_at(lambda of: (of.query, of.key), heads, (query, key)), others

    def given(self, heads: Heads) -> OrderParameterPosterior | _Integrated | WeightPosterior:
        architecture = self.problem.architecture
        features = self.examples.features(heads, architecture)
        tests = features[:0] if self.tests is None else self.tests.features(heads, architecture)
        if self.evidence == "weights":
            labels = self.problem.data.labels.reshape(len(features), -1)
            return WeightPosterior(architecture, features, labels, tests, self.weight_shapes)
        problem = self.problem.at_features(features)
        if self.evidence == "exact":
            return OrderParameterPosterior(self.law, problem, tests)
        return _Integrated(problem, tests, self.evidence)

    def start(self, key: PRNGKeyArray, chain: Array | int = 0) -> Coordinates:
        """Start even chains from weak attention, and odd ones from a local maximum."""
        draw_key, others_key = jax.random.split(key)
        draw = jax.random.normal(draw_key, (self.dimension,))
        wide = replace(self, evidence="infinite width")
        strong = wide.maximised(optx.LBFGS(rtol=1e-3, atol=1e-3), draw, _ASCENT)
        draw = jnp.where(chain % 2 == 0, _WEAK * draw, strong)
        return jnp.concatenate([draw, self.given(self.heads).start(others_key)])

    def maximised(self, solver, start: Coordinates, steps: int) -> Coordinates:
        def loss(at, posterior):
            return -posterior.log_density(at)

        return optx.minimise(loss, solver, start, self, max_steps=steps, throw=False).value

    def log_density(self, coordinates: Coordinates) -> Float[Array, ""]:
        """Return the log density, without constants of Gaussian priors."""
        heads, others = self.split(coordinates)
        white = coordinates[: self.dimension]
        return self.given(heads).log_density(others) - jnp.sum(white**2) / 2

    def record(self, coordinates: Coordinates) -> dict[str, Array]:
        """Return invariants of the symmetries, with queries and keys, by name."""
        heads, others = self.split(coordinates)
        found = dict(self.given(heads).record(others))
        for name in [name for name in found if name.startswith("U_")]:
            matrix = found.pop(name)
            found[name.replace("U", "trace")] = jnp.trace(matrix) / len(matrix)
        weights = jnp.sum(self.examples.read, axis=2)
        weights = weights / jnp.sum(weights, axis=1, keepdims=True)
        attention = self.examples.attention(heads)
        numbers = np.flatnonzero(self.problem.architecture.heads) + 1
        layers = zip(numbers, attention, heads.query, heads.key, strict=True)
        for layer, mixing, query, key in layers:
            by_head = jnp.einsum("phst,pt->phs", mixing, weights)
            values = {"query": query, "key": key, "attention": jnp.mean(by_head, axis=1)}
            values["singular_values"] = singular_values(query, key)
            if self.cues is not None:
                at_cue = jnp.mean(by_head[np.arange(len(by_head)), :, self.cues], axis=0)
                values |= {"cue": jnp.mean(at_cue), "best_cue": jnp.max(at_cue)}
            found |= {f"{name}_{layer}": value for name, value in values.items()}
        return found


def singular_values(query: Array, key: Array) -> Float[Array, "heads values"]:
    """Return the singular values of K^T Q of each head; heads by their largest."""
    # Those of the triangular factors, which are small.
    of_query, of_key = (jnp.linalg.qr(each.swapaxes(1, 2), mode="r") for each in (query, key))
    found = jnp.linalg.svd(of_key @ of_query.swapaxes(1, 2), compute_uv=False)
    return found[jnp.argsort(-found[:, 0])]


@usual_settings()
def make_posterior(
    architecture, inputs, labels, prior, evidence, *, readout=None, mask=None, real_tokens=None, tests=None, cues=None
) -> QueryKeyPosterior:
    checked_architecture(architecture)
    checks.checked_instance("prior", prior, QueryKeyPrior)
    heads = tuple(filter(None, architecture.heads))
    needs = {"heads": heads, "linear hidden units": architecture.is_linear}
    needs |= {"no richness": architecture.richness is None, "temperature > 0": architecture.temperature > 0}
    if unmet := [need for need, met in needs.items() if not met]:
        raise ValueError(f"queries and keys need {' and '.join(unmet)}, got {architecture_line(architecture)}")
    inputs = checks.finite_array("inputs", inputs, "examples tokens features")
    count, tokens, width = inputs.shape
    if tests is not None:
        tests = checks.finite_array("test_inputs", tests, "examples tokens features")
        if tests.shape[1:] != (tokens, width):
            raise ValueError(f"test_inputs must have shape (_, {tokens}, {width}), got {tests.shape}")
        inputs = jnp.concatenate([inputs, tests])
    total = len(inputs)
    what = f"attention among {tokens} tokens of {total} examples"
    check_fits(architecture, what, _COPIES * sum(heads) * total * tokens**2)
    real = of_network.checked_real_tokens(real_tokens, total, tokens)
    read = of_network.checked_reading(architecture, readout, total, tokens, real)
    read = jnp.broadcast_to(read, (total, *read.shape[-2:]))
    added = of_network.added_scores(mask, real, inputs.shape, heads, None)
    if added is not None:
        added = jnp.broadcast_to(added, (total, *added.shape[1:]))
    every = _Sequences(inputs, added, read)
    examples = jax.tree.map(lambda each: each[:count], every)
    tests = None if tests is None else jax.tree.map(lambda each: each[count:], every)
    if cues is not None:
        cues = checks.finite_array("cues", cues, "examples")
        if cues.shape != (count,) or not np.all(np.isin(cues, np.arange(tokens))):
            raise ValueError(f"cues must be {count} positions below {tokens}, got {checks.shown(cues.tolist())}")
        cues = jnp.asarray(cues, dtype=int)
    architecture = architecture.with_arrays()
    rng, shapes = np.random.default_rng(0), [(each, prior.rank, width) for each in heads]
    query, key = ([rng.normal(size=shape) for shape in shapes] for _ in range(2))
    template = Heads(query=query, key=key, kind=prior.kind)
    problem = Problem(architecture, Data(examples.features(template, architecture), labels))
    law = finite_width_law(architecture) if evidence == "exact" else None
    of_weights = weight_shapes(architecture, width) if evidence == "weights" else ()
    return QueryKeyPosterior(problem, prior, template, examples, tests, cues, law, of_weights, evidence)


def sample_queries_keys(
    architecture: Architecture,
    inputs: ArrayLike,
    labels: ArrayLike,
    prior: QueryKeyPrior,
    *,
    key: PRNGKeyArray,
    test_inputs: ArrayLike | None = None,
    evidence: Posterior = "exact",
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
        architecture: with heads and linear hidden units.
        inputs, test_inputs: (examples, tokens, features), no path features.
        labels: (examples,), or (examples, outputs) for several outputs.
        prior: of queries and keys.
        evidence: how all other weights are integrated out, one of

            - `exact`: by NUTS on the order parameters, at any width.
            - `leading`: by the theory, up to O(1/N) for a fixed number of examples.
              Outputs are those at the saddle point; 7 times as long as `exact`.
            - `infinite width`: by the prior means of order parameters.
            - `weights`: by NUTS on these weights, as a check.
        cues: a position per training example, whose attention is recorded.
        readout, mask, real_tokens: as in `bpkr.path_features` and `bpkr.attention`;
            entries for test examples follow those for training examples.
        key, schedule, target_accept, folder, n_jobs, progress: as in `sample`. Chains
            start from weak and from strong attention in turn.

    Returns:
        A tree as from `sample`. Its `posterior` has invariants of the symmetries:

        - `attention_l` (example, token) of the token that is read, mean over heads.
        - `singular_values_l` of K^T Q; heads are ranked by the largest.
        - `cue_l`, the mean attention to cues, and `best_cue_l` of the best head.
        - `u`, `trace_l` = tr U_l / n_l; outputs as from `sample`.

        `weights` has `query_l` and `key_l`, up to rotations and the order of heads.

    Warns:
        MixingWarning: the chains did not mix, for example if there are two modes.
    """
    checks.refuse_traced("sample_queries_keys", architecture, inputs, labels, prior, key)
    checks.checked_choice("evidence", evidence, get_args(Posterior))
    sampler = "nuts" if evidence == "weights" else "exact"
    schedule, run = checked_run(key, target_accept, schedule, sampler)
    reading = {"readout": readout, "mask": mask, "real_tokens": real_tokens}
    arrays = architecture, inputs, labels
    posterior = make_posterior(*arrays, prior, evidence, **reading, tests=test_inputs, cues=cues)
    make = partial(NoUTurn, posterior, run["target_accept"], schedule.warmup)
    kept = Folder.of(folder, "queries and keys", _VERSION, key=key, posterior=posterior, **run)
    drawn = run_chains(make, schedule, key=key, folder=kept, n_jobs=n_jobs, progress=progress)
    axes, weights = {}, {}
    for name in list(drawn):
        kind, _, layer = name.rpartition("_")
        own = tuple(axis.format(layer) for axis in _AXES.get(kind, ()))
        if kind in ("query", "key"):
            weights[name] = ("chain", "draw", *own), drawn.pop(name)
        elif kind in _AXES:
            axes[name] = own
    tree = label_draws(posterior.problem.architecture, drawn, axes)
    tree["weights"] = xr.DataTree(xr.Dataset(weights, tree["posterior"].coords))
    return described(tree, f"NUTS on queries and keys, evidence: {evidence}", posterior.problem)


class QueryKeyMode(DisplayMixin, eqx.Module):
    """A local maximum of the posterior of queries and keys; no summary of the posterior.

    - `heads`: queries and keys.
    - `log_evidence`: log p(y | Q, K).
    - `log_posterior`: log_evidence - |Q|^2 / (2 s_Q^2) - |K|^2 / (2 s_K^2).
    - `gradient_norm`: of the log posterior in Q / s_Q and K / s_K.
    - `singular_values`: of K^T Q (heads, values) per layer with heads.
    - `order_parameters`: at which log_evidence was computed.
    - `zero_modes`: number of zero eigenvalues of the Hessian, which are rotations:
      G(G-1)/2 - (G-r)(G-r-1)/2 for a head of rank r.
    - `reached`: number of starts that ended here.
    """

    heads: Heads
    log_evidence: Float[Array, ""]
    log_posterior: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    singular_values: tuple[Float[Array, "heads values"], ...]
    order_parameters: OrderParameters
    zero_modes: int = 0
    reached: int = 1

    def _view(self):
        yield Text("A maximum is no summary of the posterior: the prior acts as a nuclear norm of K^T Q.")
        names = ("log_posterior", "log_evidence", "gradient_norm", "zero_modes", "reached")
        rows = [(name.replace("_", " "), brief(getattr(self, name))) for name in names]
        rows += [("singular values", brief(values)) for values in self.singular_values]
        yield Table((*rows, *order_parameter_rows(self.order_parameters)))


@jit
def _maximised(posterior, start: Coordinates) -> tuple[Coordinates, QueryKeyMode]:
    at = posterior.maximised(optx.BFGS(rtol=_CLOSE, atol=_CLOSE), start, _STEPS)
    log_posterior, slope = jax.value_and_grad(posterior.log_density)(at)
    heads, _ = posterior.split(at)
    log_evidence, point = posterior.given(heads).solved()
    norm, values = jnp.linalg.norm(slope), tuple(map(singular_values, heads.query, heads.key))
    return at, QueryKeyMode(heads, log_evidence, log_posterior, norm, values, point)


@jit
def _curvatures(posterior, at: Coordinates) -> Float[Array, " coordinates"]:
    """Return the eigenvalues of minus the Hessian, from differences of the gradient.

    Exact second derivatives through a solve take long to compile.
    """
    slope, steps = jax.grad(posterior.log_density), _STEP * jnp.eye(len(at))
    hessian = jax.lax.map(lambda step: (slope(at - step) - slope(at + step)) / (2 * _STEP), steps)
    return jnp.linalg.eigvalsh((hessian + hessian.T) / 2)


def maximise_evidence(
    architecture: Architecture,
    inputs: ArrayLike,
    labels: ArrayLike,
    prior: QueryKeyPrior,
    *,
    key: PRNGKeyArray,
    evidence: Evidence = "leading",
    starts: int = 8,
    readout: Readout | ArrayLike | None = None,
    mask: Mask | None = None,
    real_tokens: ArrayLike | None = None,
) -> list[QueryKeyMode]:
    """Maximise the posterior density of queries and keys from random points.

    Maxima are no summary of the posterior: at fixed K^T Q, the prior of the best Q and K
    is a nuclear norm, which can switch heads off. Other maxima may exist.

    Args:
        architecture, inputs, labels, prior, key, readout, mask, real_tokens: as in
            `sample_queries_keys`.
        evidence: "leading" or "infinite width".
        starts: number of draws from the prior.

    Returns:
        The distinct maxima that were reached, highest density first.

    Warns:
        UserWarning: queries and keys have more entries than there are labels.
    """
    checks.refuse_traced("maximise_evidence", architecture, inputs, labels, prior, key)
    checks.checked_instance("key", key, jax.Array, "jax.random.key(3)")
    checks.checked_choice("evidence", evidence, get_args(Evidence))
    checks.checked_whole_number("starts", starts, least=1)
    reading = {"readout": readout, "mask": mask, "real_tokens": real_tokens}
    posterior = make_posterior(architecture, inputs, labels, prior, evidence, **reading)
    if (entries := posterior.dimension) > (count := np.size(labels)):
        warnings.warn(f"maxima overfit: {entries} entries of queries and keys for {count} labels", stacklevel=2)
    modes, points = [], []
    for start in jax.random.normal(key, (starts, posterior.dimension)):
        at, mode = _maximised(posterior, start)
        if mode.gradient_norm > _GRADIENT:
            continue
        curvatures = np.asarray(_curvatures(posterior, at))
        zero = _ZERO * curvatures[-1]
        if curvatures[0] >= -zero:
            modes.append(replace(mode, zero_modes=int(np.sum(curvatures < zero))))
            points.append(np.hstack([mode.log_posterior, *map(np.ravel, mode.singular_values)]))
    groups = distinct([-mode.log_posterior for mode in modes], points, _SAME)
    return [replace(modes[group[0]], reached=len(group)) for group in groups]
