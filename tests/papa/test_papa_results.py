"""Results of constant heads: collecting, drawing, and the batch file, on synthetic results."""

import csv
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import write_json

LAYERS, HEADS, LENGTH = 2, 3, 8
LAMBDAS = np.array([[0.5, -1.0, 0.25], [-0.125, 2.0, 0.0]], dtype=np.float32)
ORDER = [[0, 1], [1, 0], [1, 2], [0, 2], [0, 0], [1, 1]]

# Constant heads -> seed -> (score after each of three epochs).
COLA = {
    0: {1: (0.3, 0.5, 0.4), 2: (0.2, 0.3, 0.6)},
    3: {1: (0.1, 0.2, 0.45), 2: (0.5, 0.6, 0.55)},
    6: {1: (0.2, 0.4, 0.3), 2: (0.3, 0.5, 0.4)},
}
RTE = {0: {7: (0.5, 0.6, 0.8)}, 6: {7: (0.5, 0.7, 0.6)}, 2: {7: (0.5, 0.5, 0.7)}}


def make_experiment(folder: Path, scores: dict, metric="matthews_correlation", task="cola") -> Path:
    """Finished runs as run_papa_*.py leaves them."""
    for heads, seed, epochs in ((n, seed, one[seed]) for n, one in scores.items() for seed in one):
        run = folder / "results" / f"{heads}_seed{seed}"
        record = {"model": "minilm", "task": task, "max_seq_length": LENGTH, "seed": seed}
        record |= {"num_heads": LAYERS * HEADS, "static_heads_num": heads}
        record |= {"checksums": {"data": "a1", "order": "b2"}}
        settings = {**record, "learning_rate": "2e-05"}
        write_json(run / "run.json", {**record, "settings": settings})
        key = f"eval_{metric}"
        history = [{key: value, "epoch": 1.0 + place} for place, value in enumerate(epochs)]
        write_json(run / "trainer_state.json", {"log_history": [{"loss": 1.0}, *history]})
        write_json(run / "eval_results.json", {"eval_loss": 0.5, key: epochs[-1], "epoch": 3.0})
    return folder


def make_heads(folder: Path) -> None:
    """sorted/ and constants/; position 5 was never seen."""
    averages = np.random.default_rng(0).random((LAYERS, HEADS, LENGTH, LENGTH), dtype=np.float32)
    counts = np.ones((LENGTH, LENGTH), dtype=np.float32)
    for array in (averages, counts):
        array[..., 5, :] = array[..., :, 5] = 0
    write_json(folder / "sorted" / "sorted_heads.json", ORDER)
    np.save(folder / "sorted" / "lambdas.npy", LAMBDAS)
    (folder / "constants").mkdir()
    torch.save(torch.tensor(averages / 7), folder / "constants" / "avgs.pt")
    torch.save(torch.tensor(counts), folder / "constants" / "attention_patterns_sums.pt")


@pytest.fixture
def two_tasks(tmp_path) -> Path:
    """A working directory with outputs/minilm_cola (two seeds) and outputs/minilm_rte (one)."""
    make_experiment(tmp_path / "outputs" / "minilm_cola", COLA)
    make_experiment(tmp_path / "outputs" / "minilm_rte", RTE, "accuracy", task="rte")
    make_heads(tmp_path / "outputs" / "minilm_cola")
    return tmp_path


@pytest.fixture
def script(papa, tmp_path, monkeypatch, capsys):
    """A function that runs a script in tmp_path and returns its output."""
    monkeypatch.chdir(tmp_path)

    def script(name: str, *args: str):
        getattr(papa, name).main(args)
        return capsys.readouterr()

    return script


def refused(part: str):
    """A context in which an InputError with ``part`` is raised."""
    return pytest.raises(InputError, match=re.escape(part))


COLLECT = ("collect_papa_stats", "--out_file=results/papa.json")
BOTH = ("--folders", "outputs/minilm_cola", "outputs/minilm_rte")


def test_collect_computes_scores_and_drops_over_seeds(two_tasks, script):
    script(*COLLECT, *BOTH)
    results = json.loads((two_tasks / "results" / "papa.json").read_text())
    rows = {(row["heads"], row["epoch"]): row for row in results["minilm_cola"]["rows"]}
    assert list(rows) == [(n, epoch) for n in (0, 3, 6) for epoch in ("last", "best")]
    # By hand: two values a and b have the sample standard deviation |a - b| / sqrt(2).
    root = 2**-0.5
    expected = {
        # the last epochs: 0.4 0.6; 0.45 0.55; 0.3 0.4, against their mean of 0.5
        (0, "last"): (0.5, 0.2 * root, 0.0, 0.4 * root),
        (3, "last"): (0.5, 0.1 * root, 0.0, 0.2 * root),
        (6, "last"): (0.35, 0.1 * root, 0.3, 0.2 * root),
        # the best epochs: 0.5 0.6; 0.45 0.6; 0.4 0.5, against their mean of 0.55
        (0, "best"): (0.55, 0.1 * root, 0.0, 0.1 * root / 0.55),
        (3, "best"): (0.525, 0.15 * root, 0.025 / 0.55, 0.15 * root / 0.55),
        (6, "best"): (0.45, 0.1 * root, 0.1 / 0.55, 0.1 * root / 0.55),
    }
    for key, numbers in expected.items():
        row = rows[key]
        found = [row[name] for name in ("score", "score_std", "drop", "drop_std")]
        assert found == pytest.approx(numbers, abs=1e-12), key  # rounding of a few float64 steps
        assert row["share"] == key[0] / 6 and row["seeds"] == 2
    assert results["minilm_cola"]["scores"]["best"]["3"] == {"1": 0.45, "2": 0.6}
    assert results["minilm_cola"]["metric"] == "matthews_correlation"
    one_seed = [row for row in results["minilm_rte"]["rows"] if row["epoch"] == "last"]
    assert [row["heads"] for row in one_seed] == [0, 2, 6]
    assert [row["score_std"] for row in one_seed] == [None] * 3
    assert [row["drop"] for row in one_seed] == pytest.approx([0, 0.125, 0.25], abs=1e-12)


def test_collect_prints_tables(two_tasks, script):
    lines = [re.split("  +", line.strip()) for line in script(*COLLECT, *BOTH).out.splitlines()]
    # 0.3 and 0.25 after the last epoch; 0.1 / 0.55 and 0.1 / 0.8 in the best one. No run of the
    # other task has 2 or 3 constant heads.
    mean = ["minilm", "6 (100%)", "2", "27.5%", "25.0% to 30.0%", "15.3%", "about 8.0%"]
    assert [line for line in lines if line[0] == "minilm"] == [mean]
    cola = lines[lines.index(["minilm_cola: matthews_correlation of minilm on cola"]) :]
    cells = ["0.350 ± 0.071", "30.0 ± 14.1%", "0.450 ± 0.071", "18.2 ± 12.9%"]
    assert ["6 (100%)", "2", *cells] in cola
    rte = lines[lines.index(["minilm_rte: accuracy of minilm on rte"]) :]
    assert ["2 (33%)", "1", "0.700", "12.5%", "0.700", "12.5%"] in rte


def test_collect_prints_one_long_table_as_json_and_csv(two_tasks, script):
    records = json.loads(script(*COLLECT, *BOTH, "--format", "json").out)
    rows = list(csv.DictReader(script(*COLLECT, *BOTH, "--format", "csv").out.splitlines()))
    assert len(records) == len(rows) == 2 * (3 + 3) + 2 * (3 + 3) + 2
    columns = "folder model task metric statistic epoch heads share value std of"
    assert list(records[0]) == list(rows[0]) == columns.split()
    mean = next(r for r in records if r["task"] == "mean" and r["epoch"] == "last")
    assert (mean["heads"], mean["of"]) == (6, 2)
    assert mean["value"] == pytest.approx(0.275, abs=1e-12)
    for record, row in zip(records, rows, strict=True):
        assert float(row["value"]) == record["value"]


def test_metric_is_that_of_the_task(tmp_path, papa):
    for task, metric in (("mrpc", "f1"), ("ner", "overall_f1"), ("ner", "f1"), ("own", "accuracy")):
        folder = make_experiment(tmp_path / f"{task}_{metric}", RTE, metric, task=task)
        path = folder / "results" / "0_seed7" / "eval_results.json"
        write_json(path, {**json.loads(path.read_text()), "eval_precision": 0.1})
        assert papa.scores.load_experiment(folder).metric == metric
        assert papa.scores.load_experiment(folder).scores["last"][6] == {7: 0.6}


def test_lower_is_better_for_losses(tmp_path, papa):
    """The best epoch has the lowest loss, and a higher loss is a positive drop."""
    epochs = {0: {1: (0.8, 0.4, 0.5)}, 6: {1: (0.9, 0.6, 0.7)}}
    experiment = papa.scores.load_experiment(make_experiment(tmp_path / "x", epochs, "mse"), "mse")
    assert experiment.scores["last"] == {0: {1: 0.5}, 6: {1: 0.7}}
    assert experiment.scores["best"] == {0: {1: 0.4}, 6: {1: 0.6}}
    assert papa.scores.relative_drop(experiment, "last", 6)[0] == pytest.approx(0.4)
    assert papa.scores.relative_drop(experiment, "best", 6)[0] == pytest.approx(0.5)
    zero = papa.scores.load_experiment(make_experiment(tmp_path / "y", {0: {1: (0.0,)}}))
    assert papa.scores.relative_drop(zero, "last", 0) is None


def test_collect_names_missing_runs(two_tasks, script):
    folder = two_tasks / "outputs" / "minilm_rte"
    shutil.rmtree(folder / "results" / "0_seed7")
    (folder / "results" / "2_seed7" / "run.json").unlink()
    printed = script(*COLLECT, *BOTH)
    assert printed.err.splitlines() == [
        "note: minilm_rte has no run with 0 constant heads: no relative drop",
        "results written to results/papa.json",
    ]
    lines = [re.split("  +", line.strip()) for line in printed.out.splitlines()]
    assert ["6 (100%)", "1", "0.600", "-", "0.700", "-"] in lines
    assert "mean over tasks" not in printed.out


@pytest.mark.parametrize(
    ("file", "content", "part"),
    [
        ("run.json", "{", "run record x/results/3_seed2/run.json is malformed JSON at line 1"),
        ("run.json", {"seed": "2"}, "3_seed2/run.json has no seed (int); rerun it"),
        ("run.json", {"seed": 1}, "3_seed2: both have 3 constant heads and seed 1; move one"),
        (
            "run.json", {"settings": {"learning_rate": "1e-05"}},
            "3_seed2 is not comparable with x/results/0_seed1: learning_rate differs (expected "
            "'2e-05', got '1e-05')",
        ),
        (
            "run.json", {"checksums": {"data": "a1", "order": "c3"}},
            "of order differs (expected 'b2', got 'c3')",
        ),
        (
            "eval_results.json", {"eval_matthews_correlation": math.nan},
            "eval_matthews_correlation is not a finite number (got nan); rerun it",
        ),
        ("trainer_state.json", "{}", "3_seed2/trainer_state.json has no log_history"),
    ],
)  # fmt: skip
def test_collect_refuses_corrupt_or_incomparable_results(script, tmp_path, file, content, part):
    path = make_experiment(tmp_path / "x", COLA) / "results" / "3_seed2" / file
    if isinstance(content, dict):
        content = json.dumps({**json.loads(path.read_text()), **content})
    path.write_text(content)
    with refused(part):
        script(*COLLECT, "--folders", "x")
    assert not (tmp_path / "results").exists()


def test_collect_refuses_wrong_folders_and_names_the_metrics(two_tasks, script):
    make_experiment(two_tasks / "x", RTE, "f1", task="rte")
    with refused("0_seed7/eval_results.json has no eval_accuracy; give a --metric among f1, loss"):
        script(*COLLECT, "--folders", "x")
    assert "x: f1 of minilm on rte" in script(*COLLECT, "--folders", "x", "--metric", "f1").out
    with refused("two directories are called minilm_cola"):
        script(*COLLECT, "--folders", "outputs/minilm_cola", "outputs/minilm_cola/")
    with refused("sorted/results does not exist; train some with: bash papa_runs.sh MODEL TASK"):
        script(*COLLECT, "--folders", "outputs/minilm_cola/sorted")
    with refused("lies among the files that are read"):
        script(*COLLECT, *BOTH, "--out_file", "outputs/minilm_cola/a.json")


def rows_of(path: Path) -> list[dict]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_plot_writes_figures_and_their_numbers(two_tasks, script):
    printed = script("plot_papa", *BOTH)
    figures = two_tasks / "figures"
    assert printed.out.splitlines() == [
        "outputs/minilm_rte has no sorted/: not drawn",
        "outputs/minilm_rte has no constants/: not drawn",
        *(
            f"figures/{name}.{suffix}"
            for name in ("scores", "minilm_cola_lambdas", "minilm_cola_constants")
            for suffix in ("svg", "png", "csv")
        ),
    ]
    scores = [(row["heads"], float(row["score"])) for row in rows_of(figures / "scores.csv")]
    cola, rte = [("0", 0.5), ("3", 0.5), ("6", 0.35)], [("0", 0.8), ("2", 0.7), ("6", 0.6)]
    assert scores == cola + rte
    script("plot_papa", "--folders", "outputs/minilm_cola", "--epoch=best", "--out_dir=elsewhere")
    scores = [float(row["score"]) for row in rows_of(two_tasks / "elsewhere" / "scores.csv")]
    assert scores == pytest.approx([0.55, 0.525, 0.45], abs=1e-12)

    lambdas = rows_of(figures / "minilm_cola_lambdas.csv")
    found = {(int(row["layer"]), int(row["head"])): row for row in lambdas}
    assert {head: float(row["lambda"]) for head, row in found.items()} == {
        head: float(value) for head, value in np.ndenumerate(LAMBDAS)
    }
    by_place = sorted(found, key=lambda head: int(found[head]["place"]))
    assert by_place == [tuple(head) for head in ORDER]

    averages = torch.load(two_tasks / "outputs" / "minilm_cola" / "constants" / "avgs.pt")
    rows = rows_of(figures / "minilm_cola_constants.csv")
    seen = [0, 1, 2, 3, 4, 6, 7]
    heads = [[int(row[key]) for key in ("layer", "head", "query")] for row in rows]
    assert heads == [[*head, query] for head in ORDER for query in seen]
    for (layer, head, query), row in zip(heads, rows, strict=True):
        found = [float(row[f"key {key}"]) for key in seen]
        # written to seven places
        np.testing.assert_allclose(found, averages[layer, head, query][seen], atol=5e-8)


@pytest.mark.parametrize(
    ("file", "content", "part"),
    [
        ("sorted/lambdas.npy", None, "sorted/lambdas.npy does not exist"),
        ("sorted/lambdas.npy", b"not numpy", "sorted/lambdas.npy is corrupt"),
        ("sorted/sorted_heads.json", b"[[0, 1]]", "is not an order of the 2 x 3 heads"),
        ("constants/avgs.pt", b"x", "constants/avgs.pt is corrupt"),
        ("constants/avgs.pt", torch.zeros(2, 3, 9, 9), "expected (6, 8), got (6, 9)"),
    ],
)
def test_plot_refuses_corrupt_or_foreign_heads(two_tasks, script, file, content, part):
    path = two_tasks / "outputs" / "minilm_cola" / file
    if content is None:
        path.unlink()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with refused(part):
        script("plot_papa", *BOTH)
    assert not (two_tasks / "figures").exists()
