"""Path features by their kernels, against sums over tokens and formulas of the literature written out."""

import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Heaviside, exp, log, tanh

from theorykit import bpkr
from theorykit.bpkr import Dense
from theorykit.bpkr.features.kernels import Kernel, kernel_of, kernel_of_each

from ..cases import assert_close, explicit_kernel, refused
from .test_functions import h, truth

EXAMPLES, TOKENS, FEATURES = 4, 3, 5
RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(EXAMPLES, TOKENS, FEATURES))
HEADS = bpkr.Heads(key_query=[RNG.normal(size=(2, FEATURES, FEATURES)) / FEATURES])
ATTENTION = [np.asarray(each) for each in HEADS(jnp.asarray(INPUTS))]

# the angle of a token with itself is the arccosine of 1, which rounding alone moves by 1e-8
_OF_ROUNDING = 1e-8


def erf_kernel(own, between, other):
    return 2 / np.pi * np.arcsin(2 * between / np.sqrt((1 + 2 * own) * (1 + 2 * other)))  # Williams (1998)


def relu_kernel(own, between, other):
    scale = np.sqrt(own * other)  # Cho and Saul (2009)
    angle = np.arccos(np.clip(between / scale, -1, 1))
    return scale * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)


def quadratic_kernel(own, between, other):
    return own * other + 2 * between**2


@np.vectorize
def tanh_kernel(own, between, other):
    return truth(tanh(h), (), None, own, other, np.clip(between / np.sqrt(own * other), -1, 1))


KERNELS = {
    "identity": lambda own, between, other: between,
    "erf": erf_kernel,
    "relu": relu_kernel,
    "quadratic": quadratic_kernel,
    tanh: tanh_kernel,
}


def after(kernel, covariance):
    """The kernel of every two tokens."""
    own = np.diagonal(covariance)
    return kernel(own[:, None], covariance, own[None, :])


def token_covariance(variance=1.0):
    flat = INPUTS.reshape(-1, FEATURES)
    return variance * flat @ flat.T / FEATURES


def kernel_of_tokens(u1, readings, between):
    """sum over pairs of paths and tokens, as it stands."""
    by_token = between.reshape(EXAMPLES, TOKENS, EXAMPLES, TOKENS)
    return np.einsum("ab,msa,msnt,ntb->mn", u1, readings, by_token, readings)


@pytest.mark.quick(5)
@pytest.mark.parametrize("function", KERNELS, ids=str)
@pytest.mark.parametrize("readout", ["last", "mean"])
def test_the_kernel_is_the_sum_over_paths_and_tokens(function, readout):
    architecture = bpkr.Architecture((2,), 9.0, (1.3, 0.8, 1.1), temperature=0.2, embedding=function)
    features = bpkr.path_features(INPUTS, ATTENTION, architecture, readout)
    u1 = np.array([[0.7, 0.2], [0.2, 1.4]])
    of_query = ATTENTION[0][:, :, :, -1] if readout == "last" else ATTENTION[0].mean(axis=3)
    readings = of_query.transpose(0, 2, 1) / np.sqrt(2)
    expected = kernel_of_tokens(u1, readings, after(KERNELS[function], token_covariance(1.3)))
    found = bpkr.kernel(bpkr.Problem(architecture, bpkr.Data(features)), bpkr.OrderParameters((u1,), 1.0))
    assert_close(found, expected, _OF_ROUNDING)


@pytest.mark.parametrize(("first", "second"), [("erf", "relu"), ("quadratic", "erf"), ("identity", "erf")])
def test_dense_layers_take_the_function_of_the_kernel_below(first, second):
    architecture = bpkr.Architecture(
        (Dense(activation=second), 2), 9.0, (1.3, 0.6, 0.8, 1.1), temperature=0.2, embedding=first
    )
    features = bpkr.path_features(INPUTS, ATTENTION, architecture)
    between = after(KERNELS[second], 0.6 * after(KERNELS[first], token_covariance(1.3))) / 0.6
    u1 = np.array([[0.7, 0.2], [0.2, 1.4]])
    readings = ATTENTION[0][:, :, :, -1].transpose(0, 2, 1) / np.sqrt(2)
    point = bpkr.OrderParameters((u1, np.eye(2)), 1.0)
    found = bpkr.kernel(bpkr.Problem(architecture, bpkr.Data(features)), point)
    assert_close(found, kernel_of_tokens(u1, readings, between), _OF_ROUNDING)


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_table_and_features_have_the_explicit_kernel(outputs):
    features, size = RNG.normal(size=(EXAMPLES, 2, FEATURES)), 2 * outputs
    root = RNG.normal(size=(size, size))
    u1 = jnp.asarray(root @ root.T)
    expected = explicit_kernel(bpkr.OrderParameters((u1,), 1.0), features, features)
    for kernel in (kernel_of(jnp.asarray(features), outputs), Kernel(jnp.asarray(features), None, outputs)):
        assert_close(kernel.matrix(u1), expected, 1e-13)
        blocks = np.reshape(expected, (EXAMPLES, outputs) * 2)
        assert_close(kernel_of_each(u1, kernel.features), np.einsum("mcmd->mcd", blocks), 1e-13)


@pytest.mark.parametrize("function", [exp(h**2), 1 / h, log, Heaviside(h - 0.5), tanh(200 * h)])
def test_functions_whose_mean_square_or_kernel_is_not_known_are_refused(function):
    architecture = bpkr.Architecture((2,), 9.0, temperature=0.2, embedding=function)
    with refused("has a relative error of up to"):
        bpkr.path_features(INPUTS, ATTENTION, architecture)
