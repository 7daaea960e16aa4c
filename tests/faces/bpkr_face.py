"""What the parameters of theory 1's public callables are."""

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from sympy import Symbol

from theorykit import bpkr

from .bpkr_arguments import (
    DATA,
    EXAMPLES,
    FEATURES,
    FOLDER,
    GRAM,
    INPUTS,
    KEY_QUERY,
    LABELS,
    LENGTHS,
    PATHS,
    architecture,
    attention,
    deeper_architecture,
    files_of_data,
    heads,
    kept_action,
    layer_arrays,
    limit,
    network,
    new_place,
    of_another_architecture,
    other_architectures,
    other_attention,
    other_heads,
    other_masks,
    other_statistics,
    other_weights,
    per_layer,
    statistics,
)
from .class_labels import CLASSES, OF_CLASSES
from .engine import Face
from .values import MISTAKES, Kind, array, flag, function, instance, number, path, text, whole_number

LATER = dict.fromkeys(
    ("NaN", "infinity", "-1", "0", "-0.5", "with a NaN", "with an infinity"),
    "whether it fits is checked where it is used",
)
TRUE = {"True": "booleans in arrays count as 0 and 1"}
NO_HEADS = dict.fromkeys(("an empty list", "an empty array"), "layers without heads have none")
LAYER_NUMBER = whole_number(1, least=1, most=2)
POSITIVE = number(1.0, above=0.0)
HEADS = [bpkr.Head(1, 1), bpkr.Head(2, 2)]
OTHER_HEADS = {
    "of a layer that is not": [bpkr.Head(3, 1)],
    "that is not": [bpkr.Head(1, 3)],
    "twice": [HEADS[0], HEADS[0]],
    "pairs": [(1, 1)],
    "one head": HEADS[0],
}
MATRIX = np.eye(PATHS)
NOT_POSITIVE = {"not square": np.ones((4, 3)), "of another size": np.eye(3)}

_BIAS = Kind(lambda: None, {"None": "no bias"}, lambda: {"of other features": [np.ones((2, 2))] * 2})
KINDS = {
    "architecture": instance(architecture, also=other_architectures),
    "order_parameters": instance(limit, "U_1", also=of_another_architecture),
    "initial": instance(limit, "U_1", also=of_another_architecture),
    "features": array(lambda: DATA, also=lambda: {"of other paths": DATA[:, :3], "of other features": DATA[:, :, 0]}),
    "test_features": array(
        lambda: DATA, also=lambda: {"of other features": DATA[..., :2], "of other paths": DATA[:, 1:]}
    ),
    "other": array(lambda: DATA, also=lambda: {"of other features": DATA[..., :2], "of other paths": DATA[:, 1:]}),
    "sign_accuracy.outputs": array(
        lambda: LABELS, admits={"with a NaN": "missing", "with an infinity": "its sign is looked at"}
    ),
    "labels": array(lambda: LABELS, also=lambda: {"fewer": LABELS[1:], "of two outputs": np.ones((EXAMPLES, 2))}),
    "statistics": instance(statistics, also=other_statistics),
    "solver": instance(
        lambda: bpkr.Newton(), also=lambda: {"a root finder": optx.Newton(1e-3, 1e-3), "a class": bpkr.Newton}
    ),
    "tolerance": number(0.001, above=0.0),
    "max_steps": whole_number(5, least=1),
    "throw": flag(),
    "key": instance(lambda: jax.random.key(0), also=lambda: {"two keys": jax.random.split(jax.random.key(0))}),
    "inputs": array(lambda: INPUTS, also=lambda: {"of other features": INPUTS[..., :2]}),
    "attention": Kind(attention, also=other_attention),
    "readout": text("last"),
    "query_bias": _BIAS,
    "key_bias": _BIAS,
    "query_biases": _BIAS,
    "key_biases": _BIAS,
    "mask": Kind(lambda: "causal", {"None": "no mask"}, other_masks),
    "isolated": text("self"),
    "real_tokens": Kind(
        lambda: LENGTHS, {"None": "all are"}, lambda: {"of others": LENGTHS[1:], "of none": 0 * LENGTHS}
    ),
    "layout": Kind(lambda: "keys-first", {"None": "keys come first"}),
    "key_query": Kind(lambda: KEY_QUERY, NO_HEADS, lambda: layer_arrays(KEY_QUERY)),
    "query": Kind(lambda: KEY_QUERY, {"None": "key_query is given instead"}, lambda: layer_arrays(KEY_QUERY)),
    "network": instance(network, also=lambda: {"an architecture": architecture(), "heads": heads()}),
    "heads": Kind(heads, also=other_heads),
    "input_features": whole_number(FEATURES, least=FEATURES, most=FEATURES),
    "weights": Kind(lambda: [network().embedding, *network().weights, network().readout_weights], also=other_weights),
    "options": instance(bpkr.MatrixFreeOptions, also=lambda: {"a class": bpkr.MatrixFreeOptions}),
    "progress": flag(),
    "search_minima.data": instance(
        lambda: bpkr.Data(DATA, LABELS),
        "features",
        "labels",
        also=lambda: {
            "a pair": (DATA, LABELS),
            "of other paths": bpkr.Data(DATA[:, :3], LABELS),
            "of fewer labels": bpkr.Data(DATA, LABELS[1:]),
        },
    ),
    "starts": whole_number(1, least=0),
    "spread": number(0.5, above=0.0),
    "chunk": whole_number(2, least=1),
    "in_flight": whole_number(2, least=1),
    "batches_per_task": whole_number(2, least=1),
    "files_per_task": whole_number(2, least=1),
    "checkpoint": path(lambda: None, {"text": "a name of a file"}),
    "executor": Kind(lambda: None),
    "layer": LAYER_NUMBER,
    "first_layer": LAYER_NUMBER,
    "index": whole_number(1, least=1),
    "deviations": number(3.0, least=0.0),
    "coordinates": array(
        lambda: np.zeros(bpkr.law_of(architecture()).dimension), also=lambda: {"too few": np.zeros(2)}
    ),
    "expression": instance(lambda: bpkr.derive(architecture()).energy),
    "action": instance(lambda: bpkr.derive(architecture())),
    "save_action.path": path(new_place),
    "save_action.overwrite": flag(),
    "load_action.path": path(kept_action),
    "render_markdown.architecture": Kind(
        architecture,
        {"None": "sizes are then symbols alone"},
        lambda: {**other_architectures(), "of other layers": deeper_architecture()},
    ),
}
"""By name; those of single callables, whose parameters are called like others, below."""

SKIPS = {
    f"with a skip of strength {name}": (2, bpkr.Skip(2, value))
    for name, value in MISTAKES.items()
    if name not in ("1", "1.5", "2**64")
}
OF_CALLABLES = {
    **OF_CLASSES,
    "Architecture.layers": Kind(
        lambda: (2, 2),
        dict.fromkeys(("an empty list", "an empty array"), "no layers"),
        called=("layer",),
        also=lambda: {
            "a number of heads": 2,
            "with a half": (1.5,),
            "a class": (bpkr.Dense,),
            "text": "22",
            "true": (True,),
            **SKIPS,
        },
    ),
    "kernels": array(lambda: GRAM, also=lambda: {"not symmetric": np.triu(GRAM), "not positive": GRAM - np.eye(5)}),
    "path_features.inputs": array(lambda: INPUTS),
    "Architecture.widths": Kind(lambda: 8.0, number(1.0, above=0.0).admits, lambda: per_layer(3)),
    "Architecture.prior_variances": Kind(lambda: 1.0, number(1.0, above=0.0).admits, lambda: per_layer(4)),
    "Architecture.embedding": Kind(
        lambda: "erf",
        {name: "a constant function" for name in ("1", "1.5", "-0.5")},
        lambda: {"of another name": "gelu", "of two numbers": lambda g, h: g, "with a jump of its own": "step"},
    ),
    "read_tokens": whole_number(1, least=1),
    "activation": Kind(lambda: "erf", also=lambda: {"of another name": "gelu"}),
    "Architecture.temperature": number(0.1, least=0.0),
    "Architecture.outputs": whole_number(1, least=1),
    "Attention.heads": whole_number(2, least=1),
    "Skip.layer": Kind(
        lambda: 2, whole_number(2, least=1).admits, lambda: {"a skip": bpkr.Skip(2), "a class": bpkr.Dense}
    ),
    "Skip.gain": POSITIVE,
    "AcceleratedSweeps.memory": whole_number(5, least=0),
    "AcceleratedSweeps.atol": POSITIVE,
    "AcceleratedSweeps.rtol": number(0.0, least=0.0),
    "AcceleratedSweeps.norm": function(optx.max_norm, {"a class": "a class can be called"}),
    "Newton.near": Kind(lambda: 1e-9, {**POSITIVE.admits, "None": "no requirement"}),
    "Newton.atol": POSITIVE,
    "Newton.rtol": number(0.0, least=0.0),
    "Newton.norm": function(optx.max_norm, {"a class": "a class can be called"}),
    "FeatureStatistics.gram": array(lambda: np.eye(12), also=lambda: NOT_POSITIVE, admits=LATER),
    "FeatureStatistics.projection": array(
        lambda: np.ones((12, 1)), "gram", also=lambda: {"fewer": np.ones((3, 1))}, admits=LATER
    ),
    "FeatureStatistics.label_square": Kind(lambda: 1.0, {**LATER, **number(1.0).admits, **TRUE}),
    "FeatureStatistics.examples": Kind(lambda: 1.0, {**LATER, **number(1.0).admits, **TRUE}),
    "FeatureStatistics.paths": whole_number(4, least=1),
    "Head.layer": whole_number(1),
    "Head.head": whole_number(1),
    "KeyQueryHeads.products": Kind(lambda: tuple(KEY_QUERY), NO_HEADS, lambda: layer_arrays(KEY_QUERY)),
    "ProjectionHeads.queries": Kind(lambda: tuple(KEY_QUERY), also=lambda: layer_arrays(KEY_QUERY), called=("keys",)),
    "ProjectionHeads.keys": Kind(lambda: tuple(KEY_QUERY), also=lambda: layer_arrays(KEY_QUERY), called=("queries",)),
    "LayerSymbols.width": instance(lambda: Symbol("N_1", positive=True)),
    "LayerSymbols.next_width": instance(lambda: Symbol("N_2", positive=True)),
    "LayerSymbols.weights.blocks": Kind(lambda: 2, whole_number(2, least=1).admits),
    "LayerSymbols.number.name": text("c", any_text=True),
    "LayerSymbols.covariance.name": text("c", any_text=True),
    "LayerSymbols.covariance.size": Kind(lambda: 2, whole_number(2, least=1).admits),
    "MatrixFreeOptions.probes": whole_number(8, least=4),
    "MatrixFreeOptions.rank": whole_number(8, least=1),
    "MatrixFreeOptions.order": whole_number(8, least=1),
    "MatrixFreeOptions.max_order": whole_number(8, least=1),
    "MatrixFreeOptions.tolerance": number(0.5, above=0.0, most=0.9),
    "MatrixFreeOptions.block": whole_number(8, least=1),
    "MatrixFreeOptions.repeats": whole_number(3, least=3),
    "OrderParameters.matrices": Kind(
        lambda: limit().matrices,
        dict.fromkeys(("an empty list", "an empty array"), "how many there must be is checked where they are used"),
        lambda: {
            "complex": (MATRIX + 0j, MATRIX),
            "of text": (MATRIX.astype(str), MATRIX),
            "masked": (np.ma.array(MATRIX),),
        },
    ),
    "OrderParameters.readout": Kind(
        lambda: 1.0, {**LATER, **number(1.0).admits, **TRUE}, lambda: {"complex": np.eye(2) + 0j}
    ),
    "attention.key": Kind(lambda: KEY_QUERY, {"None": "key_query is given instead"}, lambda: layer_arrays(KEY_QUERY)),
    "heads.key": Kind(lambda: KEY_QUERY, {"None": "key_query is given instead"}, lambda: layer_arrays(KEY_QUERY)),
    "kernel_task_alignment.kernel": array(
        lambda: np.eye(EXAMPLES), also=lambda: {"of fewer": np.eye(3), **NOT_POSITIVE}
    ),
    "optimal_readout.last": array(lambda: np.eye(2), "U_2", also=lambda: {**NOT_POSITIVE, "singular": np.ones((2, 2))}),
    "rank_heads.scores": Kind(
        lambda: [np.ones(2), np.ones(2)],
        dict.fromkeys((*NO_HEADS, "a ragged list", "of other features"), "layers of none, one or two heads"),
        lambda: layer_arrays([np.ones(2), np.ones(2)]),
    ),
    "removable_heads.order": Kind(lambda: HEADS, NO_HEADS, lambda: OTHER_HEADS),
    "removable_heads.head_counts": Kind(
        lambda: (2, 2),
        called=("order",),
        also=lambda: {"with a half": (1.5, 2), "with -1": (-1, 2), "text": "22"},
    ),
    "without_heads.removed": Kind(lambda: HEADS, NO_HEADS, lambda: OTHER_HEADS),
    "statistics_of_arrays.features": array(lambda: DATA, also=lambda: {"fewer": DATA[1:]}),
    "statistics_of_arrays.labels": array(
        lambda: LABELS, also=lambda: {"fewer": LABELS[1:]}, admits={"with one axis more": "labels of one output"}
    ),
    "statistics_on_devices.features": array(
        lambda: jnp.asarray(DATA),
        also=lambda: {
            "of NumPy": DATA,
            "fewer": jnp.asarray(DATA[1:]),
            "flat": jnp.asarray(DATA[0]),
            "with a NaN on the device": jnp.asarray(DATA).at[1, 0, 0].set(np.nan),
            "complex on the device": jnp.asarray(DATA) + 0j,
        },
    ),
    "statistics_on_devices.labels": array(
        lambda: LABELS, also=lambda: {"fewer": LABELS[1:]}, admits={"with one axis more": "labels of one output"}
    ),
    "statistics_of_batches.batches": Kind(
        lambda: [(DATA, LABELS)],
        called=("batch", "batches"),
        also=lambda: {
            "complex": [(DATA + 0j, LABELS)],
            "masked": [(np.ma.masked_array(DATA), LABELS)],
            "of text": [(DATA, LABELS.astype(str))],
            "with a NaN": [(DATA * np.nan, LABELS)],
            "of lengths that differ": [(DATA[1:], LABELS)],
            "made by a function that returns none": [lambda: None],
        },
    ),
    "statistics_of_files.files": Kind(
        files_of_data,
        dict.fromkeys(("a list of text", "an array of text"), "files that are not there"),
        also=lambda: {
            "text": "data.npz",
            "a path": FOLDER,
            "of three paths": [files_of_data() * 3],
            "with a number": [1],
        },
    ),
    "statistics_of_files.variables": Kind(
        lambda: ("features", "labels"),
        also=lambda: {"of one name": ("features",), "names that are not there": ("features", "target")},
    ),
    "sum_over_paths.features": array(
        lambda: DATA, also=lambda: {"of other features": DATA[..., :2], "of other paths": DATA[:, 1:]}
    ),
    "path_outputs.features": array(
        lambda: DATA, also=lambda: {"of other features": DATA[..., :2], "of other paths": DATA[:, 1:]}
    ),
    "MatrixFreeSaddle.margins.probability": number(0.9, above=0.0, most=0.99),
}

RESULT = "it holds what the package has computed, and is not made by callers"
OPTIMISTIX = "Optimistix calls it with states of its own"
PACKAGE = "the package calls it with the symbols of the layer"

FACE = Face(
    bpkr,
    {**KINDS, **OF_CALLABLES},
    instances={
        "Architecture": architecture,
        "Classes": lambda: CLASSES,
        "Action": lambda: bpkr.derive(architecture()),
        "CompiledAction": lambda: bpkr.compile_action(bpkr.derive(architecture())),
        "FiniteWidthLaw": lambda: bpkr.law_of(architecture()),
        "KeyQueryHeads": heads,
        "AbstractHeads": heads,
        "ProjectionHeads": lambda: bpkr.heads(query=KEY_QUERY, key=KEY_QUERY),
        "LayerSymbols": lambda: bpkr.LayerSymbols(1, Symbol("N_1", positive=True), Symbol("N_2", positive=True)),
        "Network": network,
        "Fluctuations": lambda: bpkr.Fluctuations(
            limit(), jax.tree.map(lambda u: u[None], limit()), None, np.zeros(())
        ),
        "EnergyEstimate": lambda: bpkr.EnergyEstimate(*[np.ones(())] * 5, None, {}),
        "MatrixFreeSaddle": lambda: bpkr.MatrixFreeSaddle(
            limit(), limit(), *[np.ones(())] * 6, {"samples": np.ones((3, 2))}
        ),
    },
    records={
        name: RESULT
        for name in (
            *(
                "Action",
                "ActionTerms",
                "ClassScores",
                "CompiledAction",
                "DualForm",
                "EnergyEstimate",
                "FiniteWidthLaw",
                "FiniteWidthPrior",
                "FirstOrder",
            ),
            *(
                "Fluctuations",
                "KernelTaskAlignment",
                "MatrixFreeSaddle",
                "Minima",
                "Network",
                "Prediction",
                "Predictor",
            ),
            *("Saddle", "Slopes"),
        )
    }
    | {"Data": "it is checked against an architecture, where it is used"},
    untried={
        "Skip.gain": "the architecture checks it, and says in which layer it is",
        "data_of_classes.features": "as those of Data, they are checked against an architecture",
        "data_of_classes.test_features": "as those of Data, they are checked against an architecture",
        **{
            f"{solver}.{method}": OPTIMISTIX
            for solver in ("Newton", "AcceleratedSweeps")
            for method in ("init", "start", "step", "terminate", "postprocess")
        },
        **{
            f"{layer}.{method}": PACKAGE
            for layer in ("AbstractLayer", "Attention", "Dense", "Skip")
            for method in ("forward", "prior", "parameters")
        },
    },
    given={
        "attention": ("key_query",),
        "heads": ("key_query",),
        "statistics_of_arrays": ("chunk",),
        "solve": ("tolerance", "initial", "solver"),
        "solve_from_statistics": ("tolerance",),
    },
)
