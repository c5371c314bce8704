"""The API for a model of your own, and its example."""

import json

import numpy as np
import pytest
from conftest import refused, run_script

from attention_dynamics.analysis.logs import Logs, load_logs
from attention_dynamics.analysis.own_model import add_checkpoint, create_logs, save
from attention_dynamics.cli import InputError
from attention_dynamics.storage.pickles import load_pickle

SRC = [[1, 5, 2], [1, 6, 7, 2], [1, 2]]
ALPHA = [np.array([0.2, 0.5, 0.3]), np.full(4, 0.25), np.array([1.0, 0.0])]
BETA = [np.array([1.0, -2.0, 0.5]), np.arange(4.0), np.array([0.1, 0.2])]


def example_logs() -> Logs:
    logs = create_logs("mine", SRC, [1, 0, 1], num_val=2)
    for run in ("normal_A", "normal_B", "uniform"):
        add_checkpoint(logs, run, 0, ALPHA, BETA, test_acc=0.5, train_acc=1.0)
    return logs


def test_add_checkpoint_accepts_target_matrices():
    logs = create_logs("pairs", SRC[:1], [[1, 8, 9, 2]], num_val=1)
    add_checkpoint(logs, "normal_A", 0, [np.full((3, 3), 1 / 3)], [np.zeros((3, 3))], val_acc=1.0)
    assert logs.arrays["normal_A", 0, "alpha"].shape == (9,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": [ALPHA[0] * 1.01, *ALPHA[1:]]}, "sums to 1.010000 in example 0"),
        ({"beta": [BETA[0][:2], *BETA[1:]]}, r"beta of example 0 has shape \(2,\)"),
        ({"beta": BETA[:2]}, "has 2 arrays"),
        ({"beta": [*BETA[:2], np.array([0.1, np.nan])]}, "holds NaN"),
        ({"test_acc": float("nan")}, "test_acc is nan"),
        ({"iteration": 0}, "was added before"),
    ],
)
def test_add_checkpoint_rejects_scores_that_do_not_fit(change, message):
    values = {"iteration": 5, "alpha": ALPHA, "beta": BETA} | change
    with pytest.raises(InputError, match=message):
        add_checkpoint(example_logs(), "normal_A", **values)


def test_create_logs_rejects_sizes_that_do_not_fit():
    with pytest.raises(InputError, match="the numbers of examples in src, trg"):
        create_logs("mine", SRC, [1, 0], num_val=1)
    with pytest.raises(InputError, match=r"num_val is 0 \(expected at least 1\)"):
        create_logs("mine", SRC, [1, 0, 1], num_val=0)
    with pytest.raises(InputError, match="an example has no tokens"):
        create_logs("mine", [[1], []], [1, 0], num_val=1)


def test_save_rejects_runs_without_iteration_0(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logs = example_logs()
    add_checkpoint(logs, "normal_C", 5, ALPHA, BETA)
    assert "normal_C has no iteration 0" in refused(save, logs)
    assert not (tmp_path / "outputs").exists()


def test_lstm_logs_are_the_same_bytes(golden_classification, classification):
    """The golden runs, dumped by eval_dump.py and written through the API."""
    classification.eval_dump.main(["--dataset", "Furd", "--test_set_size", "20"])
    path = golden_classification / "outputs" / "Furd_logs.pkl"
    dumped, written = load_logs(path), path.read_bytes()
    src = [dumped.src[i] for i in range(len(dumped.src))]
    logs = create_logs("Furd", src, dumped.trg, dumped.splits["val"], dumped.index)
    entries = json.loads((golden_classification / "configs" / "Furd_log.json").read_text())
    for entry in entries:
        at = entry["name"], entry["iteration"]
        scores = {
            kind: np.split(dumped.arrays[*at, kind], dumped.src.offsets[1:-1])
            for kind in ("alpha", "beta", "grad")
        }
        accuracies = {name: dumped.metas[*at, name] for name in ("test_acc", "train_acc")}
        add_checkpoint(logs, *at, **scores, **accuracies)
    assert save(logs).read_bytes() == written


def test_example_gives_tables_and_figures(small_set):
    done = run_script("examples/own_model.py", "--dataset", "small", "--steps", 12, "--name", "own",
                      "--test_set_size", 20, cwd=small_set)  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = small_set / "results" / "own.pkl"
    done = run_script("classification/collect_classification_stats.py", "--datasets", "own",
                      "--out_file", out, cwd=small_set)  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = load_pickle(out, "results")["own", "top 5% match", "val", "test_acc"]
    assert result["iterations"] == [0, 10, 11] and 0 <= result["agr_unif"] <= 1
    done = run_script("classification/plot_dynamics.py", "--dataset", "own", cwd=small_set)
    assert done.returncode == 0 and (small_set / "figures" / "own_tokens.html").exists()
