"""The parameters of theory 1: of one small network, what is right, and what is not."""

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from sympy import Integer, Rational, Symbol

from theorykit import bpkr

from .engine import Face
from .values import EMPTY, FOLDER, KEY, MISTAKES, NONE, TEXTS, Kind, number, of, unlike, whole_number

RNG = np.random.default_rng(0)
EXAMPLES, PATHS, FEATURES, TOKENS = 5, 4, 3, 2
DATA, LABELS = RNG.normal(size=(EXAMPLES, PATHS, FEATURES)), RNG.normal(size=EXAMPLES)
INPUTS, LENGTHS = RNG.normal(size=(EXAMPLES, TOKENS, FEATURES)), np.full(EXAMPLES, TOKENS)
KEY_QUERY = [RNG.normal(size=(2, FEATURES, FEATURES)) for _ in range(2)]
GRAM = LABELS[:, None] * LABELS
SHARDABLE = jnp.asarray(DATA)

ARCHITECTURE = bpkr.Architecture((2, 2), 8.0, 1.1, temperature=0.1)
OTHER_HEADS, DEEPER = (bpkr.Architecture(layers, 8.0, temperature=0.1) for layers in ((3, 2), (2, 2, 1)))
LIMIT = bpkr.gp_limit(ARCHITECTURE)
STATISTICS = bpkr.Data.of_arrays(DATA, LABELS).moments
ATTENTION = [np.asarray(layer) for layer in bpkr.attention(INPUTS, key_query=KEY_QUERY)]
HEADS = bpkr.heads(key_query=KEY_QUERY)
NETWORK = bpkr.sample_network(ARCHITECTURE, HEADS, input_features=FEATURES, key=jax.random.key(0))
WEIGHTS = [np.asarray(w) for w in (NETWORK.embedding, *NETWORK.weights, NETWORK.readout_weights)]
ACTION = bpkr.derive(ARCHITECTURE)
bpkr.save_action(ACTION, FOLDER / "kept.json")
np.savez(FOLDER / "data.npz", features=DATA, labels=LABELS)
FILES = [FOLDER / "data.npz"]

# whether it fits is checked where it is used, and booleans in arrays count as 0 and 1
LATER = ("NaN", "infinity", "-1", "0", "-0.5", "with a NaN", "with an infinity")
LATER_NUMBER = (*LATER, *number(1.0).admits, "True")
# layers without heads have none
NO_HEADS = EMPTY


def names(parameter, *callables):
    """A parameter of several callables."""
    return " ".join(f"{each}.{parameter}" for each in callables)


def per_layer(example, length):
    """One positive number, or one per layer."""
    rest = [1.0] * (length - 1)
    return of(
        example,
        one_too_few=rest,
        one_too_many=[*rest, 1.0, 1.0],
        with_a_zero=[0.0, *rest],
        with_text=["1", *rest],
        with_none=[None, *rest],
        complex=np.ones(length) + 0j,
        masked=np.ma.masked_array(np.ones(length)),
        with_two_axes=np.ones((length, 1)),
        too_large=[10**400, *rest],
    )


def with_field(**changed):
    return bpkr.FeatureStatistics(**{**vars(STATISTICS), **changed})


POINT = of(
    LIMIT,
    *("U_1", "u", "layers"),
    of_other_heads=bpkr.gp_limit(OTHER_HEADS),
    of_another_depth=bpkr.gp_limit(DEEPER),
    of_several_outputs=bpkr.gp_limit(bpkr.Architecture((2, 2), 8.0, temperature=0.1, outputs=2)),
    **{
        name: bpkr.OrderParameters((matrix, np.eye(2)), readout)
        for name, (matrix, readout) in {
            "not_symmetric": (np.eye(4) + 0.1 * np.eye(4, k=1), 1.0),
            "indefinite": (np.diag([1.0, 1.0, 1.0, -0.5]), 1.0),
            "with_a_nan": (np.diag([1.0, 1.0, np.nan, 1.0]), 1.0),
            "of_another_size": (np.eye(3), 1.0),
            "not_square": (np.ones((4, 3)), 1.0),
            "of_a_readout_below_zero": (np.eye(4), -1.0),
            "of_an_unknown_readout": (np.eye(4), np.nan),
        }.items()
    },
    of_one_layer=bpkr.OrderParameters((np.eye(4),), 1.0),
    prediction=bpkr.Prediction(LABELS, LABELS),
    statistics=STATISTICS,
    tuple=(LIMIT.matrices, LIMIT.readout),
    one_matrix=LIMIT.matrices[0],
)
OTHER_ARCHITECTURES = {"order_parameters": LIMIT, "layers": (2, 2), "network": NETWORK}
PATH_FEATURES = of(DATA, of_other_features=DATA[..., :2], of_other_paths=DATA[:, 1:])
PROJECTIONS = of(KEY_QUERY, admits=NONE, of_other_features=[each[..., :1] for each in KEY_QUERY])
PRODUCTS = of(KEY_QUERY, admits=NO_HEADS, of_other_features=[each[..., :1] for each in KEY_QUERY])
BOTH = of(tuple(KEY_QUERY), "keys", "queries", of_other_features=[KEY_QUERY[0][..., :1], KEY_QUERY[1]])
BIAS = of(None, admits=NONE, of_other_features=[np.ones((2, 2))] * 2)
NOT_POSITIVE = {"not_square": np.ones((4, 3)), "of_another_size": np.eye(3)}
LABELS_OF_ONE = of(LABELS, admits=("with one axis more",), fewer=LABELS[1:])
PAIR = [bpkr.Head(1, 1), bpkr.Head(2, 2)]
LIST_OF_HEADS = of(
    PAIR,
    admits=NO_HEADS,
    of_an_absent_layer=[bpkr.Head(3, 1)],
    absent=[bpkr.Head(1, 3)],
    twice=[PAIR[0], PAIR[0]],
    pairs=[(1, 1)],
    one_head=PAIR[0],
)
SKIPS = {
    f"with a skip of strength {name}": (2, bpkr.Skip(2, value))
    for name, value in MISTAKES.items()
    if name not in ("1", "1.5", "2**64")
}
SOLVERS = ("Newton", "AcceleratedSweeps")
CLASSES = bpkr.Classes(("a", "b", "c"), "one-hot")
# text may be a class
OF_CLASSES = of(
    Kind(lambda: np.array(["a", "c", "b"])),
    admits=TEXTS[:1],
    of_pairs=np.array([["a", "b"]]),
    of_one_more=np.array(["a", "b", "d"]),
    complex=np.ones(3) + 1j,
)
MEAN, VARIANCE = np.eye(3), of(np.ones((3, 3)), negative=-np.eye(3))

PROBLEM = bpkr.Problem(ARCHITECTURE, bpkr.Data(DATA, LABELS, DATA, LABELS))


def mistaken_data(right, **more):
    """Data of which one array is a mistake, or does not fit the others or the architecture."""
    features, labels, test_features, test_labels = right.values()
    fitting = {
        "features": {"of other paths": features[:, :1], "fewer": features[1:], "with an axis less": features[:, :, 0]},
        "labels": {"fewer": labels[1:], "of two outputs": np.ones((len(labels), 2))},
        "test_features": {"of other features": test_features[..., :2], "of other paths": test_features[:, 1:]},
        "test_labels": {"fewer": test_labels[1:]},
        "classes": {"by name": ("a", "b"), "of more": bpkr.Classes((1, 2, 3), "one-hot")},
    }
    mistakes = {"a pair": (features, labels), "the features": features}
    mistakes["without test features"] = bpkr.Data(**{**right, "test_features": None})
    for field, of_field in (fitting | more).items():
        unlike_it = unlike(np.asarray(right[field])) if field in right else {}
        for name, wrong in {**unlike_it, **of_field}.items():
            mistakes[f"{field} {name}"] = bpkr.Data(**{**right, field: wrong})
    return mistakes


MOMENTS = {
    "of other paths": bpkr.Data.of_arrays(DATA[:, :3], LABELS).moments,
    "of several outputs": bpkr.Data.of_arrays(DATA, np.stack([LABELS, LABELS], axis=1)).moments,
    "label square not finite": with_field(label_square=np.nan),
    "examples not finite": with_field(examples=np.nan),
    "with NaN": with_field(gram=np.full((12, 12), np.nan)),
    "not symmetric": with_field(gram=np.arange(144.0).reshape(12, 12)),
    "of labels of a negative square": with_field(label_square=-1.0),
    "of no examples": with_field(examples=0.0),
    "features": DATA,
}
ARRAYS = {"features": DATA, "labels": LABELS, "test_features": DATA, "test_labels": LABELS}
MISTAKEN_DATA = Kind(
    lambda: bpkr.Data(DATA, LABELS),
    also=lambda: mistaken_data(ARRAYS, moments=MOMENTS),
    called=(*ARRAYS, "classes", "statistics", "moments"),
)

KINDS = {
    "architecture": of(ARCHITECTURE, **OTHER_ARCHITECTURES),
    "problem": of(PROBLEM, **OTHER_ARCHITECTURES),
    # a problem has data
    "solve.data search.data": None,
    "Problem.data": MISTAKEN_DATA,
    "render_markdown.architecture render_html.architecture": of(
        ARCHITECTURE, admits=NONE, **OTHER_ARCHITECTURES, of_other_layers=DEEPER
    ),
    "order_parameters initial": POINT,
    "features": of(DATA, of_other_paths=DATA[:, :3], of_other_features=DATA[:, :, 0]),
    "test_features other": PATH_FEATURES,
    "Network.path_outputs.features": PATH_FEATURES,
    "labels": of(LABELS, fewer=LABELS[1:], of_two_outputs=np.ones((EXAMPLES, 2))),
    # the sign of a missing or infinite output is looked at
    "sign_accuracy.outputs": of(LABELS, admits=("with a NaN", "with an infinity")),
    "solver": of(bpkr.Newton(), root_finder=optx.Newton(1e-3, 1e-3), class_of_solvers=bpkr.Newton),
    "key": KEY,
    "inputs": of(INPUTS, of_other_features=INPUTS[..., :2]),
    "path_features.inputs": INPUTS,
    "attention": of(
        ATTENTION,
        of_one_layer=ATTENTION[:1],
        of_fewer_examples=[each[1:] for each in ATTENTION],
        of_fewer_heads=[ATTENTION[0][:, :1], ATTENTION[1]],
        of_fewer_tokens=[each[..., 1:, 1:] for each in ATTENTION],
    ),
    "readout": "last",
    "query_bias key_bias": BIAS,
    "mask": of(
        "causal",
        admits=NONE,
        of_other_examples=LENGTHS[1:],
        of_other_tokens=np.ones((1, 1, TOKENS, TOKENS + 1), dtype=bool),
        of_other_heads=np.ones((1, 3, 1, 1), dtype=bool),
        that_allows_nothing=np.zeros((1, 1, 1, 1), dtype=bool),
        another_word="casual",
        pair_with_text=("causal", "text"),
    ),
    "real_tokens": of(Kind(lambda: LENGTHS), admits=NONE, of_others=LENGTHS[1:], of_none=0 * LENGTHS),
    "key_query": PRODUCTS,
    "query attention.key heads.key": PROJECTIONS,
    "ProjectionHeads.query ProjectionHeads.key": BOTH,
    "network": of(NETWORK, architecture=ARCHITECTURE, heads=HEADS),
    "heads": of(
        HEADS,
        of_one_layer=bpkr.heads(key_query=KEY_QUERY[:1]),
        of_other_numbers=bpkr.heads(key_query=[KEY_QUERY[0][:1], KEY_QUERY[0]]),
        of_other_features=bpkr.heads(key_query=[np.ones((2, 2, 2))] * 2),
        network=NETWORK,
        arrays=KEY_QUERY,
    ),
    "input_features": whole_number(FEATURES, least=FEATURES, most=FEATURES),
    "weights": of(WEIGHTS, of_one_layer_less=WEIGHTS[1:], transposed=[w.T for w in WEIGHTS]),
    "options": None,
    "estimate_energy.solver": of(bpkr.MatrixFree(jax.random.key(0)), class_of_solvers=bpkr.MatrixFree),
    "starts": whole_number(1, least=0),
    "Data.of_files.variables": of(("features", "labels"), one=("features",), absent=("features", "target")),
    "checkpoint": of(FOLDER / "sums.npz", admits=(*NONE, *TEXTS)),
    "layer first_layer": whole_number(1, least=1, most=2),
    "deviations": number(3.0, least=0.0),
    "coordinates": of(np.zeros(bpkr.finite_width_law(ARCHITECTURE).dimension), too_few=np.zeros(2)),
    "expression": ACTION.energy,
    "action": ACTION,
    "save_action.path": FOLDER / "action.json",
    "load_action.path": FOLDER / "kept.json",
    "kernels": of(GRAM, not_symmetric=np.triu(GRAM), not_positive=GRAM - np.eye(5)),
    "Architecture.layers": of(
        Kind(lambda: (2, 2), also=lambda: SKIPS),
        "layer",
        admits=EMPTY,
        number_of_heads=2,
        with_a_half=(1.5,),
        class_of_layers=(bpkr.Dense,),
        text="22",
        true=(True,),
    ),
    "Architecture.widths": of(per_layer(8.0, 3), too_wide=1e308, too_narrow=1e-101),
    "Architecture.prior_variances": per_layer(1.0, 4),
    # numbers are constant functions
    "Architecture.embedding": of(
        "erf", admits=("1", "1.5", "-0.5"), another="gelu", of_two_numbers=lambda g, h: g, with_a_jump="step"
    ),
    "Attention.heads": 1,
    "activation": of("erf", another="gelu"),
    "Architecture.temperature": number(0.1, least=0.0),
    "Architecture.richness": of(number(1.0, above=0.0), admits=NONE),
    # the widths are finite
    "Architecture.width_ratios": of(None, admits=NONE),
    "Skip.layer": of(2, skip=bpkr.Skip(2), class_of_layers=bpkr.Dense),
    "Skip.gain": 1.0,
    "AcceleratedSweeps.memory": whole_number(5, least=0),
    names("atol", *SOLVERS): 1.0,
    names("rtol", *SOLVERS): number(0.0, least=0.0),
    names("norm", *SOLVERS): of(optx.max_norm, admits=("a class", "a function")),
    "FeatureStatistics.gram": of(np.eye(12), admits=LATER, **NOT_POSITIVE),
    "FeatureStatistics.projection": of(np.ones((12, 1)), "gram", admits=LATER, fewer=np.ones((3, 1))),
    "FeatureStatistics.label_square FeatureStatistics.examples": of(1.0, admits=LATER_NUMBER),
    "Head.layer Head.head": whole_number(1),
    "LayerSymbols.width": Symbol("N_1", positive=True),
    "LayerSymbols.next_width": Symbol("N_2", positive=True),
    "LayerSymbols.weights.blocks LayerSymbols.covariance.size": of(2, zero=Integer(0), half=Rational(1, 2)),
    "MatrixFree.probes": whole_number(8, least=4),
    "MatrixFree.tolerance": number(0.5, above=0.0, most=0.9),
    "MatrixFree.repeats": whole_number(3, least=3),
    "OrderParameters.matrices": of(LIMIT.matrices, admits=(*EMPTY, "with one that is with a NaN")),
    "OrderParameters.readout": of(1.0, admits=LATER_NUMBER, complex=np.eye(2) + 0j),
    "kernel_task_alignment.kernel": of(
        np.eye(EXAMPLES), of_fewer=np.eye(3), not_square=np.ones((4, 3)), not_symmetric=np.tri(EXAMPLES)
    ),
    "optimal_readout.last": of(np.eye(2), "U_2", **NOT_POSITIVE, singular=np.ones((2, 2)), negative=-np.eye(2)),
    "head_costs.saddle": of(bpkr.solve(PROBLEM), order_parameters=LIMIT),
    "rank_heads.scores": of([np.ones(2), np.ones(2)], admits=(*NO_HEADS, "a ragged list")),
    "removable_heads.order without_heads.removed": LIST_OF_HEADS,
    "removable_heads.head_counts": of((2, 2), "order", with_a_half=(1.5, 2), negative=(-1, 2), text="22"),
    "Data.of_arrays.features": of(DATA, fewer=DATA[1:]),
    names("labels", "Data.of_arrays", "Data.of_devices"): LABELS_OF_ONE,
    "Data.of_devices.features": of(
        Kind(lambda: SHARDABLE, also=lambda: of(DATA).also()),
        of_numpy=DATA,
        fewer=SHARDABLE[1:],
        flat=SHARDABLE[0],
        with_nan_on_the_device=SHARDABLE.at[1, 0, 0].set(np.nan),
        complex_on_the_device=SHARDABLE + 0j,
    ),
    "Data.of_batches.batches": of(
        [(DATA, LABELS)],
        "batch",
        complex=[(DATA + 0j, LABELS)],
        masked=[(np.ma.masked_array(DATA), LABELS)],
        of_text=[(DATA, LABELS.astype(str))],
        with_nan=[(DATA * np.nan, LABELS)],
        of_lengths_that_differ=[(DATA[1:], LABELS)],
        made_by_a_function_that_returns_none=[lambda: None],
    ),
    # text is the name of a file that is not there
    "Data.of_files.files": of(
        FILES,
        admits=(*TEXTS, "with one that is text"),
        text="data.npz",
        path=FOLDER,
        of_three_paths=[FILES * 3],
        with_a_number=[1],
    ),
    "MatrixFreeSaddle.margins.probability": number(0.9, above=0.0, most=0.99),
    "Classes.names": of(Kind(lambda: ("a", "b", "c")), twice=("a", "a"), one=("a",)),
    names("labels", *(f"Classes.{name}" for name in ("encode", "indices_of", "log_probability"))): OF_CLASSES,
    "score_classes.labels Data.of_classes.test_labels": OF_CLASSES,
    "find_classes.labels": of(
        Kind(lambda: np.array(["a", "c", "b"])),
        admits=TEXTS,
        of_pairs=np.array([["a", "b"]]),
        alike=np.array(["a", "a"]),
        complex=np.ones(3) + 1j,
    ),
    "Data.of_classes.labels": of(Kind(lambda: np.array(["a", "c", "b"])), admits=TEXTS),
    "Classes.decode.outputs": MEAN,
    names("mean", "Classes.probabilities", "Classes.log_probability", "score_classes"): MEAN,
    names("variance", "Classes.probabilities", "Classes.log_probability", "score_classes"): VARIANCE,
    "score_classes.classes": CLASSES,
    "score_classes.noise": number(0.1, least=0.0),
    "lengths": of(Kind(lambda: LENGTHS), admits=NONE, of_others=LENGTHS[1:], of_none=0 * LENGTHS),
    "Model.fit.inputs": INPUTS,
    "Model.fit.labels": of(
        LABELS,
        admits=("of numbers as text", "of numbers as text, nested lists", "of numbers as bytes"),
        fewer=LABELS[1:],
    ),
    "Model.kernel.inputs": of(INPUTS, admits=NONE, of_other_features=INPUTS[..., :2]),
}

MODEL = bpkr.Model(layers=(2,)).fit(INPUTS, LABELS)
ESTIMATE = [np.ones(())] * 6
FACE = Face(
    bpkr,
    KINDS,
    instances={
        "Architecture": ARCHITECTURE,
        "Classes": CLASSES,
        "Problem": PROBLEM,
        "Action": ACTION,
        "CompiledAction": lambda: bpkr.compile_action(ACTION),
        "FiniteWidthLaw": bpkr.finite_width_law(ARCHITECTURE),
        "KeyQueryHeads AbstractHeads": HEADS,
        "ProjectionHeads": bpkr.heads(query=KEY_QUERY, key=KEY_QUERY),
        "LayerSymbols": bpkr.LayerSymbols(1, Symbol("N_1", positive=True), Symbol("N_2", positive=True)),
        "Network": NETWORK,
        "Fluctuations": bpkr.Fluctuations(LIMIT, jax.tree.map(lambda u: u[None], LIMIT), None, np.zeros(())),
        "Model": MODEL,
        "MatrixFreeSaddle": bpkr.MatrixFreeSaddle(
            LIMIT, LIMIT, *ESTIMATE, {"samples": np.ones((3, 2)), "steps": (4, 3, 2), "residual": (1e-7,) * 3}
        ),
    },
    made="Action CompiledAction Data FiniteWidthLaw Fluctuations HeadCosts MatrixFreeSaddle Minima Network Prediction "
    "Saddle",
    untried={
        "Skip.gain": "the architecture checks it, and says in which layer it is",
        "Data.of_classes.features Data.of_classes.test_features": "they are checked against an architecture",
        "Problem.finite Problem.point Problem.test_features Problem.require_arrays": "the package's functions call it",
        "Model": "as scikit-learn asks, it stores its arguments, and fit checks them",
        "Model.get_params": "its argument changes nothing, and scikit-learn gives it",
        "Model.set_params": "they are keywords of the constructor",
        "Model.sweep": "fit and sweeps.sweep check their arguments",
        "search.options head_costs.options": "they are keywords, each checked by solve",
        "Newton.* AcceleratedSweeps.*": "Optimistix calls it with its own states",
        "AbstractLayer.* Attention.* Dense.* Skip.*": "the package calls it with the symbols of the layer",
    },
    given={
        "attention heads": ("key_query",),
        "solve": ("tolerance", "initial", "solver"),
    },
)
