"""Mistakes planted in the package itself: `check_layer` finds them at the part that is wrong."""

from functools import cached_property, lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from theorykit import bpkr, testing
from theorykit.bpkr.action import action as action_module
from theorykit.bpkr.action import backpropagation, derivation
from theorykit.bpkr.evaluation.formulas import CompiledAction
from theorykit.bpkr.network import attention as paths
from theorykit.bpkr.specification import layer_functions
from theorykit.bpkr.specification.layer_form import LayerForm
from theorykit.codegen import compile_expressions
from theorykit.compilation import jit
from theorykit.derivation import Recorder
from theorykit.symbolic.atoms import LogDet
from theorykit.testing.layers import check as check_module
from theorykit.testing.layers import numerics


@pytest.fixture(autouse=True)
def derived_anew(monkeypatch):
    """Actions and path features are made by the package as it is in the test, and forgotten after it."""
    monkeypatch.setattr(derivation, "_derive", lru_cache(derivation._derive.__wrapped__))
    traced = paths.unchecked_path_features.__wrapped__
    # JAX remembers what it has traced by the function
    monkeypatch.setattr(paths, "unchecked_path_features", jit(lambda *arguments: traced(*arguments)))


def wrong_step(rule, change):
    """A derivation in which what a step arrives at is changed."""
    right = Recorder.say

    def wrong(self, name, before, after, claim, **record):
        return right(self, name, before, change(before, after) if name == rule else after, claim, **record)

    return Recorder, "say", wrong


def wrong_method(owner, name, change):
    """A method, or a function of a module, whose result is changed."""
    right = getattr(owner, name)
    return owner, name, lambda *arguments: change(right(*arguments))


def refuse(*arguments, **record):
    raise ValueError("does not cover an expression in the prior")


def double_energy(self):
    outputs = {"entropy_1": self.action.entropies[0], "entropy_a": self.action.entropies[1]}
    outputs |= {"energy": 2 * self.action.energy, "total": self.action.total}
    return compile_expressions("action", outputs, self.action.symbols.arguments)


DOUBLED = cached_property(double_energy)
DOUBLED.__set_name__(CompiledAction, "terms")


def without_slope_of_the_energy(terms):
    total = terms.entropy + jax.lax.stop_gradient(terms.energy)
    return eqx.tree_at(lambda at: at.total, terms, total)


STEPS, PATHS = "every step of the derivation holds", "the network is the sum over its paths"
# what is replaced, the checks to make; of a finding: what was checked, and words of it
BUGS = {
    "a determinant of the wrong sign": (
        wrong_step("matrix determinant lemma", lambda before, after: after - 2 * next(iter(after.atoms(LogDet)))),
        *("derivation", STEPS, 'the rule "matrix determinant lemma"'),
    ),
    "a rule that gives up": (
        (backpropagation, "_integrate_weights", refuse),
        *("derivation", "an action with the layer is derived", "does not cover an expression in"),
    ),
    "a leading order with a part of the next": (
        wrong_step("leading order", lambda before, after: before),
        *("derivation", "both routes arrive at the same entropies", "one of the two routes is wrong in S_a"),
    ),
    "path weights twice as large": (
        wrong_method(LayerForm, "path_weights", lambda weights: 2 * weights),
        *("networks", PATHS, "1 / 2 times the sum over paths"),
    ),
    "tokens read with a wrong sign": (
        wrong_method(LayerForm, "reading", lambda reading: -reading),
        *("networks", PATHS, "the network is -1 times the sum over paths"),
    ),
    "weights drawn with a wrong variance": (
        wrong_method(layer_functions, "covariance_root", lambda root: root**2),
        *("networks", "weights of networks are drawn with the covariance of `prior`"),
        "a standard deviation in place of a variance",
    ),
    "a wrong mean of the prior": (
        wrong_method(LayerForm, "prior_mean", lambda mean: 2 * mean),
        *("networks", "the order parameters of sampled networks", "sampled is 1 / 2 times theory throughout"),
    ),
    "a wrong mean, seen by the entropy": (
        wrong_method(LayerForm, "prior_mean", lambda mean: 2 * mean),
        *("numerics", "without data, the order parameters of infinite width minimise", "`LayerForm.prior_mean`"),
    ),
    "generated code with a wrong energy": (
        (CompiledAction, "terms", DOUBLED),
        *("numerics", "the compiled action agrees with the derived one", "the energy is"),
    ),
    "a gradient without the energy": (
        wrong_method(numerics, "action_terms", without_slope_of_the_energy),
        *("numerics", "the compiled gradient agrees with the gradient of the action", "automatic differentiation"),
    ),
    "a symbolic gradient with a wrong factor": (
        wrong_method(action_module, "gradient", lambda gradient: 2 * gradient),
        *("numerics", "the saddle-point equations are the gradient of the action", "`theorykit.symbolic.gradient`"),
    ),
    "a wrong forward map where it runs": (
        wrong_method(layer_functions, "forward", lambda hidden: jnp.flip(hidden, axis=1)),
        *("numerics", "the compiled forward map agrees with the stated one", "generated code"),
    ),
}


@pytest.mark.quick("a leading order with a part of the next", "generated code with a wrong energy")
@pytest.mark.parametrize("name", BUGS)
def test_what_is_wrong_in_the_package_is_found_at_its_place(name, monkeypatch):
    bug, check, claim, said = BUGS[name]
    monkeypatch.setattr(*bug)
    kind, place = bpkr.Dense() if name == "a wrong mean of the prior" else bpkr.Attention(2), check_module.place
    # the kind alone is enough, and takes a third of the time
    monkeypatch.setattr(check_module, "place", lambda kind: (place(kind)[0][:1], place(kind)[1]))
    report = testing.check_layer(kind, checks=[check])
    found = [finding for finding in report.findings if claim in finding.check]
    assert found and any(said in f"{finding.measured} {finding.meaning}" for finding in found), report
