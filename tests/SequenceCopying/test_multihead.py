"""Good and bad heads: the model, the verdict on a head, resuming, the figure, bad input."""

import csv
import shutil
from pathlib import Path

import pytest
import torch
from conftest import refused

from attention_dynamics.cli import InputError, RunError
from attention_dynamics.reporting.blocks import GENERATORS
from attention_dynamics.runs.outputs import load_state, save_state
from attention_dynamics.storage.files import read_json, sha256, write_pickle
from attention_dynamics.storage.pickles import load_pickle

OPTIONS = ["--seq_length", "3", "--hidden_dim", "8", "--bsize", "6", "--num_steps", "11"]
OPTIONS += ["--num_good", "3", "--num_bad", "3", "--num_random", "3", "--num_heads", "2"]
OPTIONS += ["--num_samples", "2", "--device", "cpu", "--jobs", "1"]
SETTINGS = {"seq_length": 3, "hidden_dim": 8, "bsize": 6, "num_steps": 11, "seed": 0}
OUTPUT = "re_2headcomb.pkl"
MEASURES = {"step", "acc", "loss", "attn_acc", "attn_acc_m1", "attn_acc_p1"}


def make_small(copying, monkeypatch) -> None:
    """A tiny task: after ten updates some heads predict a token of four more often than 0.3."""
    monkeypatch.setattr(copying.training, "GOOD", 0.3)
    monkeypatch.setattr(copying.training, "TRIAL_EVALUATION_SIZE", 40)


@pytest.fixture(scope="module")
def run_once(tmp_path_factory, copying) -> Path:
    """A working directory in which multihead.py has run."""
    folder = tmp_path_factory.mktemp("multihead")
    with pytest.MonkeyPatch.context() as monkeypatch:
        torch.set_num_threads(1)
        make_small(copying, monkeypatch)
        monkeypatch.chdir(folder)
        copying.multihead.main(OPTIONS)
    return folder


@pytest.fixture
def multihead(tmp_path, monkeypatch, copying, run_once):
    """multihead.py, in a copy of the working directory in which it has run."""
    shutil.copytree(run_once, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    make_small(copying, monkeypatch)
    return copying.multihead


def test_heads_are_averaged(copying):
    """Against a loop over the heads, with the attention written out."""
    models, training = copying.models, copying.training
    settings = training.TrialSettings(seq_length=4, hidden_dim=12)
    heads = [training.make_head(settings, 0, number) for number in range(3)]
    model = models.MultiheadCopier(training.make_body(settings), heads)
    decoded, states = torch.randn(5, 2, 12), torch.randn(7, 2, 12)
    alphas, outputs = [], []
    for head in heads:
        alpha = torch.einsum("tbh,sbh->tbs", head.attn_proj(decoded), states).softmax(dim=-1)
        alphas.append(alpha)
        outputs.append(head.enc_proj(torch.einsum("tbs,sbh->tbh", alpha, states)))
    close = {"atol": 1e-6, "rtol": 1e-5}
    expected = torch.stack(outputs).mean(dim=0)
    torch.testing.assert_close(model.attend(decoded, states), expected, **close)
    torch.testing.assert_close(model.alpha(decoded, states), torch.stack(alphas).mean(0), **close)


def test_classify_head(copying):
    classify = copying.training.classify_head
    good, bad, between = ([{"acc": 0.1}, {"acc": last}] for last in (0.96, 0.5, 0.6))
    fallen = [{"acc": 0.96}, {"acc": 0.5}]
    assert [classify([trial] * 3) for trial in (good, bad, between, fallen)] == [
        "good", "bad", "dropped", "good"
    ]  # fmt: skip
    assert classify([]) is classify([good]) is classify([bad, bad]) is None
    assert classify([good, bad]) == classify([bad, bad, between]) == "dropped"
    assert classify([[{"acc": 0.95}]]) == "dropped"  # not above 0.95, not below 0.6


def test_multihead_writes_histories_and_their_record(multihead, monkeypatch):
    bad, good, random = histories = load_pickle(OUTPUT)
    assert [len(of_kind) for of_kind in histories] == [2, 2, 2]
    for of_kind, kinds in ((bad, "bb"), (good, "bg"), (random, "rr")):
        assert all("".join(name[0] for name in names) == kinds for names in of_kind)
    for of_kind in histories:
        for history in of_kind.values():
            assert all(entry.keys() == MEASURES for entry in history)
            assert [entry["step"] for entry in history] == [0, 10]
    record = read_json("re_2headcomb.json")
    assert record["settings"]["num_samples"] == 2
    tests = record["results"]["fisher"]
    assert [(test["first"][0], test["second"]) for test in tests] == [
        ("2", "1 bad heads and a good one"), ("2", "2 random heads"), ("1", "2 random heads")
    ]  # fmt: skip
    # 0 of 2 against 2 of 2: two-sided p = 2 / C(4, 2)
    counts = [row["exceed 0.95"] for row in record["results"]["shares"]]
    assert counts == [0, 2, 0]
    assert [test["p"] for test in tests] == pytest.approx([1 / 3, 1, 1 / 3])
    first = sha256(OUTPUT)

    # Called again, nothing is trained; --overwrite collects the saved histories.
    monkeypatch.setattr(multihead, "train_trial", None)
    for options in ([], ["--overwrite"]):
        multihead.main([*OPTIONS, *options])
        assert sha256(OUTPUT) == first


def test_multihead_reports_on_the_heads_tried(multihead, capsys):
    """Finished and interrupted, by the files that an earlier version saved: acc and loss only."""
    results = read_json("re_2headcomb.json")["results"]
    kinds = {row["setting"]: row["heads"] for row in results["heads"]}
    assert kinds["good"] >= 3 <= kinds["bad"] and results["heads"][0]["of"] == sum(
        kinds[kind] for kind in ("good", "bad", "neither")
    )
    trials = {0: (1, 1, 1), 1: (0, 0, 0), 2: (1, 0), 3: (0, 1), 4: (1, 1)}
    folder = Path("interrupted")
    for number, accuracies in trials.items():
        saved = [[{"acc": 0.0, "loss": 4.0}, {"acc": acc, "loss": 1.0}] for acc in accuracies]
        save_state(folder / f"candidates/{number}", SETTINGS, saved)
    write_pickle(folder / "candidates/5,0.state", {})
    multihead.main([*OPTIONS, "--folder", "interrupted", "--report"])
    results = read_json(folder / "multihead.json")["results"]
    counts = [(row["heads"], row["of"]) for row in results["heads"]]
    assert counts == [(1, 4), (1, 4), (2, 4), (2, 5)] and results["undecided"] == 1
    assert results["heads"][0]["low"] == pytest.approx(0.0456, abs=1e-4)  # Wilson, 1 of 4
    assert [*results["orders"][2].values()] == [2, 2, 1, 1, 0, None]
    assert "| bad " in GENERATORS["heads"]("interrupted/multihead.json")
    assert "heads tried: 5, of which 1 undecided" in capsys.readouterr().out
    with pytest.raises(InputError, match="nowhere holds no head that has been tried"):
        multihead.main([*OPTIONS, "--folder", "nowhere", "--report"])


def test_multihead_resumes_where_it_was_interrupted(multihead, copying, monkeypatch):
    """Interrupted in the search and among the combinations; the same output as in one go."""
    first = sha256(OUTPUT)
    trials = len(list(Path("multihead_runs/combinations").glob("*"))) + sum(
        len(load_state(path, SETTINGS)) for path in Path("multihead_runs/candidates").glob("*")
    )
    train_trial, calls = copying.training.train_trial, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) in (4, trials - 2):
            raise KeyboardInterrupt
        return train_trial(*args)

    monkeypatch.setattr(multihead, "train_trial", interrupted)
    options = [*OPTIONS, "--overwrite", "--folder", "other"]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            multihead.main(options)
    multihead.main(options)
    assert len(calls) == trials + 2  # no finished trial was made twice
    assert sha256(OUTPUT) == first


def test_multihead_heads_are_fixed_by_their_names(multihead, copying):
    """The saved trial of a good head is what its name and the body give."""
    training, settings = copying.training, copying.training.TrialSettings(**SETTINGS)
    name = next(names[-1] for names in load_pickle(OUTPUT)[1])
    heads = [multihead.named_head(settings, name)]
    model = copying.models.MultiheadCopier(training.make_body(settings), heads)
    history = training.train_trial(settings, model, 1, torch.device("cpu"), training.is_good)
    path = Path("multihead_runs/candidates", name.removeprefix("good"))
    assert history == load_state(path, SETTINGS)[1]
    assert training.is_good(history) and not training.is_good(history[:-1])  # it ended there


@pytest.mark.parametrize("name", ["settings.json", "candidates/0", "combinations/bad*"])
def test_multihead_rejects_a_corrupt_restart_folder(multihead, name):
    path = next(Path("multihead_runs").glob(name))
    path.write_bytes(path.read_bytes()[:-100])
    assert path.name in refused(multihead.main, [*OPTIONS, "--overwrite"])


def test_multihead_rejects_other_settings(multihead, capsys):
    for other, part in (
        (["--overwrite", "--seed", "1"], "settings (seed was 0, is 1)"),
        (["--num_samples", "1"], "settings (num_samples was 2, is 1)"),
    ):
        assert part in refused(multihead.main, [*OPTIONS, *other])
    with pytest.raises(RunError, match="not enough heads in --max_candidates 2"):
        multihead.main([*OPTIONS, "--overwrite", "--max_candidates", "2"])
    with pytest.raises(SystemExit):
        multihead.main([*OPTIONS, "--num_heads", "4"])
    assert "4 heads of the kind 'bad' (expected at most 0, got 2)" in capsys.readouterr().err


def test_plot_multihead(multihead, copying, capsys):
    copying.plot_multihead.main(["--num_heads", "2"])
    stem = "figures/re_2headcomb"
    assert capsys.readouterr().out.split() == [f"{stem}.{kind}" for kind in ("svg", "png", "csv")]
    with open(f"{stem}.csv") as stream:
        rows = list(csv.DictReader(stream))
    histories = load_pickle(OUTPUT)
    assert [(row["kind"], row["step"]) for row in rows[:3]] == [
        ("bad", "0"), ("bad", "10"), ("good", "0")
    ]  # fmt: skip
    mean = sum(history[1]["acc"] for history in histories[0].values()) / 2
    assert float(rows[1]["mean"]) == pytest.approx(mean)

    # Written before histories had steps and attention accuracies.
    old = tuple(
        {names: [{"acc": e["acc"], "loss": e["loss"]} for e in h] for names, h in of_kind.items()}
        for of_kind in histories
    )
    write_pickle(OUTPUT, old)
    first = sha256(f"{stem}.csv")
    copying.plot_multihead.main(["--num_heads", "2"])
    assert sha256(f"{stem}.csv") == first
    write_pickle(OUTPUT, old[:2])
    with pytest.raises(InputError, match="does not contain histories"):
        copying.plot_multihead.main(["--num_heads", "2"])
    assert "re_8headcomb.pkl does not exist" in refused(copying.plot_multihead.main, [])
