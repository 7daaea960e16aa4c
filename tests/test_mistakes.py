"""Common mistakes of users: every error names the argument, and the value or its shape."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Identity, MatrixSymbol, OneMatrix, Symbol, Trace, cosh, exp, log, sqrt, symbols, tanh, zeta

from theorykit import bpkr, dmft, plots, saddle
from theorykit.bpkr import AbstractLayer, Attention, sampling, sweeps
from theorykit.symbolic import gaussian_average, log_det, positive_definite
from theorykit.theories import in_context, learned_attention

RNG = np.random.default_rng(0)
NAN, INF = float("nan"), float("inf")


def changed(array, index, value):
    """A copy with one entry, or one example, replaced."""
    copy = np.array(array)
    copy[index] = value
    return copy


def raises(call, *words):
    """Check that `call` raises an error that a user can act on, with all of these words."""
    with pytest.raises((ValueError, TypeError, OSError)) as error:
        call()
    assert not [word for word in words if word not in str(error.value)], str(error.value)


INPUTS = RNG.normal(size=(24, 10, 3))
TEXT = np.where(INPUTS[:, 0, 0] > 0, "rise", "fall")
MISSING = [*TEXT[:2].tolist(), None, *TEXT[3:].tolist()]


def fit(inputs=INPUTS, labels=TEXT, **settings):
    return bpkr.Model(**{"layers": (2,), "temperature": 0.3, **settings}).fit(inputs, labels)


MODEL = {
    "predict before fit": (lambda: bpkr.Model().predict(INPUTS), "not fitted", "fit"),
    "one sequence instead of many": (lambda: fit(INPUTS[0], TEXT[:1]), "inputs", "(10, 3)"),
    "too few labels": (lambda: fit(labels=TEXT[1:]), "labels", "23", "24"),
    "a missing label": (lambda: fit(labels=MISSING), "labels[2]", "None"),
    "a single class": (lambda: fit(labels=["rise"] * 24), "labels", "'rise'"),
    "NaN in the inputs": (lambda: fit(changed(INPUTS, (3, 1, 2), NAN)), "inputs", "nan", "(3, 1, 2)"),
    "a sequence of NaN": (lambda: fit(changed(INPUTS, 4, NAN)), "inputs[4]", "NaN"),
    "attention that is not a list": (lambda: bpkr.Model().fit(INPUTS, TEXT, MAPS[0]), "attention", "list"),
    "a mask next to attention": (lambda: bpkr.Model(mask="causal").fit(INPUTS, TEXT, MAPS), "attention", "mask"),
    "a table of classes": (lambda: fit(labels=TEXT[:, None]), "labels", "(examples,)", "(24, 1)"),
    "positions of three tokens": (lambda: fit(readout=np.zeros(3)), "readout", "24 examples"),
    "costs of heads at infinite width": (lambda: fit(widths=INF).head_costs(), "saddle", "Gaussian process"),
    "heads of other inputs": (lambda: fit(heads=[np.ones((2, 4, 4))]), "heads", "4 features", "(24, 10, 3)"),
}

# Networks and data.
FEATURES, LABELS = RNG.normal(size=(5, 4, 6)), np.ones(5)
NETWORK = bpkr.Architecture((2, 2), 8.0, temperature=0.1)
FOUR, LIMIT = bpkr.Architecture((4,), 8.0, temperature=0.1), bpkr.gp_limit(NETWORK)
SKIP = bpkr.Skip(3)
HEADS, OPTIONS = bpkr.Heads(key_query=np.ones((1, 2, 6, 6))), {"input_features": 5, "key": jax.random.key(0)}


def architecture(layers=(2, 2), **numbers):
    return bpkr.Architecture(layers, **{"widths": 8.0, "temperature": 0.1, **numbers})


def bind(features=FEATURES, labels=LABELS, network=NETWORK, **test):
    return bpkr.Problem(network, bpkr.Data(features, labels, **test))


def at(first=LIMIT.matrices[0], readout=1.0):
    return bpkr.evaluate(bind(), bpkr.OrderParameters((first, LIMIT.matrices[1]), readout))


def solved(*layers):
    return bpkr.solve(bind(network=architecture(layers or (2, 2))))


def sweep(**grid):
    return sweeps.sweep(NETWORK, bpkr.Data(FEATURES, LABELS), progress=False, **grid)


def classes(**changes):
    return bpkr.Data.of_classes(FEATURES, list("abcab"), FEATURES, changes.get("test_labels"))


NETWORKS = {
    "too few widths": (lambda: architecture(widths=(8, 9)), "widths", "2"),
    "infinite widths alone": (lambda: architecture(widths=INF), "widths", "richness="),
    "a number as a key": (lambda: sampling.sample(bind(), key=3), "key", "jax.random.key(3)", "got 3"),
    "a layer that is a class": (lambda: architecture((2, bpkr.Dense)), "layers[1]", "bpkr.Dense()"),
    "a negative width": (lambda: architecture(widths=(8, -9, 8)), "widths[1]", "-9"),
    "text instead of a number": (lambda: architecture(temperature="0.1"), "temperature", "'0.1'"),
    "heads as a float": (lambda: architecture((2, 2.5)), "layers", "2.5"),
    "an unknown embedding": (lambda: architecture(embedding="gelu"), "embedding", "'gelu'"),
    "too few paths": (lambda: bind(FEATURES[:, :3]), "features", "4 paths", "(5, 3, 6)"),
    "labels as a column": (lambda: bind(labels=LABELS[:, None]), "labels", "(5, 1)"),
    "a masked label": (lambda: bind(labels=np.ma.masked_array(LABELS, np.arange(5) == 2)), "labels", "nan", "(2,)"),
    "complex features": (lambda: bind(FEATURES * 1j), "features", "complex"),
    "labels without a direction": (lambda: bpkr.kernel_task_alignment(np.eye(3), np.zeros(3)), "labels are all zero"),
    "no labels": (lambda: bpkr.evaluate(bind(labels=None), LIMIT), "labels"),
    "no data": (lambda: bpkr.evaluate(NETWORK, LIMIT), "data", "bpkr.Problem(architecture, "),
    "heads of other layers": (lambda: bpkr.sample_network(NETWORK, HEADS, **OPTIONS), "on 5 features", "[(2, 6, 6)]"),
    "no key": (lambda: bpkr.sample_network(NETWORK, HEADS, **OPTIONS | {"key": None}), "key", "type Array", "None"),
    "no approaches": (lambda: sampling.compare(bind(), key=OPTIONS["key"], approaches=()), "approaches", "()"),
    "test features of other inputs": (lambda: bpkr.predict(bind(), LIMIT, FEATURES[..., :4]), "test_features", "4"),
    "classes that are new in the test": (lambda: classes(test_labels=list("abcxb")), "test_labels[3]", "'x'"),
    "one output for three classes": (lambda: bpkr.solve(NETWORK, classes()), "(5, 3)", "outputs=1"),
    "the solution of other heads": (lambda: bpkr.head_scores(NETWORK, bpkr.solve(bind(network=FOUR))), "(4, 1)"),
    "costs of heads elsewhere": (lambda: bpkr.head_costs(bind(labels=3 * LABELS), solved()), "saddle", "problem"),
    "fluctuations elsewhere": (lambda: bpkr.fluctuations(bind(labels=3 * LABELS), solved()), "order_parameters"),
    "a solution of other layers": (lambda: bpkr.head_scores(FOUR, solved(SKIP)), "order_parameters", "Skip", "heads=4"),
    "a solution to draw": (lambda: plots.draw_order_parameters(solved()), "solution", "bpkr.sweeps.label", "Saddle"),
    "a figure instead of axes": (lambda: plots.draw_kernel_spectrum([1.0], [1.0], "axes"), "axes", "Axes", "'axes'"),
    "cosines of another kernel": (lambda: plots.draw_kernel_spectrum([2.0, 1.0], [1.0]), "cosines", "(2,)", "(1,)"),
    "an indefinite order parameter": (lambda: at(np.diag([1.0, 1.0, 1.0, -0.5])), "U_1", "-0.5"),
    "a width that is no sequence": (lambda: sweep(width=10, temperature=(1.0,)), "width", "sequence", "10"),
    "a sweep without temperatures": (lambda: sweep(width=(10,), temperature=()), "temperature"),
    "an unknown option": (lambda: sweep(width=(10,), temperature=(1.0,), tolerence=1e-6), "tolerence"),
}

# Attention, masks and layouts.
TOKENS = RNG.normal(size=(5, 4, 6))
WEIGHTS = [RNG.normal(size=(2, 6, 6)), RNG.normal(size=(2, 6, 6))]
MAPS = [np.asarray(each) for each in bpkr.attention(TOKENS, key_query=WEIGHTS)]


def attend(inputs=TOKENS, weights=WEIGHTS, **options):
    return bpkr.attention(inputs, **({"key_query": weights} if weights else {}), **options)


def paths(maps=MAPS, *options, **named):
    return bpkr.path_features(TOKENS, maps, NETWORK, *options, **named)


ATTENTION = {
    "queries without keys": (lambda: attend(weights=None, query=WEIGHTS), "query", "key"),
    "weights that are not square": (lambda: attend(weights=[np.ones((2, 3, 6))]), "key_query", "(2, 3, 6)"),
    "weights of one layer": (lambda: bpkr.Heads(WEIGHTS[0]), "key_query[0]", "(heads, features, features)"),
    "scores that overflow": (lambda: attend(1e200 * TOKENS), "attention overflows", "nan"),
    "a misspelt mask": (lambda: attend(mask="casual"), "mask", "'causal'"),
    "attention of other heads": (lambda: paths([MAPS[0], MAPS[1][:, :1]]), "attention[1]", "(5, 2, 4, 4)"),
    "averages over heads": (lambda: bpkr.Model().fit(TOKENS, LABELS, [MAPS[0].mean(1)]), "(5, 4, 4)", "maps[:, None]"),
    "attention to padding": (lambda: paths(real_tokens=np.array([4, 2, 3, 4, 4])), "attention[0]", "padding"),
    "an array for nonlinear units": (lambda: bind(network=architecture(embedding="erf")), "features", "erf"),
}

m, h, beta, q, x = *symbols("m h", real=True), *symbols("beta q", positive=True), Symbol("x", real=True)
ENERGY = m**2 / 2 - log(2 * cosh(beta * (m + h))) / beta
CURIE_WEISS = saddle.Action(ENERGY, {m: saddle.Real()}, [beta, h])
U, K = positive_definite("U", 3), positive_definite("K", 3)
PLAIN = MatrixSymbol("U", 2, 2)
WISHART = saddle.Action(Trace(K * U) - log_det(U), {U: saddle.PositiveDefinite()}, [K])


def action(expression, domain=None, of=m, parameters=()):
    return saddle.Action(expression, {of: domain or saddle.Real()}, list(parameters))


def wishart(data, **options):
    return saddle.minimise(WISHART, {K: data}, **options)


ACTIONS = {
    "a symbol that is not declared": (lambda: action(m**2 + beta * m), "beta"),
    "a symbol with other assumptions": (lambda: action(Symbol("beta") * m, parameters=[beta]), "beta"),
    "an ordinary matrix": (lambda: action(Trace(PLAIN), saddle.PositiveDefinite(), PLAIN), "U", "positive_definite"),
    "a function that is not covered": (lambda: action(m**2 + zeta(m)), "zeta(m)"),
    "an infinite average": (lambda: gaussian_average(exp(x**2), x), "infinite", "exp(x**2)"),
    "three ends of a range": (lambda: plots.draw_landscape(CURIE_WEISS, {m: (-1, 0, 1), beta: 1, h: 0}), "m", "2", "3"),
    "a missing parameter": (lambda: saddle.minimise(CURIE_WEISS, {beta: 1.0}), "values", "h"),
    "an unknown parameter": (lambda: CURIE_WEISS(m=0.3, beta=1.0, h=0.0, g=1.0), "'g'", "m, beta, h"),
    "NaN as a value": (lambda: CURIE_WEISS(m=[0.3, NAN], beta=1.0, h=0.0), "m", "nan"),
    "text as a value": (lambda: CURIE_WEISS(m="0.3", beta=1.0, h=0.0), "m", "'0.3'"),
    "a negative value": (lambda: saddle.minimise(CURIE_WEISS, {beta: -1.0, h: 0.0}), "values[beta]", "-1.0"),
    "a matrix of another size": (lambda: wishart(np.eye(2)), "values[K]", "(2, 2)", "(3, 3)"),
    "a start outside the domain": (lambda: wishart(np.eye(3), initial={U: -np.eye(3)}), "initial[U]", "positive"),
    "a parameter that is not definite": (lambda: wishart(np.diag([1.0, 1.0, -2.0])), "values[K]", "-2"),
}


class Layer(AbstractLayer):
    """A dense layer that a user changes in one place."""

    scale: float = 2.0
    change: str = eqx.field(default="", static=True)
    heads: int = eqx.field(default=0, static=True)

    def forward(self, layer):
        dense = layer.weights(1) * layer.hidden / sqrt(layer.width)
        if self.change == "value":
            return self.scale * dense
        return {
            "unnamed": layer.number("g") * dense,
            "bias": dense + OneMatrix(layer.next_width, layer.tokens),
            "activation": dense.applyfunc(tanh),
            "learned attention": dense * layer.hidden.T * layer.hidden,
            "heads": Attention(2).forward(layer),
        }.get(self.change, dense)

    def prior(self, layer):
        return layer.variance * Identity(layer.heads if self.change == "heads" else 1)


def layer(change):
    return architecture((Layer(change=change),))


LAYERS = {
    "the value of a parameter in a formula": (lambda: layer("value"), "layer.number(name)"),
    "a parameter without a value": (lambda: layer("unnamed"), "g_1", "Layer"),
    "a bias": (lambda: layer("bias"), "Layer", "bias"),
    "an activation function": (lambda: layer("activation"), "Layer", "nonlinear"),
    "attention to hidden activations": (lambda: layer("learned attention"), "Layer", "hidden activations"),
    "attention without heads": (lambda: layer("heads"), "Layer", "heads=0"),
}

# Dynamics of self-attention, and published theories.
PUBLISHED = dmft.Weights.published()
MODEL_OF_4 = dmft.SelfAttention.from_weights(PUBLISHED, context=4)
POINT = dmft.Parameters(beta=0.5, gamma=10.0, epsilon=0.02)
START = MODEL_OF_4.start(POINT, PUBLISHED.prompt())
IN_CONTEXT = {"alpha": 1.0, "tau": 1.0, "kappa": 1.0, "ridge": 0.1, "rho": 0.1}
SIGNS = RNG.choice([-1, 1], size=(4, 3, 8))

DYNAMICS = {
    "weights that are not signs": (lambda: dmft.Weights(2 * SIGNS, position_bits=2), "signs must be +1 or -1"),
    "too few bits for the context": (lambda: dmft.SelfAttention.from_weights(PUBLISHED, context=5), "context", "5"),
    "a share above one": (lambda: dmft.Parameters(1.0, 1.0, 1.5), "epsilon", "1.5"),
    "a window instead of a state": (lambda: dmft.run(MODEL_OF_4, START.attention, POINT, steps=3), "start", "State"),
    "data above the threshold of recovery": (lambda: learned_attention.solve(0.3, 0.5, 2), "alpha", "0.1875"),
    "no ridge": (lambda: in_context.errors(**{**IN_CONTEXT, "ridge": 0.0}), "ridge", "0.0"),
}

GROUPS = {"model": MODEL, "network": NETWORKS, "attention": ATTENTION}
GROUPS |= {"action": ACTIONS, "layer": LAYERS, "dynamics": DYNAMICS}
MISTAKES = {f"{group}: {name}": row for group, rows in GROUPS.items() for name, row in rows.items()}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_errors_name_the_argument_and_its_value(mistake):
    call, *words = MISTAKES[mistake]
    raises(call, *words)


def test_values_are_checked_in_compiled_code():
    width = eqx.filter_jit(lambda width: architecture(widths=width).widths[0])
    with pytest.raises(RuntimeError, match=re.escape("widths[0] must be finite and")):
        width(jnp.array(-1.0)).block_until_ready()


def test_single_precision_is_an_error_that_says_what_to_call():
    with jax.enable_x64(False), pytest.raises(RuntimeError, match=r"theorykit\.enable_float64\(\)"):
        bpkr.attention(TOKENS, key_query=WEIGHTS)


def test_existing_files_are_kept(tmp_path):
    path = tmp_path / "mine"
    path.write_text("mine")
    raises(lambda: sweep(width=(10,), temperature=(1.0,), folder=path), "mine")
    assert path.read_text() == "mine"
