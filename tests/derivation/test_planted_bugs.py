"""Mistakes planted in the stated formulas: the step with the mistake fails, and its evidence says so."""

from dataclasses import replace
from functools import partial

import pytest
from sympy import Add, KroneckerProduct, Rational, Trace, sqrt
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix

from theorykit.bpkr.action import backpropagation, energy_forms, prior
from theorykit.bpkr.action import derivation as back_propagation
from theorykit.derivation import Derivation, claims
from theorykit.derivation.step import chance_of_mistake, random_points
from theorykit.symbolic import gradient, kronecker, log_det
from theorykit.symbolic.algebra import as_number, simplify_traces
from theorykit.symbolic.atoms import LogDet, PartialTrace

from .architectures import SMALL, action
from .mistakes import is_caught
from .test_derivations import ROUTES

BOTH, PLAIN, SKIP = tuple(SMALL), ("two layers",), ("a skip connection",)


@pytest.fixture(autouse=True, scope="module")
def derived_before_anything_is_wrong():
    """Derivations are remembered for the whole session: none may be made first with a mistake in it."""
    for name in SMALL:
        assert all(route(action(name)) for route in ROUTES.values())


# ---- one formula of a derivation that is right


def in_symbol(change, step):
    """Change the order parameter in what the delta function arrives at."""
    symbol = step.claim.conjugate
    return replace(step, after=step.after.xreplace({symbol: change(symbol, step.claim.weight)}))


def in_claim(step, **changes):
    return replace(step, claim=replace(step.claim, **changes))


def in_nodes(kind, change, step):
    return replace(step, after=step.after.replace(lambda node: isinstance(node, kind), change))


def swapped_factors(node):
    """A (x) u = u (x) A of a number u."""
    return node if node.args[1].shape == (1, 1) else KroneckerProduct(*reversed(node.args))


def times(factor, step):
    return replace(step, after=factor * step.after)


# the step, the route, the mistake in it, and the derivations that have it
FORMULAS = {
    "the wrong sign of a determinant": (
        "matrix determinant lemma",
        "back-propagation",
        lambda step: replace(step, after=step.after - 2 * next(iter(step.after.atoms(LogDet)))),
        BOTH,
    ),
    "half the shift of a Gaussian": (
        "Gaussian integral",
        "back-propagation",
        partial(in_nodes, Trace, lambda node: node / 2),
        BOTH,
    ),
    "a wrong solution": (
        "eliminated at its saddle point",
        "back-propagation",
        lambda step: in_claim(step, solution=2 * step.claim.solution),
        BOTH,
    ),
    "Kronecker factors swapped": (
        "blocks become path indices",
        "back-propagation",
        partial(in_nodes, KroneckerProduct, swapped_factors),
        PLAIN,
    ),
    "the conjugate with the wrong sign": (
        "order parameter by a delta function",
        "back-propagation",
        partial(in_symbol, lambda u, width: -u),
        BOTH,
    ),
    "the conjugate with a wrong factor": (
        "order parameter by a delta function",
        "back-propagation",
        partial(in_symbol, lambda u, width: u / 2),
        BOTH,
    ),
    "the conjugate with the square root of the width": (
        "order parameter by a delta function",
        "back-propagation",
        partial(in_symbol, lambda u, width: u / sqrt(width)),
        BOTH,
    ),
    "branches swapped": (
        "branches side by side",
        "back-propagation",
        partial(in_nodes, BlockDiagMatrix, lambda node: BlockDiagMatrix(*reversed(node.diag))),
        SKIP,
    ),
    "a wrong scale of the auxiliary field": ("Hubbard-Stratonovich", "back-propagation", partial(times, sqrt(2)), BOTH),
    "a wrong factor of columns": ("matrices become columns", "back-propagation", partial(times, 2), BOTH),
    "a wrong factor after a multiplier": ("Lagrange multiplier", "back-propagation", partial(times, 2), SKIP),
    "a wrong factor of the source": ("source differentiated", "back-propagation", partial(times, Rational(1, 2)), BOTH),
    "the wrong sign of a derivative": ("differentiated", "back-propagation", partial(times, -1), BOTH),
    "the wrong sign in the induction": ("induction", "back-propagation", partial(times, -1), BOTH),
    "one row instead of all": (
        "sum over rows",
        "back-propagation",
        lambda step: times(1 / step.claim.count, step),
        BOTH,
    ),
    "a wrong power of a number": (
        "1 x 1 matrix as a number",
        "back-propagation",
        lambda step: replace(
            step, after=as_number(step.before, (d := step.definitions[0])[0], d[1].as_coeff_mmul()[0] ** 2)
        ),
        BOTH,
    ),
    "too much dropped": (
        "constants dropped",
        "back-propagation",
        lambda step: replace(step, after=step.after - Add.make_args(step.after)[0]),
        BOTH,
    ),
    "the wrong power of the width in the meaning of U": (
        "read backwards as weights",
        "back-propagation",
        lambda step: times(sqrt(action("two layers").symbols.widths[0]), step),
        BOTH,
    ),
    "a density of twice the precision": ("density of Gaussian columns", "finite width", partial(times, 2), BOTH),
    "a volume with a wrong power": (
        "volume of weights with an overlap",
        "finite width",
        lambda step: replace(step, after=step.after + log_det(step.claim.overlap)),
        BOTH,
    ),
    "a leading order with a part of the next": (
        "leading order",
        "finite width",
        lambda step: replace(step, after=step.before),
        BOTH,
    ),
    "a response of the wrong sign": ("linear response", "expansion", partial(times, -1), BOTH),
    "a force passed on with a wrong factor": ("differentiated", "expansion", partial(times, 2), BOTH),
    "a wrong first order": ("first order in 1/N", "expansion", partial(times, -1), BOTH),
    **{
        f"a wrong factor in the dual form: {rule}": (rule, "dual form", partial(times, 2), BOTH)
        for rule in ("Woodbury identity", "push-through identity", "rescaled", "named")
    },
}
CASES = [
    pytest.param(*mistake, name, id=f"{what}, {name}") for what, (*mistake, names) in FORMULAS.items() for name in names
]


@pytest.mark.parametrize(("rule", "route", "mistake", "name"), CASES)
def test_a_mistake_in_a_stated_formula_is_found(rule, route, mistake, name):
    derivation = ROUTES[route](action(name))
    steps = [step for step in derivation.steps if step.rule == rule]
    wrong = [each for step in steps if (each := mistake(step)) != step]
    assert wrong
    for step in wrong:
        (evidence,) = Derivation((step,), derivation.sizes).verify().failures
        assert "FAILS" in str(evidence) and rule in str(evidence)


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
@pytest.mark.parametrize("name", SMALL)
def test_one_part_in_1e13_is_found_at_every_step_that_is_proved(name, route):
    """A coefficient that is off by less than rounding."""
    derivation = route(action(name))
    proved = [item.step for item in derivation.verify().proved]
    assert len(proved) >= len(derivation.steps) / 2
    for step in proved:
        # The term of most factors depends on variables, and is no constant that the claim ignores.
        terms = step.after.args if step.after.is_Add or step.after.is_MatAdd else (step.after,)
        largest = max(terms, key=lambda term: len(term.atoms()))
        wrong = step.after.func(*(term for term in terms if term != largest), largest * (1 + Rational(1, 10**13)))
        wrong = wrong if len(terms) > 1 else largest * (1 + Rational(1, 10**13))
        assert is_caught(replace(step, after=wrong), derivation.sizes), step.rule


# ---- a part of the derivation that is wrong wherever it is used


def back_propagated(name):
    """The derivation by back-propagation, made anew by the code as it is now."""
    return back_propagation._derive.__wrapped__(action(name).form).derivation


def of_second_route(name):
    made = action(name)
    return prior.finite_width_prior(made.forms, made.symbols, made.derivation.sizes).derivation


def of_expansion(name):
    made = action(name)
    arguments = (made.forms, made.symbols, made.overlap_entropies, made.overlap_blocks)
    return prior.expand_about_infinite_width(*arguments, made.derivation.sizes).derivation


def of_dual_form(name):
    return replace(action(name)).dual.derivation


def traced_over_the_other_factor(expression):
    return simplify_traces(expression).replace(
        lambda node: isinstance(node, PartialTrace),
        lambda node: PartialTrace(node.matrix, tuple(reversed(node.dimensions)), 1 - node.traced),
    )


def swapped(left, right):
    return kronecker(right, left)


PARTS = {
    "Kronecker factors": (back_propagated, "blocks become path indices", backpropagation, "kronecker", swapped, PLAIN),
    "branches": (
        back_propagated,
        "branches side by side",
        backpropagation,
        "BlockDiagMatrix",
        lambda first, second: BlockDiagMatrix(second, first),
        SKIP,
    ),
    "the partial trace": (
        back_propagated,
        "written out",
        backpropagation,
        "simplify_traces",
        traced_over_the_other_factor,
        PLAIN,
    ),
    "determinants": (
        back_propagated,
        "Gaussian integral",
        backpropagation,
        "log_det",
        lambda matrix: 0 * log_det(matrix),
        PLAIN,
    ),
    "entropies": (
        back_propagated,
        "eliminated at its saddle point",
        backpropagation,
        "_entropy",
        lambda width, overlap, inner, right=backpropagation._entropy: right(width, overlap, 2 * inner),
        BOTH,
    ),
    "Kronecker factors of the prior": (
        of_second_route,
        "blocks become path indices",
        prior,
        "kronecker",
        swapped,
        PLAIN,
    ),
    "the force": (of_expansion, "linear response", prior, "gradient", lambda *given: 2 * gradient(*given), BOTH),
    "the weights of the dual form": (
        of_dual_form,
        "matrix determinant lemma",
        energy_forms,
        "kronecker",
        swapped,
        PLAIN,
    ),
}


@pytest.mark.parametrize(
    ("derive", "rule", "module", "part", "wrong", "name"),
    [pytest.param(*rest, name, id=f"{what}, {name}") for what, (*rest, names) in PARTS.items() for name in names],
)
def test_the_verification_fails_at_the_step_that_uses_a_wrong_part(
    derive, rule, module, part, wrong, name, monkeypatch
):
    monkeypatch.setattr(module, part, wrong)
    derivation = derive(name)
    monkeypatch.undo()
    first = next(evidence for evidence in derivation.evidence() if not evidence.holds)
    assert first.step.rule == rule
    if not isinstance(first.step.claim, claims.Average):
        assert chance_of_mistake(first.step, random_points(derivation.sizes, 0)) is None


@pytest.mark.parametrize("derive", [back_propagated, of_second_route, of_expansion, of_dual_form])
@pytest.mark.parametrize("name", SMALL)
def test_without_a_mistake_the_verification_holds(name, derive):
    assert derive(name).verify().holds


@pytest.mark.parametrize("name", SMALL)
def test_a_wrong_response_is_seen_again_in_the_end(name, monkeypatch):
    """The last steps of the expansion check the displacements against the action itself."""
    monkeypatch.setattr(prior, "expand_products", lambda matrix, right=prior.expand_products: right(-matrix))
    derivation = of_expansion(name)
    monkeypatch.undo()
    assert derivation.verify().failures[-1].step.rule == "first order in 1/N"
