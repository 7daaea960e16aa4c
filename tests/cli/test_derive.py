"""`theorykit derive`: what it prints and writes is what the library renders."""

import pytest

from theorykit import bpkr
from theorykit.bpkr.action import document
from theorykit.cli.derive import parse_layer
from theorykit.symbolic import as_latex, as_markdown

from .terminal import refused, run


def derived(*layers, **structure) -> bpkr.Action:
    return bpkr.derive(bpkr.Architecture(layers, widths=1, temperature=1.0, **structure))


@pytest.mark.quick(3)
@pytest.mark.parametrize(("form", "rendered"), [("latex", as_latex), ("markdown", as_markdown)])
@pytest.mark.parametrize("layers", [("2", "3"), ("dense", "skip:2"), ("skip:dense", "1")])
def test_derive_prints_what_the_library_renders(form, rendered, layers, monkeypatch, capsys):
    run(monkeypatch, "derive", "--layers", *layers, "--format", form, "--outputs", "2")
    architecture = bpkr.Architecture([parse_layer(layer) for layer in layers], widths=1, temperature=1.0, outputs=2)
    action = bpkr.derive(architecture)
    printed, blocks = capsys.readouterr().out, document.blocks(action, "title", "action")
    assert printed.startswith(rendered(blocks).removesuffix("\\end{document}\n").rstrip())
    assert ("Closed forms" in printed) == bool(action.closed_forms)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "layers", "structure"),
    [
        (("--layers", "none", "--embedding", "erf", "--read-tokens", "2"), (), {"embedding": "erf", "read_tokens": 2}),
        (("--layers", "none", "--embedding", "relu"), (), {"embedding": "relu"}),
        (("--layers", "dense:erf", "2", "--embedding", "erf"), (bpkr.Dense(activation="erf"), 2), {"embedding": "erf"}),
    ],
)
def test_derive_prints_nonlinear_networks_with_the_ansatz_and_its_claims(
    arguments, layers, structure, monkeypatch, capsys
):
    action = derived(*layers, **structure)
    run(monkeypatch, "derive", *arguments, "--steps", "--verify")
    printed = capsys.readouterr().out
    assert len(action.ansatz) == 1 + bool(layers)
    assert all(assumption in printed for assumption in action.ansatz)
    assert printed.count(". Gaussian equivalence**.") == len(action.ansatz)


def test_derive_prints_what_nonlinear_networks_are_taken_to_be(monkeypatch, capsys):
    run(monkeypatch, "derive", "--layers", "none", "--embedding", "erf")
    (ansatz,) = derived(embedding="erf").ansatz
    assert ansatz in capsys.readouterr().out


@pytest.mark.slow
def test_derive_writes_nonlinear_networks_as_a_page(folder, monkeypatch):
    run(monkeypatch, "derive", "--layers", "none", "--embedding", "erf", "--format", "html", "--output", "action.html")
    page = (folder / "action.html").read_text()
    assert "Gaussian equivalence" in page and "an ansatz, not an identity" in page and "Holds: error" in page


@pytest.mark.parametrize(("form", "name"), [("html", "action.html"), ("markdown", "action.md")])
def test_derive_writes_a_file_once(form, name, folder, monkeypatch):
    arguments = ("derive", "--layers", "2", "--format", form, "--output", name)
    run(monkeypatch, *arguments)
    text = (folder / name).read_text()
    if form == "html":
        assert text.count("<details") >= len(derived(2).derivation.steps) and "Holds: error" in text
    assert f"{name} exists" in refused(monkeypatch, *arguments)
    run(monkeypatch, *arguments, "--overwrite")
    assert (folder / name).read_text() == text


def test_derive_prints_the_source_that_runs(monkeypatch, capsys):
    run(monkeypatch, "derive", "--layers", "2", "3", "--format", "python")
    assert capsys.readouterr().out == bpkr.generate_source(derived(2, 3))


def test_derive_shows_and_verifies_every_step(monkeypatch, capsys):
    run(monkeypatch, "derive", "--layers", "skip:2", "--steps", "--finite-width", "--verify")
    printed, action = capsys.readouterr(), derived(bpkr.Skip(2))
    for derivation in (action.derivation, action.finite_width.derivation):
        assert all(f"{step.rule[0].upper()}{step.rule[1:]}" in printed.out for step in derivation.steps)
        assert f"{len(derivation.steps)} steps, none failed" in printed.err


def test_derive_writes_a_fragment_for_another_article(monkeypatch, capsys):
    run(monkeypatch, "derive", "--layers", "2", "--format", "latex", "--fragment")
    printed = capsys.readouterr().out
    assert printed.startswith(r"\section*") and "documentclass" not in printed and r"\label{eq:S}" in printed
