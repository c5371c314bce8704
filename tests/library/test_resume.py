"""Going on after a stop: training states, parts of outputs, locks, signals, divergence."""

import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import refused
from torch import nn

from attention_dynamics.cli import InputError, RunError, Terminated
from attention_dynamics.device import rng_state, set_rng_state, set_seed
from attention_dynamics.runs import training as training_module
from attention_dynamics.runs.outputs import load_state, save_state
from attention_dynamics.runs.paths import state_path
from attention_dynamics.runs.records import begin_run, finish_run, locked
from attention_dynamics.runs.training import Training

STOPS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


def made(seed: int = 0):
    """A model whose updates draw random numbers (dropout), and its optimizer."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def train(path: Path | None, steps: int, stop=lambda step: None, every: int = 3, **settings):
    """The weights after ``steps`` updates; ``stop`` is called within each of them."""
    model, optimizer = made()
    order = np.random.default_rng(1)
    with Training(path, settings, model, optimizer, every, {"seen": []}) as training:
        for _ in range(training.step):
            order.normal(size=4)
        while training.step < steps:
            x = torch.from_numpy(order.normal(size=4)).float()
            with training.update():
                loss = training.check_finite((model(x) ** 2).sum(), np.array([training.step]))
                optimizer.zero_grad()
                loss.backward()
                stop(training.step)
                optimizer.step()
            training.notes["seen"].append(training.step)
    return {name: value.clone() for name, value in model.state_dict().items()}, training


def same(one: dict, other: dict) -> bool:
    return all(value.equal(other[name]) for name, value in one.items())


# --- training states ---


@pytest.mark.parametrize("number", STOPS)
@pytest.mark.parametrize("at", [0, 4, 5])
def test_a_signal_finishes_the_update_and_writes_the_state(tmp_path, number, at):
    whole, _ = train(None, 9)
    path = tmp_path / "state"

    def stop(step):
        if step == at:
            os.kill(os.getpid(), number)

    with pytest.raises(STOPS[number]):
        train(path, 9, stop)
    assert load_state(path, {})["step"] == at + 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed, training = train(path, 9)
    assert same(resumed, whole)
    assert training.notes["seen"] == [*range(1, at + 1), *range(at + 2, 10)]  # not that of the stop


@pytest.mark.parametrize(("number", "saved"), [(signal.SIGTERM, 5), (signal.SIGINT, 3)])
def test_a_second_sigterm_is_ignored_and_a_second_ctrl_c_ends_at_once(tmp_path, number, saved):
    """SLURM sends SIGTERM twice at a time limit."""

    def stop(step):
        if step == 4:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)

    with pytest.raises(STOPS[number]):
        train(tmp_path / "state", 9, stop)
    assert load_state(tmp_path / "state", {})["step"] == saved
    assert same(train(tmp_path / "state", 9)[0], train(None, 9)[0])


def test_a_state_belongs_to_its_settings_and_model(tmp_path):
    path = tmp_path / "state"
    train(path, 3, seed=1)
    with pytest.raises(InputError, match=r"unfinished run with .* settings \(seed was 1, is 2\)"):
        train(path, 3, seed=2)
    save_state(path, {"format": 2}, {})
    assert "format was 2, is 1" in refused(load_state, path, {})
    torch.save([1], path)
    assert "state is corrupt: remove it" in refused(train, path, 3)


def test_all_generators_come_back():
    set_seed(3)
    states = rng_state()

    def drawn():
        return random.random(), np.random.random(), torch.rand(1).item()

    first = drawn()
    assert drawn() != first
    set_rng_state(states)
    assert drawn() == first


# --- divergence ---


@pytest.mark.parametrize("where", ["loss", "weights"])
def test_what_is_not_finite_ends_the_run_and_is_never_kept(tmp_path, monkeypatch, where):
    monkeypatch.setattr(training_module, "_FRACTION", np.inf)
    model, optimizer = made()

    def run(training):
        training.save_checkpoint(tmp_path / "model0")
        for step in range(8):
            with training.update():
                loss = model(torch.ones(4)).sum()
                bad = step == 5 and where == "loss"
                training.check_finite(loss * torch.nan if bad else loss, np.array([7, step]))
                if step == 5:
                    with torch.no_grad():
                        model[0].weight[0, 0] = torch.inf

    training = Training(tmp_path / "state", {}, model, optimizer, 2)
    with training, pytest.raises(RunError) as error:
        run(training)
    what = {"loss": "the loss of step 5 is nan", "weights": "not finite after the update of step 5"}
    for part in (what[where], "training examples 7, 5", f"good checkpoint is {tmp_path}/model0"):
        assert part in str(error.value)
    assert load_state(tmp_path / "state", {})["step"] == 4


# --- run folders ---


def test_begin_run_resumes_the_same_run_and_rejects_another(tmp_path):
    folder, settings = tmp_path / "run", {"seed": 1, "data": "abc"}
    assert begin_run(folder, settings, False)
    (folder / "model0").write_bytes(b"x")
    state_path(folder).write_bytes(b"state")
    assert begin_run(folder, settings, False)
    assert sorted(os.listdir(folder)) == ["model0", "state", "unfinished.json"]
    (folder / "unfinished.json").rename(folder / "run.json")  # as in earlier versions
    assert begin_run(folder, settings, False)
    assert sorted(os.listdir(folder)) == ["model0", "state", "unfinished.json"]
    with pytest.raises(InputError, match=r"an unfinished run with .* settings \(seed was 1, is 2"):
        begin_run(folder, {**settings, "seed": 2}, False)
    assert begin_run(folder, settings, True)
    assert os.listdir(folder) == ["unfinished.json"]
    finish_run(folder, {"accuracy": 0.5})
    assert not begin_run(folder, settings, False)
    with pytest.raises(InputError, match=r"a finished run with .* settings \(data was 'abc'"):
        begin_run(folder, {**settings, "data": "abd"}, False)
    assert os.listdir(folder) == ["run.json"]
    assert begin_run(folder, settings, True)
    assert os.listdir(folder) == ["unfinished.json"]


# --- locks ---

HOLDER = """
import sys
from attention_dynamics.runs.records import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("killed", [False, True])
def test_a_lock_names_its_process_and_ends_with_it(tmp_path, killed):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(RunError) as error, locked(tmp_path / "run"):
        pass
    named = f"is being written by process {holder.pid} on host {socket.gethostname()}"
    assert named in str(error.value)
    with locked(tmp_path / "other"):
        pass
    if killed:
        holder.kill()
    holder.communicate()
    assert os.listdir(tmp_path) == [".run.lock"] * killed
    with locked(tmp_path / "run"):
        assert (tmp_path / ".run.lock").read_text().split()[0] == str(os.getpid())
    assert os.listdir(tmp_path) == []
