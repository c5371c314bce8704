"""What exists, what is stale, incomplete or damaged, what is next; log configs; soundness."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import assert_refused

from attention_dynamics import __main__ as command
from attention_dynamics.cli import InputError
from attention_dynamics.reporting.inventory import Step, inventory, next_steps
from attention_dynamics.runs.configs import make_log_config
from attention_dynamics.storage.files import read_json, sha256, write_json, write_pickle, write_text

CONFIG = {"hidden_dim": 6, "intermediate_dim": 5, "embed_dim": 7, "batch_size": 8}
RUNS = ((20, "normal"), (13, "normal"), (12, "uniform"))


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for folder in ("classification", "translation", "SequenceCopying", "papa"):
        (tmp_path / folder).mkdir()
    return tmp_path


def states(steps: list[Step], dataset: str) -> dict[str, str]:
    return {step.what: step.state for step in steps if step.dataset == dataset}


def of(what: str, dataset: str = "mine") -> Step:
    """The step of the inventory."""
    (found,) = (s for s in inventory() if (s.what, s.dataset) == (what, dataset))
    return found


def at(path: Path, seconds: int) -> None:
    """Set the time of a file."""
    os.utime(path, (seconds, seconds))


def write_data(folder: str = "classification") -> str:
    """The files of a data set "mine"; its checksum as records hold it."""
    if folder == "classification":
        paths = [Path(f"classification/data/mine_{split}.json") for split in ("train", "test")]
        vectors = "+0123456789abcdef"
    else:
        home = Path("translation/data/mine")
        paths = [home / name for name in ("train.de", "train.en", "val.de", "val.en", "mine.model")]
        write_json(home / "about.json", {})
        vectors = ""
    for path in paths:
        write_text(path, path.name)
    return "+".join(sha256(path)[:16] for path in paths) + vectors


def write_run(data: str, seed: int, kind: str, steps=(0, 5), finished="2026-01-01", **more) -> Path:
    run = Path(f"classification/models/mine/h_dim=6,b_size=8,seed={seed},{kind}")
    settings = {"data": data, "dataset": "mine"}
    write_json(run / "run.json", {"settings": settings, "finished": finished, **more})
    for step in steps:
        write_text(run / f"model{step}", f"{seed} {step}")
    at(run / "run.json", 1000)
    return run


def write_output(path: str, data: str, time: int, **settings) -> Path:
    out = Path("classification/outputs") / path
    write_text(out, path)
    record = {"settings": {"data": data, "dataset": "mine", **settings}, "sha256": sha256(out)}
    write_json(out.with_suffix(".json"), record)
    at(out, time)
    return out


def write_config(steps=(0, 5)) -> None:
    entries = [
        {"name": f"normal_{seed}", "iteration": t, "seed": seed, "uniform": kind == "uniform"}
        for seed, kind in RUNS
        for t in steps
    ]
    write_json("classification/configs/mine_log.json", entries)


def write_all() -> str:
    """Everything of the data set "mine" of classification, each step after the one before."""
    data = write_data()
    write_config()
    for seed, kind in RUNS:
        write_run(data, seed, kind)
    write_output("mine_logs.pkl", data, 2000)
    write_output("mineembedding256beta.pkl", data, 2000)
    write_output("mine_logistic_beta.pkl", data, 2000)
    key = ("mine", "top 5% match", "val", "test_acc")
    curves = {"iterations": [0, 5], "alpha_corrs": [0.1, 0.5], "alpha_perfs": [0.5, 0.8]}
    result = {"agr_unif": 0.3, "baseline": 0.1, "best_perf": 0.8, "xi_unif": 0.8, **curves}
    write_pickle("classification/results/mine.pkl", {key: result})
    at(Path("classification/results/mine.pkl"), 3000)
    write_text("classification/figures/mine_val_top5.svg", "<svg/>")
    at(Path("classification/figures/mine_val_top5.svg"), 3000)
    return data


def test_nothing(root):
    assert next_steps(inventory()) == []
    assert "Nothing has been run yet" in command.status_text(inventory())


def test_each_step_in_turn(root):
    """The first step that is not done is next, until all are."""
    data = write_data()
    assert states(inventory(), "mine")["data"] == "done"
    (step,) = next_steps(inventory())
    assert (step.what, step.command) == (
        "runs", "cd classification && DATASETS=mine bash train_runs.sh",
    )  # fmt: skip
    for seed, kind in RUNS:
        write_run(data, seed, kind)
    write_config()
    assert next_steps(inventory())[0].what == "dump"
    write_output("mine_logs.pkl", data, 2000)
    assert next_steps(inventory())[0].what == "px"
    write_all()
    assert set(states(inventory(), "mine").values()) == {"done"}
    assert next_steps(inventory()) == []


def test_runs_that_are_not_as_the_log_config_wants(root):
    data = write_all()
    run = write_run(data, 13, "normal", finished=None)
    assert of("runs").state == "incomplete"
    assert of("runs").command == "cd classification && DATASETS=mine bash train_runs.sh"
    assert of("runs").detail == "2 of 3 finished: seed 13 normal is not finished"
    write_run("0" * 16 + "+" + "1" * 16, 13, "normal")
    assert (of("runs").state, of("runs").detail.split(": ")[1]) == (
        "stale", "seed 13 normal was trained on other data than is there now",
    )  # fmt: skip
    write_run(data, 13, "normal")
    (run / "model5").unlink()
    assert of("runs").detail.endswith(
        "seed 13 normal lacks checkpoint 5, which the log config lists"
    )
    write_text(run / "run.json", "{")
    assert of("runs").state == "damaged" and "malformed JSON" in of("runs").detail


def test_finished_runs_of_fewer_steps_are_listed_anew(root, monkeypatch):
    """train_runs.sh would refuse them, as they are not of 4000 steps; this command goes on."""
    data = write_data()
    for seed, kind in RUNS:
        write_run(data, seed, kind)
    relist = "cd classification && DATASETS=mine bash dump_logs.sh --make_log_config --overwrite"
    assert of("runs").command == relist  # there is no log config
    write_config(steps=(0, 5, 9))
    assert of("runs").detail == (
        "0 of 3 finished: seed 20 normal lacks checkpoint 9, which the log config lists, and 2 more"
    )
    assert f"  mine: {relist}" in command.status_text(inventory()).splitlines()
    # What is not finished, or of other code, has to be trained.
    run = write_run(data, 13, "normal", finished=None)
    train = "cd classification && DATASETS=mine bash train_runs.sh"
    assert of("runs").command == train
    (run / "run.json").unlink()
    assert of("runs").command == train
    write_run(data, 13, "normal")
    monkeypatch.chdir("classification")
    make_log_config("mine", CONFIG, with_grad=False, overwrite=True)
    monkeypatch.chdir(root)
    assert (of("runs").state, next_steps(inventory())[0].what) == ("done", "dump")


def test_a_dump_that_is_stale_or_unfinished(root):
    data = write_all()
    at(next(Path("classification/models/mine").glob("*/run.json")), 2500)
    assert of("dump").state == "stale" and "is older than models/mine" in of("dump").detail
    dump = write_output("mine_logs.pkl", data, 3500)
    assert of("dump").state == "done"
    assert of("results").state == "stale" and of("figures").state == "stale"
    write_text("classification/data/mine_test.json", "other")
    assert of("dump").detail == "mine_logs.pkl was made from other data than is there now"
    dump.unlink()
    for part in ("a", "b"):
        write_text(dump.with_suffix(".parts") / part, "")
    assert (of("dump").state, of("dump").detail[:7]) == ("incomplete", "2 parts")


def test_translation_data_of_another_folder(root):
    """The folder of a paper's data set is spelled with -, and its checksum is of five files."""
    checksum = write_data("translation")
    Path("translation/data/mine").rename("translation/data/mine-v14")
    (Path("translation/data/mine-v14/mine.model")).rename("translation/data/mine-v14/x.model")
    write_json("translation/configs/mine_v14_log.json", [])
    assert of("data", "mine_v14").state == "done"
    out = Path("translation/outputs/mine_v14_ibm1_beta.pkl")
    write_text(out, "")
    write_json(out.with_suffix(".json"), {"settings": {"data": checksum}})
    assert of("ibm1", "mine_v14").state == "done"
    write_json(out.with_suffix(".json"), {"settings": {"data": checksum + "+0123"}})
    assert of("ibm1", "mine_v14").state == "stale"


def test_sequence_copying_and_papa(root):
    histories = Path("SequenceCopying/logs/vocab40seq_length40bsize128no_rep.pkl")
    write_pickle(histories, [])
    write_json(histories.with_suffix(".json"), {"sha256": sha256(histories)})
    assert of("results", "40 of 40").state == "done"
    # The figure shows both settings.
    assert of("figures", "40 of 40").command == "cd SequenceCopying && bash copying_runs.sh"
    write_pickle(histories.with_name(histories.name.replace("40", "60", 1)), [])
    assert of("figures", "40 of 60").command == "cd SequenceCopying && python plot_copying.py"
    both = "vocab40seq_length40bsize128no_rep_vocab60seq_length40bsize128no_rep"
    write_text(f"SequenceCopying/figures/copying_{both}.svg", "<svg/>")
    assert of("figures", "40 of 40").state == of("figures", "40 of 60").state == "done"
    write_text(histories, "cut")
    assert of("results", "40 of 40").state == "damaged"
    run = Path("papa/outputs/minilm_cola/results/0_seed0")
    run.mkdir(parents=True)
    assert of("runs", "minilm_cola").detail == "0 of 1 finished"
    write_json(run / "run.json", {"static_heads_num": 0})
    assert of("runs", "minilm_cola").state == "done"
    assert of("results", "minilm_cola").state == "missing"
    write_json("papa/results/any.json", {"minilm_cola": {}})
    assert of("results", "minilm_cola").state == "done"


def test_status_as_a_command(root):
    write_all()
    Path("classification/outputs/mine_logistic_beta.pkl").unlink()
    text = command.status_text(inventory())
    row = next(line for line in text.splitlines() if line.startswith("mine"))
    assert row.split() == ["mine", "done", "done", "done", "done", "-", "done", "done"]
    assert "mine: cd classification && python logistic_beta.py --dataset mine" in text


def test_status_elsewhere_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="go to the root of the repository"):
        inventory()


@pytest.fixture
def runs(root, monkeypatch) -> Path:
    """The three runs of a data set "mine", with classification/ as the working directory."""
    data = write_data()
    for seed, kind in ((7, "normal"), *RUNS):
        write_run(data, seed, kind, steps=(0, 5, 11) if seed == 20 else (0, 5))
    monkeypatch.chdir(root / "classification")
    return root / "classification"


def test_a_log_config_of_the_runs_that_are_there(runs, capsys):
    write_json(runs / "models/mine/h_dim=9,b_size=8,seed=1,normal/run.json", {"settings": {}})
    write_json(
        runs / "models/mine/h_dim=6,b_size=8,seed=14,normal/run.json",
        {"settings": {}, "finished": None},
    )
    make_log_config("mine", CONFIG, with_grad=True, overwrite=False)
    entries = read_json("configs/mine_log.json")
    assert entries[:2] == [
        {"name": "normal_A", "iteration": t, "seed": 20, "uniform": False, "calculate_grad": True}
        for t in (0, 5)  # 11 is not a checkpoint of all
    ]
    assert [(e["name"], e["seed"], e["uniform"], e["calculate_grad"]) for e in entries[2::2]] == [
        ("normal_B", 13, False, False),
        ("normal_C", 7, False, False),
        ("uniform", 12, True, False),
    ]
    out, err = capsys.readouterr()
    assert "4 runs (normal_A, normal_B, normal_C, uniform), 2 checkpoints of each" in out
    assert "seed=14,normal is not finished: left out" in err


def test_log_configs_that_are_there(runs):
    make_log_config("mine", CONFIG, with_grad=False, overwrite=False)
    entries = read_json("configs/mine_log.json")
    assert "calculate_grad" not in entries[0]
    make_log_config("mine", CONFIG, with_grad=False, overwrite=False)  # the same: nothing to refuse
    write_json("configs/mine_log.json", entries[1:])
    with pytest.raises(InputError, match="lists other checkpoints"):
        make_log_config("mine", CONFIG, with_grad=False, overwrite=False)
    make_log_config("mine", CONFIG, with_grad=False, overwrite=True)
    assert read_json("configs/mine_log.json") == entries


def test_runs_that_do_not_suffice(runs, capsys):
    for seed in (7, 13):
        next(runs.glob(f"models/mine/*seed={seed},normal/run.json")).write_text(
            '{"settings": {}, "finished": null}'
        )
    with pytest.raises(InputError, match=r"holds 1 finished normal run\(s\) and 1 uniform"):
        make_log_config("mine", CONFIG, with_grad=False, overwrite=False)
    with pytest.raises(InputError, match=r"DATASETS=absent bash train_runs\.sh"):
        make_log_config("absent", CONFIG, with_grad=False, overwrite=False)


def test_runs_without_a_common_checkpoint(runs):
    for path in runs.glob("models/mine/*12,uniform/model*"):
        path.unlink()
    with pytest.raises(InputError, match="have no checkpoint in common"):
        make_log_config("mine", CONFIG, with_grad=False, overwrite=False)


def test_an_unknown_command_is_refused(tmp_path):
    words = [sys.executable, "-m", "attention_dynamics", "mend"]
    process = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert_refused(process, "python -m attention_dynamics: error", "invalid choice: 'mend'")
