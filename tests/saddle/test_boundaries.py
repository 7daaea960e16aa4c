"""Transitions, phase diagrams and landscapes of textbook actions, against closed forms."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sympy import Add, cosh, log, symbols

from theorykit.plots import draw_landscape, draw_phase_diagram
from theorykit.saddle import Action, Between, Positive, Real, minimise, phase_diagram, stationary, transition

from ..bpkr.cases import assert_close
from .textbook import BLUME_CAPEL, CURIE_WEISS, T, beta, delta, h, m, q, spinodal

a, b = symbols("a b", real=True)
ENTROPY = -(1 + m) / 2 * log((1 + m) / 2) - (1 - m) / 2 * log((1 - m) / 2)
THREE_SPIN = Action(-(m**3) - h * m - T * ENTROPY, {m: Between(-1, 1)}, [h, T])


@pytest.fixture(scope="module")
def magnet():
    return phase_diagram(CURIE_WEISS, {h: (-1, 1), beta: (0.6, 4)}, scans=3)  # one without a field


def parts(diagram, *kinds):
    """The lines or points of a diagram, of these kinds if any are given."""
    found = [diagram.isel(point=diagram["line"].values == line) for line in np.unique(diagram["line"])]
    return [part for part in found if not kinds or part["kind"].values[0] in kinds]


def lines_of(diagram):
    return [part for part in parts(diagram) if not part["kind"].values[0].endswith("point")]


def by_kind(diagram):
    return {part["kind"].values[0]: part for part in parts(diagram)}


def kinds_of(lines):
    return sorted(line["kind"].values[0] for line in lines)


def ends_at(line, point):
    """Whether a line ends at a critical point."""
    place = [name for name in ("h", "beta", "T", "Delta") if name in line]
    ends = np.stack([line[name].values[[0, -1]] for name in place])
    return bool(np.any(np.all(ends == np.stack([point[name].values for name in place]), axis=0)))


@pytest.mark.slow
def test_the_phase_diagram_of_the_curie_weiss_model_is_known_in_closed_form(magnet):
    lines = by_kind(magnet)
    assert set(lines) == {"spinodal", "coexistence", "critical point"} and len(parts(magnet)) == 3
    line = lines["spinodal"]
    inverse, field = (np.asarray(line[name]) for name in ("beta", "h"))
    edge, exact = spinodal(np.maximum(inverse, 1.0))
    # an error in beta moves the field by at most its slope, which is below one
    assert np.all(np.abs(np.abs(field) - np.abs(exact)) <= line.error * (1.0 + 1.7))
    assert line.error.max() < 1e-11
    assert_close(np.abs(line["m"][:, 0]), edge, 1e-7)
    assert_close(inverse[[0, -1]], [4.0, 4.0], 1e-9)
    line = lines["coexistence"]
    assert np.all(np.abs(line["h"]) <= line.error) and np.all(line["stability"] == "stable")
    assert line["beta"].max() > 4 - 1e-9 and ends_at(line, lines["critical point"])
    # rounding of S moves both solutions apart next to the critical point
    assert_close(*np.abs(line["m"].values.T), 1e-7)
    end = lines["critical point"]
    assert_close([end["h"][0], end["beta"][0]], [0.0, 1.0], 1e-11)


@pytest.mark.slow
def test_a_phase_diagram_is_drawn_and_shown(magnet):
    axes = draw_phase_diagram(magnet)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["spinodal", "coexistence", "critical point"]
    assert axes.get_xlim() == (-1, 1) and axes.get_ylabel() == r"$\beta$"
    plt.close(axes.figure)
    assert "missing" in magnet.attrs["open"]
    # the coexistence line and the critical point are at h = 0 up to rounding
    assert abs(magnet["h"][magnet["kind"] != "spinodal"]).max() < 1e-6


@pytest.mark.slow
def test_solutions_on_an_edge_of_their_domain_coexist_and_cut_the_line():
    action = Action(a * q**2 / 2 - b * q**3 / 3 + q**4 / 4, {q: Positive()}, [a, b])
    lines = by_kind(phase_diagram(action, {a: (0.01, 1), b: (0.1, 2)}, scans=2))
    for kind, factor in (("coexistence", 2 / 9), ("spinodal", 1 / 4)):
        assert_close(lines[kind]["a"], factor * lines[kind]["b"] ** 2, 1e-12)
    assert 0.0 in lines["coexistence"]["q"]


@pytest.mark.slow
@pytest.mark.parametrize("coldest", (0.05, 0.1, 0.28))  # between scans
def test_a_continuous_transition_turns_into_one_of_first_order_at_the_tricritical_point(coldest):
    diagram = phase_diagram(BLUME_CAPEL, {delta: (0, 0.6), T: (coldest, 0.8)})
    (end,) = parts(diagram, "tricritical point", "critical point")
    assert end["kind"] == "tricritical point"
    assert_close([end["Delta"][0], end["T"][0]], [2 / 3 * np.log(2), 1 / 3], 1e-10)
    line = by_kind(diagram)["continuous transition"]
    weight = 2 * np.exp(-line["Delta"] / line["T"])
    assert_close(line["T"], weight / (1 + weight), 1e-11)
    assert line["T"].min() > 1 / 3 - 1e-10
    spinodals = parts(diagram, "spinodal")
    assert len(spinodals) == 2 and all(ends_at(each, end) and each["T"].max() < 1 / 3 + 1e-10 for each in spinodals)
    assert len(parts(diagram, "coexistence")) == 1


@pytest.mark.slow
def test_solutions_of_the_entropic_form_coexist_on_one_line_up_to_the_edge_of_the_ranges():
    """The actions of one branch, found twice, cross nowhere; next to an edge of a domain a line goes on."""
    curie_weiss = Action(-(m**2) / 2 - h * m - T * ENTROPY, {m: Between(-1, 1)}, [h, T])
    diagram = phase_diagram(curie_weiss, {h: (-1, 1), T: (0.2, 1.5)}, scans=2)
    assert kinds_of(lines_of(diagram)) == ["coexistence", "spinodal"]
    diagram = phase_diagram(THREE_SPIN, {h: (-1, 1), T: (0.1, 2)}, scans=2)
    (line,) = parts(diagram, "coexistence")
    assert_close(np.sort(line["T"].values[[0, -1]]), [0.1, 2.0], 1e-9)


@pytest.mark.slow
def test_coexistence_goes_on_where_a_solution_exchanges_its_stability():
    """2 m^3 - T log(2 cosh((3 m^2 + h) / T)) is also stationary at m = 0, a minimum only below h = 0."""
    action = Action(2 * m**3 - T * log(2 * cosh((3 * m**2 + h) / T)), {m: Real()}, [h, T])
    diagram = phase_diagram(action, {h: (-1, 1), T: (0.1, 2.5)}, scans=2)
    lines = by_kind(diagram)
    assert np.max(np.abs(lines["continuous transition"]["h"])) < 1e-12
    below, above = sorted(parts(diagram, "coexistence"), key=lambda line: float(line["h"].mean()))
    ends = [np.stack([line["h"], line["T"]], axis=1)[[0, -1]] for line in (below, above)]
    ends = [min(places, key=lambda place: abs(place[0])) for places in ends]
    # the equations of the upper line are singular at h = 0
    assert_close(*ends, 1e-3)
    assert abs(ends[0][0]) < 1e-6


@pytest.mark.slow
def test_the_defaults_find_all_transitions_of_the_three_state_potts_model():
    """No scan crosses the lines of the disordered phase. They start at its triple point with the ordered ones.

    At the tricritical point, S / T^2 is (1 / 6 - 1 / (8 K)) times the fourth power of the asymmetry, which vanishes at
    K = T / (1 - 2 T) - 1 = 3 / 4, that is T = 7 / 18.
    """
    x, y = symbols("x1 x2", positive=True)
    states = (x, y, 1 - x - y)
    energy = -Add(*(each**2 for each in states)) / 2 + T * Add(*(each * log(each) for each in states)) - h * x
    action = Action(energy, dict.fromkeys((x, y), Between(0, 1)), [T, h])
    diagram = phase_diagram(action, {h: (-0.1, 0.1), T: (0.25, 0.45)}, progress=False)
    points = {
        part["kind"].item(): (part["h"].item(), part["T"].item()) for part in parts(diagram)[len(lines_of(diagram)) :]
    }
    assert set(points) == {"critical point", "tricritical point", "triple point"}
    assert points["triple point"] == pytest.approx((0, 1 / (4 * np.log(2))), abs=1e-10)
    assert points["critical point"][1] == pytest.approx(3 / 8, abs=1e-9)
    assert points["tricritical point"][1] == pytest.approx(7 / 18, abs=1e-9)
    for line in parts(diagram, "coexistence"):
        metastable = line.isel(point=line["stability"].values == "metastable")
        # Ordered phases coexist at h = 0 below the triple point, and the disordered one coexists beyond it.
        bound = 1 / (4 * np.log(2))
        if np.ptp(line["h"].values) < 1e-9:
            assert np.all(metastable["T"] > bound - 1e-9) and line["T"].max() > bound
        else:
            assert np.all(metastable["T"] < bound + 1e-9) and line["T"].max() > 0.374
    for point in parts(diagram, "critical point", "tricritical point"):
        assert any(ends_at(line, point) for line in parts(diagram, "coexistence"))


@pytest.mark.slow
@pytest.mark.parametrize("coupling", (0.5, 2.0))
def test_lines_end_where_the_transitions_of_two_order_parameters_cross(coupling):
    """Two order parameters are ordered together if coupling < 1, and otherwise one of them is."""
    energy = (m**4 + q**4) / 4 + coupling * m**2 * q**2 / 2 + a * m**2 / 2 + b * q**2 / 2
    action = Action(energy.subs(q, delta), {m: Real(), delta: Real()}, [a, b])
    diagram = phase_diagram(action, {a: (-1, 1), b: (-1, 1)}, scans=3, progress=False)
    inner, outer = [], []
    for line in lines_of(diagram):
        first, second = line["a"].values, line["b"].values
        if np.all(first * second < 1e-12) or np.all(np.minimum(first, second) > -1e-12):
            outer.append(line)
            assert min(np.max(np.abs(first)), np.max(np.abs(second))) < 1e-12
            assert min(np.hypot(first, second)) < 1e-4
        elif line["kind"].values[0] != "coexistence":
            inner.append(line)
            ratio = np.max([first / second, second / first], axis=0)
            assert_close(ratio, np.full(len(ratio), max(coupling, 1 / coupling)), 1e-9)
    kind = "continuous transition" if coupling < 1 else "spinodal"
    assert kinds_of(inner) == [kind] * 2 and len(outer) == 2
    assert len(lines_of(diagram)) == 4 + (coupling > 1)


def solutions(field, inverse=1.5):
    return [minimise(CURIE_WEISS, {beta: inverse, h: field}, initial={m: start}) for start in (1.0, -1.0)]


def test_without_coexistence_the_range_ends_at_the_spinodal():
    up, down = solutions(0.05)
    _, field = spinodal(1.5)
    with pytest.raises(ValueError, match=rf"do not cross for h from .* to {-field:.6g}"):
        transition(up, down, h, (0.01, 0.3))
    with pytest.raises(ValueError, match="are the same"):
        transition(down, down, h, (-0.1, 0.3))
    with pytest.raises(ValueError, match="differ in beta"):
        transition(up, solutions(0.05, 1.4)[1], h, (-0.3, 0.3))


def test_close_solutions_and_close_crossings_have_a_first_order_transition():
    cubic = Action(a * m**2 / 2 - m**3 / 1000 + m**4 / 4, {m: Real()}, [a])
    pair = (minimise(cubic, {a: 2e-6}, initial={m: start}) for start in (0.0, 0.003))
    assert_close(transition(*pair, a, (-1, 1))["a"], 2 * 0.003**2 / 9, 1e-15)
    tilted = Action((m**2 - 1) ** 2 + m * (h**2 - 1e-5) / 2, {m: Real()}, [h])
    pair = (minimise(tilted, {h: 0.0}, initial={m: start}) for start in (-1.0, 1.0))
    assert_close(abs(transition(*pair, h, (-1, 1))["h"]), np.sqrt(1e-5), 1e-12)


def test_solutions_that_merge_have_a_continuous_transition():
    magnetised, _ = solutions(0.0)
    symmetric = stationary(CURIE_WEISS, {beta: 1.5, h: 0.0}, index=1, initial={m: 0.01})
    found = transition(magnetised, symmetric, beta, (0.5, 2.0))
    assert found["kind"] == "continuous" and abs(found["beta"] - 1.0) <= found["error"]


@pytest.mark.slow
def test_a_landscape_shows_the_action():
    axes = draw_landscape(CURIE_WEISS, {m: (-1.5, 1.5), beta: [0.8, 1.5], h: 0.0})
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [r"$\beta$ = 0.8", r"$\beta$ = 1.5"]
    for line, number in zip(axes.lines, (0.8, 1.5), strict=True):
        assert_close(line.get_ydata(), CURIE_WEISS(m=line.get_xdata(), beta=number, h=0.0), 1e-14)
    x, y = symbols("x y", real=True)
    action = Action((x**2 - 1) ** 2 / 4 + a * y**2 / 2, {x: Real(), y: Real()}, [a])
    assert draw_landscape(action, {x: (-1.5, 1.4), y: (-1, 1), a: 1.0}).get_ylabel() == "$y$"
    plt.close("all")
