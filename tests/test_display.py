"""Every object that a user holds shows itself: in a few lines at a prompt, as well-formed HTML in a notebook."""

import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Symbol

from tests.displays import display_complaint
from theorykit import bpkr


@cache
def results() -> dict[str, object]:
    """An object of each class of theory 1, and of the forms that differ in what there is to see."""
    rng = np.random.default_rng(0)
    architecture = bpkr.Architecture((2, bpkr.Skip(1, 0.5)), 12.0, temperature=0.1, outputs=3)
    features, labels = rng.normal(size=(20, 4, 5)) / 4, rng.choice(["<a>", "b & c", "d"], 20)
    data = bpkr.Data.of_classes(features, labels, features[:9], labels[:9])
    problem = bpkr.Problem(architecture, data)
    saddle = bpkr.solve(problem)
    prediction = bpkr.predict(problem, saddle)
    moments = bpkr.Data.of_arrays(features, rng.normal(size=20), progress=False)
    solver = bpkr.MatrixFree(jax.random.key(0), repeats=3, progress=False)
    inputs, key_query = rng.normal(size=(6, 3, 5)), [rng.normal(size=(2, 5, 5))]
    nonlinear = bpkr.Architecture((2,), 50, temperature=0.1, embedding="relu")
    implicit = bpkr.path_features(inputs, bpkr.attention(inputs, key_query=key_query), nonlinear)

    numbers = rng.normal(size=20)
    heads = bpkr.heads(key_query=2 * key_query)
    deep = bpkr.Architecture((2, 2), 12.0, temperature=0.1)
    limit = bpkr.gp_limit(deep)
    modes = jax.tree.map(lambda each: jnp.stack([each, each]), limit)

    def solve_at(temperature):
        return bpkr.solve(bpkr.Architecture((2,), 12.0, temperature=temperature), bpkr.Data(features[:, :2], numbers))

    return {
        "Architecture without layers": bpkr.Architecture((), 10, temperature=0.1),
        "Architecture of many layers": bpkr.Architecture((2,) * 12, 1e6, temperature=0.1),
        "Data": data,
        "Data without labels": bpkr.Data(features),
        "Data of lists": bpkr.Data(features.tolist(), numbers.tolist()),
        "Data of moments": moments,
        "Problem": problem,
        "Action": problem.action,
        "its equations": problem.action.saddle_point_equations,
        "Model": bpkr.Model(layers=(2,), widths=20, temperature=0.1),
        "Model, fitted": bpkr.Model(layers=(2,), widths=20, temperature=0.1).fit(inputs, ["a", "b"] * 3),
        "HeadCosts": bpkr.head_costs(problem, saddle, progress=False),
        "CompiledAction": problem.bound.compiled,
        "Problem of moments": bpkr.Problem(deep, moments),
        "Problem of kernels": bpkr.Problem(nonlinear, bpkr.Data(implicit, rng.normal(size=6))),
        "FeatureStatistics": moments.moments,
        "ImplicitFeatures": implicit,
        "Saddle": saddle,
        "Saddle, a batch": jax.vmap(solve_at)(np.array([0.1, 1.0])),
        "MatrixFreeSaddle": bpkr.MatrixFreeSaddle(
            limit,
            limit,
            *[jnp.ones(())] * 6,
            {"samples": jnp.ones((3, 2)), "steps": (4, 3, 2), "residual": (1e-7, 1e-8, 1e-7)},
            deep,
        ),
        "OrderParameters": saddle.order_parameters,
        "ActionTerms": bpkr.evaluate(problem, saddle),
        "Prediction": prediction,
        "Prediction without classes": bpkr.Prediction(*map(jnp.asarray, (numbers, numbers**2))),
        "ClassScores": bpkr.score_classes(data.classes, labels[:9], prediction.mean, prediction.variance),
        "Minima": bpkr.Minima((saddle, saddle), (4, 1), 2, 0),
        "Fluctuations": bpkr.Fluctuations(limit, modes, prediction, jnp.ones(())),
        "KernelTaskAlignment": bpkr.kernel_task_alignment(np.diag([2.0, 1.0]), np.ones(2)),
        "Head": bpkr.Head(1, 2),
        "Newton": bpkr.Newton(),
        "AcceleratedSweeps": bpkr.AcceleratedSweeps(),
        "MatrixFree": solver,
        "Attention": bpkr.Attention(2),
        "Dense": bpkr.Dense(activation="erf"),
        "Skip": bpkr.Skip(2, 0.5),
        "LayerSymbols": bpkr.LayerSymbols(1, Symbol("N_1"), Symbol("N_2")),
        "Classes": data.classes,
        "Classes, many": bpkr.Classes(tuple(range(500)), "one-hot"),
        "FiniteWidthLaw": bpkr.finite_width_law(deep),
        "KeyQueryHeads": heads,
        "ProjectionHeads": bpkr.heads(query=key_query, key=key_query),
        "Network": bpkr.sample_network(deep, heads, input_features=5, key=jax.random.key(0)),
    }


@pytest.mark.slow
def test_everything_shows_itself():
    complaints = {name: display_complaint(value) for name, value in results().items()}
    assert {name: complaint for name, complaint in complaints.items() if complaint} == {}


def test_every_public_class_of_theory_1_is_shown():
    shown = {type(value) for value in results().values()}
    classes = {value for name in bpkr.__all__ if isinstance(value := getattr(bpkr, name), type)}
    is_held = {each for each in classes if not issubclass(each, Warning) and not each.__name__.startswith("Abstract")}
    assert is_held <= shown


def test_arrays_and_open_tags_are_complained_about():
    """A control."""

    class Shown:
        def __init__(self, text, html):
            self.text, self.html = text, html

        def __repr__(self):
            return self.text

        def _repr_html_(self):
            return self.html

    assert not display_complaint(Shown("u = 1", "<p>u<br>1</p>"))
    for text in ("Saddle(action=f64[])", "<Shown object at 0x7f>", "1\n" * 16, "1" * 2000, "1 layers"):
        assert display_complaint(Shown(text, "<p></p>"))
    assert display_complaint(Shown("u = 1", "<p><b>u</p></b>"))
    assert display_complaint(Shown("u = 1", "<p>u"))


def test_a_saddle_shows_the_scores_of_its_heads():
    saddle = results()["Saddle"]
    here, wide = (
        bpkr.head_scores(saddle.architecture, point) for point in (saddle, bpkr.gp_limit(saddle.architecture))
    )
    lines = re.findall(r"^layer \d +(.*)$", repr(saddle), re.MULTILINE)
    expected = [[*np.round(a, 3), *np.round(b, 3)] for a, b in zip(here, wide, strict=True)]
    assert [list(map(float, line.split())) for line in lines] == expected


def test_the_picture_of_a_matrix_has_its_entries_and_signs():
    point = bpkr.OrderParameters((np.array([[2.0, -0.5], [-0.5, 1.0]]),), 3.0)
    html = point._repr_html_()
    entries = re.findall(r'fill="(#\w+)" fill-opacity="(\d\.\d+)".*?<title>1, \d: (\S+)</title>', html)
    (positive, full, first), (negative, weak, second) = entries[:2]
    assert (float(first), float(second)) == (2.0, -0.5)
    assert positive != negative
    assert float(weak) == pytest.approx(float(full) / 2)
    assert repr(point).splitlines()[1:] == ["U_1     1     2", "  1     2  -0.5", "  2  -0.5     1", "u  3"]


def test_a_batch_shows_ranges():
    batch = results()["Saddle, a batch"]
    least, most = np.sort(np.asarray(batch.log_evidence))
    assert f"{least:.8g} to {most:.8g}" in repr(batch)
    assert repr(batch).startswith(batch.diagnosis)


def test_classes_are_counted_and_escaped():
    data = results()["Data"]
    counts = np.asarray(data.labels).sum(axis=0).astype(int)
    assert f"'<a>': {counts[0]}, 'b & c': {counts[1]}, 'd': {counts[2]}" in repr(data)
    assert "<a>" not in data._repr_html_()
