"""Log configs that are written from the finished runs."""

import re
from pathlib import Path

import pytest
from conftest import SMALL_MODEL as CONFIG
from conftest import refused

from attention_dynamics.runs.configs import make_log_config
from attention_dynamics.runs.paths import run_folder
from attention_dynamics.storage.files import read_json, write_json, write_text

RUNS = ((7, False), (20, False), (13, False), (12, True))


@pytest.fixture
def runs(folder) -> Path:
    """A working directory with four finished runs of the dataset "mine"."""
    for seed, uniform in RUNS:
        run = run_folder("mine", CONFIG, seed, uniform)
        write_json(run / "run.json", {"settings": {}, "finished": "2026-01-01"})
        for step in (0, 5, 11) if seed == 20 else (0, 5):
            write_text(run / f"model{step}", f"{seed} {step}")
    return folder


def make(dataset: str, with_grad: bool = False, overwrite: bool = False) -> None:
    make_log_config(dataset, CONFIG, with_grad, overwrite)


def test_make_log_config_lists_common_checkpoints_of_finished_runs(runs, capsys):
    write_json(runs / "models/mine/h_dim=9,b_size=8,seed=1,normal/run.json", {"settings": {}})
    for name in ("seed=14,normal/unfinished", "seed=15,normal/run"):
        path = runs / f"models/mine/h_dim=6,b_size=8,{name}.json"
        write_json(path, {"settings": {}, "finished": None})
    make("mine", with_grad=True)
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
    assert "2 checkpoint(s) of each of normal_A, normal_B, normal_C, uniform" in out
    assert re.findall(r"seed=(1\d),normal is not finished: left out", err) == ["14", "15"]
    assert "normal_B (seed 13) lacks 1 checkpoint(s) that other runs have" in err


def test_make_log_config_replaces_another_list_only_with_overwrite(runs):
    make("mine")
    entries = read_json("configs/mine_log.json")
    assert "calculate_grad" not in entries[0]
    make("mine")  # the same: nothing to refuse
    write_json("configs/mine_log.json", entries[1:])
    assert "lists other checkpoints" in refused(make, "mine")
    make("mine", overwrite=True)
    assert read_json("configs/mine_log.json") == entries


def test_make_log_config_requires_runs_and_a_common_checkpoint(runs):
    for path in runs.glob("models/mine/*12,uniform/model*"):
        path.unlink()
    assert "have no checkpoint in common" in refused(make, "mine")
    for seed in (7, 13):
        record = next(runs.glob(f"models/mine/*seed={seed},normal/run.json"))
        write_json(record, {"settings": {}, "finished": None})
    assert "holds 1 finished normal run(s) and 1 uniform" in refused(make, "mine")
    assert "DATASETS=absent bash train_runs.sh" in refused(make, "absent")
