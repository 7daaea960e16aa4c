"""The exact prior density at finite width: against the law as the notes state it, and against sampled networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Add, Identity

from theorykit import bpkr
from theorykit.bpkr import Attention, Dense, Skip
from theorykit.codegen import compile_expressions, interpret
from theorykit.symbolic import gradient

from ..cases import Case, explicit_covariance, explicit_gain, log_det, random_key_queries
from ..problems import with_leading_block

INPUT_FEATURES = 3
NETWORKS = {
    "one head": Case((1,), (7.0, 5.0), (1.0, 0.8, 1.3)),
    "attention": Case((2, 2), (10.0, 8.0, 7.0), (1.0, 0.8, 1.2, 1.3)),
    "dense last": Case((2, Dense()), (8.0, 9.0, 7.0), (1.0, 0.8, 1.2, 1.3)),
    "skip": Case((Skip(2, 0.7),), (9.0, 9.0), (1.0, 0.8, 1.3)),
    "skip after attention": Case((2, Skip(1, 1.2)), (11.0, 8.0, 8.0), (1.0, 0.8, 1.2, 1.3)),
    "skip around skip": Case((Skip(1, 0.8), Skip(Dense(), 1.2)), (9.0, 9.0, 9.0), (1.0, 0.8, 1.2, 1.3)),
    "two outputs": Case((Attention(2),), (10.0, 8.0), (1.0, 0.8, 1.3), outputs=2),
}
every_network = pytest.mark.parametrize("case", NETWORKS.values(), ids=NETWORKS)


def numbers(case):
    """The value of every symbol of the prior but the order parameters, by name."""
    architecture, symbols = case.architecture(), bpkr.derive(case.architecture()).symbols
    variances = dict(zip([symbol.name for symbol in symbols.variances], case.variances[1:], strict=True))
    widths = dict(zip([symbol.name for symbol in symbols.widths], case.widths, strict=True))
    return {**widths, **variances, **architecture.layer_numbers(), **architecture.head_counts(), "C": case.outputs}


def random_overlaps(case, rng):
    """(U_1, ..., U_{L+1}), positive definite, with the blocks that skip connections carry over."""
    outer, overlaps = None, []
    for layer, size in zip([None, *reversed(case.layers)], [case.outputs, *sizes_outwards(case)], strict=True):
        factor = rng.normal(size=(size, size + 3))
        matrix = factor @ factor.T / size
        if layer is not None and not isinstance(layer, int) and (gain := explicit_gain(layer)):
            matrix = with_leading_block(matrix, gain**2 * outer)
        overlaps.insert(0, matrix)
        outer = matrix
    return overlaps


def sizes_outwards(case):
    return reversed(case.architecture().overlap_sizes[:-1])


def wishart(matrix, degrees, scale):
    """-2 log density of matrix ~ Wishart(degrees, scale), up to a constant."""
    size = len(matrix)
    mismatch = np.trace(np.linalg.solve(scale, matrix))
    return mismatch - (degrees - size - 1) * log_det(matrix) + degrees * log_det(scale)


def law(layer, width, variance, matrix, outer):
    """-2 log density of U_l given U_{l+1}, as section 7 of the notes has it, up to a constant."""
    kind = bpkr.Attention(layer) if isinstance(layer, int) else layer
    prior = np.kron(explicit_covariance(kind, variance), outer)
    gain, size = explicit_gain(kind), len(outer)
    if not gain:
        return wishart(matrix, width, prior / width)
    crossing = matrix[size:, :size] / gain
    schur = matrix[size:, size:] - crossing @ np.linalg.solve(outer, crossing.T)
    # crossing is matrix normal with rows of covariance `prior` and columns of outer / width
    mismatch = width * np.trace(np.linalg.solve(prior, crossing) @ np.linalg.solve(outer, crossing.T))
    normal = mismatch + size * log_det(prior) + len(prior) * log_det(outer)
    return normal + wishart(schur, width - size, prior / width)


@pytest.mark.quick(4)
@every_network
def test_the_exact_prior_is_the_law_of_the_notes(case):
    prior, values = bpkr.derive(case.architecture()).finite_width, numbers(case)
    names = [symbol.name for symbol in bpkr.derive(case.architecture()).symbols.overlaps]
    differences = []
    for seed in range(3):
        overlaps = random_overlaps(case, np.random.default_rng(seed))
        at = {**values, **dict(zip(names, overlaps, strict=True))}
        found = [interpret(density, at) for density in prior.exact]
        layers = zip(case.layers, case.widths, case.variances[1:], overlaps, overlaps[1:], strict=False)
        expected = [law(*layer) for layer in layers]
        scale = case.variances[-1] / case.widths[-1] * np.eye(case.outputs)
        expected.append(wishart(overlaps[-1], case.widths[-1], scale))
        differences.append(np.subtract(found, expected))
    assert np.ptp(differences, axis=0).max() < 1e-9 * np.max(np.abs(expected))


def sampled_overlaps(case, draws):
    """(U_1, ..., U_{L+1}) of networks drawn from the prior."""
    architecture = case.architecture()
    parameters = bpkr.Heads(key_query=random_key_queries(case.heads, np.random.default_rng(0), INPUT_FEATURES))

    def overlaps(key):
        network = bpkr.sample_network(architecture, parameters, input_features=INPUT_FEATURES, key=key)
        measured = bpkr.empirical_order_parameters(network)
        return (*measured.matrices, jnp.atleast_2d(measured.readout))

    return jax.lax.map(overlaps, jax.random.split(jax.random.key(1), draws), batch_size=2000)


def slopes(case, densities, overlaps):
    """U dS/dU of every draw, for each free overlap U and S the sum of `densities`."""
    action, values = bpkr.derive(case.architecture()), numbers(case)
    symbols = action.symbols
    total, free = Add(*densities), tuple(each for each in symbols.overlaps if each not in symbols.nested)
    for matrix in symbols.nested:
        block = action.nested[symbols.written[matrix]]
        total = total.xreplace({matrix: block if block.is_Matrix else block * Identity(1)})
    arguments = action.symbols.completed((*free, *(symbol for symbol in action.symbols.numbers if symbol.name != "T")))
    function = compile_expressions("slopes", {symbol.name: gradient(total, symbol) for symbol in free}, arguments)
    drawn = {
        symbol.name: draw for symbol, draw in zip(action.symbols.overlaps, overlaps, strict=True) if symbol in free
    }

    def of_draw(one):
        found = function.call_from({**values, **one})
        return {name: one[name] @ slope for name, slope in found.items()}

    return jax.jit(jax.vmap(of_draw))(drawn)


@pytest.mark.quick("one head")
@every_network
def test_the_exact_prior_is_that_of_sampled_networks(case):
    """The mean of U dS/dU is (n + 1) I, for exp(-S/2) to be a density: its integral is the same after U -> A U A^T."""
    prior = bpkr.derive(case.architecture()).finite_width
    overlaps = sampled_overlaps(case, 20_000)
    for densities, is_the_law in ((prior.exact, True), (prior.leading, False)):
        for product in slopes(case, densities, overlaps).values():
            excess = np.asarray(product) - (product.shape[1] + 1) * np.eye(product.shape[1])
            mean, error = excess.mean(axis=0), excess.std(axis=0) / np.sqrt(len(excess))
            assert np.all(np.abs(mean) < 5 * error) == is_the_law
