"""Attention, masks and biases of [data] give what `bpkr` gives for the same arrays."""

import msgspec
import numpy as np
import pytest

from theorykit import bpkr, checkpoints
from theorykit.cli.config import DataConfig
from theorykit.cli.data import read_data

ARCHITECTURE = bpkr.Architecture((2, 1), 10, temperature=0.2)
draw = np.random.default_rng(0)
ARRAYS = {
    "x": draw.normal(size=(6, 4, 3)),
    "y": np.sign(draw.normal(size=6)),
    "x_test": draw.normal(size=(5, 4, 3)),
    "lengths": np.array([4, 3, 2, 1, 4, 3]),
    "real_test": np.arange(4) < np.array([2, 4, 4, 1, 3])[:, None],
    **{f"{name}{layer}": draw.normal(size=(heads, 2, 3)) for name in "QK" for layer, heads in ((1, 2), (2, 1))},
    **{f"b{layer}": draw.normal(size=(heads, 2)) for layer, heads in ((1, 2), (2, 1))},
}
HEADS = {"query": ("Q1", "Q2"), "key": ("K1", "K2"), "query_bias": ("b1", "b2")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    np.savez(path / "data.npz", **ARRAYS)
    return path


def features(inputs, mask, real, **options):
    heads = {key: [ARRAYS[name] for name in names] for key, names in HEADS.items()}
    attention = bpkr.attention(ARRAYS[inputs], **heads, mask=mask, real_tokens=real)
    return bpkr.path_features(ARRAYS[inputs], attention, ARCHITECTURE, real_tokens=real, **options)


def test_masks_and_biases_are_those_of_bpkr(folder):
    of_test = {"test_inputs": "x_test", "test_mask": ("causal", "real_test")}
    config = DataConfig("data.npz", "y", inputs="x", mask=("causal", "lengths"), readout="mean", **HEADS, **of_test)
    data = read_data(config, ARCHITECTURE, folder)
    lengths, real = ARRAYS["lengths"], ARRAYS["real_test"]
    expected = features("x", "causal", lengths, readout="mean")
    np.testing.assert_array_equal(data.features, expected)
    expected = features("x_test", "causal", real, readout="mean")
    np.testing.assert_array_equal(data.test_features, expected)


def test_a_causal_mask_holds_for_test_examples_too(folder):
    config = DataConfig("data.npz", "y", inputs="x", mask="causal", **HEADS, test_inputs="x_test")
    data = read_data(config, ARCHITECTURE, folder)
    np.testing.assert_array_equal(data.features, features("x", "causal", None))
    np.testing.assert_array_equal(data.test_features, features("x_test", "causal", None))


def test_attention_itself_is_read(tmp_path):
    heads = {key: [ARRAYS[name] for name in names] for key, names in HEADS.items()}
    maps = bpkr.attention(ARRAYS["x"], **heads, real_tokens=ARRAYS["lengths"])
    np.savez(tmp_path / "data.npz", **ARRAYS, A1=maps[0], A2=maps[1])
    config = DataConfig("data.npz", "y", inputs="x", attention=("A1", "A2"), mask="lengths")
    data = read_data(config, ARCHITECTURE, tmp_path)
    np.testing.assert_array_equal(data.features, features("x", None, ARRAYS["lengths"]))


def test_attention_and_masks_of_torch_are_read_with_their_layout(tmp_path):
    causal = np.tri(4, dtype=bool)[None, None]
    maps = bpkr.attention(ARRAYS["x"], **{key: [ARRAYS[name] for name in names] for key, names in HEADS.items()})
    torch_maps = {f"A{i}": np.swapaxes(layer, 2, 3) for i, layer in enumerate(maps)}
    np.savez(tmp_path / "data.npz", **ARRAYS, triangle=causal, **torch_maps)
    for given, expected in (
        ({"mask": "triangle", **HEADS}, features("x", "causal", None)),
        ({"attention": ("A0", "A1")}, features("x", None, None)),
    ):
        config = DataConfig("data.npz", "y", inputs="x", attention_layout="torch", **given)
        np.testing.assert_array_equal(read_data(config, ARCHITECTURE, tmp_path).features, expected)
        with pytest.raises(ValueError, match='layout="torch"'):
            read_data(DataConfig("data.npz", "y", inputs="x", **given), ARCHITECTURE, tmp_path)
    with pytest.raises(ValueError, match="`attention_layout`, but no `attention` and no `mask`"):
        DataConfig("data.npz", "y", inputs="x", attention_layout="torch", **HEADS)


def test_heads_of_a_checkpoint_act_after_their_norm(tmp_path):
    arrays = {"h.0.attn.c_attn.weight": draw.normal(size=(3, 9)), "h.0.attn.c_attn.bias": draw.normal(size=9)}
    arrays |= {"h.0.ln_1.weight": np.full(3, 2.0), "h.0.ln_1.bias": np.ones(3)}
    np.savez(tmp_path / "model.npz", **arrays)
    np.savez(tmp_path / "data.npz", **ARRAYS)
    one = bpkr.Architecture((3, bpkr.Dense()), 10, temperature=0.2)
    config = DataConfig("data.npz", "y", inputs="x", checkpoint="model.npz", layer=0, mask="lengths", readout="mean")
    data = read_data(config, one, tmp_path)
    heads = checkpoints.read_heads(arrays, layer=0, heads=3)
    maps, lengths = heads.attention(ARRAYS["x"], real_tokens=ARRAYS["lengths"]), ARRAYS["lengths"]
    expected = bpkr.path_features(heads.normalise(ARRAYS["x"]), [maps], one, "mean", real_tokens=lengths)
    np.testing.assert_array_equal(data.features, expected)
    with pytest.raises(ValueError, match=r"but 2 layers of \[architecture\] have heads"):
        read_data(config, ARCHITECTURE, tmp_path)
    # one of two models, whose tokens attend to later ones too
    two = {f"{model}.{name}": factor * a for model, factor in (("a", 1), ("b", 2)) for name, a in arrays.items()}
    np.savez(tmp_path / "model.npz", **two)
    of_second = read_data(msgspec.structs.replace(config, prefix="b.", causal=False), one, tmp_path)
    heads = checkpoints.read_heads(two, layer=0, heads=3, prefix="b.", causal=False)
    maps = heads.attention(ARRAYS["x"], real_tokens=lengths)
    expected = bpkr.path_features(heads.normalise(ARRAYS["x"]), [maps], one, "mean", real_tokens=lengths)
    np.testing.assert_array_equal(of_second.features, expected)
    assert not np.allclose(of_second.features, data.features)
    with pytest.raises(ValueError, match=r"select one by the beginning of its names, such as prefix='a\.'"):
        read_data(config, one, tmp_path)
