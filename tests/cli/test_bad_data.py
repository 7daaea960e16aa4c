"""Data of every kind that is not finite real numbers, and every set of keys of [data]: used, or refused by name."""

from itertools import chain, combinations

import numpy as np
import pytest
import xarray as xr

from theorykit import bpkr, store
from theorykit.cli import data as module
from theorykit.cli.config import DataConfig
from theorykit.cli.data import read_data

ARCHITECTURE = bpkr.Architecture((2, 1), 10, temperature=0.2)
draw = np.random.default_rng(0)
ARRAYS = {
    "phi": draw.normal(size=(6, 2, 3)),
    "x": draw.normal(size=(6, 4, 3)),
    "y": np.sign(draw.normal(size=6)),
    "phi_test": draw.normal(size=(5, 2, 3)),
    "x_test": draw.normal(size=(5, 4, 3)),
    "y_test": np.ones(5),
    **{f"{name}{layer}": draw.normal(size=(heads, 3)) for name in "qk" for layer, heads in ((1, 2), (2, 1))},
    **{f"A{layer}": draw.normal(size=(6, heads, 4, 4)) for layer, heads in ((1, 2), (2, 1))},
    **{f"A{layer}_test": draw.normal(size=(5, heads, 4, 4)) for layer, heads in ((1, 2), (2, 1))},
    "lengths": np.array([4, 3, 2, 1, 4, 3]),
    "lengths_test": np.array([4, 3, 2, 1, 4]),
    **{f"{name}{layer}": draw.normal(size=(heads, 3, 3)) for name in "WQK" for layer, heads in ((1, 2), (2, 1))},
}
KEYS = {
    "features": "phi",
    "inputs": "x",
    "key_query": ("W1", "W2"),
    "query": ("Q1", "Q2"),
    "key": ("K1", "K2"),
    "query_bias": ("q1", "q2"),
    "key_bias": ("k1", "k2"),
    "attention": ("A1", "A2"),
    "mask": "lengths",
    "readout": "mean",
    "test_features": "phi_test",
    "test_inputs": "x_test",
    "test_attention": ("A1_test", "A2_test"),
    "test_mask": ("causal", "lengths_test"),
    "test_labels": "y_test",
}
SUBSETS = list(chain.from_iterable(combinations(KEYS, size) for size in range(len(KEYS) + 1)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    np.savez(path / "data.npz", **ARRAYS)
    return path


def features_of(tokens, attention, architecture, readout, real_tokens=None, layout=None):
    """In the place of path features, which take longer: as many, and others for every readout."""
    assert real_tokens is None or len(real_tokens) == len(tokens)
    return np.full((len(tokens), 2, 3), float(len(readout or "last")))


def test_every_set_of_keys_is_used_whole_or_refused(folder, monkeypatch):
    monkeypatch.setattr(bpkr, "path_features", features_of)
    monkeypatch.setattr(bpkr, "attention", lambda tokens, mask=None, layout=None, **heads: bpkr.heads(**heads).layers)
    admitted = 0
    for subset in SUBSETS:
        given = {name: KEYS[name] for name in subset}
        try:
            config = DataConfig("data.npz", "y", **given)
            data = read_data(config, ARCHITECTURE, folder)
        except ValueError as refusal:
            assert any(f"`{name}" in str(refusal) for name in KEYS) or "key_query" in str(refusal), refusal
            continue
        admitted += 1
        for name, value in given.items():
            if name == "readout":
                other = read_data(DataConfig("data.npz", "y", **{**given, name: "first"}), ARCHITECTURE, folder)
                assert not all(
                    np.array_equal(getattr(data, kind), getattr(other, kind))
                    for kind in ("features", "test_features")
                    if getattr(data, kind) is not None
                ), subset
                continue
            missing = "nowhere" if isinstance(value, str) else ("nowhere", *value[1:])
            with pytest.raises(ValueError, match="no array 'nowhere'"):
                read_data(DataConfig("data.npz", "y", **{**given, name: missing}), ARCHITECTURE, folder)
    assert len(SUBSETS) == 32768 and admitted == 183


WRONG = {
    "complex": (ARRAYS["y"] + 0j, "complex"),
    "dates": (ARRAYS["y"].astype(int).astype("datetime64[D]"), "dates"),
    "times": (ARRAYS["y"].astype(int).astype("timedelta64[D]"), "times"),
    "text": (ARRAYS["y"].astype(str), "text"),
    "bytes": (ARRAYS["y"].astype("S5"), "text"),
    "records": (np.array([(1, 2.0)] * 6, dtype=[("a", int), ("b", float)]), "records"),
    "objects": (np.array([None, 1, "a", [], {}, 1.0], dtype=object), "Python objects"),
    "numbers as objects": (ARRAYS["y"].astype(object), "Python objects"),
    "masked objects": (np.ma.masked_array(ARRAYS["y"].astype(object), mask=[True] * 6).filled(None), "Python objects"),
    "nan": (np.where(ARRAYS["y"] > 0, np.nan, 1.0), "not finite"),
    "infinite": (np.where(ARRAYS["y"] > 0, np.inf, 1.0), "not finite"),
    "infinite half": (np.where(ARRAYS["y"] > 0, np.inf, 1.0).astype(np.float16), "not finite"),
    "never written": (np.where(ARRAYS["y"] > 0, 9.969209968386869e36, 1.0), "never written"),
    "never written, single": (np.full(6, 9.969209968386869e36, dtype=np.float32), "never written"),
    "scalar": (np.array(1.0), "labels"),
    "two axes": (np.ones((6, 2)), "labels"),
    "too short": (np.ones(5), "labels"),
    "empty": (np.ones(0), "labels"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_an_array_that_is_not_of_finite_numbers_is_named_with_its_file(kind, tmp_path):
    array, told = WRONG[kind]
    np.savez(tmp_path / "data.npz", phi=ARRAYS["phi"], y=array)
    with pytest.raises(ValueError, match=told) as refusal:
        read_data(DataConfig("data.npz", "y", "phi"), ARCHITECTURE, tmp_path)
    if told != "labels":
        assert "the array 'y' in" in str(refusal.value) and "data.npz" in str(refusal.value)
    assert "pickle" not in str(refusal.value)


@pytest.mark.parametrize(
    "kind", ["bool", "int8", "uint8", "int64", "float16", "float32", "float64", ">f8", "longdouble"]
)
def test_numbers_of_every_kind_are_taken(kind, tmp_path):
    labels = np.array([1, 0, 1, 1, 0, 1]).astype(kind)
    np.savez(tmp_path / "data.npz", phi=ARRAYS["phi"], y=labels)
    data = read_data(DataConfig("data.npz", "y", "phi"), ARCHITECTURE, tmp_path)
    assert np.array_equal(data.labels, labels.astype(float))


def test_an_array_that_is_not_asked_for_may_be_anything(tmp_path):
    np.savez(tmp_path / "data.npz", phi=ARRAYS["phi"], y=ARRAYS["y"], notes=np.array([None, "a"], dtype=object))
    read_data(DataConfig("data.npz", "y", "phi"), ARCHITECTURE, tmp_path)


NETCDF = {
    "filled": (xr.Variable("example", ARRAYS["y"], encoding={"_FillValue": 1.0}), r"its _FillValue 1\.0"),
    "filled integers": (
        xr.Variable("example", ARRAYS["y"].astype(int), encoding={"_FillValue": 1}),
        "its _FillValue 1 ",
    ),
    "scaled and filled": (
        xr.Variable(
            "example", [1.0, 2, np.nan, 1, 1, 1], encoding={"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9}
        ),
        "its _FillValue -9",
    ),
    "dates": (xr.Variable("example", ARRAYS["y"].astype(int), {"units": "days since 2000-01-01"}), "dates"),
    "times": (xr.Variable("example", ARRAYS["y"].astype(int), {"units": "days", "dtype": "timedelta64[ns]"}), "times"),
    "text": (xr.Variable("example", ["a", "b", "c", "d", "e", "f"]), "text"),
    "dates of another world": (
        xr.Variable("example", ARRAYS["y"].astype(int), {"units": "days since 2000-01-01", "calendar": "360_day"}),
        "Python objects|sound|read as",
    ),
}


@pytest.mark.parametrize("kind", NETCDF)
def test_missing_values_and_dates_of_netcdf_are_named(kind, tmp_path):
    variable, told = NETCDF[kind]
    path = tmp_path / "data.nc"
    axes = ("example", "path", "feature")
    xr.Dataset({"phi": (axes, ARRAYS["phi"]), "y": variable}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(ValueError, match=told) as refusal:
        read_data(DataConfig("data.nc", "y", "phi"), ARCHITECTURE, tmp_path)
    assert "data.nc" in str(refusal.value)


CONTENTS = {
    "empty": b"",
    "text": b"1 2 3\n4 5 6\n",
    "a pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00]\x94(K\x01K\x02K\x03e.",
    "noise": np.random.default_rng(1).bytes(3000),
    "half a zip": b"PK\x03\x04" + bytes(200),
    "half an HDF5": b"\x89HDF\r\n\x1a\n" + bytes(200),
    "netCDF 3": b"CDF\x01" + bytes(100),
    "TOML": b"[data]\n",
}


@pytest.mark.parametrize("ending", [".npz", ".nc"])
@pytest.mark.parametrize("content", CONTENTS)
def test_a_file_of_another_kind_is_named(content, ending, tmp_path):
    path = tmp_path / f"data{ending}"
    path.write_bytes(CONTENTS[content])
    with pytest.raises(
        ValueError, match=rf"data\{ending} cannot be read as .* may be damaged, or have another format"
    ) as refusal:
        read_data(DataConfig(path.name, "y", "phi"), ARCHITECTURE, tmp_path)
    assert "pickle" not in str(refusal.value) and "\n" not in str(refusal.value)
    if content == "netCDF 3" and ending == ".nc":
        assert "version 3" in str(refusal.value)


def test_an_npy_file_in_the_place_of_an_archive_is_told_apart(tmp_path):
    with (tmp_path / "data.npz").open("wb") as file:
        np.save(file, ARRAYS["y"])
    with pytest.raises(ValueError, match=r"a single array instead of an npz archive: write it with numpy\.savez"):
        read_data(DataConfig("data.npz", "y", "phi"), ARCHITECTURE, tmp_path)


def corrupted(content: bytes, seed: int, number: int = 150) -> list[bytes]:
    """Cut at every tenth byte, and with single bits, at random places, turned over."""
    cut = [content[:length] for length in range(0, len(content), max(10, len(content) // number))]
    random = np.random.default_rng(seed)
    flipped = []
    for _ in range(number):
        changed = bytearray(content)
        changed[random.integers(len(content))] ^= 1 << random.integers(8)
        flipped.append(bytes(changed))
    return cut + flipped


@pytest.mark.parametrize("kind", ["npz", "compressed npz", "result", "netCDF of another program"])
def test_a_damaged_file_is_refused_or_read_right(kind, tmp_path, capfd):
    """Where the container has checksums, numbers that are read are those that were written."""
    path = tmp_path / ("data.npz" if kind.endswith("npz") else "data.nc")
    arrays = {"phi": ARRAYS["phi"], "y": ARRAYS["y"]}
    dataset = xr.Dataset({"phi": (("a", "b", "c"), arrays["phi"]), "y": ("a", arrays["y"])})
    if kind == "result":
        store.write(dataset, path)
    elif path.suffix == ".nc":
        dataset.to_netcdf(path, engine="h5netcdf")
    else:
        (np.savez if kind == "npz" else np.savez_compressed)(path, **arrays)
    content, read, tried = path.read_bytes(), 0, 0
    for broken in corrupted(content, 0, 50 if "another" in kind else 150):
        tried += 1
        path.write_bytes(broken)
        try:
            found = module.read_arrays(path, ["phi", "y"])
        except ValueError as refusal:
            assert path.name in str(refusal) and "\n" not in str(refusal) and "pickle" not in str(refusal)
            continue
        read += 1
        # netCDF has no checksums
        assert "another" in kind or all(np.array_equal(found[array], arrays[array]) for array in arrays)
    assert read < 100 and tried - read > 50
    assert capfd.readouterr() == ("", "")
