"""Data on disk: the worker reads every format, to the sums of the arrays in memory; what cannot be read is named."""

import os
import pickle
import socket
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from tests.clusters import dask_client
from tests.marks import slow
from theorykit.bpkr import Data
from theorykit.bpkr.data.reading import File, Piece, rows_of
from theorykit.workers import local_workers

from ..cases import changed, refused
from .test_statistics import EXAMPLES, assert_identical, random_data

CHUNK = 7
# of uneven files, one of them shorter than a chunk
CUTS = (5, 31)
NAMES = ("features", "labels")
DIMS = ("examples", "paths", "features")


def dataset(features, labels) -> xr.Dataset:
    return xr.Dataset({"features": (DIMS, features), "labels": (DIMS[: labels.ndim - 1 or 1], labels)})


SUFFIXES = {"npz": ".npz", "compressed npz": ".npz", "hdf5": ".h5", "netcdf": ".nc", "zarr": ".zarr"}
KINDS = ("npy", *SUFFIXES)


def write(kind: str, path: Path, features, labels):
    """A file of this format, or a pair of npy files."""
    if kind == "npy":
        pair = tuple(path.with_name(f"{path.name}-{name}.npy") for name in NAMES)
        for each, array in zip(pair, (features, labels), strict=True):
            np.save(each, array)
        return pair
    path = path.with_suffix(SUFFIXES[kind])
    if kind == "npz":
        np.savez(path, features=features, labels=labels)
    elif kind == "compressed npz":
        np.savez_compressed(path, features=np.asfortranarray(features), labels=labels)
    elif kind == "hdf5":
        with h5py.File(path, "w") as file:
            file["features"], file["labels"] = features, labels
    elif kind == "netcdf":
        dataset(features, labels).transpose("features", "examples", "paths").to_netcdf(path)
    else:
        pytest.importorskip("zarr")
        dataset(features, labels).to_zarr(path, zarr_format=3, consolidated=False)
    return path


def written(kind: str, folder: Path, features, labels) -> list:
    """Files of a format, each with a part of the data."""
    parts = zip(np.split(features, CUTS), np.split(labels, CUTS), strict=True)
    return [write(kind, folder / f"part{number}", *part) for number, part in enumerate(parts)]


class Apart(Executor):
    """Does at once what it is told, by what another process would be told."""

    def submit(self, function, /, *arguments, **options):
        function, arguments = pickle.loads(pickle.dumps((function, arguments)))
        done = Future()
        try:
            done.set_result(function(*arguments, **options))
        except Exception as error:
            done.set_exception(error)
        return done


@pytest.fixture(scope="module", params=["apart", *slow(["processes"])])
def workers(request):
    if request.param == "apart":
        yield Apart()
        return
    with local_workers(2) as pool:
        yield pool


def in_memory(features, labels):
    """The statistics of the files that `written` writes: chunks of each, and then the files."""
    parts = zip(np.split(features, CUTS), np.split(labels, CUTS), strict=True)
    first, *others = [
        Data.of_arrays(*part, chunk=CHUNK, batches_per_task=EXAMPLES, progress=False).moments for part in parts
    ]
    return sum(others, start=first)


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_every_format_are_read_by_workers(kind, tmp_path, workers, monkeypatch):
    features, labels = random_data(1)
    files = written(kind, tmp_path, features.astype(np.float32), labels)
    monkeypatch.chdir(tmp_path)
    relative = [
        tuple(path.relative_to(tmp_path) for path in each) if isinstance(each, tuple) else each.relative_to(tmp_path)
        for each in files
    ]
    expected = in_memory(features.astype(np.float32), labels)
    for executor in (None, workers):
        assert_identical(Data.of_files(relative, chunk=CHUNK, executor=executor, progress=False).moments, expected)


def test_a_file_is_never_in_memory_whole(tmp_path):
    features, labels = random_data(2)
    for kind in ("npy", "npz", "hdf5", "netcdf"):
        (tmp_path / kind).mkdir()
        (file,) = [write(kind, tmp_path / kind / "all", features, labels)]
        paths = tuple(map(str, file if isinstance(file, tuple) else (file,)))
        lengths = [len(pair[0].read()) for _, pair in File(paths, NAMES, CHUNK).parts()]
        assert lengths == [CHUNK] * (EXAMPLES // CHUNK) + [EXAMPLES % CHUNK]


def mapped(path: Path, array) -> np.memmap:
    np.save(path, array)
    return np.load(path, mmap_mode="r")


@pytest.mark.parametrize("step", [slice(None), slice(3, None), slice(None, None, -2), slice(1, 20, 3)], ids=str)
def test_every_view_of_a_memory_map_is_found_by_another_process(step, tmp_path):
    array = mapped(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(30, 6, 5)))
    for view in (array[step], array[step][:, ::-1, 1:], array[step].transpose(0, 2, 1), np.asarray(array)[step]):
        rows = rows_of(view, slice(2, 6))
        assert isinstance(rows, Piece)
        there = pickle.dumps(rows)
        assert len(there) < 1000
        np.testing.assert_array_equal(pickle.loads(there).read(), view[2:6])


def test_arrays_on_disk_are_read_by_workers(tmp_path, workers):
    features, labels = random_data(3, outputs=2)
    expected = Data.of_arrays(features, labels, chunk=CHUNK, progress=False).moments
    maps = [mapped(tmp_path / f"{name}.npy", array) for name, array in zip(NAMES, (features, labels), strict=True)]
    with h5py.File(write("hdf5", tmp_path / "data", features, labels)) as file:
        for arrays in (maps, [file["features"], file["labels"]], [file["features"], labels]):
            pieces = [rows_of(array, slice(0, 9)) for array in arrays]
            assert isinstance(pieces[0], Piece) and len(pickle.dumps(pieces[0])) < 1000
            assert_identical(Data.of_arrays(*arrays, chunk=CHUNK, executor=workers, progress=False).moments, expected)


@pytest.mark.parametrize("chunks", [None, *slow([{"examples": 20, "features": 2}])], ids=["lazy", "dask"])
@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_data_arrays_are_read_by_workers(kind, chunks, tmp_path, workers):
    features, labels = random_data(4)
    # the writer makes no consolidated metadata, of whose absence xarray warns
    options = {"engine": "zarr", "consolidated": False} if kind == "zarr" else {}
    with xr.open_dataset(write(kind, tmp_path / "data", features, labels), chunks=chunks, **options) as opened:
        arrays = (opened["features"], opened["labels"])
        expected = Data.of_arrays(features, labels, chunk=CHUNK, progress=False).moments
        for executor in (None, workers):
            found = Data.of_arrays(*arrays, chunk=CHUNK, executor=executor, progress=False).moments
            assert_identical(found, expected)
        if chunks:
            assert_identical(Data.of_arrays(*(a.data for a in map(in_layout, arrays)), chunk=CHUNK).moments, expected)


def in_layout(array: xr.DataArray) -> xr.DataArray:
    return array.transpose(*DIMS[: array.ndim])


def test_zarr_arrays_are_read_by_workers(tmp_path, workers):
    zarr = pytest.importorskip("zarr")
    features, labels = random_data(5)
    group = zarr.open_group(write("zarr", tmp_path / "data", features, labels), mode="r")
    memory = zarr.array(features, chunks=(9, 2, 3))
    expected = Data.of_arrays(features, labels, chunk=CHUNK).moments
    assert isinstance(rows_of(group["features"], slice(3)), Piece) and not isinstance(rows_of(memory, slice(3)), Piece)
    for array in (group["features"], memory):
        assert_identical(Data.of_arrays(array, group["labels"], chunk=CHUNK, executor=workers).moments, expected)


def test_dimensions_and_coordinates_are_those_that_they_are_called():
    features, labels = random_data(6)
    data = dataset(features, labels)
    expected = Data.of_arrays(features, labels).moments
    assert_identical(Data.of_arrays(data["features"].transpose(), data["labels"]).moments, expected)
    renamed = data["features"].rename(examples="trial", paths="path", features="column")
    assert_identical(Data.of_arrays(renamed, data["labels"]).moments, expected)
    with refused("features must have the axes (examples, paths, features), got (features, trial, paths)"):
        Data.of_arrays(data["features"].rename(examples="trial").transpose("features", "trial", "paths"), labels)
    numbered = data.assign_coords(examples=np.arange(EXAMPLES))
    assert_identical(Data.of_arrays(numbered["features"], numbered["labels"]).moments, expected)
    with refused("features and labels have different coordinates along examples: align them first"):
        Data.of_arrays(numbered["features"], numbered["labels"][::-1])


def test_what_may_still_be_written_is_read_here(tmp_path, workers):
    features, labels = random_data(7)
    array = np.lib.format.open_memmap(tmp_path / "a.npy", "w+", shape=features.shape)
    array[:] = features
    private = np.load(tmp_path / "a.npy", mmap_mode="c")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = features
        for each in (array, private, file["a"]):
            found = Data.of_arrays(each, labels, executor=workers, progress=False).moments
            assert_identical(found, Data.of_arrays(features, labels).moments)


def test_where_values_are_in_memory_changes_no_digit():
    features, labels = random_data(12)
    expected = Data.of_arrays(features, labels).moments
    between = np.frombuffer(b"0" + features.tobytes(), np.float64, offset=1).reshape(features.shape)
    assert not between.flags.aligned
    for other in (np.asfortranarray(features), features[::-1].copy()[::-1], between):
        assert_identical(Data.of_arrays(other, labels).moments, expected)


def test_a_pass_over_files_goes_on_where_it_ended(tmp_path):
    features, labels = random_data(8)
    files, path = written("npz", tmp_path, features, labels), tmp_path / "sums.npz"
    expected = in_memory(features, labels)
    whole = files[2].read_bytes()
    files[2].write_bytes(whole[:500])
    with refused("part2.npz cannot be read"):
        Data.of_files(files, chunk=CHUNK, checkpoint=path, progress=False)
    files[2].write_bytes(whole)
    with np.load(path) as stored:
        assert stored["examples"] == CUTS[1]
    assert_identical(Data.of_files(files, chunk=CHUNK, checkpoint=path, progress=False).moments, expected)
    with pytest.raises(FileExistsError, match="differs in chunk: 7 there, 8 now"):
        Data.of_files(files, chunk=8, checkpoint=path, progress=False)
    write("npz", tmp_path / "part2", changed(features[CUTS[1] :], (3, 1, 1), 0.5), labels[CUTS[1] :])
    with refused(f"{files[2]} differs from the data for which the checkpoint"):
        Data.of_files(files, chunk=CHUNK, checkpoint=path, progress=False)


def test_a_file_that_a_worker_does_not_see_is_named_with_the_host(tmp_path, workers):
    features, labels = random_data(9)
    array = mapped(tmp_path / "a.npy", features)
    (tmp_path / "a.npy").unlink()
    wanted = f"{tmp_path / 'a.npy'} does not exist for process [0-9]+ on {socket.gethostname()}: every worker"
    with pytest.raises(FileNotFoundError, match=wanted):
        Data.of_arrays(array, labels, executor=workers, progress=False)
    with pytest.raises(FileNotFoundError, match=wanted.replace("a.npy", "b.npz")):
        Data.of_files([tmp_path / "b.npz"], executor=workers, progress=False)


@pytest.mark.slow
def test_a_lazy_array_whose_file_a_worker_does_not_see_is_named(tmp_path):
    opened = xr.open_dataset(write("netcdf", tmp_path / "c", *random_data(9)))
    (tmp_path / "c.nc").unlink()
    with local_workers(1) as pool, pytest.raises(FileNotFoundError, match=r"c\.nc does not exist for process"):
        Data.of_arrays(opened["features"], opened["labels"], executor=pool, progress=False)


def broken_files(folder: Path):
    """Files that are refused, and what of them is said."""
    features, labels = random_data(10)
    whole = {kind: write(kind, folder / "whole", features, labels) for kind in ("npy", "npz", "hdf5")}
    for kind, path in (*whole.items(), ("pair", whole["npy"][0])):
        if kind != "npy":
            cut = path.with_name(f"cut{path.name}")
            cut.write_bytes(path.read_bytes()[: os.path.getsize(path) // 2])
            yield (cut, whole["npy"][1]) if kind == "pair" else cut, f"{cut} cannot be read on {socket.gethostname()} ("
    bits = bytearray(whole["npz"].read_bytes())
    bits[len(bits) // 2] ^= 1
    (folder / "flipped.npz").write_bytes(bits)
    yield folder / "flipped.npz", "(BadZipFile: Bad CRC-32"
    yield write("npz", folder / "nan", changed(features, (9, 0, 0), np.nan), labels), "nan.npz, from example 7 on: "


def test_files_that_cannot_be_summed_are_named(tmp_path):
    good, tried = write("npz", tmp_path / "good", *random_data(0)), 0
    for bad, message in broken_files(tmp_path):
        tried += 1
        with ThreadPoolExecutor(1) as pool:
            for executor, files_per_task in ((None, 2), (pool, 1)):
                options = {"executor": executor, "files_per_task": files_per_task, "progress": False}
                with refused(message):
                    Data.of_files([good, bad], chunk=CHUNK, **options)
    assert tried == 5


@pytest.mark.slow
def test_what_a_cluster_reads_and_what_it_holds_are_summed(tmp_path):
    features, labels = random_data(11)
    expected = Data.of_arrays(features, labels, chunk=CHUNK, progress=False).moments
    files = written("netcdf", tmp_path, features, labels)
    options = {"chunk": CHUNK, "progress": False}
    with dask_client(2) as client:
        assert_identical(Data.of_files(files, executor=client, **options).moments, in_memory(features, labels))
        with xr.open_mfdataset(files, combine="nested", concat_dim="examples") as opened:
            for data in (opened, opened.persist()):
                for executor in (None, client):
                    found = Data.of_arrays(data["features"], data["labels"], executor=executor, **options).moments
                    assert_identical(found, expected)
