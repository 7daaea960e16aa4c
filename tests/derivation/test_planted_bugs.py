"""Bugs planted in the rules: what is derived afresh with a rule gone wrong fails at that rule, and says so."""

from dataclasses import replace

import pytest
from sympy import Add, sqrt
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix

from theorykit.bpkr.action import derivation as back_propagation
from theorykit.bpkr.action import prior
from theorykit.derivation import claims, rules
from theorykit.derivation.rules import RuleError
from theorykit.derivation.step import Points, chance_of_mistake
from theorykit.symbolic import kronecker, log_det, normal
from theorykit.symbolic.algebra import expand_products, simplify_traces
from theorykit.symbolic.atoms import PartialTrace

from ..marks import slow
from .architectures import SMALL, action


@pytest.fixture(autouse=True, scope="module")
def derived_before_anything_is_wrong():
    """Derivations are remembered for the whole session: none may be made first by a rule with a bug in it."""
    for name in SMALL:
        action(name)


def derived_afresh(name):
    """The derivation by back-propagation, made anew by the rules as they are now."""
    return back_propagation._derive.__wrapped__(action(name).form).derivation


def first_failure(derivation):
    """The evidence of the first step that does not hold; those after it are not looked at."""
    return next(evidence for evidence in derivation.evidence() if not evidence.holds)


def holds_exactly(step, sizes):
    """Whether the claim holds in exact arithmetic; an error where it is no identity."""
    return chance_of_mistake(step, Points(sizes, 0)) is not None


def arrives(rule, change):
    """A rule that changes what it arrives at, by a function of that and of the rule's arguments."""
    right = getattr(rules, rule)

    def wrong(*arguments, **record):
        step = right(*arguments, **record)
        return replace(step, after=change(step.after, *arguments))

    return rules, rule, wrong


def wrong_part(function, change):
    """A function that rules are made of, changed."""
    return rules, function, change(getattr(rules, function))


def traced_over_the_other_factor(expression):
    return simplify_traces(expression).replace(
        lambda node: isinstance(node, PartialTrace),
        lambda node: PartialTrace(node.matrix, tuple(reversed(node.dimensions)), 1 - node.traced),
    )


def half_linear(polynomial):
    def wrong(expression, variable):
        quadratic, linear, constant = polynomial(expression, variable)
        return quadratic, [column / 2 for column in linear], constant

    return wrong


def doubled(right):
    return lambda *arguments: 2 * right(*arguments)


def with_conjugate(change):
    def wrong(after, before, value, symbol, conjugate, weight):
        return after.xreplace({conjugate: change(conjugate, weight)})

    return arrives("insert_order_parameter", wrong)


BOTH, PLAIN, STRAIGHT = tuple(SMALL), ("two layers",), ("a skip connection",)
# the step that is wrong, what is wrong in the rules, and the derivations that have it
INSERTED = "order parameter by a delta function"
BUGS = {
    "the wrong sign of a determinant": (
        "matrix determinant lemma",
        arrives("determinant_lemma", lambda after, b, c, inner: after - 2 * normal(log_det(inner))),
        PLAIN,
    ),
    "half the shift of a Gaussian": ("Gaussian integral", wrong_part("polynomial", half_linear), PLAIN),
    "a wrong solution": (
        "eliminated at its saddle point",
        wrong_part("solve_for", lambda right: lambda *arguments: expand_products(2 * right(*arguments))),
        PLAIN,
    ),
    "Kronecker factors swapped": (
        "blocks become path indices",
        (rules, "kronecker", lambda left, right: kronecker(right, left)),
        PLAIN,
    ),
    "the conjugate with the wrong sign": (INSERTED, with_conjugate(lambda q, width: -q), BOTH),
    "the conjugate with a wrong factor": (INSERTED, with_conjugate(lambda q, width: q / 2), BOTH),
    "the conjugate with the square root of the width": (INSERTED, with_conjugate(lambda q, n: q / sqrt(n)), BOTH),
    "a wrong factor of the source": (
        "source differentiated",
        arrives("source_derivative", lambda after, *_: after / 2),
        BOTH,
    ),
    "branches swapped": (
        "branches side by side",
        (rules, "BlockDiagMatrix", lambda first, second: BlockDiagMatrix(second, first)),
        STRAIGHT,
    ),
    "the other partial trace": (
        "traces of smaller matrices",
        (rules, "simplify_traces", traced_over_the_other_factor),
        PLAIN,
    ),
    "a wrong factor of columns": ("matrices become columns", wrong_part("_vectorise", doubled), BOTH),
    "a wrong scale of the auxiliary field": (
        "Hubbard-Stratonovich",
        arrives("linearise_square", lambda after, *_: sqrt(2) * after),
        BOTH,
    ),
    "one row instead of all": ("sum over rows", arrives("sum_over_rows", lambda a, b, count, rows: a / count), BOTH),
    "a wrong power of a number": (
        "1 x 1 matrix as a number",
        arrives("write_as_number", lambda after, before, matrix, number: after.subs(number, number**2)),
        BOTH,
    ),
    "too much dropped": (
        "constants dropped",
        arrives("drop_constants", lambda after, *_: after - Add.make_args(after)[0]),
        BOTH,
    ),
    "the wrong power of the width in the meaning of U": (
        "read backwards as weights",
        arrives("linearise_form", lambda after, before, c, a, weight: after * sqrt(weight)),
        BOTH,
    ),
    "the wrong sign of a derivative": ("differentiated", arrives("derivative", lambda after, *_: -after), BOTH),
    "a wrong factor after a multiplier": ("Lagrange multiplier", arrives("constrain", lambda a, *_: 2 * a), STRAIGHT),
    "the wrong sign in the induction": ("induction", arrives("same_form", lambda after, *_: -after), BOTH),
}


@pytest.mark.quick(8)
@pytest.mark.parametrize(
    ("rule", "bug", "name"),
    [
        pytest.param(rule, bug, name, id=f"{what}, {name}", marks=[] if name == names[0] else pytest.mark.slow)
        for what, (rule, bug, names) in BUGS.items()
        for name in names
    ],
)
def test_the_verification_fails_at_the_rule_that_is_wrong(rule, bug, name, monkeypatch):
    monkeypatch.setattr(*bug)
    derivation = derived_afresh(name)
    monkeypatch.undo()
    first = first_failure(derivation)
    assert first.step.rule.startswith(rule)
    assert "FAILS" in str(first) and rule in str(first)
    if not isinstance(first.step.claim, claims.GaussianAverage):
        assert not holds_exactly(first.step, derivation.sizes)


@pytest.mark.parametrize("name", SMALL)
def test_without_a_bug_the_verification_holds(name):
    assert derived_afresh(name).verify().holds


IMPOSSIBLE = {
    "determinants left out": (rules, "log_det", lambda matrix: log_det(matrix) * 0),
    "the wrong sign of an overlap": wrong_part("_small_matrix", lambda right: lambda c, *rest: right(-c, *rest)),
}


@pytest.mark.parametrize("bug", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_bug_that_leaves_nothing_to_go_on_with_is_an_error(bug, monkeypatch):
    monkeypatch.setattr(*bug)
    with pytest.raises(RuleError):
        derived_afresh("two layers")


def of_second_route(name):
    made = action(name)
    return prior.finite_width_prior(made.forms, made.symbols, made.derivation.sizes).derivation


def of_expansion(name):
    made = action(name)
    arguments = (made.forms, made.symbols, made.overlap_entropies, made.overlap_blocks)
    return prior.expand_about_infinite_width(*arguments, made.derivation.sizes).derivation


WRONG_RESPONSE = arrives("linear_response", lambda after, *_: expand_products(-after))
OTHER_ROUTES = {
    "a density of twice the precision": (
        of_second_route,
        "density of Gaussian columns",
        arrives("gaussian_density", lambda after, *_: 2 * after),
    ),
    "a volume with a wrong power": (
        of_second_route,
        "volume of weights with an overlap",
        arrives("gram_volume", lambda after, before, columns, overlap, *_: after + log_det(overlap)),
    ),
    "a leading order with a part of the next": (
        of_second_route,
        "leading order",
        arrives("leading_order", lambda after, before, width: before),
    ),
    "a response of the wrong sign": (of_expansion, "linear response", WRONG_RESPONSE),
    "a force passed on with a wrong factor": (
        of_expansion,
        "differentiated",
        arrives("derivative", lambda after, *_: expand_products(2 * after)),
    ),
}


@pytest.mark.parametrize("name", [*PLAIN, *slow(STRAIGHT)])
@pytest.mark.parametrize(("route", "rule", "bug"), OTHER_ROUTES.values(), ids=OTHER_ROUTES)
def test_the_other_routes_fail_at_the_rule_that_is_wrong(route, rule, bug, name, monkeypatch):
    monkeypatch.setattr(*bug)
    derivation = route(name)
    monkeypatch.undo()
    assert first_failure(derivation).step.rule == rule


@pytest.mark.parametrize("name", SMALL)
def test_a_wrong_response_is_seen_again_in_the_end(name, monkeypatch):
    """The last steps of the expansion check the displacements against the action itself."""
    monkeypatch.setattr(*WRONG_RESPONSE)
    derivation = of_expansion(name)
    monkeypatch.undo()
    assert derivation.verify().failures[-1].step.rule == "first order in 1/N"
