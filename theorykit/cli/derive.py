"""The command `theorykit derive`, which prints the action of an architecture and the steps of its derivation."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from .. import bpkr
from ..runs import refuse_existing, stage, write

Format = Literal["latex", "markdown", "html", "python"]
# Largest number of digits in a number of heads.
_DIGITS = 9
_ENDINGS = {"latex": ".tex", "markdown": ".md", "html": ".html", "python": ".py"}


@dataclass(frozen=True)
class Structure:
    """The properties of a network on which its action depends.

    Attributes:
        layers: The layers from the input side, such as `2 dense skip:3`. A layer is a number of attention heads,
            `dense` for a linear layer without attention, or `dense:erf` for nonlinear units. Put `skip:` before a layer
            for a parallel skip connection. `none` if the readout reads the embedding.
        embedding: The function of the embedded tokens: identity, erf, relu or quadratic.
        outputs: Number of outputs per example.
        read_tokens: Number of tokens with separate readout weights. 1 stands for one token, or the mean over tokens.
        richness: Use the mean-field parameterisation.
        infinite_width: With `--richness`, derive the limit of infinite width, in which features are learned.
    """

    layers: Annotated[tuple[str, ...], tyro.conf.arg(metavar="LAYER [LAYER ...]")]
    embedding: str = "identity"
    outputs: int = 1
    read_tokens: int = 1
    richness: bool = False
    infinite_width: bool = False

    def architecture(self) -> "bpkr.Architecture":
        """Return an architecture with this structure."""
        kinds = [] if self.layers == ("none",) else [parse_layer(layer) for layer in self.layers]
        more = {"outputs": self.outputs, "read_tokens": self.read_tokens, "embedding": self.embedding}
        if self.infinite_width and not self.richness:
            raise ValueError("--infinite-width needs --richness; without it, infinite width is the Gaussian process")
        more["richness"] = 1.0 if self.richness else None
        return bpkr.Architecture(kinds, math.inf if self.infinite_width else 1, temperature=1.0, **more)


def derive(
    network: tyro.conf.OmitArgPrefixes[Structure],
    format: Format = "markdown",
    steps: bool = False,
    finite_width: bool = False,
    fragment: bool = False,
    verify: bool = False,
    output: Path | None = None,
    overwrite: bool = False,
):
    """Derive the action of a deep network and print it.

    Args:
        network: The properties of the network on which its action depends.
        format: `latex` and `markdown` write the action, saddle-point equations, closed forms and predictor. `html`
            writes a web page with the same content, a table of symbols and all steps, which unfold. `python` writes
            the source of the generated function.
        steps: Add every step of the derivation, each checked on random numbers.
        finite_width: Add the exact prior at finite width, derived by a second method.
        fragment: Write LaTeX without a preamble, for `\\input` in an article that loads amsmath.
        verify: Check every step and report on standard error. Fail if a step does not hold.
        output: File to write, ending in .tex, .md, .html or .py. The default is standard output.
        overwrite: Replace the output file if it exists.
    """
    if format == "python" and (steps or finite_width):
        raise ValueError("the Python source has no steps: remove --steps and --finite-width, or choose another format")
    if fragment and format != "latex":
        raise ValueError(f"--fragment needs --format latex, got --format {format}")
    if output is not None:
        if output.suffix != _ENDINGS[format]:
            raise ValueError(f"--output must end in {_ENDINGS[format]}, got {str(output)!r}")
        refuse_existing(output, overwrite)
    architecture = network.architecture()
    # Import slow modules here, so that user errors are reported immediately.
    from ..bpkr.action import document
    from ..checks import counted
    from ..symbolic import as_html, as_latex, as_markdown

    with stage("deriving the action"):
        action = bpkr.derive(architecture)
    if verify:
        for name, derivation in action.derivations.items():
            verification = derivation.verify()
            print(f"{name}\n{verification}", file=sys.stderr)
            if not verification.holds:
                raise ValueError(f"{counted(len(verification.failures), 'step')} of the derivation ({name}) failed")
    if format == "python":
        text = bpkr.generate_source(action)
    else:
        steps = steps or format == "html"
        with stage("writing the document"):
            parts = [*document.USUAL, *["derivation"] * steps, *["finite width"] * finite_width]
            blocks = list(document.blocks(action, *parts))
        if format == "html":
            text = as_html(blocks, document.definitions(action))
        else:
            text = as_latex(blocks, fragment) if format == "latex" else as_markdown(blocks)
    if output is None:
        print(text, end="")
    else:
        write(text, output, overwrite=overwrite)
        print(f"wrote {output}")


def parse_layer(text: str) -> "bpkr.AbstractLayer":
    """Convert a word on the command line to a layer."""
    from ..checks import shown

    if text.startswith("skip:skip:"):
        raise ValueError(f"`skip:` may appear once per layer, got {shown(text)}")
    if text.startswith("skip:"):
        return bpkr.Skip(parse_layer(text.removeprefix("skip:")))
    if text == "dense":
        return bpkr.Dense()
    if text.startswith("dense:"):
        return bpkr.Dense(activation=text.removeprefix("dense:"))
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS:
        return bpkr.Attention(int(text))
    raise ValueError(
        "a layer is a number of heads, `dense`, `dense:` and the name of a function, or `skip:` before any of these, "
        f"as in skip:2; or `none` alone; got {shown(text)}"
    )
