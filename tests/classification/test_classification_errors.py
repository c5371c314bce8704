"""Bad input to the classification scripts: one clear line, exit code 2, nothing half-written."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import assert_refused, refused, run_script

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
        ("toy", "--dataset toy (see"),
        ("mine", "--dataset mine --train FILE --test FILE (see"),
        ("furdd", "did you mean Furd?"),
    ],
)
def test_absent_dataset_names_the_command_that_makes_it(small_set, classification, dataset, way):
    message = refused(classification.train_classifier.main, ["--dataset", dataset, "--seed", "1"])
    assert message.startswith(f"no dataset {dataset}: data/{dataset}_train.json does not exist")
    assert "data/ holds small" in message and way in message
    assert not Path("models").exists()


@pytest.mark.parametrize("label", [2, -1, 0.5, "1", None, True])
def test_labels_other_than_0_and_1(small_set, classification, label):
    spoil(lambda content: content["XY"][3].__setitem__(1, label))
    message = refused(classification.train_classifier.main, TRAIN)
    assert 'data/small_train.json: "XY" entry 3 has the label' in message
    assert "labels must be 0 or 1" in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("vocab"), 'the keys "vocab" and "XY"'),
        (lambda c: c.update(XY=[]), "one at least"),
        (lambda c: c.update(XY=[[1, 2]]), '"XY" entry 0 must be [[word index, ...], label]'),
        (lambda c: c.update(vocab=[1]), '"vocab" must be a list of words'),
        (lambda c: c["XY"][2][0].append(40), "entry 2 has the word index 40, but the vocabulary"),
        (lambda c: c["XY"][2][0].append(-1), "entry 2 has the word index -1"),
        (lambda c: c["XY"][2][0].append(1.5), "not an integer"),
        (lambda c: c["XY"][2][0].append(10**30), "too large"),
    ],
)
def test_data_files_of_another_shape(small_set, classification, change, message):
    spoil(change)
    assert message in refused(classification.train_classifier.main, TRAIN)


def test_malformed_json_names_file_and_position(small_set):
    text = Path("data/small_test.json").read_text()
    Path("data/small_test.json").write_text(text[:100])
    process = run_script("classification/train_classifier.py", *TRAIN, cwd=small_set)
    assert_refused(process, "data/small_test.json is malformed JSON at line")


def test_all_missing_checkpoints_are_named_with_the_command(small_set, classification):
    classification.train_classifier.main([*TRAIN[:2], "--seed", "20", "--steps", "12"])
    process = run_script("classification/eval_dump.py", "--dataset", "small", cwd=small_set)
    assert_refused(
        process,
        "7 checkpoint(s) of configs/small_log.json are missing",
        "seed=20,normal/{model5}",
        "missing (to evaluate the existing ones: python eval_dump.py --dataset small "
        "--make_log_config --overwrite): models/small/",
        "python train_classifier.py --dataset small --seed 20 --steps 12 --save_every 12 "
        "--custom_saves 0,5,11 --overwrite; 2 more run(s): DATASETS=small bash train_runs.sh",
    )
    assert not (small_set / "outputs").exists()


def test_missing_checkpoints_of_one_run(small_set, classification):
    write_json("configs/small_log.json", read_json("configs/small_log.json")[:3])
    message = refused(classification.eval_dump.main, ["--dataset", "small"])
    assert message.startswith(
        "3 checkpoint(s) of configs/small_log.json are missing (to evaluate the existing ones: "
        "python eval_dump.py --dataset small --make_log_config --overwrite): models/small/"
    )
    assert "/{model0,5,11}. Make them with: python train_classifier.py" in message


def test_a_checkpoint_of_other_dimensions(small_set, classification):
    log = read_json("configs/small_log.json")[:1]
    write_json("configs/small_log.json", log)
    classification.train_classifier.main([*TRAIN[:2], "--seed", "20", "--steps", "1"])
    config = read_json("configs/model.json")
    write_json("configs/model.json", {**config, "embed_dim": 9})
    message = refused(classification.eval_dump.main, ["--dataset", "small"])
    assert "model0 does not fit the model: embedding.weight is" in message


def test_word_vectors_that_ask_for_code(small_set):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, ("pwned",)

    Path("data/w2v.pkl").write_bytes(pickle.dumps({"w1": Hostile()}))
    process = run_script("classification/train_classifier.py", *TRAIN, cwd=small_set)
    assert_refused(process, "data/w2v.pkl asks for posix.mkdir", "nothing was run")
    assert not (small_set / "pwned").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--steps", "0"], "--steps: must be at least 1"),
        (["--save_every", "0"], "--save_every: must be at least 1"),
        (["--custom_saves", "1,x"], "steps look like 0,10,50"),
        (["--custom_saves=-5"], "cannot be negative"),
        (["--seed", "-1"], "--seed: must be from 0 to"),
        (["--device", "tpu"], "invalid choice"),
    ],
)
def test_options_out_of_range(small_set, classification, capsys, args, message):
    with pytest.raises(SystemExit) as stop:
        classification.train_classifier.main([*TRAIN, *args])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_threads_below_one(small_set, classification):
    message = refused(classification.train_classifier.main, [*TRAIN, "--threads", "0"])
    assert "--threads must be from 1 to 1024" in message


def test_collect_without_a_dump_says_how_to_make_it(small_set):
    process = run_script(
        "classification/collect_classification_stats.py",
        *("--datasets", "small", "--out_file", "r.pkl"),
        cwd=small_set,
    )
    assert_refused(process, "outputs/small_logs.pkl", "python eval_dump.py --dataset small")
    assert not (small_set / "r.pkl").exists()


def test_collect_names_a_run_that_the_logs_lack(golden_classification, classification):
    (golden_classification / "golden").rename("outputs")
    with open("outputs/Furd_logs.pkl", "rb") as stream:
        logs = pickle.load(stream)
    for example in logs["data"]:
        for key in [key for key in example if key[0] == "uniform"]:
            del example[key]
    Path("outputs/Furd_logs.pkl").write_bytes(pickle.dumps(logs))
    collect = classification.collect_classification_stats.main
    message = refused(collect, ["--datasets", "Furd", "--out_file", "r.pkl"])
    assert "hold no run uniform" in message


def test_a_baseline_of_other_data(golden_classification, classification):
    (golden_classification / "golden").rename("outputs")
    import numpy as np

    Path("outputs/Furd_logistic_beta.pkl").write_bytes(pickle.dumps(np.zeros((1, 5))))
    collect = classification.collect_classification_stats.main
    message = refused(collect, ["--datasets", "Furd", "--out_file", "r.pkl"])
    assert "holds 5 values" in message
    assert "python logistic_beta.py --dataset Furd" in message


def test_a_single_class_in_training(small_set, classification):
    spoil(lambda content: content.update(XY=[[doc, 1] for doc, _ in content["XY"]]))
    message = refused(classification.logistic_beta.main, ["--dataset", "small"])
    assert "holds a single class" in message


def test_an_output_folder_that_cannot_be_written_is_a_failure(small_set):
    (small_set / "models").write_text("a file where a folder should be")
    process = run_script("classification/train_classifier.py", *TRAIN, cwd=small_set)
    assert process.returncode == 1
    assert "train_classifier.py: failed" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    "script",
    sorted(
        path.name
        for path in (Path(__file__).resolve().parents[2] / "classification").glob("*.py")
        if "__main__" in path.read_text()
    ),
)
def test_help_says_what_a_script_reads_and_writes(small_set, script):
    process = run_script(f"classification/{script}", "--help", cwd=small_set)
    assert process.returncode == 0, process.stderr
    assert f"python {script}" in process.stdout
    assert json.dumps(sorted(os.listdir(small_set))) == json.dumps(["configs", "data"])


def test_a_full_disk_names_the_file_and_leaves_nothing_half_written(small_set):
    """A limit on file sizes stands in for the full disk: small files fit, checkpoints do not."""
    script = Path(__file__).resolve().parents[2] / "classification" / "train_classifier.py"
    command = f"ulimit -f 4; exec {sys.executable} {script} {' '.join(TRAIN)}"
    process = subprocess.run(
        ["bash", "-c", command], cwd=small_set, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 1, process.stderr
    assert "train_classifier.py: failed: File too large (models/small/" in process.stderr
    assert "Traceback" not in process.stderr
    folder = next((small_set / "models" / "small").iterdir())
    assert os.listdir(folder) == ["unfinished.json"]


def test_checkpoints_of_other_data_are_refused(small_set, classification):
    """Their word indices would mean other words."""
    classification.train_classifier.main([*TRAIN[:2], "--seed", "20", "--steps", "12"])
    write_json("configs/small_log.json", read_json("configs/small_log.json")[:1])
    spoil(lambda content: content["XY"].reverse())
    message = refused(classification.eval_dump.main, ["--dataset", "small"])
    assert "seed=20,normal was trained on data that does not match the current data" in message


def test_baselines_of_other_data_are_refused(small_set, classification):
    train_and_dump(classification)
    classification.logistic_beta.main(["--dataset", "small"])
    spoil(lambda content: content["XY"].reverse())
    classification.logistic_beta.main(["--dataset", "small"])
    collect = classification.collect_classification_stats.main
    message = refused(collect, ["--datasets", "small", "--out_file", "r.pkl"])
    assert "was made from other data than the logs" in message
    message = refused(classification.plot_dynamics.main, ["--dataset", "small"])
    assert "was made from other data than the logs" in message


def train_and_dump(classification) -> None:
    for seed, more in (("20", []), ("13", []), ("12", ["--uniform"])):
        args = [*TRAIN[:2], "--seed", seed, "--steps", "12", "--custom_saves", "0,5", *more]
        classification.train_classifier.main(args)
    classification.eval_dump.main(["--dataset", "small"])


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


def test_damaged_outputs_and_records_are_made_again(small_set, classification, capsys):
    train_and_dump(classification)
    whole = Path("outputs/small_logs.pkl").read_bytes()
    Path("outputs/small_logs.pkl").write_bytes(whole[:1000])
    classification.eval_dump.main(["--dataset", "small"])
    assert Path("outputs/small_logs.pkl").read_bytes() == whole
    Path("outputs/small_logs.json").write_text('{"se')
    capsys.readouterr()
    classification.eval_dump.main(["--dataset", "small"])
    assert "up to date" not in capsys.readouterr().out
    folder = next(Path("models/small").glob("*seed=20*"))
    (folder / "model5").unlink()
    args = [*TRAIN[:2], "--seed", "20", "--steps", "12", "--custom_saves", "0,5"]
    message = refused(classification.train_classifier.main, args)
    assert "checkpoint(s) 5 are gone; --overwrite retrains the run" in message
    (folder / "run.json").write_text("{")
    assert "--overwrite retrains" in refused(classification.train_classifier.main, args)
    classification.train_classifier.main([*args, "--overwrite"])
    assert (folder / "model5").exists()


def test_logs_and_baselines_that_have_changed_are_refused(small_set, classification):
    """A changed bit of a score would be a number like any other."""
    train_and_dump(classification)
    classification.logistic_beta.main(["--dataset", "small"])
    for name in ("small_logistic_beta.pkl", "small_logs.pkl"):
        path = Path("outputs") / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-60] + bytes([whole[-60] ^ 1]) + whole[-59:])
        for main, args in (
            (classification.collect_classification_stats.main, ["--datasets", "small"]),
            (classification.plot_dynamics.main, ["--dataset", "small"]),
        ):
            given = [*args, "--out_file", "r.pkl"] if "--datasets" in args else args
            assert f"outputs/{name} has changed since" in refused(main, given)
        path.write_bytes(whole)
    assert not Path("r.pkl").exists() and not Path("figures").exists()


def test_plots_refuse_logs_before_anything_is_written(small_set, classification):
    log = read_json("configs/small_log.json")
    write_json("configs/small_log.json", [e for e in log if e["name"] != "normal_B"])
    for seed, more in (("20", []), ("12", ["--uniform"])):
        args = [*TRAIN[:2], "--seed", seed, "--steps", "12", "--custom_saves", "0,5", *more]
        classification.train_classifier.main(args)
    classification.eval_dump.main(["--dataset", "small"])
    assert "hold no run normal_B" in refused(classification.plot_dynamics.main, TRAIN[:2])
    assert not Path("figures").exists()


def test_outputs_that_cannot_be_written_are_refused_before_the_work(small_set, classification):
    train_and_dump(classification)
    Path("taken").write_text("a file")
    args = [*TRAIN[:2], "--out_dir", "taken/figures"]
    assert "lies in a file" in refused(classification.plot_dynamics.main, args)
    shutil.rmtree("outputs")
    Path("outputs").write_text("a file")
    for name in ("eval_dump", "embedding_beta", "logistic_beta"):
        with pytest.raises(FileExistsError, match="outputs"):
            getattr(classification, name).main(TRAIN[:2])


@pytest.mark.parametrize("out_file", ["outputs/x.pkl", "configs", "configs/model.json/r.pkl"])
def test_result_files_that_cannot_be_written_are_refused_first(small_set, classification, out_file):
    Path("outputs").mkdir()
    collect = classification.collect_classification_stats.main
    message = refused(collect, ["--datasets", "small", "--out_file", out_file])
    assert out_file in message


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".."])
def test_data_sets_have_plain_names(small_set, classification, name):
    for main, args in (
        (classification.train_classifier.main, TRAIN[2:]),
        (classification.prepare_data.main, ["--train", "a", "--test", "b"]),
    ):
        assert "must have a plain name" in refused(main, ["--dataset", name, *args])


def test_memory_that_cannot_be_had(small_set):
    process = run_script(
        "classification/embedding_beta.py",
        *("--dataset", "small", "--embed_dim", 10**9),
        cwd=small_set,
    )
    assert process.returncode == 1
    assert "embedding_beta.py: failed: out of memory" in process.stderr
    assert "Traceback" not in process.stderr
