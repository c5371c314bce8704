"""The published code's own numbers, from its own checkpoints (tests/golden/translation)."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import assert_published_layout, assert_statistics, copy_golden

from attention_dynamics.analysis.logs import load_logs
from attention_dynamics.storage.pickles import load_pickle

DATASET = "news_commentary_v14_en_nl"
CONFIG = {"hidden_dim": 40, "dropout": 0.5, "num_layers": 2, "batch_size": 4}
VOCAB = 600

# float32 arithmetic in another order: 1e-5 on α, β and Δ. β is a log-probability of down to -25, of
# which a float32 keeps seven digits, and the golden β are themselves up to 2e-5 away from what
# float64 arithmetic gives: hence the relative part.
TOLERANCE = {"atol": 1e-5, "rtol": 1e-6}
# Accuracies and losses were summed as float32 there; the golden perplexities are up to 1.3e-6 (as a
# share of themselves) away from what float64 arithmetic gives.
ACCURACY, PERPLEXITY = {"abs": 1e-5}, {"rel": 2e-6}


@pytest.fixture(scope="module")
def dumped(tmp_path_factory, translation) -> Path:
    """A working directory in which eval_dump has run on all golden checkpoints, BLEU included."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        torch.set_num_threads(1)
        folder = copy_golden("translation", tmp_path_factory.mktemp("golden"), monkeypatch)
        options = ["--eval_bleu", "--include_train_subset", "--device", "cpu"]
        translation.eval_dump.main(["--dataset", DATASET, *options])
    return folder


def test_the_dump_holds_every_score_and_performance(dumped, monkeypatch):
    monkeypatch.chdir(dumped)
    ours, golden = load_logs(f"outputs/{DATASET}_logs.pkl"), load_logs(f"golden/{DATASET}_logs.pkl")
    assert ours.splits == golden.splits == {"val": 24, "train": 24}
    np.testing.assert_array_equal(ours.index, golden.index)
    for ids, theirs in ((ours.src, golden.src), (ours.trg, golden.trg)):
        np.testing.assert_array_equal(ids.values, theirs.values)
        np.testing.assert_array_equal(ids.offsets, theirs.offsets)
    assert ours.arrays.keys() == golden.arrays.keys()
    assert len(golden.arrays) == 21  # 9 checkpoints, α and β of each, Δ of the gold run's three
    for key, values in golden.arrays.items():
        np.testing.assert_allclose(ours.arrays[key], values, **TOLERANCE, err_msg=str(key))
    assert ours.metas.keys() == golden.metas.keys()
    assert len(golden.metas) == 9 * 6
    for key, value in golden.metas.items():
        if key[2].endswith("_acc"):
            assert ours.metas[key] == pytest.approx(value, **ACCURACY), key
        elif key[2].endswith("_perplexity"):
            assert ours.metas[key] == pytest.approx(value, **PERPLEXITY), key
        else:  # the same hypotheses, those of untrained models included, which do not end
            assert ours.metas[key] == value, key


@pytest.mark.parametrize(("seed", "kind"), [(20, "normal"), (12, "uniform")])
def test_every_hypothesis_and_bleu(golden_translation, translation, seed, kind):
    golden = json.loads(Path("beam.json").read_text())[f"seed={seed}"]
    run = f"models/{DATASET}/h_dim=40,dropout=0.500000,b_size=4,seed={seed},{kind}"
    model = translation.models.AttentionTranslator(VOCAB, CONFIG, kind == "uniform").eval()
    model.load_state_dict(torch.load(f"{run}/model{golden['iteration']}", weights_only=True))
    dataset, decoding = translation.data.load_dataset(DATASET), translation.decoding
    cpu = torch.device("cpu")
    hypotheses = decoding.translate(model, dataset.val.src, dataset.pieces, cpu)
    assert hypotheses == golden["beam5"]
    score, signature = decoding.bleu(hypotheses, dataset.val.references)
    assert score == golden["bleu"]
    assert "tok:13a" in signature


def test_the_published_layout_option_gives_the_published_file(golden_translation, translation):
    options = ["--include_train_subset", "--layout", "published", "--device", "cpu"]
    translation.eval_dump.main(["--dataset", DATASET, *options])
    with open(f"outputs/{DATASET}_logs.pkl", "rb") as stream:
        ours = pickle.load(stream)
    theirs = load_pickle(f"golden/{DATASET}_logs.pkl")
    assert ours["metas"].keys() == {key for key in theirs["metas"] if not key[2].endswith("bleu")}
    assert len(ours["data"]) == len(theirs["data"]) == 84
    assert_published_layout(ours, theirs, **TOLERANCE)


@pytest.mark.parametrize("logs", ["dumped", "published"])
def test_the_statistics(dumped, translation, monkeypatch, tmp_path, logs):
    """All statistics, from our dump and from the published file."""
    monkeypatch.chdir(tmp_path)
    Path("outputs").mkdir()
    source = dumped / ("outputs" if logs == "dumped" else "golden")
    for name in (f"{DATASET}_logs.pkl", f"{DATASET}embedding256translation.pkl"):
        folder = dumped / "golden" if "embedding" in name else source
        (Path("outputs") / name).write_bytes((folder / name).read_bytes())
    all_results = ["--include_kendall_tau", "--include_train_results", "--include_bleu_results"]
    translation.collect_translation_stats.main(
        ["--datasets", DATASET, "--out_file", "results.pkl", *all_results]
    )

    def tolerance_of(key: tuple, name: str) -> float:
        if name in ("best_perf", "alpha_perfs") or name.startswith("xi_"):
            return ACCURACY["abs"]
        # Two scores of a row that are one float32 there and two here, or the other way round, move
        # tau by about 1e-5; a wrong row would move it by 1e-3. Averages differ by summation order.
        return 1e-4 if logs == "dumped" and key[1] == "kendall tau" else 1e-9

    golden = load_pickle(dumped / "stats.pkl")
    assert_statistics(load_pickle("results.pkl"), golden, 0.02, tolerance_of)
