"""The derivation of the map: every step holds, no mistake passes, and what it arrives at is the theory's."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from sympy import Add, MatrixSymbol, S, Trace

from theorykit import dmft
from theorykit.codegen import interpret
from theorykit.derivation import claims
from theorykit.derivation.claims import random_values
from theorykit.derivation.step import derivation_blocks
from theorykit.dmft.derivation import LATEX_NAMES, J, L, M, N, TrajectorySymbols, epsilon, share
from theorykit.symbolic import normal
from theorykit.symbolic.algebra import expand_products
from theorykit.symbolic.documents import Folded, as_latex, as_markdown

from ..derivation.mistakes import is_caught, planted

PATH = TrajectorySymbols()
STEPS, PROVED = 37, 22
SIZES = {M: 3, L: 4, J: 2}
every_step = pytest.mark.parametrize("number", range(STEPS))


@pytest.fixture(scope="module")
def theory():
    """Derive in the first test that needs it, not when tests are collected."""
    return dmft.derive()


@pytest.fixture(scope="module")
def derivation(theory):
    return theory.derivation


def test_every_step_holds_and_identities_are_proved(derivation):
    verification = derivation.verify(seed=1)
    assert verification.holds, str(verification)
    assert (len(verification.evidence), len(verification.proved)) == (STEPS, PROVED)
    assert not any(step.before == step.after for step in derivation.steps)
    assert {step.equations for step in derivation.steps} == {"", "1", "2", "4", "5", "6", "8", "9"}
    assert all(len({sizes[size] for sizes in derivation.sizes}) > 1 for size in (N, M, L, J))
    solved = [step for step in derivation.steps if isinstance(step.claim, claims.Solves)]
    assert len(solved) == 6 and all(step.assumptions for step in solved)


def test_every_step_follows_from_an_earlier_one_or_from_the_model(theory):
    """A mistake in what a step starts from is seen here, and a mistake in what it arrives at by its claim."""
    last, steps = PATH.times[-1], theory.derivation.steps
    results, defined, starts = set(), set(), []
    for step in steps:
        parts = {step.before} if step.before.is_Matrix else set(Add.make_args(step.before))
        if not (parts <= results or step.before in defined):
            starts.append(step.before)
        results |= {step.after} if step.after.is_Matrix else set(Add.make_args(step.after))
        defined |= {value for _, value in step.definitions}

    sourced = [PATH.log_probability(t) + Trace(PATH.source(t).T * PATH.overlap_of_spins(t)) for t in PATH.times]
    model = dict(PATH.attention_definitions(last - 1))
    weights = PATH.attention_weights(last - 1)
    settled = next(step.after for step in steps if step.equations == "5")
    assert starts == [
        normal(-2 * PATH.log_probability(last)),
        *(normal(-2 * each) for each in sourced),
        PATH.family * settled,
        model[PATH.attention(last - 1)].xreplace({weights: model[weights]}),
        theory.attention.xreplace({theory.attention_weights.column: PATH.exponents}),
    ]


def test_gradients_are_of_all_terms_of_the_action_that_vary(derivation):
    """The action and what depends on a variable are complete, or the saddle point would be another."""
    action = next(step.after for step in derivation.steps if step.rule == "sources set to zero")
    gradients = {
        step.claim.variable: step
        for step in derivation.steps
        if isinstance(step.claim, claims.Derivative) and not step.claim.at_zero
    }
    assert list(gradients) == [*map(PATH.conjugate, PATH.times), *map(PATH.overlap, reversed(PATH.times))]
    for time in PATH.times:
        varying = {PATH.overlap(time), *map(PATH.attention, PATH.times[time - 1 : -1])}
        assert varying <= {PATH.overlap(time), *dict(gradients[PATH.overlap(time)].claim.definitions)}
        for step, symbols in ((gradients[PATH.overlap(time)], varying), (gradients[PATH.conjugate(time)], set())):
            left_out = Add.make_args(action - step.before)
            assert not any(term.has(step.claim.variable, *symbols) for term in left_out)
            assert set(left_out) < set(Add.make_args(action))


def is_nothing(step):
    return bool(step.after.is_ZeroMatrix if step.after.is_Matrix else step.after == 0)


def mistakes_in(step):
    """Mistakes in what a step arrives at; for nothing, something."""
    if is_nothing(step):
        return [replace(step, after=MatrixSymbol("wrong", *step.after.shape) if step.after.is_Matrix else S.One)]
    return [wrong for _, wrong in planted(step)]


def mistakes_in_definitions(step):
    """The step with twice the value of one symbol that its claim defines."""
    definitions = getattr(step.claim, "definitions", ())
    for number, (symbol, value) in enumerate(definitions):
        if not (value.is_Matrix and value.is_ZeroMatrix):
            wrong = (*definitions[:number], (symbol, 2 * value), *definitions[number + 1 :])
            yield replace(step, claim=replace(step.claim, definitions=wrong))


@every_step
def test_a_mistake_at_any_step_is_caught(number, derivation):
    step = derivation.steps[number]
    mistakes = mistakes_in(step)
    apart = max(1, len(mistakes) // 3)
    some = [*mistakes[number % apart :: apart], *mistakes_in_definitions(step)]
    assert some
    assert all(is_caught(wrong, derivation.sizes) for wrong in some)


@pytest.mark.slow
@every_step
def test_every_mistake_at_every_step_is_caught(number, derivation):
    mistakes = mistakes_in(derivation.steps[number])
    assert [wrong.after for wrong in mistakes if not is_caught(wrong, derivation.sizes)] == []


def test_what_is_compiled_is_what_the_steps_arrived_at(theory):
    reached = {step.after.xreplace({share: 1 - epsilon}) for step in theory.derivation.steps}
    assert {theory.overlap, theory.attention, theory.overlap_response} <= reached
    assert theory.noise in reached
    assert theory.row_response + theory.query_response in reached
    exponents = {PATH.exponents: theory.attention_weights.column}
    responses = {expand_products(after.xreplace(exponents).T) for after in reached if after.is_Matrix}
    assert theory.attention_response in responses


def spin_histories(values, neurons):
    """Every history of the spins of three tokens: their probability, and the overlaps of each token."""
    columns = [np.array(signs)[:, None] for signs in itertools.product((-1.0, 1.0), repeat=neurons)]
    for history in itertools.product(columns, repeat=len(PATH.times)):
        at, log_probability = dict(values), 0.0
        for time, spins in zip(PATH.times, history, strict=True):
            at[f"s_{time}"] = spins
            log_probability += interpret(PATH.log_probability(time), at)
            at[f"m_{time}"] = interpret(PATH.overlap_of_spins(time), at)
            if time < len(PATH.times):
                for symbol, value in PATH.attention_definitions(time):
                    at[symbol.name] = interpret(value, at)
        yield np.exp(log_probability), at


def test_all_histories_together_have_probability_one_and_the_first_overlaps_follow_the_map(derivation):
    """Z = 1 without sources, summed over all spins; the mean of the first overlaps is exact at any size."""
    sizes = {N: 2, M: 2, L: 3, J: 2}
    expressions = [PATH.overlap_of_spins(time) for time in PATH.times] + [PATH.log_probability(1), PATH.family]
    expressions += [value for time in (1, 2) for _, value in PATH.attention_definitions(time)]
    values = random_values(expressions, sizes, np.random.default_rng(3))
    histories = list(spin_histories(values, sizes[N]))
    assert len(histories) == 2**6
    assert sum(probability for probability, _ in histories) == pytest.approx(1.0, abs=1e-12)
    mean = sum(probability * at["m_1"] for probability, at in histories)
    first = next(step.after for step in derivation.steps if step.equations == "5")
    # the step is of the last time: as the first, it is the map at the prompt's attention
    at_prompt = {**values, "A_2": values["A_0"], "r_3": values["r_1"]}
    np.testing.assert_allclose(mean, interpret(first, at_prompt), rtol=1e-12)


def test_the_derivation_can_be_read(theory):
    blocks = list(derivation_blocks(theory.derivation, LATEX_NAMES))
    assert sum(isinstance(block, Folded) for block in blocks) == STEPS
    equations = as_latex(theory.equations, fragment=True)
    for text in (as_markdown(blocks), equations):
        assert not any(word in text for word in ("None", "Lambda", "MatMul", "Softmax", "epsilonbar", "Dummy"))
    assert equations.count(r"\label") == 5
