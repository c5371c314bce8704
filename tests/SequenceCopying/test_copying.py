"""Sequence copying: golden values, parity with the reference, grouping, resuming, bad input."""

import csv
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import GOLDEN, ROOT, refused, run_script

from attention_dynamics.cli import RunError
from attention_dynamics.storage.files import read_json, sha256, write_pickle
from attention_dynamics.storage.pickles import load_pickle

CPU = torch.device("cpu")
VARIANTS = [f"bi={bi},uniform={uniform}" for bi in (False, True) for uniform in (False, True)]
MEASURES = {"step", "loss", "acc", "attn_acc", "attn_acc_m1", "attn_acc_p1", "beta_acc"}
SMALL = ["--no_rep", "--num_vocab", "6", "--seq_length", "5", "--hidden_dim", "8", "--bsize", "4"]
SMALL += ["--steps_s1", "21", "--seeds", "3,5", "--device", "cpu"]

# Sums of float32 in another order, through 21 updates of a small model. Adam divides by the root of
# small squares, so that rounding grows; losses are about 2.
HISTORY = {"rel": 1e-4}
CLOSE = {"atol": 1e-5, "rtol": 0}


@pytest.fixture
def small(copying):
    """Settings of a model that trains in a blink."""
    return copying.training.Settings(
        seq_length=5, num_vocab=6, no_rep=True, hidden_dim=8, bsize=4, steps=21
    )


def assert_same_history(one: list[dict], other: list[dict], positions: int) -> None:
    """Losses within rounding; accuracies too, where one near tie may fall either way."""
    assert len(one) == len(other)
    for entry, wanted in zip(one, other, strict=True):
        assert entry.keys() == wanted.keys() and entry["step"] == wanted["step"]
        for name in wanted.keys() - {"step"}:
            tolerance = HISTORY if name == "loss" else {"abs": 1.5 / positions}
            assert entry[name] == pytest.approx(wanted[name], **tolerance), name


# --- the published code's numbers ---


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stacked", [False, True])
def test_golden_forward(copying, variant, stacked):
    """All numbers of the published forward pass, by a single model and by a stack of two."""
    models = copying.models
    values = load_pickle(GOLDEN / "SequenceCopying" / "forward.pkl")[variant]
    kind = {"bi": "bi=True" in variant, "uniform": "uniform=True" in variant}
    state = {name: torch.from_numpy(value) for name, value in values["state"].items()}
    src, trg = (torch.from_numpy(values[side].T.copy()) for side in "XY")
    batch, model = copying.data.Batch(src, trg[:-1], trg[1:]), models.Copier(12, 12, **kind)
    model.load_state_dict(state)
    if stacked:
        single, model = model, models.Copier(12, 12, **kind, seeds=2)
        model.load_state_dict(models.stack_states([single, single]))
        batch = copying.data.stacked([batch, batch])
    output = models.compute_output(model, batch)
    fused = model(batch).log_softmax(dim=-1)
    for measured in models.measure(output, batch.targets):
        assert measured["loss"] == pytest.approx(values["loss"], abs=1e-5)
        for name in (*models.ATTENTION_MEASURES, "acc"):
            assert measured[name] == values[name]
    for index in range(2) if stacked else [...]:
        np.testing.assert_allclose(output.alpha[index], values["attention"], **CLOSE)
        np.testing.assert_allclose(output.log_probs[index], values["log_probs"], **CLOSE)
        np.testing.assert_allclose(fused[index].detach(), values["log_probs"], **CLOSE)


# --- data and measures ---


def test_sequences_follow_the_task(copying):
    data = copying.data
    rng = np.random.default_rng(0)
    permutations = data.sequences(data.Task(4, 4, True), 500, rng)
    assert {tuple(sorted(row)) for row in permutations} == {(0, 1, 2, 3)}
    # 24 orders, 500 draws: each is missed with probability 6e-10.
    assert len({tuple(row) for row in permutations}) == 24
    distinct = data.sequences(data.Task(3, 6, True), 200, rng)
    assert all(len(set(row)) == 3 for row in distinct.tolist())
    assert set(distinct.flat) == set(range(6))
    repeated = data.sequences(data.Task(4, 4, False), 200, rng)
    assert any(len(set(row)) < 4 for row in repeated.tolist())
    batch = data.as_batch(data.Task(3, 6, True), distinct[:2])
    for column in range(2):
        x = distinct[column].tolist()
        assert batch.src[:, column].tolist() == batch.targets[:, column].tolist() == [*x, 6]
        assert batch.inputs[:, column].tolist() == [7, *x]


def test_measure_by_hand(copying):
    """One sequence of four targets: attention on 0, 2, 1, 3; tokens right at 0 and 3."""
    models, targets = copying.models, torch.tensor([[0], [1], [2], [3]])
    alpha = torch.eye(4)[[0, 2, 1, 3]][:, None] * 0.7
    predicted, probed = torch.tensor([0, 2, 1, 3]), torch.tensor([[0], [1], [2], [0]])
    log_probs = torch.eye(4)[predicted][:, None].add(0.1).log()
    (measured,) = models.measure(models.Output(log_probs, alpha, probed), targets)
    assert measured == {
        "loss": pytest.approx(-(math.log(1.1) + math.log(0.1)) / 2, rel=1e-6),
        "acc": 0.5,
        "attn_acc": 0.5,
        "attn_acc_m1": 0.25,  # target 1 attends to 2, the position after
        "attn_acc_p1": 0.25,  # target 2 attends to 1, the position before
        "beta_acc": 0.75,
    }


def test_one_token_probe_puts_all_attention_on_the_token(copying, small):
    model = copying.training.make_model(small, 0)
    batch = next(copying.data.batches(small.task, 3, 0, 1))
    decoded, states = model.decode(batch)
    probed = copying.models.compute_output(model, batch).probed
    for t in range(6):
        assert model.combine(decoded[t], states[t]).argmax(dim=-1).equal(probed[t])


# --- training ---


@pytest.mark.parametrize("bi", [False, True])
@pytest.mark.parametrize("uniform", [False, True])
def test_histories_equal_those_of_the_reference(copying, plain_copying, small, bi, uniform):
    settings = replace(small, bi=bi, invasive_uniform=uniform)
    ours = copying.training.train_seed(settings, 4, "cpu", 1)
    plain = plain_copying.train(4, 5, 6, True, 8, 4, 21, bi, uniform)
    assert len(ours) == 3
    assert_same_history(ours, plain, 50 * 6)


@pytest.mark.parametrize("bi", [False, True])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_stacked_seeds_have_the_histories_of_single_seeds(copying, small, bi, device):
    settings = replace(small, bi=bi)
    train_stacked = copying.training.train_stacked
    together = train_stacked(settings, [3, 5], torch.device(device))
    for seed, history in zip((3, 5), together, strict=True):
        alone = copying.training.train_seed(settings, seed, "cpu", 1)
        assert_same_history(history, alone, 50 * 6)


@pytest.mark.cuda
def test_bf16_training_follows_fp32_on_cuda(copying, small):
    """bf16 keeps 8 bits of a number: after 21 updates the losses agree within a percent."""
    settings = [replace(small, precision=precision) for precision in ("fp32", "bf16")]
    histories = [copying.training.train_seed(one, 3, "cuda", 1) for one in settings]
    fp32, bf16 = ([entry["loss"] for entry in history] for history in histories)
    assert bf16 == pytest.approx(fp32, rel=0.01)


@pytest.fixture
def made_models(copying, monkeypatch) -> list:
    """The models that training makes, in order."""
    training, made = copying.training, []
    make_model = training.make_model
    monkeypatch.setattr(
        training, "make_model", lambda *args: made.append(make_model(*args)) or made[-1]
    )
    return made


def test_save_every_changes_no_weight(copying, small, made_models):
    for every in (1, 100):
        copying.training.train_seed(replace(small, save_every=every), 0, "cpu", 1)
    for one, other in zip(made_models[0].parameters(), made_models[1].parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("option", "fixed"),
    [
        ({}, set()),
        ({"invasive_uniform": True}, {"attn_lin"}),
        ({"no_context": True}, {"attn_lin", "project_enc"}),
    ],
)
def test_one_step_moves_what_is_trained(copying, small, made_models, option, fixed):
    settings = replace(small, steps=1, **option)
    copying.training.train_seed(settings, 0, "cpu", 1)
    before = copying.training.make_model(settings, 0).state_dict()
    after = made_models[0].state_dict()
    unmoved = {name for name, value in after.items() if value.equal(before[name])}
    assert {name.split(".")[0] for name in unmoved} == fixed


def test_invasive_uniform_is_evaluated_with_uniform_attention(copying, small, made_models):
    """Departure 15. Of six equal weights the first is the largest: right for one target of six."""
    history = copying.training.train_seed(replace(small, invasive_uniform=True), 0, "cpu", 1)
    assert [entry["attn_acc"] for entry in history] == [pytest.approx(1 / 6)] * 3
    batch = next(copying.data.batches(small.task, 3, 0, 1))
    alpha = copying.models.compute_output(made_models[0], batch).alpha
    torch.testing.assert_close(alpha, torch.full_like(alpha, 1 / 6))


@pytest.mark.parametrize("stacked", [False, True])
def test_early_stop_cuts_the_history(copying, small, monkeypatch, stacked):
    """Departure 16."""
    training = copying.training
    settings = replace(small, steps=120)

    def histories(settings):
        if stacked:
            return training.train_stacked(settings, [0, 1], CPU)
        return [training.train_seed(settings, seed, "cpu", 1) for seed in (0, 1)]

    complete = histories(settings)
    threshold = complete[0][5]["acc"]  # reached by step 50 at the latest
    monkeypatch.setattr(training, "LEARNED", threshold)
    stopped = histories(replace(settings, early_stop=True))
    for cut, full in zip(stopped, complete, strict=True):
        reached = [index for index, entry in enumerate(full) if entry["acc"] >= threshold]
        assert cut == full[: reached[0] + 1 if reached else None]
    assert len(stopped[0]) == 1 + min(i for i, e in enumerate(complete[0]) if e["acc"] >= threshold)


# --- seq2seq.py ---


@pytest.fixture
def trained(folder, copying) -> Path:
    """A working directory in which seeds 3 and 5 of the small setting are trained."""
    copying.seq2seq.main([*SMALL, "--jobs", "1", "--exp_name", "small"])
    return folder


def test_seq2seq_writes_histories_and_their_record(trained, copying, capsys):
    histories = load_pickle("logs/small.pkl")
    assert all(entry.keys() == MEASURES for history in histories for entry in history)
    assert [[entry["step"] for entry in history] for history in histories] == [[0, 10, 20]] * 2
    record = read_json("logs/small.json")
    assert record["settings"]["seeds"] == [3, 5] and record["results"]["of"] == 2
    before = Path("logs/small.pkl").stat().st_mtime_ns
    capsys.readouterr()
    copying.seq2seq.main([*SMALL, "--exp_name", "small"])
    out = capsys.readouterr().out
    assert "up to date" in out and "0.658" in out  # 0 of 2, by Wilson: up to z²/(2 + z²)
    assert Path("logs/small.pkl").stat().st_mtime_ns == before


def test_seq2seq_writes_the_same_bytes_with_two_jobs(trained):
    """Run in its own process, with the option in the README's spelling."""
    process = run_script(
        "SequenceCopying/seq2seq.py", *SMALL, "--jobs", "2", "exp_name=two", cwd=trained
    )
    assert process.returncode == 0, process.stderr
    assert sha256("logs/two.pkl") == sha256("logs/small.pkl")


def test_seq2seq_options_and_default_names(copying):
    parse, name = copying.seq2seq.parse_args, copying.histories.default_name
    args = parse(["--no_rep", "num_vocab=60", "steps_s1=7"])
    assert (args.no_rep, args.num_vocab, args.steps, args.seeds) == (True, 60, 7, [*range(20)])
    assert parse(["num_seeds=2", "--no_rep", "bsize=3"]).seeds == [0, 1]
    settings = copying.training.Settings()
    assert name(settings) == "vocab40seq_length40bsize128"
    changed = replace(settings, bi=True, no_rep=True, invasive_uniform=True, num_vocab=60)
    assert name(changed) == "vocab60seq_length40bibsize128no_repinvasive_uniform"


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["num_vocabx=6"], "unrecognized arguments: --num_vocabx=6"),
        (["num_vocab=-1"], "--num_vocab"),
        (["--seeds", "1,1"], "contains a seed twice"),
        (["--seeds", "1", "--num_seeds", "2"], "not allowed with argument --seeds"),
    ],
)
def test_seq2seq_rejects_wrong_options(copying, capsys, args, part):
    with pytest.raises(SystemExit) as ended:
        copying.seq2seq.parse_args(args)
    line = capsys.readouterr().err
    assert ended.value.code == 2 and part in line and line.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["--exp_name", "a/b"], "--exp_name 'a/b' must have a plain name"),
        (["--exp_name", "small", "--bi"], "settings (bi was False, is True)"),
        (["--exp_name", "corrupt"], "logs/corrupt.json is missing or malformed"),
        (["--num_vocab", "4"], "--num_vocab: too small for --no_rep"),
    ],
)
def test_seq2seq_rejects_wrong_input(trained, copying, args, part):
    Path("logs/corrupt.pkl").write_bytes(Path("logs/small.pkl").read_bytes())
    Path("logs/corrupt.json").write_text("{")
    assert part in refused(copying.seq2seq.main, [*SMALL, *args])


def test_bf16_is_rejected_on_a_device_without_it(copying, monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False, raising=False)
    assert "has no bf16 LSTM" in refused(copying.training.check_precision, "bf16", CPU)


def test_run_parallel(copying, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "SequenceCopying"))
    run_parallel = copying.workers.run_parallel
    tasks = [(number,) for number in range(5)]
    for jobs in (1, 2):
        assert list(run_parallel(math.factorial, tasks, jobs)) == [1, 1, 2, 6, 24]
    with pytest.raises(ValueError, match="negative"):
        list(run_parallel(math.factorial, [(-1,)], 2))
    with pytest.raises(RunError, match="a process was killed"):
        list(run_parallel(os.abort, [()], 2))


# --- plot_copying.py ---


def made_history(*accuracies: float, every: int | None = 20) -> list[dict]:
    """A history with these accuracies; without ``every`` as earlier versions wrote it."""
    return [
        ({} if every is None else {"step": every * index})
        | dict.fromkeys(MEASURES - {"step"}, accuracy)
        | {"beta_acc": min(1.0, 2 * accuracy)}
        for index, accuracy in enumerate(accuracies)
    ]


def test_plot_copying(folder, copying, capsys):
    """0 of 3 against 3 of 3: two-sided p = 2 / C(6, 3) = 0.1."""
    write_pickle("logs/never.pkl", [made_history(0.1, 0.2, 0.2)] * 3)
    always = [made_history(0.1, 0.3, 0.96, every=None), *[made_history(0.1, 0.99, every=None)] * 2]
    write_pickle("logs/always.pkl", always)
    copying.plot_copying.main(["--names", "never", "always"])
    out = capsys.readouterr().out
    assert "p = 0.1" in out
    stem = "figures/copying_never_always"
    assert out.splitlines()[-3:] == [f"{stem}.svg", f"{stem}.png", f"{stem}.csv"]
    summary = json.loads(Path(f"{stem}.json").read_text())
    assert summary["fisher_p"] == pytest.approx(0.1)
    never, always = summary["settings"]
    assert (never["setting"], never["reach 0.95"], never["β half right at step"]) == (
        "never", 0, None
    )  # fmt: skip
    assert (always["setting"], always["reach 0.95"], always["share"]) == ("always", 3, 1.0)
    # Without a record or steps the evaluations are 10 apart.
    assert (always["β half right at step"], always["α half right at step"]) == (10.0, 10.0)
    with open(f"{stem}.csv") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 9 + 3 + 2 * 2
    assert [row["step"] for row in rows[:3]] == ["0", "20", "40"]
    assert rows[11] == {
        "setting": "always", "place": "0", "step": "20", "acc": "0.96", "attn_acc": "0.96",
        "beta_acc": "1.0",
    }  # fmt: skip


@pytest.mark.parametrize("content", [[], [[]], [[{"acc": 1.0}]], None])
def test_plot_copying_rejects_what_is_not_a_history(folder, copying, content):
    plot = copying.plot_copying.main
    assert "a.pkl does not exist" in refused(plot, ["--names", "a", "b"])
    assert "contains a twice" in refused(plot, ["--names", "a", "a"])
    write_pickle("logs/a.pkl", content)
    assert "logs/a.pkl does not contain histories" in refused(plot, ["--names", "a", "b"])


def test_benchmark_of_copying_runs(tmp_path):
    options = ["--quick", "--seeds", "1", "--steps", "11", "--jobs", "1", "--only", "fp32"]
    process = run_script("benchmarks/copying.py", *options, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert "1 seeds x 11 steps" in process.stdout
