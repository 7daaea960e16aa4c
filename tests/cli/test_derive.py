"""`theorykit derive`: what it prints and writes is what the library renders."""

import pytest

from theorykit import bpkr
from theorykit.bpkr.action import document
from theorykit.cli.derive import parse_layer
from theorykit.symbolic import as_latex, as_markdown

from .terminal import refused, run


@pytest.mark.parametrize(("form", "rendered"), [("latex", as_latex), ("markdown", as_markdown)])
@pytest.mark.parametrize("layers", [("2", "3"), ("dense", "skip:2"), ("skip:dense", "1")])
def test_derive_prints_what_the_library_renders(form, rendered, layers, monkeypatch, capsys):
    run(monkeypatch, "derive", "--layers", *layers, "--format", form, "--outputs", "2")
    kinds = [parse_layer(layer) for layer in layers]
    architecture = bpkr.Architecture(kinds, widths=1, temperature=1.0, outputs=2)
    blocks = document.action_blocks(bpkr.derive(architecture), architecture)
    printed = capsys.readouterr().out
    assert printed.startswith(rendered(blocks).removesuffix("\\end{document}\n").rstrip())
    assert "Expansion about infinite width" in printed
    assert ("Closed forms" in printed) == bool(bpkr.derive(architecture).closed_forms)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "structure"),
    [
        (("--layers", "--embedding", "erf", "--read-tokens", "2"), {"embedding": "erf", "read_tokens": 2}),
        (("--layers", "--embedding", "relu"), {"embedding": "relu"}),
        (
            ("--layers", "dense:erf", "2", "--embedding", "erf"),
            {"layers": (bpkr.Dense(activation="erf"), 2), "embedding": "erf"},
        ),
    ],
)
def test_derive_prints_nonlinear_networks_with_the_ansatz_and_its_claims(arguments, structure, monkeypatch, capsys):
    action = bpkr.derive(bpkr.Architecture(**{"layers": (), **structure}, widths=1, temperature=1.0))
    run(monkeypatch, "derive", *arguments, "--steps", "--verify")
    printed = capsys.readouterr().out
    assert len(action.ansatz) == len(structure.keys() & {"embedding", "layers"})
    for assumption in action.ansatz:
        assert assumption in printed
    assert printed.count(". Gaussian equivalence**.") == len(action.ansatz)


def test_derive_prints_what_nonlinear_networks_are_taken_to_be(monkeypatch, capsys):
    run(monkeypatch, "derive", "--layers", "--embedding", "erf")
    (ansatz,) = bpkr.derive(bpkr.Architecture((), widths=1, temperature=1.0, embedding="erf")).ansatz
    assert ansatz in capsys.readouterr().out


@pytest.mark.slow
def test_derive_writes_nonlinear_networks_as_a_page(folder, monkeypatch):
    run(monkeypatch, "derive", "--layers", "--embedding", "erf", "--format", "html", "--output", "action.html")
    page = (folder / "action.html").read_text()
    assert "Gaussian equivalence" in page and "an ansatz, not an identity" in page and "Holds: error" in page


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("--embedding", "sin"), "sin"), (("--read-tokens", "0"), "read_tokens"), (("dense:sin",), "sin")],
)
def test_derive_refuses_functions_that_it_does_not_know_and_no_token(arguments, named, monkeypatch):
    assert named in refused(monkeypatch, "derive", "--layers", *arguments)


def test_derive_writes_a_page_once(folder, monkeypatch):
    arguments = ("derive", "--layers", "2", "--format", "html", "--output", "action.html")
    run(monkeypatch, *arguments)
    page = (folder / "action.html").read_text()
    steps = bpkr.derive(bpkr.Architecture((2,), widths=1, temperature=1.0)).derivation.steps
    assert page.count("<details") > len(steps) and "Holds: error" in page
    assert "exists" in refused(monkeypatch, *arguments)
    run(monkeypatch, *arguments, "--overwrite")
    assert (folder / "action.html").read_text() == page
    assert ".html" in refused(monkeypatch, "derive", "--layers", "2", "--format", "html", "--output", "action.md")


def test_derive_prints_the_source_that_runs(monkeypatch, capsys):
    run(monkeypatch, "derive", "--layers", "2", "3", "--format", "python")
    assert capsys.readouterr().out == bpkr.generate_source(
        bpkr.derive(bpkr.Architecture((2, 3), widths=1, temperature=1.0))
    )
    assert "steps" in refused(monkeypatch, "derive", "--layers", "2", "--format", "python", "--steps")


def test_derive_shows_and_verifies_every_step(monkeypatch, capsys):
    run(monkeypatch, "derive", "--layers", "skip:2", "--steps", "--finite-width", "--verify")
    printed = capsys.readouterr()
    action = bpkr.derive(bpkr.Architecture((bpkr.Skip(2),), widths=1, temperature=1.0))
    for derivation in (action.derivation, action.finite_width.derivation):
        assert all(f"{step.rule[0].upper()}{step.rule[1:]}" in printed.out for step in derivation.steps)
        assert f"{len(derivation.steps)} steps hold" in printed.err


@pytest.mark.parametrize("layer", ["relu", "skip", "skip:", "-1", "2.0"])
def test_derive_refuses_a_layer_that_it_does_not_know(layer, monkeypatch):
    assert repr(layer.removeprefix("skip:")) in refused(monkeypatch, "derive", "--layers", layer)


def test_derive_writes_a_file_once(folder, monkeypatch):
    arguments = ("derive", "--layers", "2", "--output", "action.md")
    run(monkeypatch, *arguments)
    before = (folder / "action.md").read_text()
    assert "action.md exists" in refused(monkeypatch, *arguments)
    run(monkeypatch, *arguments, "--overwrite")
    assert (folder / "action.md").read_text() == before


def test_derive_refuses_no_heads(monkeypatch):
    assert "0" in refused(monkeypatch, "derive", "--layers", "2", "0")
