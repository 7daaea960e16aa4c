"""Features sharded over examples: the results of one device, nothing brought together, a share of the memory each."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from theorykit import bpkr
from theorykit.bpkr.data.statistics import _summed_by_blocks
from theorykit.bpkr.matrix_free import solver
from theorykit.bpkr.matrix_free.whitened_kernel import Kernel, WhitenedKernel, _gram, tall_qr
from theorykit.sharding import over_examples as sharded_over_examples

from .devices import free_address, over_examples, process_of_devices, processes_together

PAGE = Path(__file__).parent.parent / "docs" / "parallel.md"
EXAMPLES, FEATURES = 400, 8
SEED = 5
OPTIONS = bpkr.MatrixFree(jax.random.key(SEED), progress=False, probes=16, rank=10, repeats=3)
# sums over examples in other orders: about machine precision times the number of examples, or of products
ROUNDING = 1e-12


@pytest.fixture(scope="module")
def four_devices():
    with process_of_devices(4) as call:
        yield call


@pytest.fixture(scope="module")
def two_processes():
    with processes_together(2) as call:
        yield call


def model(outputs: int = 1) -> bpkr.Architecture:
    return bpkr.Architecture(layers=(2,), widths=20, temperature=0.3, outputs=outputs)


def data(outputs: int = 1, examples: int = EXAMPLES, features: int = FEATURES) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    labels = draw.normal(size=(examples, outputs)[: 1 if outputs == 1 else 2])
    return draw.normal(size=(examples, 2, features)) / 3, labels


def moments(features: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    flat, columns = features.reshape(len(features), -1), labels.reshape(len(labels), -1)
    sums = {"gram": flat.T @ flat, "projection": flat.T @ columns, "label_square": np.sum(columns**2)}
    return {**sums, "examples": len(features)}


def numbers_of(statistics: bpkr.FeatureStatistics) -> dict[str, np.ndarray]:
    return {name: np.asarray(getattr(statistics, name)) for name in ("gram", "projection", "label_square", "examples")}


def refused(call, *arguments, **options) -> str:
    with pytest.raises((TypeError, ValueError)) as raised:
        call(*arguments, **options)
    return f"{raised.type.__name__}: {raised.value}"


def statistics_of_layouts() -> dict[str, dict[str, np.ndarray]]:
    """Over one axis of two, over both, on all devices, on one; under a mesh of explicit axes; in single precision."""
    features, labels = data(2)
    only = NamedSharding(jax.make_mesh((1,), ("examples",), devices=jax.devices()[:1]), PartitionSpec("examples"))
    mesh = jax.make_mesh((2, 2), ("x", "y"))
    layouts = {"one axis": PartitionSpec("x"), "both": PartitionSpec(("x", "y")), "whole": PartitionSpec()}
    arrays = {name: jax.device_put(features, NamedSharding(mesh, spec)) for name, spec in layouts.items()}
    arrays |= {"one device": jnp.asarray(features), "a mesh of one": jax.device_put(features, only)}
    arrays |= {"single": arrays["both"].astype(np.float32)}
    found = {name: numbers_of(bpkr.Data.of_devices(array, labels).moments) for name, array in arrays.items()}
    for name, outputs in (("one output", 1), ("labels too", 2)):
        found[name] = numbers_of(bpkr.Data.of_devices(*over_examples(*data(outputs))).moments)
    with jax.set_mesh(mesh):
        found["explicit"] = numbers_of(bpkr.Data.of_devices(arrays["both"], labels).moments)
    return found


def refusals() -> dict[str, str]:
    features, labels = over_examples(*data())
    mesh = jax.make_mesh((2, 2), ("x", "y"))
    by_paths, by_both = (
        jax.device_put(features, NamedSharding(mesh, PartitionSpec(*spec))) for spec in ((None, "x"), ("x", None, "y"))
    )
    wrong = np.array(data()[0])
    wrong[301, 1, 2] = np.inf
    (wrong,) = over_examples(wrong)
    whole, sums = data()[0], bpkr.Data.of_devices
    return {
        "by paths": refused(sums, by_paths, labels),
        "by both": refused(bpkr.Problem, model(), bpkr.Data(by_both)),
        "wrong": refused(sums, wrong, labels),
        "wrong too": refused(bpkr.Problem, model(), bpkr.Data(wrong, labels)),
        "complex": refused(sums, features + 0j, labels),
        "too large": refused(sums, features * 1e200, labels),
        "fewer labels": refused(sums, features, data()[1][1:]),
        "labels alone": refused(sums, jnp.asarray(whole), labels),
        "slices": refused(bpkr.Data.of_arrays, features, labels, progress=False),
        "dense": refused(bpkr.solve, model(), bpkr.Data(features, labels)),
        "indivisible": refused(jax.device_put, whole[1:], features.sharding),
    }


REFUSALS = {
    "by paths": "ValueError: features of shape .* must be sharded only over examples, its first axis",
    "by both": "ValueError: features of shape .* must be sharded only over examples, its first axis",
    "wrong": r"ValueError: features is not finite in 1 entry, the first inf at index \(301, 1, 2\)",
    "wrong too": r"ValueError: features is not finite in 1 entry, the first inf at index \(301, 1, 2\)",
    "complex": "TypeError: features must be an array of real numbers",
    "too large": "ValueError: products of features and labels exceed the range",
    "fewer labels": "ValueError: labels has 399 examples, features has 400",
    "labels alone": "ValueError: labels are sharded over devices, but features are not",
    "slices": r"ValueError: features are sharded over devices: use bpkr\.Data\.of_devices",
    "dense": "ValueError: features of shape .* are sharded over 4 devices, but the dense solver factorises",
    "indivisible": "ValueError: .*divi",
}


@pytest.mark.slow
def test_statistics_do_not_depend_on_the_layout(four_devices):
    for layout, found in four_devices(statistics_of_layouts).items():
        rounding = 1e-5 if layout == "single" else ROUNDING
        for name, value in moments(*data(1 if layout == "one output" else 2)).items():
            np.testing.assert_allclose(found[name], value, rtol=rounding, atol=rounding, err_msg=layout)


def test_sharded_arrays_that_cannot_be_meant_are_refused(four_devices):
    found = four_devices(refusals)
    assert {name for name, text in found.items() if not re.match(REFUSALS[name], text)} == set(), found


def energies(outputs: int) -> dict[str, np.ndarray]:
    """Of features sharded over all devices there are."""
    features, labels = over_examples(*data(outputs))
    return energies_of(outputs, features, labels)


def energies_of(outputs: int, features, labels) -> dict[str, np.ndarray]:
    """The estimate of the energy at the Gaussian-process limit, and the saddle point, by the same probes everywhere."""
    problem = bpkr.Problem(model(outputs), bpkr.Data(features, labels))
    found = bpkr.estimate_energy(problem, bpkr.gp_limit(problem.architecture), OPTIONS)
    saddle = bpkr.solve(problem, solver=OPTIONS)
    numbers = {name: getattr(found, name) for name in ("value", "standard_error", "log_determinant", "misfit")}
    numbers |= {"gradient": found.slopes.gradient, "error": found.error(), "action": saddle.action}
    return {name: np.asarray(value) for name, value in {**numbers, "u1": saddle.order_parameters.matrices[0]}.items()}


def assert_same_energies(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, value in expected.items():
        # saddle points end where steps change a coordinate by less than 1e-6
        tolerance = 1e-5 if name in ("action", "u1") else 1e-9
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=1e-8, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [1, 2])
def test_energies_and_saddle_points_are_those_of_one_device(four_devices, outputs):
    found = four_devices(energies, outputs)
    assert_same_energies(found, energies_of(outputs, *data(outputs)))
    exact = bpkr.evaluate(bpkr.Problem(model(outputs), bpkr.Data(*data(outputs))), bpkr.gp_limit(model(outputs))).energy
    assert abs(found["value"] - exact) < found["error"]


def shares(examples: int) -> dict[str, tuple[int, ...]]:
    """Of each compiled function the largest array that devices gather, and the bytes that one of them needs."""
    features, labels = data(2, examples)
    one = compiled_for(features, labels)
    (features,) = over_examples(features)
    return {name: (*share, one[name][1]) for name, share in compiled_for(features, labels).items()}


def compiled_for(features, labels) -> dict[str, tuple[int, int]]:
    held = solver.operands_of(bpkr.Problem(model(2), bpkr.Data(features, labels)))
    first, key, probes = bpkr.gp_limit(model(2)).matrices[0], OPTIONS.key, solver.random_probes(OPTIONS, held)
    gradients = lx.CG(rtol=0.0, atol=1e-6, norm=jnp.linalg.norm, max_steps=100)
    preconditioner, of_labels = solver._of_labels(held, first, key, 10, gradients)
    whitened = WhitenedKernel(Kernel(held.bound, held.design, first), *preconditioner)
    lowered = {
        "labels": lowered_of(solver._of_labels, held, first, key, 10, gradients),
        "probes": lowered_of(solver._with_probes, whitened, held.path_gram, of_labels, probes, 20, 8),
        "gram": lowered_of(_gram, held.design.features, 64, held.design.sharding),
    }
    compiled = {name: each.compile().compiled for name, each in lowered.items()}
    flat = (held.design.features, held.labels.reshape(len(features), -1))
    compiled["statistics"] = _summed_by_blocks.lower(*flat, 64, held.design.sharding).compile()
    return {name: (largest_gathered(each.as_text()), bytes_of(each)) for name, each in compiled.items()}


def lowered_of(function, *arguments):
    """The program of a function that `theorykit.jit` has wrapped."""
    return eqx.filter_jit(inspect.unwrap(function)).lower(*arguments)


def bytes_of(compiled) -> int:
    """Of what comes in, what goes out, and what is between, on one device."""
    memory = compiled.memory_analysis()
    return memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes


def largest_gathered(text: str) -> int:
    """Entries of the largest array that one device has from others otherwise than as a sum."""
    moves = r"= (?P<type>.*?) (?:all-gather|all-to-all|collective-permute|collective-broadcast)(?:-start)?\("
    shapes = [shape for found in re.finditer(moves, text) for shape in re.findall(r"\[([\d,]*)\]", found["type"])]
    return max((int(np.prod([int(size) for size in shape.split(",") if size])) for shape in shapes), default=0)


@pytest.mark.slow
def test_each_device_has_its_share_and_nothing_is_gathered(four_devices):
    examples = 20_000
    for name, (gathered, bytes_here, bytes_of_one) in four_devices(shares, examples).items():
        # R of the preconditioner's QR: as many rows and columns as its rank, of each of four devices
        assert gathered <= 4 * 10 * 10, name
        assert bytes_here < 0.27 * bytes_of_one, name


def test_gathers_are_seen():
    text = "%g = (f64[5]{0}, f64[20,3]{1,0}) all-gather-start(%x), dimensions={0}\n %y = f64[9]{0} all-reduce(%z)"
    assert largest_gathered(text) == 60


def factors(rows: int) -> tuple[np.ndarray, ...]:
    """Q and R of badly conditioned columns, of which every device has some rows."""
    columns = sharded_over_examples("columns", *over_examples(badly_conditioned(rows)))
    found = jax.jit(tall_qr, static_argnums=1)(columns, columns.sharding)
    return tuple(map(np.asarray, found))


def badly_conditioned(rows: int) -> np.ndarray:
    draw = np.random.default_rng(2)
    return draw.normal(size=(rows, 6)) * np.logspace(0, -12, 6) @ draw.normal(size=(6, 6))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [8, 60])
def test_the_qr_of_many_rows_is_that_of_each_devices_rows_first(four_devices, rows):
    """Also where a device has fewer rows than there are columns."""
    array, (q, r) = badly_conditioned(rows), four_devices(factors, rows)
    np.testing.assert_allclose(q.T @ q, np.eye(6), atol=1e-14)
    np.testing.assert_allclose(q @ r, array, atol=1e-14)
    np.testing.assert_array_equal(np.tril(r, -1), 0)


def parts(outputs: int) -> dict[str, np.ndarray]:
    """What a process of several has in the end: all results, and its own part of the predictions."""
    features, labels = over_examples(*data(outputs))
    sums = bpkr.Data.of_devices(features, labels).moments
    saddle = bpkr.solve(model(outputs), bpkr.Data(moments=sums))
    prediction = bpkr.predict(bpkr.Problem(model(outputs), bpkr.Data(moments=sums)), saddle, features)
    (own,) = (shard for shard in prediction.mean.addressable_shards)
    beyond = refused(bpkr.path_features, features, features, model(outputs))
    return {
        **numbers_of(sums),
        **energies_of(outputs, features, labels),
        "evidence": np.asarray(saddle.log_evidence),
        "rows": np.arange(EXAMPLES)[own.index[0]],
        "mean": np.asarray(own.data),
        "beyond": beyond,
    }


@pytest.mark.slow
def test_every_process_of_several_has_the_results_of_one(two_processes):
    features, labels = data(2)
    sums = bpkr.Data.of_arrays(features, labels, progress=False).moments
    saddle = bpkr.solve(model(2), bpkr.Data(moments=sums))
    mean = bpkr.predict(bpkr.Problem(model(2), bpkr.Data(moments=sums)), saddle, features).mean
    found = two_processes(parts, 2)
    np.testing.assert_array_equal(np.concatenate([each["rows"] for each in found]), np.arange(EXAMPLES))
    expected = energies_of(2, features, labels)
    for each in found:
        assert_same_energies(each, expected)
        np.testing.assert_allclose(each["evidence"], saddle.log_evidence, rtol=1e-9)
        np.testing.assert_allclose(each["mean"], mean[each["rows"]], rtol=1e-6, atol=1e-8)
        for name, value in moments(features, labels).items():
            np.testing.assert_allclose(each[name], value, rtol=ROUNDING, atol=ROUNDING)
            np.testing.assert_array_equal(each[name], found[0][name])
        assert "several processes" in each["beyond"]


@pytest.mark.slow
def test_the_script_on_the_page_runs_in_two_processes(tmp_path):
    (script,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "sharded.py").write_text(script)
    command = [sys.executable, tmp_path / "sharded.py", free_address(), "2"]
    started = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(2)]
    said = [process.communicate()[0].splitlines()[-1] for process in started]
    assert said[0] == said[1]
    energy, estimated, error = map(float, re.findall(r"-?\d+\.\d+", said[0]))
    assert abs(energy - estimated) <= error
