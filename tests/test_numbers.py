"""Measured numbers in sentences of the pages are those of the result files, as tables are by `benchmarks/tables.py`."""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
WORDS = dict(enumerate(["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]))


def results(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text())


def error(values: np.ndarray) -> float:
    return values.std(ddof=1) / np.sqrt(len(values))


def with_error(values: np.ndarray) -> str:
    return f"{values.mean():.1f}({round(10 * error(values))})"


def outcomes() -> tuple[str, ...]:
    found = Counter(results("robustness")["after"]["outcome"])
    return (
        f"{found['converged']} converged, {found['refused']} raised an error with the reason, and "
        f"{found['not converged']} reported that they did not converge",
    )


def robustness() -> tuple[str, ...]:
    found = Counter(results("robustness")["after"]["outcome"])
    attempted = found["converged"] + found["not converged"]
    return (
        f"Of {attempted} [random problems](../benchmarks/robustness.py) with widths, variances, temperatures and "
        f"labels over many orders of magnitude, {100 * found['converged'] / attempted:.1f} % converge",
    )


def one_shot() -> tuple[str, ...]:
    found = results("one_shot_published")
    (narrow, _), (wide, _) = 100 * np.array(found["accuracy"])[:, :, 0], 100 * np.array(found["gp_accuracy"])
    lost = 100 * (np.array(found["gp_accuracy"])[1] - np.array(found["accuracy"])[1, :, 0])
    assert found["distribution"] == ["in distribution", "digits"] and found["width"][0] == 10
    return (
        f"the best accuracy on new characters is {with_error(narrow)} % at $N=10$ and {with_error(wide)} % in the "
        f"limit, and on digits finite width costs {with_error(lost)} points",
    )


def saddle() -> tuple[str, ...]:
    found = results("saddle")
    rows = [*found["hidden_markov"]["rows"], *found["one_shot"]["rows"]]
    counts = [[row[what] for row in rows] for what in ("evaluations", "curvatures")]
    (least, most), (fewest, largest) = ((WORDS[min(each)], WORDS[max(each)]) for each in counts)
    steps = [round(row["adam_steps"]) for row in found["hidden_markov"]["rows"]]
    return (
        f"the solver takes {least} to {most} evaluations of the action and {fewest} to {largest} Hessians. The "
        f"published optimiser takes {min(steps)} to {max(steps)} evaluations on the hidden Markov chains",
    )


def matrix_free() -> tuple[str, ...]:
    found = results("matrix_free_saddle")
    keys, exact = list(found["keys"].values()), np.array(found["exact"]["order_parameters"])
    assert all(np.all(np.abs(np.array(key["order_parameters"]) - exact) <= key["margins"]) for key in keys)
    minutes = round(2 * np.median([key["seconds"] for key in keys]) / 60) / 2
    gigabytes = round(max(key["peak_gb"] for key in keys))
    return (
        f"We tested this on {found['examples']:,} examples and {4 * found['features']} features, where the exact "
        f"solution is known. For {WORDS[len(keys)]} random keys, all {len(exact) * len(keys)} order parameters are "
        f"within their 99 % margins. A solve takes {minutes:g} minutes on two cores and {gigabytes} GB of memory",
    )


def sampling() -> tuple[str, ...]:
    rates = {}
    for row in results("sampling")["temperatures"]["rows"]:
        rates.setdefault((row["sampler"], row["T"]), row["ess_bulk"] / row["seconds"])
    ratios = {T: f"{rates['exact', T] / rates['nuts', T]:.2g}" for T in (0.01, 0.1, 1.0)}
    return (
        f"Per second, `sample_order_parameters` yields {ratios[0.01]} times as many effective samples as NUTS on the "
        f"weights at $T=0.01$, {ratios[0.1]} times as many at $T=0.1$, and {ratios[1.0]} times as many at $T=1$",
    )


def self_attention() -> tuple[str, ...]:
    found = results("self_attention")
    (zoom,) = found["zoom"]["rows"]
    rates = {
        what: max(row["rate"] for row in found["rates"]["rows"] if row["window"] == 4 and row["quantity"] == what)
        for what in ("map", "leading 3")
    }
    published = {row["quantity"]: row["rate"] for row in found["rates"]["published"]["rows"] if row["window"] == 4}
    return (
        f"With the published {zoom['transient'] + zoom['recorded']:,} tokens per orbit, the last {zoom['recorded']:,} "
        f"with three exponents, this takes {zoom['seconds']:.0f} seconds on two cores. theorykit runs "
        f"{rates['map'] / 1e6:.0f} million tokens per second without exponents and {rates['leading 3'] / 1e6:.0f} "
        f"million with them. The published algorithm runs {round(published['map'], -3):,.0f} and "
        f"{round(published['exponents'], -1):.0f}",
    )


def gpu() -> tuple[str, ...]:
    parts = results("gpu_tests")["parts"]
    published, batches = (parts[name]["tests"] for name in ("tests", "batch_tests"))
    assert not any(parts[name][kind] for name in parts for kind in ("failures", "errors", "skipped"))
    times = {
        name: {
            (row["name"], row["size"]): row["run_s"]
            for row in results(name)["rows"]
            if row["part"] == "solves" and row["platform"] == "gpu" and row.get("run_s") is not None
        }
        for name in ("gpu", "gpu_h100")
    }
    both = times["gpu"].keys() & times["gpu_h100"].keys()
    slower = [100 * (times["gpu_h100"][size] / times["gpu"][size] - 1) for size in both]
    return (
        f"All {published + batches} tests that were selected for GPUs pass on an NVIDIA H100 at their usual "
        f"tolerances: {published} against numbers of the published programs and {batches} of solvers and samplers",
        f"Solves there take {min(slower):.0f} to {max(slower):.0f} % longer than on the H200",
    )


def peers() -> tuple[str, ...]:
    found = results("peers")
    assert max(program["error"] for programs in found.values() for program in programs.values()) < 1e-8
    seconds = {
        (threads, name, part): row["processor_seconds"]
        for threads, programs in found.items()
        for name, program in programs.items()
        for part, row in program.items()
        if part != "error"
    }
    others = [name for name in found["one thread"] if not name.startswith("`bpkr.solve`")]

    def least(part: str, names: list[str]) -> float:
        return min(seconds["one thread", name, part] for name in names)

    own, cached, by_hand = (
        least("import and first", names) for names in (["`bpkr.solve`"], ["`bpkr.solve`, cached"], others[:2])
    )
    again, fewer = (least(part, others) / least(part, ["`bpkr.solve`"]) for part in ("second", "one example fewer"))
    waiting = (
        seconds["default threads", "by hand, L-BFGS", "second"] / seconds["one thread", "by hand, L-BFGS", "second"]
    )
    return (
        f"With one thread, the fastest program by hand has its first solution after {by_hand:.1f} processor seconds, "
        f"`bpkr.solve` after {own:.1f} seconds, or after {cached:.1f} seconds with the default cache from an earlier "
        f"process. The fastest of the others takes {again:.1f} times as long as `bpkr.solve` for the second solve, and "
        f"{fewer:.0f} times as long for one example fewer, because `bpkr.solve` compiles nothing there",
        f"With default threads the second solve by hand takes {waiting:.0f} times as long as with one thread",
    )


def replicas() -> tuple[str, ...]:
    found = results("replicas")
    ways = ("certified", "NumPy", "JAX")
    failed = {
        way: [sum(row[way][what] for row in found.values()) for what in ("missed", "silently wrong")] for way in ways
    }
    times = {way: np.array([row[way]["again"]["processor_seconds"] for row in found.values()]) for way in ways}
    assert failed["certified"] == [0, 0] and failed["NumPy"] == failed["JAX"]
    (missed, wrong), points = failed["JAX"], sum(row["points"] for row in found.values())
    sooner = [WORDS[int(np.sum(times["certified"] < times[way]))] for way in ways[1:]]
    most = np.max(times["NumPy"] / times["certified"])
    more, hinge = found["SK"]["NumPy, 256 nodes"], found["hinge regression"]
    split = hinge["NumPy, split at kinks"]
    assert split["missed"] == split["silently wrong"] == 0
    slower, slower_split = (
        iteration["again"]["processor_seconds"] / found[name]["certified"]["again"]["processor_seconds"]
        for iteration, name in ((more, "SK"), (split, "hinge regression"))
    )
    return (
        f"With 256 quadrature nodes the iteration of the SK model is still wrong at {more['silently wrong']} points, "
        f"and takes {slower:.0f} times as long as theorykit",
        f"Hinge regression averages functions with kinks, and the iteration with 64 or 256 nodes is wrong at "
        f"{hinge['NumPy']['silently wrong']} or {hinge['NumPy, 256 nodes']['silently wrong']} points. With a rule that "
        f"is split at the kinks, it is right and takes {slower_split:.1f} times as long as theorykit",
        f"Of {points:,} points the iteration misses {missed} and is wrong at {wrong}, theorykit at none. theorykit is "
        f"faster than the iteration in vectorised NumPy for {sooner[0]} of {WORDS[len(found)]} actions, at most "
        f"{most:.0f} times, and faster than the iteration compiled by JAX for {sooner[1]}",
    )


SENTENCES: dict[str, tuple[Callable[[], tuple[str, ...]], ...]] = {
    "validation.md": (outcomes, one_shot),
    "solvers.md": (saddle, robustness, matrix_free, peers),
    "own-action.md": (replicas,),
    "sampling.md": (sampling,),
    "self-attention-dynamics.md": (self_attention,),
    "parallel.md": (gpu,),
}


def missing(page: str, text: str) -> list[str]:
    """The sentences that the results give and the page's text has not."""
    flat = " ".join(text.split())
    return [sentence for write in SENTENCES[page] for sentence in write() if sentence not in flat]


@pytest.mark.parametrize("page", SENTENCES)
def test_measured_numbers_in_sentences_are_those_of_the_results(page):
    text = (ROOT / "docs" / page).read_text()
    assert not missing(page, text)
    # changed by one digit in any of the sentences, the page is found out
    for write in SENTENCES[page]:
        for sentence in write():
            digit = re.search(r"\d", sentence).group()
            flat = " ".join(text.split())
            assert missing(page, flat.replace(sentence, sentence.replace(digit, str((int(digit) + 1) % 10), 1)))


def test_every_paragraph_that_names_its_measurement_is_held_to_it():
    """A paragraph with a link to a result file has sentences above; tables are written from the files."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        for paragraph in page.read_text().split("\n\n"):
            if "benchmarks/results/" in paragraph and not paragraph.startswith(("|", "Each benchmark is one command")):
                flat = " ".join(paragraph.split())
                known = [sentence for write in SENTENCES.get(page.name, ()) for sentence in write()]
                assert any(sentence in flat for sentence in known), f"{page.name}: {flat[:100]}"
