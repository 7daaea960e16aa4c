"""The command `theorykit init`, which writes a configuration for a data file and guesses the roles of its arrays."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tyro

from ..checks import counted
from ..runs import refuse_existing, write

# Words in the names of arrays that indicate their roles.
_TEST, _TRAINING = {"test", "val", "valid", "validation", "eval"}, {"train", "training"}
_LABELS = {"label", "labels", "y", "target", "targets", "class", "classes"}
_FEATURES, _MASKS = {"phi", "features", "paths"}, {"mask", "length", "lengths"}
_QUERIES, _KEYS = {"query", "queries", "q", "wq"}, {"key", "keys", "k", "wk"}
# Largest number of distinct integers that we take for classes.
_MOST_CLASSES = 100
# Keys with one array per layer.
_OF_LAYERS = ("key_query", "query", "key", "attention")
# Keys of arrays with one row per training example. Test examples need the same arrays.
_OF_EXAMPLES = ("features", "inputs", "attention", "mask", "labels")

Roles = dict[str, list[str]]


def init(data: tyro.conf.Positional[Path], output: Path | None = None, overwrite: bool = False):
    """Write a commented configuration for a data file, to start from.

    The command guesses from names and shapes which arrays are inputs or path features, heads, attention, labels and
    test examples. Comments in the file describe what to change.

    Args:
        data: An npz or netCDF file.
        output: File to write, ending in .toml. The default is next to the data, with the same name.
        overwrite: Replace the output file if it exists.
    """
    output = data.with_suffix(".toml") if output is None else output
    from .data import read_arrays

    if output.suffix != ".toml":
        raise ValueError(f"--output must end in .toml, got {str(output)!r}")
    refuse_existing(output, overwrite)
    arrays = read_arrays(data, None)
    text, missing = configuration(arrays, os.path.relpath(data, output.parent))
    write(text, output, overwrite=overwrite)
    print(f"wrote {output}")
    if missing:
        print(f"not complete: {'; '.join(missing)}. Edit the file first")
    else:
        print(f"check its comments, then run: theorykit solve {output}")


def configuration(arrays: Mapping[str, np.ndarray], file: str) -> tuple[str, list[str]]:
    """Return the text of a configuration for the arrays in `file`, and a list of what could not be guessed."""
    roles = guess(arrays)
    chosen = {name: role for role, names in roles.items() for name in names}
    taken = {name: f"taken as {chosen[name]}" if name in chosen else "not used" for name in arrays}
    layers, why = (
        '[{kind = "dense"}]',
        "the file has no heads or attention; with some, [heads, ...], and key_query below",
    )
    if "features" in roles:
        paths = arrays[roles["features"][0]].shape[1]
        layers = f"[{paths}]"
        why = f"one layer for {counted(paths, 'path')}; several layers have heads whose product is {paths}"
    for role, axis in (("attention", 1), ("query", 0), ("key_query", 0)):
        if role in roles:
            layers = str([arrays[name].shape[axis] for name in roles[role]])
            why = f"the heads of each layer, from the shapes of {role}"
    lines = [
        "# Check each line that ends in a comment. docs/command-line.md documents every key.",
        "# The file has these arrays:",
        *(f"#   {_quoted(name)}: {array.dtype}, {array.shape}, {taken[name]}" for name, array in arrays.items()),
        "",
        "[architecture]",
        f"layers = {layers}  # {why}",
        "widths = 100  # of all layers; change it to those of your network, or to inf",
        "temperature = 0.1  # variance of the noise of the labels; [sweep] below tries others",
        "",
        "[data]",
        f"file = {_quoted(file)}",
    ]
    missing = []
    if not {"inputs", "features"} & set(roles):
        missing.append("no array looks like inputs (examples, tokens, features) or path features")
        lines.append('# inputs = "..."  # CHANGE: (examples, tokens, features); or features = "..."')
    if "labels" not in roles:
        missing.append("no array looks like labels (examples,)")
        lines.append('# labels = "..."  # CHANGE: (examples,), or (examples, outputs)')
    for role, names in roles.items():
        listed = ", ".join(map(_quoted, names))
        comment = "  # which tokens are real: others are padding, and are not read" if role == "mask" else ""
        listed = f"[{listed}]" if role.removeprefix("test_") in _OF_LAYERS else listed
        lines.append(f"{role} = {listed}{comment}")
    if "inputs" in roles:
        lines.append('readout = "last"  # or "first" or "mean": which token the readout reads')
        if "attention" not in roles and "mask" not in roles and {"key_query", "query"} & set(roles):
            lines.append('# mask = "causal"  # if tokens attend to earlier tokens only')
    if "attention" in roles:
        lines.append('# attention_layout = "torch"  # if attention has queries before keys')
    if "labels" in roles and _are_classes(arrays[roles["labels"][0]]):
        lines.append("classes = true  # labels are classes, not numbers to fit")
    lines += [
        "",
        "[sweep]  # for `theorykit sweep`",
        "widths = [30, 100, 300]",
        "temperatures = [0.01, 0.1, 1.0]",
    ]
    return "\n".join(lines) + "\n", missing


def guess(arrays: Mapping[str, np.ndarray]) -> Roles:
    """Guess which arrays belong to which keys of [data]."""
    words = {name: _words(name) for name in arrays}
    ordered = sorted(arrays, key=lambda name: [int(part) if part.isdigit() else 0 for part in re.split(r"(\d+)", name)])
    training = [name for name in ordered if not words[name] & _TEST]

    def named(known: set[str], dimensions: Sequence[int], among: Sequence[str]) -> list[str]:
        return [name for name in among if words[name] & known and arrays[name].ndim in dimensions]

    roles: Roles = {}
    labels = named(_LABELS, (1, 2), training) or [name for name in training if arrays[name].dtype.kind in "UST"]
    examples = len(arrays[labels[0]]) if labels else None
    of_examples = [name for name in training if arrays[name].ndim > 1 and examples in (None, len(arrays[name]))]
    volumes = [name for name in of_examples if arrays[name].ndim == 3]
    features = named(_FEATURES, (3,), volumes)
    if inputs := [name for name in volumes if name not in features][:1]:
        roles["inputs"] = inputs
        width = arrays[inputs[0]].shape[2]
        heads = [n for n in training if n not in inputs and arrays[n].ndim == 3 and arrays[n].shape[2] == width]
        queries, keys = named(_QUERIES, (3,), heads), named(_KEYS, (3,), heads)
        if attention := [name for name in of_examples if arrays[name].ndim == 4]:
            roles["attention"] = attention
        elif queries and len(queries) == len(keys):
            roles |= {"query": queries, "key": keys}
        elif square := [name for name in heads if arrays[name].shape[1] == width and name not in features]:
            roles["key_query"] = square
        masks = [name for name in named(_MASKS, (1, 2), training) if len(arrays[name]) == examples][:1]
        roles |= {"mask": masks} if masks else {}
    elif features:
        roles["features"] = features[:1]
    roles |= {"labels": labels[:1]} if labels else {}
    # Find test arrays whose names match the training arrays, unless a required array is missing.
    found: Roles = {}
    for role in (role for role in _OF_EXAMPLES if role in roles):
        others = []
        for name in roles[role]:
            same = [
                other
                for other in arrays
                if words[other] & _TEST
                and words[other] - _TEST == words[name] - _TRAINING
                and arrays[other].shape[1:] == arrays[name].shape[1:]
            ]
            others += same[:1]
        if len(others) == len(roles[role]):
            found[f"test_{role}"] = others
        elif role != "labels":
            return roles
    return roles | found if {"test_inputs", "test_features"} & set(found) else roles


def _words(name: str) -> set[str]:
    """Split a name into words in lower case."""
    return set(re.findall(r"[a-z]+|\d+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))


def _are_classes(labels: np.ndarray) -> bool:
    if labels.ndim != 1:
        return False
    if labels.dtype.kind in "UST":
        return True
    # Labels -1 and 1 do not need `classes = true`.
    values, most = np.unique(labels), min(_MOST_CLASSES, len(labels) // 2)
    return labels.dtype.kind in "iub" and 1 < len(values) <= most and not np.isin(values, (-1, 1)).all()


def _quoted(text: str) -> str:
    """Quote text as a TOML string of one line."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
