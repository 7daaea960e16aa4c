"""The `theorykit` command: derive an action, or solve for data in a file, at one point or over a grid."""

import hashlib
import math
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import msgspec
import tyro
from tyro.extras import subcommand_cli_from_dict

# Functions import what computes, so that `theorykit --help` is fast.
import theorykit

Names = tuple[str, ...]
Numbers = float | tuple[float, ...]
HEADS = ("key_query", "query", "key", "query_bias", "key_bias")


class Table(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A table of the settings. Unknown keys raise an error."""


class Architecture(Table):
    """[architecture]: see `bpkr.Architecture`. The labels set the number of outputs."""

    layers: tuple[int | str, ...]
    widths: Numbers | None = None
    temperature: float | None = None
    prior_variances: Numbers = 1.0
    read_tokens: int = 1
    embedding: str = "identity"
    richness: float | None = None
    width_ratios: tuple[float, ...] | None = None


class Examples(Table):
    """[data.test]: names of arrays. `inputs` have `attention`, or the heads of [data]."""

    features: str | None = None
    inputs: str | None = None
    attention: Names | None = None
    real_tokens: str | None = None
    labels: str | None = None


class Data(Examples, kw_only=True):
    """[data]: a file, names of its training arrays, and heads. `mask`: "causal", or an array."""

    file: str
    key_query: Names | None = None
    query: Names | None = None
    key: Names | None = None
    query_bias: Names | None = None
    key_bias: Names | None = None
    mask: str | None = None
    layout: str | None = None
    readout: str | None = None
    classes: bool | None = None
    test: Examples | None = None

    def __post_init__(self):
        heads = any(getattr(self, key) for key in HEADS)
        for part in filter(None, (self, self.test)):
            if (part.features is None) == (part.inputs is None):
                raise ValueError("give either `features` or `inputs`")
            if sum(map(bool, (part.features, part.attention, heads))) > 1:
                raise ValueError("give only one of `features`, `attention` and heads")
        if self.mask and not heads:
            raise ValueError("`mask` needs heads")
        both = self.inputs and self.test and self.test.inputs
        if both and (self.real_tokens is None) != (self.test.real_tokens is None):
            raise ValueError("give `real_tokens` of both [data] and [data.test], or of neither")


class Solver(Table):
    """[solver]: options of `bpkr.solve`."""

    tolerance: float = 1e-9
    max_steps: int = 1000


class Grid(Table):
    """[sweep]: the grid. The architecture has the values of missing axes."""

    widths: tuple[Numbers, ...] | None = None
    temperatures: tuple[float, ...] | None = None
    richness: tuple[float, ...] | None = None


class Settings(Table):
    """The whole file."""

    architecture: Architecture
    data: Data
    solver: Solver = Solver()
    sweep: Grid = Grid()


# Tables by the paths in messages of msgspec, which are empty for the whole file.
TABLES = {"": Settings, "$.architecture": Architecture, "$.data": Data}
TABLES |= {"$.data.test": Examples, "$.solver": Solver, "$.sweep": Grid}


def parse_layer(word: int | str) -> Any:
    """Convert a word such as 2, dense, dense:erf, skip:2 or skip=0.7:dense to a layer."""
    from . import bpkr

    kind, _, rest = str(word).partition(":")
    name, _, gain = kind.partition("=")
    if name == "skip":
        with naming(f"layer {word!r}"):
            return bpkr.Skip(parse_layer(rest), float(gain or 1.0))
    if kind == "dense":
        return bpkr.Dense(activation=rest or "identity")
    if kind.isdecimal() and not rest:
        return bpkr.Attention(int(kind))
    raise ValueError(f"a layer must be like 2, dense, dense:erf, skip:2 or skip=0.7:dense, got {word!r}")


def read_data(settings: Data, folder: Path, architecture: Any) -> Any:
    """Read data from a file relative to `folder`."""
    from . import bpkr
    from .bpkr.data.classes import are_classes

    array = reader(folder / settings.file)
    heads = {key: getattr(settings, key) for key in HEADS if getattr(settings, key)}
    heads = {key: [array(name) for name in names] for key, names in heads.items()}
    mask = settings.mask if settings.mask in (None, "causal") else array(settings.mask)
    found = []
    for part in filter(None, (settings, settings.test)):
        inputs, real = (name and array(name) for name in (part.inputs, part.real_tokens))
        layout, attention = settings.layout, [array(name) for name in part.attention or ()]
        if heads:
            attention = bpkr.attention(inputs, mask=mask, real_tokens=real, layout=layout, **heads)
            layout = None
        options = {"real_tokens": real, "layout": layout}
        features = part.features and array(part.features)
        if features is None:
            features = bpkr.path_features(inputs, attention, architecture, settings.readout, **options)
        found += [features, part.labels and array(part.labels)]
    has_classes = are_classes(found[1]) if settings.classes is None else settings.classes
    return (bpkr.Data.of_classes if has_classes else bpkr.Data)(*found)


@contextmanager
def naming(what: object) -> Iterator[None]:
    """Put what is read before the message of an error."""
    try:
        yield
    except (OSError, ValueError, zipfile.BadZipFile) as mistake:
        raise ValueError(f"{what}: {mistake}") from mistake


def reader(path: Path) -> Callable:
    """Return a function that reads arrays by name from an npz or netCDF file."""
    import numpy as np
    import xarray as xr

    with naming(path):
        found = np.load(path) if path.suffix == ".npz" else xr.load_dataset(path, engine="h5netcdf").variables

    def array(name: str) -> np.ndarray:
        if name not in found:
            raise ValueError(f"{path} has no array {name!r}; it has {', '.join(found)}")
        with naming(f"{path}, array {name!r}"):
            return np.asarray(found[name])

    return array


def derive(
    layers: tuple[str, ...],
    embedding: str = "identity",
    outputs: int = 1,
    read_tokens: int = 1,
    richness: bool = False,
    infinite_width: bool = False,
    format: Literal["markdown", "latex", "fragment", "python"] = "markdown",
    steps: bool = False,
    finite_width: bool = False,
    output: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Derive the action of a deep network and print it.

    Args:
        layers: From the input side: a number of heads, dense, or dense:erf, also with a skip connection as in skip:3
            or skip=0.7:3. none: the readout reads the embedding.
        embedding: The function of the embedded tokens: identity, erf, relu or quadratic.
        outputs: Number of outputs per example.
        read_tokens: Number of tokens with separate readout weights.
        richness: Use the mean-field parameterisation.
        infinite_width: With --richness, derive the limit of infinite width.
        format: fragment is LaTeX for an article that loads amsmath. python is the source of the generated function.
        steps: Add every step of the derivation, with its check.
        finite_width: Add the exact prior at finite width.
        output: The file to write, by default standard output.
        overwrite: Replace the output.
    """
    from . import bpkr
    from .bpkr.action import document
    from .runs import write
    from .symbolic.documents import as_latex, as_markdown

    if infinite_width and not richness:
        raise ValueError("--infinite-width needs --richness")
    theorykit.enable_float64()
    kinds = [parse_layer(word) for word in layers if layers != ("none",)]
    options = {"outputs": outputs, "read_tokens": read_tokens, "embedding": embedding}
    options |= {"richness": 1.0 if richness else None, "temperature": 1.0}
    action = bpkr.derive(bpkr.Architecture(kinds, math.inf if infinite_width else 1, **options))
    parts = [*document.USUAL, *["derivation"] * steps, *["finite width"] * finite_width]
    blocks = [] if format == "python" else list(document.blocks(action, *parts))
    if format == "python":
        text = bpkr.generate_source(action)
    else:
        text = as_markdown(blocks) if format == "markdown" else as_latex(blocks, format == "fragment")
    if output is None:
        print(text, end="")
    else:
        write(text, output, overwrite=overwrite)
        print(f"wrote {output}")


def solve(settings: tyro.conf.Positional[Path], output: Path | None = None, overwrite: bool = False) -> None:
    """Solve for data in a file, and predict its test examples.

    Args:
        settings: A TOML file; see docs/command-line.md.
        output: The netCDF file to write, by default next to the settings.
        overwrite: Replace the output.
    """
    result = obtain(settings, output or settings.with_suffix(".nc"), overwrite, False, None, 1)
    print(table(result))
    for name in result:
        if name.startswith("head_score"):
            print(f"{name}: {result[name].values.ravel().round(3)}")


def sweep(
    settings: tyro.conf.Positional[Path],
    output: Path | None = None,
    folder: Path | None = None,
    n_jobs: int = 1,
    overwrite: bool = False,
) -> None:
    """Solve at every point of a grid for data in a file, and draw the scores.

    Args:
        settings: A TOML file; see docs/command-line.md.
        output: The netCDF file to write, by default next to the settings. The figure has the same name, with .png.
        folder: Keep every solution here. The same command, or one with a larger grid, resumes.
        n_jobs: Solve this many widths at a time, in separate processes.
        overwrite: Replace the output.
    """
    from .bpkr.sweeps import best
    from .plots import style
    from .plots.sweep import figure

    output = output or settings.with_name(f"{settings.stem}-sweep.nc")
    result = obtain(settings, output, overwrite, True, folder, n_jobs)
    print(table(result))
    score = next((name for name in ("test_accuracy", "test_error", "log_evidence") if name in result), None)
    for width in result["width"].values if score else ():
        try:
            place = best(result.sel(width=[width]), score)
        except ValueError as mistake:
            print(f"width {width}: {mistake}")
            continue
        del place["widths"]
        scores = result[score].where(result["converged"]).sel(width=width)
        equal = scores.where(scores == scores.sel(place)).to_series().dropna().index
        print(f"width {width}: best {' and '.join(equal.names)} by {score}: {', '.join(map(str, equal))}")
    with style.use_style():
        print(f"drew {style.save(figure(result), output.with_suffix('.png'))}")


def obtain(path: Path, output: Path, overwrite: bool, is_sweep: bool, folder: Path | None, n_jobs: int) -> Any:
    """Solve with the settings at `path` and write the result, or read it if it is finished."""
    import xarray as xr

    from . import bpkr
    from .bpkr import sweeps
    from .runs import write

    try:
        settings = msgspec.toml.decode(path.read_bytes(), type=Settings)
    except msgspec.DecodeError as mistake:
        known = ""
        if "unknown field" in str(mistake):
            table = TABLES[str(mistake).partition(" - at ")[2].strip("`")]
            known = "; use " + ", ".join(table.__struct_fields__)
        raise ValueError(f"{path}: {mistake}{known}") from None
    network, grid = settings.architecture, settings.sweep if is_sweep else Grid()
    if not (path.parent / settings.data.file).exists():
        raise FileNotFoundError(f"{path}: [data] names the file {settings.data.file}, which does not exist")
    content = (path.parent / settings.data.file).read_bytes()
    widths = (network.widths,) if grid.widths is None else grid.widths
    temperatures = (network.temperature,) if grid.temperatures is None else grid.temperatures
    if None in (*widths, *temperatures):
        raise ValueError(f"{path}: [architecture] needs widths and a temperature")
    made_from = [f"{network} {settings.data} {settings.solver} {hashlib.sha256(content).hexdigest()}"]
    made_from += map(str, product(widths, temperatures, grid.richness or (None,)))
    if output.exists() and not overwrite:
        result = xr.load_dataset(output, engine="h5netcdf")
        kept = result.attrs.get("made_from", "").split("\n")
        if kept == made_from:
            print(f"{output} is finished")
            return result
        # A larger grid has every point of the result.
        if not (overwrite := set(kept) <= set(made_from)):
            raise FileExistsError(f"{output} has other settings or data: pass another --output, or --overwrite")

    theorykit.enable_float64()
    # The grid replaces widths and temperature.
    given = msgspec.structs.asdict(network) | {"widths": math.inf if network.width_ratios else 1, "temperature": 1}
    architecture = bpkr.Architecture(**given | {"layers": [parse_layer(word) for word in network.layers]})
    data = read_data(settings.data, path.parent, architecture)
    architecture = replace(architecture, outputs=data.labels.shape[1] if getattr(data.labels, "ndim", 1) > 1 else 1)
    options = {"richness": grid.richness, "folder": folder, "n_jobs": n_jobs, **msgspec.structs.asdict(settings.solver)}
    result = sweeps.sweep(architecture, data, width=widths, temperature=temperatures, **options)
    if "U_1" not in result:
        raise ValueError(f"every point failed: {result['message'].values.flat[0]}")
    content = result.assign_attrs(made_from="\n".join(made_from)).to_netcdf(engine="h5netcdf")
    write(content, output, overwrite=overwrite)
    print(f"wrote {output}")
    return result


def table(result: Any) -> str:
    """Write whether points are solutions, and their scores, one row per point."""
    points = result["converged"].dims
    shown = ("converged", "log_evidence", "test_")
    names = [name for name in result if name.startswith(shown) and result[name].dims == points]
    return result[names].to_dataframe().to_string()


def main() -> None:
    """Run the command in `sys.argv`. Mistakes of the user are shown in one line."""
    if sys.argv[1:] == ["--version"]:
        print(f"theorykit {theorykit.__version__}")
        return
    warnings.formatwarning = lambda message, *_, **__: f"theorykit: {message}\n"
    commands = {"derive": derive, "solve": solve, "sweep": sweep}
    try:
        subcommand_cli_from_dict(commands, prog="theorykit", description="Statistical mechanics of transformers.")
    except (OSError, TypeError, ValueError) as mistake:
        sys.exit(f"theorykit: {mistake}")
    except KeyboardInterrupt:
        sys.exit("theorykit: stopped; with --folder, the same command resumes")
