"""Bad input to the classification scripts: one clear line, exit code 2, nothing half-written."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT, Hostile, assert_refused, refused, run_script, train_small_set

from attention_dynamics.cli import RunError
from attention_dynamics.storage.files import read_json, write_json

TRAIN = ["--dataset", "small", "--seed", "1", "--steps", "2"]


def spoil(change) -> None:
    """Change the training file of the small set."""
    content = read_json("data/small_train.json")
    change(content)
    write_json("data/small_train.json", content)


@pytest.mark.parametrize(
    ("dataset", "way"),
    [
        ("SMS", "--dataset SMS --source PATH (see"),
        ("mine", "--dataset mine --train FILE --test FILE (see"),
        ("furdd", "did you mean Furd?"),
        ("imdb", "did you mean IMDB?"),
    ],
)
def test_absent_dataset_names_the_command_that_makes_it(small_set, classification, dataset, way):
    message = refused(classification.train_classifier.main, ["--dataset", dataset, "--seed", "1"])
    assert message.startswith(f"no dataset {dataset}: data/{dataset}_train.json does not exist")
    assert "data/ holds small" in message and way in message
    message = refused(classification.train_classifier.main, ["--dataset", "../x", "--seed", "1"])
    assert "must have a plain name" in message and not Path("models").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("vocab"), 'must be a JSON object with lists "vocab" and "XY"'),
        (lambda c: c.update(XY=[]), "one at least"),
        (lambda c: c.update(vocab=[None]), '"vocab" must be a list of words (valid Unicode)'),
        (lambda c: c.update(XY=[[doc, 1] for doc, _ in c["XY"]]), "holds a single class"),
        *(
            (lambda c, pair=pair: c["XY"].__setitem__(2, pair), '"XY" entry 2 must be [[word in')
            for pair in ([1, 2], [[40], 1], [[-1], 1], [[1.0], 1], [[10**30], 1], [[1], 2],
                         [[1], "1"], [[1], float("nan")])
        ),
    ],
)  # fmt: skip
def test_data_files_of_another_shape(small_set, classification, change, message):
    spoil(change)
    refusal = refused(classification.train_classifier.main, TRAIN)
    assert refusal.startswith("data file data/small_train.json") or "single" in message
    assert message in refusal


def test_all_missing_checkpoints_are_named_with_the_command(small_set, classification):
    classification.train_classifier.main([*TRAIN[:2], "--seed", "20", "--steps", "12"])
    process = run_script("classification/eval_dump.py", "--dataset", "small", cwd=small_set)
    assert_refused(
        process,
        "7 checkpoint(s) of configs/small_log.json are missing",
        "seed=20,normal/{model5}",
        "missing (to list, and evaluate, the existing ones instead: python eval_dump.py "
        "--dataset small --make_log_config --overwrite): models/small/",
        "python train_classifier.py --dataset small --seed 20 --steps 12 --save_every 12 "
        "--custom_saves 0,5,11 --overwrite; likewise 2 more run(s), with their seeds",
    )
    assert not (small_set / "outputs").exists()


def test_word_vectors_that_ask_for_code(small_set):
    Path("data/w2v.pkl").write_bytes(pickle.dumps({"w1": Hostile()}))
    process = run_script("classification/train_classifier.py", *TRAIN, cwd=small_set)
    assert_refused(process, "data/w2v.pkl asks for posix.mkdir", "nothing was run")
    assert not (small_set / "harm").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--steps", "0"], "--steps: must be an integer from 1 to"),
        (["--custom_saves", "1,x"], "must be an integer from 0 to 1000000000, not 'x'"),
        (["--seed", "-1"], "--seed: must be an integer from 0 to"),
        (["--device", "tpu"], "invalid choice"),
    ],
)
def test_options_out_of_range(small_set, classification, capsys, args, message):
    with pytest.raises(SystemExit) as stop:
        classification.train_classifier.main([*TRAIN, *args])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_collect_names_an_absent_dump_or_run_and_a_foreign_baseline(
    golden_classification, classification
):
    collect, args = classification.collect_classification_stats.main, ["--datasets", "Furd"]
    message = refused(collect, [*args, "--out_file", "r.pkl"])
    assert "outputs/Furd_logs.pkl" in message and "python eval_dump.py --dataset Furd" in message
    (golden_classification / "golden").rename("outputs")
    whole = Path("outputs/Furd_logs.pkl").read_bytes()
    logs = pickle.loads(whole)
    for example in logs["data"]:
        for key in [key for key in example if key[0] == "uniform"]:
            del example[key]
    Path("outputs/Furd_logs.pkl").write_bytes(pickle.dumps(logs))
    assert "hold no run uniform" in refused(collect, [*args, "--out_file", "r.pkl"])
    Path("outputs/Furd_logs.pkl").write_bytes(whole)
    Path("outputs/Furd_logistic_beta.pkl").write_bytes(pickle.dumps(np.zeros((1, 5))))
    message = refused(collect, [*args, "--out_file", "r.pkl"])
    assert "holds 5 values" in message and "python logistic_beta.py --dataset Furd" in message
    assert not Path("r.pkl").exists()


SCRIPTS = [p.name for p in (ROOT / "classification").glob("*.py") if "__main__" in p.read_text()]


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_says_what_a_script_reads_and_writes(small_set, script):
    process = run_script(f"classification/{script}", "--help", cwd=small_set)
    assert process.returncode == 0, process.stderr
    assert f"python {script}" in process.stdout
    assert sorted(os.listdir(small_set)) == ["configs", "data"]


def test_logs_and_baselines_of_other_data_or_that_have_changed_are_refused(
    small_set, classification
):
    """A changed bit of a score would be a number like any other."""
    train_small_set(classification)
    classification.eval_dump.main(["--dataset", "small"])
    classification.logistic_beta.main(["--dataset", "small"])

    def assert_refused_by_both(message: str) -> None:
        for script, args in (
            ("collect_classification_stats", ["--datasets", "small", "--out_file", "r.pkl"]),
            ("plot_dynamics", ["--dataset", "small"]),
        ):
            assert message in refused(getattr(classification, script).main, args)

    for name in ("small_logistic_beta.pkl", "small_logs.pkl"):
        path = Path("outputs") / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-60] + bytes([whole[-60] ^ 1]) + whole[-59:])
        assert_refused_by_both(f"outputs/{name} has changed since")
        path.write_bytes(whole)
    spoil(lambda content: content["XY"].reverse())
    classification.logistic_beta.main(["--dataset", "small"])
    assert_refused_by_both("was made from other data than the logs")
    assert not Path("r.pkl").exists() and not Path("figures").exists()


def test_a_diverged_checkpoint_is_named(small_set, classification):
    classification.train_classifier.main([*TRAIN[:2], "--seed", "20", "--steps", "12"])
    write_json("configs/small_log.json", read_json("configs/small_log.json")[:1])
    path = next(Path("models/small").glob("*seed=20*")) / "model0"
    state = torch.load(path, weights_only=True)
    state["hidden2beta.bias"].fill_(float("nan"))
    torch.save(state, path)
    message = refused(classification.eval_dump.main, ["--dataset", "small"])
    assert "model0 gives scores that are not finite" in message
    assert not Path("outputs").exists()


def test_a_learning_rate_that_diverges(small_set, classification):
    args = ["--dataset", "small", "--epochs", "2", "--lr", "1e38"]
    with pytest.raises(RunError, match=r"the loss of step 1 is .*--lr 1e\+38 may be too large"):
        classification.embedding_beta.main(args)
    assert not Path("outputs").exists()


def test_a_run_with_a_malformed_record_or_without_a_checkpoint_is_retrained_on_request(
    small_set, classification
):
    train, args = classification.train_classifier.main, [*TRAIN, "--custom_saves", "0"]
    train(args)
    folder = next(Path("models/small").glob("*seed=1,*"))
    (folder / "model0").unlink()
    assert "checkpoint(s) 0 are gone; --overwrite retrains the run" in refused(train, args)
    (folder / "run.json").write_text("{")
    assert "--overwrite retrains" in refused(train, args)
    train([*args, "--overwrite"])
    assert (folder / "model0").exists()


@pytest.mark.parametrize("out_file", ["outputs/x.pkl", "configs", "configs/model.json/r.pkl"])
def test_outputs_that_cannot_be_written_are_refused_first(small_set, classification, out_file):
    Path("outputs").mkdir()
    args = ["--datasets", "small", "--out_file", out_file]
    assert out_file in refused(classification.collect_classification_stats.main, args)


def test_memory_that_cannot_be_had(small_set):
    process = run_script(
        "classification/embedding_beta.py",
        *("--dataset", "small", "--embed_dim", 10**9),
        cwd=small_set,
    )
    assert process.returncode == 1
    assert "embedding_beta.py: failed: out of memory" in process.stderr
    assert "Traceback" not in process.stderr
