"""Sequence copying: golden values, parity with the reference, grouping, restart, bad input."""

import csv
import itertools
import json
import math
import os
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import GOLDEN, ROOT, assert_refused, run_script
from scipy.optimize import approx_fprime

from attention_dynamics.cli import InputError, RunError
from attention_dynamics.runs.outputs import keep, kept
from attention_dynamics.storage.files import read_json, sha256, write_json, write_pickle
from attention_dynamics.storage.pickles import load_pickle

CPU = torch.device("cpu")
VARIANTS = [f"bi={bi},uniform={uniform}" for bi in (False, True) for uniform in (False, True)]
SMALL = ["--no_rep", "--num_vocab", "6", "--seq_length", "5", "--hidden_dim", "8", "--bsize", "4"]
SMALL += ["--steps_s1", "21", "--seeds", "3,5", "--device", "cpu"]

# Sums of float32 in another order, through 21 updates of a small model. Adam divides by the root of
# small squares, so that rounding grows; losses are about 2.
HISTORY = {"rel": 1e-4}


@pytest.fixture
def small(copying):
    """Settings of a model that trains in a blink."""
    return copying.training.Settings(
        seq_length=5, num_vocab=6, no_rep=True, hidden_dim=8, bsize=4, steps=21
    )


def golden(variant: str) -> dict:
    return load_pickle(GOLDEN / "SequenceCopying" / "forward.pkl")[variant]


def golden_batch(copying, values: dict):
    src, trg = (torch.from_numpy(values[side].T.copy()) for side in "XY")
    return copying.data.Batch(src, trg[:-1], trg[1:])


def assert_same_history(one: list[dict], other: list[dict], positions: int) -> None:
    """Losses within rounding; accuracies too, where one near tie may fall either way."""
    assert len(one) == len(other)
    for entry, wanted in zip(one, other, strict=True):
        assert entry.keys() == wanted.keys()
        for name, value in wanted.items():
            tolerance = HISTORY if name == "loss" else {"abs": 1.5 / positions}
            assert entry[name] == pytest.approx(value, **tolerance), name


# --- the published code's numbers ---


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stacked", [False, True])
def test_golden_forward(copying, variant, stacked):
    """All numbers of the published forward pass, by a single model and by a stack of two."""
    models, values = copying.models, golden(variant)
    kind = {"bi": "bi=True" in variant, "uniform": "uniform=True" in variant}
    state = {name: torch.from_numpy(value) for name, value in values["state"].items()}
    batch, model = golden_batch(copying, values), models.Copier(12, 12, **kind)
    model.load_state_dict(state)
    if stacked:
        single, model = model, models.Copier(12, 12, **kind, seeds=2)
        model.load_state_dict(copying.layers.stack_states([single, single]))
        batch = copying.data.stacked([batch, batch])
    reading = models.read(model, batch)
    fused = model(batch).log_softmax(dim=-1)
    for measured in models.measure(reading, batch.targets):
        assert measured["loss"] == pytest.approx(values["loss"], abs=1e-5)
        for name in ("acc", "attn_acc", "attn_acc_m1", "attn_acc_p1"):
            assert measured[name] == values[name]
    close = {"atol": 1e-5, "rtol": 0}
    for place in range(2) if stacked else [...]:
        np.testing.assert_allclose(reading.alpha[place], values["attention"], **close)
        np.testing.assert_allclose(reading.log_probs[place], values["log_probs"], **close)
        np.testing.assert_allclose(fused[place].detach(), values["log_probs"], **close)


@pytest.mark.parametrize("variant", VARIANTS)
def test_golden_forward_of_the_reference(copying, plain_copying, variant):
    values = golden(variant)
    model = plain_copying.Copier(12, 12, "bi=True" in variant, "uniform=True" in variant)
    model.load_state_dict({name: torch.from_numpy(v) for name, v in values["state"].items()})
    batch = golden_batch(copying, values)
    log_probs, alpha, _, _ = model(batch.src, batch.inputs)
    np.testing.assert_allclose(log_probs.detach(), values["log_probs"], atol=1e-5, rtol=0)
    np.testing.assert_allclose(alpha.detach(), values["attention"], atol=1e-5, rtol=0)
    trg = torch.cat([batch.inputs[:1], batch.targets])
    measured = plain_copying.evaluate(model, batch.src, trg)
    for name in ("acc", "attn_acc", "attn_acc_m1", "attn_acc_p1"):
        assert measured[name] == pytest.approx(values[name], abs=1e-12)


# --- data and measures ---


def test_sequences_are_what_the_task_says(copying):
    data = copying.data
    rng = np.random.default_rng(0)
    permutations = data.sequences(data.Task(4, 4, True), 500, rng)
    assert {tuple(sorted(row)) for row in permutations} == {(0, 1, 2, 3)}
    # 24 orders, 500 draws: each is missed with probability 6e-10.
    assert len({tuple(row) for row in permutations}) == 24
    some = data.sequences(data.Task(3, 6, True), 200, rng)
    assert all(len(set(row)) == 3 for row in some.tolist()) and set(some.flat) == set(range(6))
    repeated = data.sequences(data.Task(4, 4, False), 200, rng)
    assert any(len(set(row)) < 4 for row in repeated.tolist())
    batch = data.as_batch(data.Task(3, 6, True), some[:2])
    for column in range(2):
        x = some[column].tolist()
        assert batch.src[:, column].tolist() == batch.targets[:, column].tolist() == [*x, 6]
        assert batch.inputs[:, column].tolist() == [7, *x]


def test_measures_by_hand(copying):
    """One sequence of four targets: attention on 0, 2, 1, 3; tokens right at 0 and 3."""
    models, targets = copying.models, torch.tensor([[0], [1], [2], [3]])
    alpha = torch.eye(4)[[0, 2, 1, 3]][:, None] * 0.7
    said, probed = torch.tensor([0, 2, 1, 3]), torch.tensor([[0], [1], [2], [0]])
    log_probs = torch.eye(4)[said][:, None].add(0.1).log()
    (measured,) = models.measure(models.Reading(log_probs, alpha, probed), targets)
    assert measured == {
        "loss": pytest.approx(-(math.log(1.1) + math.log(0.1)) / 2, rel=1e-6),
        "acc": 0.5,
        "attn_acc": 0.5,
        "attn_acc_m1": 0.25,  # target 1 looks at 2, the position after
        "attn_acc_p1": 0.25,  # target 2 looks at 1, the position before
        "beta_acc": 0.75,
    }


def test_the_one_token_probe_puts_all_attention_on_the_token(copying, small):
    model = copying.training.make_model(small, 0)
    batch = next(copying.data.batches(small.task, 3, 0, 1))
    decoded, states = model.decode(batch)
    for t in range(6):
        logits = model.combine(decoded[t], states[t])
        probed = copying.models.read(model, batch).probed[t]
        assert logits.argmax(dim=-1).tolist() == probed.tolist()


# --- training ---


@pytest.mark.parametrize("bi", [False, True])
@pytest.mark.parametrize("uniform", [False, True])
def test_histories_are_those_of_the_reference(copying, plain_copying, small, bi, uniform):
    settings = replace(small, bi=bi, invasive_uniform=uniform)
    ours = copying.training.train_seed(settings, 4, "cpu", 1)
    plain = plain_copying.train(4, 5, 6, True, 8, 4, 21, bi, uniform)
    assert len(ours) == 3
    assert_same_history(ours, plain, 50 * 6)


@pytest.mark.parametrize("bi", [False, True])
def test_grouping_changes_no_history(copying, small, bi):
    settings = replace(small, bi=bi)
    together = copying.training.train_stacked(settings, [3, 5], CPU, lambda _: None)
    for seed, history in zip((3, 5), together, strict=True):
        alone = copying.training.train_seed(settings, seed, "cpu", 1)
        assert_same_history(history, alone, 50 * 6)


def test_evaluation_changes_no_weight(copying, small, monkeypatch):
    training, made = copying.training, []
    make_model = training.make_model
    monkeypatch.setattr(
        training, "make_model", lambda *args: made.append(make_model(*args)) or made[-1]
    )
    for every in (1, 100):
        training.train_seed(replace(small, save_every=every), 0, "cpu", 1)
    for one, other in zip(made[0].parameters(), made[1].parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("option", "still"),
    [
        ({}, set()),
        ({"invasive_uniform": True}, {"attn_lin"}),
        ({"no_context": True}, {"attn_lin", "project_enc"}),
    ],
)
def test_one_step_moves_what_is_trained(copying, small, monkeypatch, option, still):
    training, made = copying.training, []
    make_model = training.make_model
    monkeypatch.setattr(
        training, "make_model", lambda *args: made.append(make_model(*args)) or made[-1]
    )
    settings = replace(small, steps=1, **option)
    training.train_seed(settings, 0, "cpu", 1)
    before = make_model(settings, 0).state_dict()
    unmoved = {name for name, value in made[0].state_dict().items() if value.equal(before[name])}
    assert {name.split(".")[0] for name in unmoved} == still


@pytest.mark.parametrize("stacked", [False, True])
def test_early_stop_cuts_the_history(copying, small, monkeypatch, stacked):
    training = copying.training
    settings = replace(small, steps=120)

    def histories(settings):
        if stacked:
            return training.train_stacked(settings, [0, 1], CPU, lambda _: None)
        return [training.train_seed(settings, seed, "cpu", 1) for seed in (0, 1)]

    whole = histories(settings)
    threshold = whole[0][5]["acc"]  # reached by step 50 at the latest
    monkeypatch.setattr(training, "LEARNED", threshold)
    stopped = histories(replace(settings, early_stop=True))
    for cut, full in zip(stopped, whole, strict=True):
        reached = [place for place, entry in enumerate(full) if entry["acc"] >= threshold]
        assert cut == full[: reached[0] + 1 if reached else None]
    assert len(stopped[0]) <= 6


# --- seq2seq.py ---


@pytest.fixture
def trained(tmp_path, monkeypatch, copying) -> Path:
    """A working directory in which seeds 3 and 5 of the small setting are trained."""
    monkeypatch.chdir(tmp_path)
    copying.seq2seq.main([*SMALL, "--jobs", "1", "--exp_name", "small"])
    return tmp_path


def test_the_output_and_its_record(trained, copying, capsys):
    histories = load_pickle("logs/small.pkl")
    assert [len(history) for history in histories] == [3, 3]
    measures = {"loss", "acc", "attn_acc", "attn_acc_m1", "attn_acc_p1", "beta_acc"}
    assert all(entry.keys() == measures for history in histories for entry in history)
    assert all(type(value) is float for entry in histories[0] for value in entry.values())
    record = read_json("logs/small.json")
    assert record["settings"]["seeds"] == [3, 5] and record["results"]["of"] == 2
    before = Path("logs/small.pkl").stat().st_mtime_ns
    capsys.readouterr()
    copying.seq2seq.main([*SMALL, "--exp_name", "small"])
    out = capsys.readouterr().out
    assert "up to date" in out and "0.658" in out  # 0 of 2, by Wilson: up to z²/(2 + z²)
    assert Path("logs/small.pkl").stat().st_mtime_ns == before


def test_the_same_bytes_however_many_jobs(trained):
    """As a user runs it, with an override in the README's spelling and two processes."""
    process = run_script(
        "SequenceCopying/seq2seq.py", *SMALL, "--jobs", "2", "exp_name=two", cwd=trained
    )
    assert process.returncode == 0, process.stderr
    assert sha256("logs/two.pkl") == sha256("logs/small.pkl")


def test_overrides_and_default_names(copying):
    parse, name = copying.seq2seq.parse_args, copying.histories.default_name
    args = parse(["--no_rep", "num_vocab=60", "steps_s1=7"])
    assert (args.no_rep, args.num_vocab, args.steps_s1, args.seeds) == (True, 60, 7, [*range(20)])
    assert parse(["num_seeds=2", "--no_rep", "bsize=3"]).seeds == [0, 1]
    settings = copying.training.Settings()
    assert name(settings) == "vocab40seq_length40bsize128"
    changed = replace(settings, bi=True, no_rep=True, invasive_uniform=True, num_vocab=60)
    assert name(changed) == "vocab60seq_length40bibsize128no_repinvasive_uniform"


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["num_vocabx=6"], "'num_vocabx=6': write name=value, with a name of bsize, device"),
        (["no_rep=1"], "'no_rep=1': write name=value"),
        (["60"], "'60': write name=value"),
        (["num_vocab=-1"], "must be at least 1"),
        (["--seeds", "1,1"], "names a seed twice"),
        (["--num_seeds", "100001"], "--num_seeds must be at most 100000"),
        (["--seeds", "1", "--num_seeds", "2"], "--num_seeds has nothing to count"),
    ],
)
def test_wrong_options_are_refused(copying, capsys, args, part):
    with pytest.raises(SystemExit) as ended:
        copying.seq2seq.parse_args(args)
    line = capsys.readouterr().err
    assert ended.value.code == 2 and part in line and line.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["--seq_length", "7"], "--seq_length 7 needs --num_vocab 7 at least, not 6"),
        (["--exp_name", "a/b"], "--exp_name 'a/b' must have a plain name"),
        (["--exp_name", "small", "--bi"], "other settings (bi was False, is True)"),
    ],
)
def test_wrong_input_is_refused(trained, copying, args, part):
    with pytest.raises(InputError) as error:
        copying.seq2seq.main([*SMALL, *args])
    assert part in str(error.value) and "\n" not in str(error.value)


def test_no_rep_is_refused_in_one_line(tmp_path):
    process = run_script("SequenceCopying/seq2seq.py", "--no_rep", "num_vocab=39", cwd=tmp_path)
    assert_refused(process, "seq2seq.py: error: --no_rep", "--num_vocab 40 at least, not 39")
    assert not (tmp_path / "logs").exists()


def test_bf16_is_refused_where_there_is_none(copying, monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False, raising=False)
    with pytest.raises(InputError, match="computes no bf16 LSTM"):
        copying.training.check_precision("bf16", CPU)
    copying.training.check_precision("fp32", CPU)


# --- processes ---


def test_side_by_side(copying, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "SequenceCopying"))
    side_by_side = copying.workers.side_by_side
    tasks = [(number,) for number in range(5)]
    expected = [(number, math.factorial(number)) for number in range(5)]
    for jobs in (1, 2):
        assert sorted(side_by_side(math.factorial, tasks, jobs)) == expected
    with pytest.raises(RunError, match="failed with ValueError"):
        list(side_by_side(math.factorial, [(-1,)], 2))
    with pytest.raises(RunError, match=r"process of task 0 ended .* \(exit code 3\)"):
        list(side_by_side(os._exit, [(3,)], 2))
    with pytest.raises(RunError, match="killed by SIGABRT"):
        list(side_by_side(os.abort, [()], 2))


# --- plot_copying.py ---


def made_history(*accuracies: float) -> list[dict[str, float]]:
    names = ("loss", "acc", "attn_acc", "attn_acc_m1", "attn_acc_p1", "beta_acc")
    return [
        dict.fromkeys(names, accuracy) | {"beta_acc": min(1.0, 2 * accuracy)}
        for accuracy in accuracies
    ]


def test_plot_copying(tmp_path, monkeypatch, copying, capsys):
    """0 of 3 against 3 of 3: two-sided p = 2 / C(6, 3) = 0.1."""
    monkeypatch.chdir(tmp_path)
    write_pickle("logs/never.pkl", [made_history(0.1, 0.2, 0.2)] * 3)
    write_pickle("logs/always.pkl", [made_history(0.1, 0.3, 0.96), *[made_history(0.1, 0.99)] * 2])
    copying.plot_copying.main(["--names", "never", "always"])
    out = capsys.readouterr().out
    assert "p = 0.1" in out
    stem = "figures/copying_never_always"
    assert out.splitlines()[-3:] == [f"{stem}.svg", f"{stem}.png", f"{stem}.csv"]
    summary = json.loads(Path(f"{stem}.json").read_text())
    assert [row["setting"] for row in summary["settings"]] == ["never", "always"]
    assert summary["fisher_p"] == pytest.approx(0.1)
    assert [row["reach 0.95"] for row in summary["settings"]] == [0, 3]
    with open(f"{stem}.csv") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 9 + 3 + 2 * 2
    assert rows[11] == {
        "setting": "always", "place": "0", "step": "20", "acc": "0.96", "attn_acc": "0.96",
        "beta_acc": "1.0",
    }  # fmt: skip
    histories = load_pickle("logs/always.pkl")
    row = copying.plot_copying.setting_row("always", [[0, 10, 20], [0, 10], [0, 10]], histories)
    assert (row["reach 0.95"], row["of"], row["share"]) == (3, 3, 1.0)
    assert (row["β half right at step"], row["α half right at step"]) == (10.0, 10.0)


def test_wilson_interval(copying):
    """(k + z²/2 ± z sqrt(k (n - k) / n + z²/4)) / (n + z²), with z = 1.959964."""
    z2 = 1.9599639845400545**2
    for k, n in ((0, 3), (7, 20)):
        middle, half = k + z2 / 2, math.sqrt(z2 * (k * (n - k) / n + z2 / 4))
        expected = ((middle - half) / (n + z2), (middle + half) / (n + z2))
        assert copying.histories.share_interval(k, n) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("content", [[], [[]], [[{"acc": 1.0}]], {"acc": 1}, None])
def test_plot_refuses_what_is_no_history(tmp_path, monkeypatch, copying, content):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"logs/a\.pkl does not exist"):
        copying.plot_copying.main(["--names", "a", "b"])
    write_pickle("logs/a.pkl", content)
    with pytest.raises(InputError, match=r"logs/a\.pkl holds no histories"):
        copying.plot_copying.main(["--names", "a", "b"])
    with pytest.raises(InputError, match=r"--names '\.\./a' must have a plain name"):
        copying.plot_copying.main(["--names", "../a", "b"])
    with pytest.raises(InputError, match="names a twice"):
        copying.plot_copying.main(["--names", "a", "a"])


# --- toy_dynamics.py ---


@pytest.mark.parametrize("state", [(0.3, -0.7, 0.4), (-1.5, 1.5, 0.0), (2.0, -3.0, -1.2)])
def test_the_toy_flow_is_minus_the_gradient_of_its_loss(copying, state):
    """Against finite differences of L(β0, β1, a0, a1), written out; a = a0 - a1."""

    def loss(parameters):
        beta0, beta1, a0, a1 = parameters
        p = np.exp(a0) / (np.exp(a0) + np.exp(a1))
        s_plus = p * beta0 + (1 - p) * beta1
        return (np.log1p(np.exp(-s_plus)) + np.log1p(np.exp(beta1))) / 2

    beta0, beta1, a = state
    slopes = approx_fprime(np.array([beta0, beta1, a, 0.0]), loss, 1e-7)
    flow = copying.toy_dynamics.gradient(np.array(state), frozen=False, negatives=True)
    expected = [-slopes[0], -slopes[1], -slopes[2] + slopes[3]]
    # Differences with steps of 1e-7 are good to about as much.
    np.testing.assert_allclose(flow, expected, atol=1e-6)


def test_the_toy_agrees_with_what_is_known_exactly(copying):
    toy = copying.toy_dynamics
    assert all(0 <= difference < 1e-8 for difference in toy.differences(1000.0).values())
    early = toy.follow((0.0, 0.0, 0.0), 0.1)  # next orders: t² and t³
    np.testing.assert_allclose(early.beta0 - early.beta1, early.t / 4, atol=0.1**2 / 20)
    np.testing.assert_allclose(early.p - 0.5, early.t**2 / 256, atol=0.1**3 / 500)
    frozen = toy.follow((0.0, 0.0, 0.0), 1e6, frozen=True)
    assert (frozen.p == 0.5).all()
    # The next term falls as 1/t times a logarithm.
    assert frozen.loss[-1] * 1e6 == pytest.approx(10, rel=1e-3)
    assert toy.follow((0.0, 0.0, 0.0), 1e6).loss[-1] * 1e6 == pytest.approx(2, rel=1e-3)
    mistaken = toy.follow((-1.5, 1.5, 0.0), 300)
    assert mistaken.p.min() == pytest.approx(0.1022, abs=5e-4)  # first away from word 0 ...
    assert mistaken.p[-1] == pytest.approx(0.9747, abs=5e-4)  # ... and then to it


def test_toy_dynamics_writes_its_figure(tmp_path, monkeypatch, copying, capsys):
    monkeypatch.chdir(tmp_path)
    copying.toy_dynamics.main(["--time", "50"])
    written = [Path(f"figures/toy_dynamics.{suffix}") for suffix in ("svg", "png", "csv")]
    assert capsys.readouterr().out.splitlines()[-3:] == [str(path) for path in written]
    first = [sha256(path) for path in written]
    copying.toy_dynamics.main(["--time", "50"])
    assert [sha256(path) for path in written] == first
    with open("figures/toy_dynamics.csv") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 3 * 401 and rows[-1]["start"] == "frozen" and rows[-1]["p"] == "0.5"
    with pytest.raises(SystemExit):
        copying.toy_dynamics.parse_args(["--mistake", "-1"])


# --- multihead.py ---

MULTI = ["--seq_length", "3", "--hidden_dim", "8", "--bsize", "6", "--num_steps", "11"]
MULTI += ["--num_good", "3", "--num_bad", "3", "--num_random", "3", "--num_heads", "2"]
MULTI += ["--num_samples", "2", "--device", "cpu", "--jobs", "1"]
MULTI_SETTINGS = {"seq_length": 3, "hidden_dim": 8, "bsize": 6, "num_steps": 11, "seed": 0}
OUTPUT = "re_2headcomb.pkl"


def make_small(copying, monkeypatch) -> None:
    """Heads of a tiny model: some say a token of four more often than 0.3 after ten updates."""
    monkeypatch.setattr(copying.heads, "GOOD", 0.3)
    monkeypatch.setattr(copying.heads, "EVALUATION_SIZE", 40)


@pytest.fixture(scope="module")
def run_once(tmp_path_factory, copying) -> Path:
    """A working directory in which multihead.py has run."""
    folder = tmp_path_factory.mktemp("multihead")
    with pytest.MonkeyPatch.context() as monkeypatch:
        torch.set_num_threads(1)
        make_small(copying, monkeypatch)
        monkeypatch.chdir(folder)
        copying.multihead.main(MULTI)
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
    heads = copying.heads
    settings = heads.Settings(seq_length=4, hidden_dim=12)
    several = [heads.make_head(settings, 0, number) for number in range(3)]
    model = heads.MultiheadCopier(heads.make_body(settings), several)
    decoded, states = torch.randn(5, 2, 12), torch.randn(7, 2, 12)
    parts = []
    for head in several:
        alpha = torch.einsum("tbh,sbh->tbs", head.attn_proj(decoded), states).softmax(dim=-1)
        parts.append(head.enc_proj(torch.einsum("tbs,sbh->tbh", alpha, states)))
    expected = torch.stack(parts).mean(dim=0)
    torch.testing.assert_close(model.attended(decoded, states), expected, atol=1e-6, rtol=1e-5)


def test_initialisations_are_fixed_and_differ(copying):
    heads = copying.heads
    settings = heads.Settings(seq_length=4, hidden_dim=12)

    def weights(stream, number):
        return heads.make_head(settings, stream, number).attn_proj.weight

    assert weights(0, 1).equal(weights(0, 1))
    for stream, number in ((0, 2), (1, 1)):
        assert not weights(0, 1).equal(weights(stream, number))
    assert weights(0, 1).abs().max() <= 12**-0.5
    bodies = [heads.make_body(settings).state_dict() for _ in range(2)]
    assert all(value.equal(bodies[1][name]) for name, value in bodies[0].items())


def test_verdicts(copying):
    verdict = copying.heads.verdict
    good, bad, between = ([{"acc": 0.1}, {"acc": last}] for last in (0.96, 0.5, 0.6))
    fallen = [{"acc": 0.96}, {"acc": 0.5}]
    assert [verdict([one] * 3) for one in (good, bad, between, fallen)] == [
        "good", "bad", "dropped", "good"
    ]  # fmt: skip
    assert verdict([]) is verdict([good]) is verdict([bad, bad]) is None
    assert verdict([good, bad]) == verdict([bad, bad, between]) == "dropped"
    assert verdict([[{"acc": 0.95}]]) == "dropped"  # not above 0.95, not below 0.6


def test_multihead_restarts_to_the_same_output(multihead, monkeypatch):
    bad, good, random = histories = load_pickle(OUTPUT)
    assert [len(of_kind) for of_kind in histories] == [2, 2, 2]
    assert all(name.startswith("bad") for names in bad for name in names)
    assert all([name[:3] for name in names] == ["bad", "goo"] for names in good)
    assert all(name.startswith("random") for names in random for name in names)
    for of_kind in histories:
        for names, history in of_kind.items():
            assert all(Path("multihead_runs/heads", name).exists() for name in names)
            assert [entry.keys() for entry in history] == [{"acc", "loss"}] * 2
    assert read_json("re_2headcomb.json")["settings"]["num_samples"] == 2
    first = sha256(OUTPUT)

    # Called again, nothing is trained; --overwrite collects what is kept.
    monkeypatch.setattr(multihead, "train_trial", None)
    for options in ([], ["--overwrite"]):
        multihead.main([*MULTI, *options])
        assert sha256(OUTPUT) == first
    monkeypatch.undo()


def test_multihead_goes_on_where_it_was_interrupted(multihead, copying, monkeypatch):
    """Interrupted in the search and among the combinations; the same output as in one go."""
    first = sha256(OUTPUT)
    trials = len(list(Path("multihead_runs/combinations").glob("*"))) + sum(
        len(kept(path, MULTI_SETTINGS)) for path in Path("multihead_runs/candidates").glob("*")
    )
    train_trial, calls = copying.heads.train_trial, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) in (4, trials - 2):
            raise KeyboardInterrupt
        return train_trial(*args)

    monkeypatch.setattr(multihead, "train_trial", interrupted)
    options = [*MULTI, "--overwrite", "--folder", "other"]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            multihead.main(options)
    multihead.main(options)
    assert len(calls) == trials + 2  # no finished trial was made twice
    assert sha256(OUTPUT) == first


def test_multihead_does_not_depend_on_who_finishes_first(multihead, monkeypatch):
    first = sha256(OUTPUT)

    def backwards(function, tasks, jobs):
        """Three tasks are begun at once, and the last of them finishes first."""
        waiting = enumerate(tasks)
        while taken := list(itertools.islice(waiting, 3)):
            for number, task in reversed(taken):
                yield number, function(*task)

    monkeypatch.setattr(multihead, "side_by_side", backwards)
    multihead.main([*MULTI, "--overwrite", "--folder", "other"])
    assert sha256(OUTPUT) == first


def test_multihead_trials_start_from_the_kept_heads(multihead, copying):
    """A good head's kept trial is what its file and the body give."""
    heads, settings = copying.heads, copying.heads.Settings(3, 8, 6, 11, 0)
    name = next(path.name for path in Path("multihead_runs/heads").glob("good*"))
    head, body = heads.Head(8), heads.Body(settings.task.vocab, 8)
    multihead.load_checkpoint(Path("multihead_runs/heads", name), head)
    multihead.load_checkpoint(Path("multihead_runs/body"), body)
    model = heads.MultiheadCopier(body, [head])
    history = heads.train_trial(settings, model, 1, CPU, heads.is_good)
    path = Path("multihead_runs/candidates", name.removeprefix("good"))
    assert history == kept(path, MULTI_SETTINGS)[1]
    assert heads.is_good(history) and not heads.is_good(history[:-1])  # it ended there


def damage_settings(folder: Path) -> None:
    (folder / "settings.json").write_text("{")


def damage_setting_names(folder: Path) -> None:
    write_json(folder / "settings.json", {"seq_length": 4})


def damage_body(folder: Path) -> None:
    (folder / "body").write_bytes(b"\x80")


def damage_candidate(folder: Path) -> None:
    keep(folder / "candidates" / "0", MULTI_SETTINGS, [[{"acc": 0.1}]])


def damage_candidate_file(folder: Path) -> None:
    path = folder / "candidates" / "0"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def damage_combination(folder: Path) -> None:
    path = next((folder / "combinations").glob("*"))
    keep(path, MULTI_SETTINGS, kept(path, MULTI_SETTINGS)[:-1])


def damage_head(folder: Path) -> None:
    for path in (folder / "combinations").glob("*"):
        path.unlink()
    for path in (folder / "heads").glob("bad*"):
        path.write_bytes(path.read_bytes()[:100])


def lose_settings(folder: Path) -> None:
    (folder / "settings.json").unlink()


def test_a_damaged_restart_folder_is_refused(multihead):
    cases = {
        damage_settings: "malformed JSON",
        damage_setting_names: "settings.json is damaged",
        damage_body: "body is damaged",
        damage_candidate: "candidates/0 is damaged: remove it",
        damage_candidate_file: "candidates/0 is damaged: remove it",
        damage_combination: "is damaged: remove it",
        damage_head: "is damaged or holds more than tensors",
        lose_settings: "holds files, but no settings.json",
    }
    for damage, part in cases.items():
        shutil.rmtree("damaged", ignore_errors=True)
        shutil.copytree("multihead_runs", "damaged")
        damage(Path("damaged"))
        with pytest.raises(InputError) as error:
            multihead.main([*MULTI, "--overwrite", "--folder", "damaged"])
        assert part in str(error.value) and "\n" not in str(error.value), damage
    with pytest.raises(InputError, match=r"other settings \(seed was 0\)"):
        multihead.main([*MULTI, "--overwrite", "--seed", "1"])
    with pytest.raises(InputError, match=r"other settings \(num_samples was 2, is 1\)"):
        multihead.main([*MULTI, "--num_samples", "1"])


def test_multihead_says_when_it_cannot_go_on(multihead, capsys):
    with pytest.raises(RunError, match="not enough heads in --max_candidates 2"):
        multihead.main([*MULTI, "--overwrite", "--max_candidates", "2"])
    with pytest.raises(SystemExit):
        multihead.main([*MULTI, "--num_heads", "4"])
    assert "only 0 different combination(s) of 4 heads" in capsys.readouterr().err


def test_a_damaged_folder_ends_the_script_in_one_line(tmp_path):
    (tmp_path / "multihead_runs").mkdir()
    (tmp_path / "multihead_runs" / "settings.json").write_text("{")
    process = run_script("SequenceCopying/multihead.py", cwd=tmp_path)
    assert_refused(process, "multihead.py: error:", "settings.json is malformed JSON")


def test_the_benchmark_runs(tmp_path):
    options = ["--quick", "--seeds", "1", "--steps", "11", "--jobs", "1", "--only", "fp32"]
    process = run_script("benchmarks/copying.py", *options, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert "1 seeds x 11 steps" in process.stdout


def test_published_pickles_load_as_plain_data(trained):
    """Anyone can read the output without our code."""
    with open("logs/small.pkl", "rb") as stream:
        assert pickle.load(stream) == load_pickle("logs/small.pkl")
