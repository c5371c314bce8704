"""Numbers of pages that are measured on what has been run: departures.json and times.json."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT, refused

from attention_dynamics.analysis.inputs import summarize_inputs
from attention_dynamics.analysis.logs import load_logs
from attention_dynamics.analysis.statistics import summarize
from attention_dynamics.names import PERFORMANCES
from attention_dynamics.storage.files import read_json, write_json
from attention_dynamics.storage.pickles import load_pickle

PAIRS = "news_commentary_v14_en_nl"
PX = f"outputs/{PAIRS}embedding256translation.pkl"
KEY = ("top 5% match", "val")


@pytest.fixture
def benchmarks(monkeypatch) -> SimpleNamespace:
    """The scripts departures and times."""
    monkeypatch.syspath_prepend(str(ROOT / "results"))
    return SimpleNamespace(
        departures=importlib.import_module("departures"), times=importlib.import_module("times")
    )


# --- departures.py ---


def test_departures_of_classification(
    golden_classification, benchmarks, tmp_path, monkeypatch, capsys
):
    """The published agr_grad is that of the golden statistics; so is ours, where Δ counts once."""
    monkeypatch.setattr(benchmarks.departures, "SHUFFLES", range(3))  # for time
    (golden_classification / "golden").rename("outputs")
    kept = {"1": {"SMS": {"here": 0.5}}, "5": {"multi30k": {}}, "other": 1}
    write_json("found/departures.json", {"departures": [], "measured": kept})
    options = ["--classification", str(tmp_path), "--datasets", "Furd"]
    benchmarks.departures.main([*options, "--out", "found/departures.json"])
    found = read_json("found/departures.json")["measured"]
    assert found["1"].pop("SMS") == {"here": 0.5}
    assert (found.pop("5"), found.pop("other")) == ({"multi30k": {}}, 1)
    assert found.keys() == {"1", "8", "10", "made"}

    logs = load_logs("outputs/Furd_logs.pkl")
    sign = np.repeat(2 * logs.trg - 1, logs.src.lengths)
    by_seed = [
        summarize(logs, *KEY, "test_acc", None, {}, sign, seed)["baseline"] for seed in range(3)
    ]
    result = summarize(logs, *KEY, "test_acc", None, {}, sign)
    other = summarize(logs, *KEY, "train_acc", None, {}, sign)
    golden, once = (
        load_pickle(name)["Furd", *KEY, "test_acc"]["agr_grad"]
        for name in ("stats.pkl", "stats_grad_unflipped.pkl")
    )
    assert golden != once
    # The golden statistics are means of float32; ours of float64.
    assert found["1"]["Furd"] == {
        "here": pytest.approx(once, abs=1e-9),
        "published": pytest.approx(golden, abs=1e-9),
        "chance": result["baseline_exact"],
    }
    assert min(by_seed) < max(by_seed)
    assert found["8"]["Furd"] == {
        "lowest": min(by_seed),
        "highest": max(by_seed),
        "range": max(by_seed) - min(by_seed),
        "exact": result["baseline_exact"],
    }
    agr_unif = {"same split": result["agr_unif"], "other split": other["agr_unif"]}
    assert found["10"]["Furd"] == agr_unif
    assert found["made"]["Furd"]["steps"] == 1 + max(logs.iterations("normal_A"))
    assert str(max(by_seed)) in capsys.readouterr().out


def test_departure_5_of_translation(golden_translation, benchmarks, translation, monkeypatch):
    """The published table, which is golden, gives the golden agr_px; it is trained but once."""
    (golden_translation / "golden").rename("outputs")
    (golden_translation / PX).rename("published.pkl")
    translation.embedding_beta.main(["--dataset", PAIRS, "--epochs", "2", "--bsize", "16"])
    options = ["--translation", ".", "--pairs", PAIRS, "--out", "found.json", "--published_beta"]
    benchmarks.departures.main([*options, "published.pkl"])
    golden = load_pickle("stats.pkl")
    found = read_json("found.json")["measured"]["5"][PAIRS]
    assert found.keys() == {"top 5% match", "kendall tau"}
    for metric, numbers in found.items():
        theirs = golden[PAIRS, metric, "val", "val_acc"]["agr_px"]
        assert numbers["published"] == pytest.approx(theirs, abs=1e-9)
    inputs = translation.baselines.load_inputs(PAIRS)
    result = summarize_inputs(inputs, *KEY, PERFORMANCES["translation"]["acc"], 0)
    assert found["top 5% match"]["here"] == result["agr_px"]

    benchmarks.departures.main([*options, "trained.pkl"])
    trained = load_pickle("trained.pkl")
    assert trained.shape == load_pickle(PX).shape
    assert np.abs(trained - load_pickle(PX)).max() > 1e-6
    assert not (golden_translation / "trained.state").exists()
    first = read_json("found.json")
    monkeypatch.setattr("attention_dynamics.runs.embedding_baseline.train_baseline", None)
    benchmarks.departures.main([*options, "trained.pkl"])
    assert read_json("found.json") == first


def test_departure_5_the_trained_targets_are_those_of_the_reference(
    golden_translation, benchmarks, translation, plain_translation
):
    train = translation.data.load_dataset(PAIRS).train
    examples = np.array([7, 0, 31, 2])
    assert len(set(train.trg.lengths[examples])) > 1
    torch.manual_seed(0)
    plain = plain_translation.EmbeddingTranslator(600, 6)
    ours = translation.embedding_beta.BagOfPieces(600, 6)
    ours.load_state_dict(plain.state_dict())
    pairs = [(train.src[n].tolist(), train.trg[n].tolist()) for n in examples]
    batch = next(plain_translation.batches(pairs, len(pairs)))
    plain_translation.embedding_loss(plain, batch, published_targets=True).backward()
    published = benchmarks.departures.PublishedTargets(train, translation.data.PAD)
    (-ours(published.batch(examples)).sum()).backward()
    for parameter, other in zip(ours.parameters(), plain.parameters(), strict=True):
        # float32 arithmetic in another order, on sums over some hundred targets.
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-5, atol=1e-4)


def test_departures_names_missing_outputs_and_options(golden_translation, benchmarks, capsys):
    departures = benchmarks.departures.main
    message = refused(departures, ["--classification", ".", "--out", "found.json"])
    assert "outputs/Furd_logs.pkl does not exist" in message
    assert not (golden_translation / "found.json").exists()
    for wrong, message in (
        ([], "give --classification or --translation"),
        (["--translation", "."], "need each other"),
    ):
        with pytest.raises(SystemExit):
            departures(wrong)
        assert message in capsys.readouterr().err


# --- times.py ---


@pytest.fixture
def work(tmp_path):
    """Records of work in three of the folders."""
    for seed, seconds in enumerate((5.0, 1.0, 2.0)):
        results = {"training_seconds": seconds, "seconds_per_step": seconds / 10}
        record = {"settings": {"dataset": "Furd"}, "command": "train_classifier.py --dataset Furd"}
        path = tmp_path / f"classification/models/Furd/seed={seed}/run.json"
        write_json(path, {**record, "results": {**results, "peak_memory_mb": 9.0}})
    record = {"settings": {"dataset": "Furd"}, "command": "eval_dump.py --dataset Furd"}
    results = {"seconds": 1.0, "peak_memory_mb": 7.5}
    write_json(tmp_path / "classification/outputs/Furd_logs.json", {**record, "results": results})
    record = {"command": "seq2seq.py --no_rep", "settings": {"seeds": [0]}}
    write_json(tmp_path / "SequenceCopying/logs/a.json", {**record, "results": {"seconds": 3}})
    for run, seconds in {"sorted": 8.0, "results/0_seed0": 2.0, "results/72_seed0": 4.0}.items():
        folder = tmp_path / "papa/outputs/minilm_cola" / run
        write_json(folder / "run.json", {"command": "run_papa_glue.py --do_train"})
        results = {"train_runtime": seconds, "train_steps_per_second": 20 / seconds}
        write_json(folder / "all_results.json", results)
    return tmp_path


FOLDERS = ("classification", "SequenceCopying", "papa")


def test_times(work, benchmarks, capsys):
    folders = ["--folders", *(str(work / name) for name in FOLDERS)]
    kept = {"translation": {"eval_dump.py": {}}, "papa": {"run_papa_ner.py": {"a": {"runs": 1}}}}
    write_json(work / "times.json", kept)
    benchmarks.times.main([*folders, "--out", str(work / "times.json")])
    found = read_json(work / "times.json")
    assert {"cpu", "cores", "torch"} <= found.pop("machine").keys()
    training = {"runs": 3, "training_seconds": 2.0, "seconds_per_step": 0.2, "peak_memory_mb": 9.0}
    dump = {"runs": 1, "seconds": 1.0, "peak_memory_mb": 7.5}
    order = {"runs": 1, "training_seconds": 8.0, "seconds_per_step": 0.4}
    heads = {"runs": 2, "training_seconds": 3.0, "seconds_per_step": pytest.approx(0.15, rel=1e-12)}
    assert found == {
        "translation": {"eval_dump.py": {}},
        "classification": {
            "train_classifier.py": {"Furd": training},
            "eval_dump.py": {"Furd": dump},
        },
        "SequenceCopying": {"seq2seq.py": {"a": {"runs": 1, "seconds": 3.0}}},
        "papa": {
            "run_papa_ner.py": {"a": {"runs": 1}},
            "run_papa_glue.py --sort_calculating": {"minilm_cola": order},
            "run_papa_glue.py": {"minilm_cola": heads},
        },
    }
    assert "minilm_cola" in capsys.readouterr().out


def test_times_of_nothing(work, benchmarks, capsys):
    out = ["--out", str(work / "times.json")]
    (work / "translation").mkdir()
    write_json(work / "classification/outputs/odd.json", {"command": 5, "settings": {}})
    for folder, message in (
        ("translation", "no record of finished work in "),
        ("classification", "odd.json is not a record of finished work"),
    ):
        assert message in refused(benchmarks.times.main, ["--folders", str(work / folder), *out])
    assert not (work / "times.json").exists()
    with pytest.raises(SystemExit):
        benchmarks.times.main(["--folders", str(work)])
    assert f"{work} is none of classification" in capsys.readouterr().err
