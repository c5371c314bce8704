"""The summary statistics on logs small enough to work out by hand, and the planted words."""

import re

import numpy as np
import pytest
from conftest import refused

from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.analysis.statistics import maximum_interval, summarize, two_way_interval
from attention_dynamics.reporting.tables import format_table, result_tables
from attention_dynamics.storage.files import write_json

METRIC = "top 5% match"


def peak(*places: int) -> np.ndarray:
    """One score vector of length 3 per example, highest at the given place."""
    values = np.zeros((len(places), 3), dtype=np.float32)
    values[np.arange(len(places)), places] = 1
    return values.ravel()


@pytest.fixture
def hand() -> Logs:
    """Four val examples of three tokens each, no others.

    Gold attends to place 1 at iteration 1; B and C come to; β^uf knew it first.
    """
    src = Ragged.from_rows([np.array([1, 4, 2])] * 4)
    logs = Logs("hand", src, np.array([1, 1, 0, 0]), {"val": 4, "train": 0}, np.arange(4))
    gold = {0: peak(0, 0, 0, 0), 1: peak(1, 1, 1, 1), 2: peak(2, 2, 2, 2)}
    runs = {
        "normal_A": gold,
        "normal_B": {0: peak(0, 0, 0, 0), 1: peak(1, 1, 0, 0), 2: peak(1, 1, 1, 1)},
        "normal_C": {0: peak(1, 0, 0, 0), 1: peak(1, 1, 1, 0), 2: peak(1, 1, 1, 0)},
        "uniform": {t: np.ones(12, np.float32) for t in range(3)},
    }
    accuracy = {
        "normal_A": (0.5, 0.9, 0.9),
        "normal_B": (0.5, 0.6, 0.8),
        "normal_C": (0.5, 0.8, 1.0),
    }
    for name, alphas in runs.items():
        for t, alpha in alphas.items():
            logs.arrays[name, t, "alpha"] = alpha
            logs.arrays[name, t, "beta"] = peak(0, 0, 0, 0)
            logs.arrays[name, t, "grad"] = peak(1, 1, 1, 1)
            logs.metas[name, t, "test_acc"] = accuracy.get(name, (0.5, 0.5, 0.5))[t]
            logs.metas[name, t, "train_acc"] = t / 2
    # Votes for label 1: of the negative examples the sign turns (so the lowest becomes highest).
    logs.arrays["uniform", 1, "beta"] = np.concatenate([peak(1, 1), -peak(1, 0)])
    return logs


SIGN = np.repeat([1, 1, -1, -1], 3).astype(np.float32)


def test_statistics_by_hand(hand):
    result = summarize(hand, METRIC, "val", "test_acc", None, {"px": peak(1, 1, 1, 0)}, SIGN)
    # Iteration 1 and 2 are equally good: the first is gold. It attends to place 1.
    assert result["gold_iteration"] == 1
    assert result["best_perf"] == 0.9
    # A(α_A*, α_B,t) = 0, 2/4, 4/4 and of C 1/4, 3/4, 3/4.
    assert result["alpha_corrs"].tolist() == [1 / 8, 5 / 8, 7 / 8]
    assert result["alpha_perfs"] == pytest.approx([0.5, 0.7, 0.9])
    assert result["alpha_corrs_std"] == pytest.approx(np.sqrt([1 / 32, 1 / 32, 1 / 32]))
    # β^uf at iteration 1 votes for place 1 in three of four sentences; elsewhere for place 0, but
    # in negative sentences the sign makes places 1 and 2 tie as highest, which is a match.
    assert result["curve_unif"] == {0: 0.5, 1: 0.75, 2: 0.5}
    assert result["agr_unif"] == 0.75
    assert result["agr_unif_iteration"] == 1
    # α agrees more than 0.75 first at iteration 2, where the accuracy is 0.9; before, it is 0.7.
    assert result["xi_unif"] == pytest.approx(0.9)
    assert result["xi_unif_bracket"] == pytest.approx((0.7, 0.9))
    assert result["agr_grad"] == 0.75
    # β^px has its maximum at 1, 1, 1, 0; β^uf at iteration 1 at 1, 1, 1, 0 too.
    assert result["agr_px"] == 1.0
    assert result["xi_px"] is None
    assert result["xi_px_bracket"] == (pytest.approx(0.9), None)
    # k = ceil(0.15) = 1: a peak of three is met by chance one time in three.
    assert result["baseline_exact"] == pytest.approx(1 / 3)
    # A drawn order of a peak of three matches each of the 2 * 3 * 4 rows or not.
    assert result["baseline"] * 24 == pytest.approx(round(result["baseline"] * 24))
    assert result["num_runs"] == 2
    assert result["interval_note"] == "only 2 runs: the interval is rough"


def test_statistics_without_a_lower_end_of_xi_or_gradients(hand):
    """α crosses at the first checkpoint; the gradients are those of the other split."""
    hand.arrays["normal_B", 0, "alpha"] = hand.arrays["normal_C", 0, "alpha"] = peak(1, 1, 1, 1)
    for t in range(3):
        hand.arrays["normal_A", t, "grad"][:] = np.nan
    result = summarize(hand, METRIC, "val", "test_acc", None, {}, SIGN)
    assert result["xi_unif_bracket"] == (None, 0.5)
    assert "agr_grad" not in result


def test_two_way_interval_widens_with_the_spread_of_the_runs():
    rng = np.random.default_rng(0)
    # 5 runs with a standard deviation of 0.1 between them, 400 examples of 0.1 within: the error
    # of the mean is sqrt(0.1^2 / 5 + 0.1^2 / 400) = 0.045, and 0.005 without the runs.
    offsets = 0.1 * np.array([-1.26, -0.63, 0, 0.63, 1.26])  # sample deviation 0.1
    values = 0.5 + offsets[:, None, None] + rng.normal(0, 0.1, (1, 1, 400))
    ((low, high),) = two_way_interval(values, np.arange(400), 0)
    # The bootstrap over 5 runs divides by 5 instead of 4: sqrt(4 / 5) * 0.045 * 2 * 1.96 = 0.157.
    assert high - low == pytest.approx(0.157, rel=0.1)
    ((low, high),) = two_way_interval(values[:1], np.arange(400), 0)
    assert high - low == pytest.approx(2 * 1.96 * 0.005, rel=0.15)


def test_intervals_keep_the_rows_of_an_example_together():
    # 20 examples of 50 equal rows each: as uncertain as 20 numbers, sqrt(50) times 1000 of them.
    values = np.repeat(np.random.default_rng(2).random(20), 50)
    together = maximum_interval([values], np.repeat(np.arange(20), 50), 0)
    apart = maximum_interval([values], np.arange(1000), 0)
    ratio = (together[1] - together[0]) / (apart[1] - apart[0])
    assert ratio == pytest.approx(50**0.5, rel=0.15)
    assert np.isnan(maximum_interval([np.array([np.nan])], np.array([0]), 0)).all()


def test_maximum_interval_repeats_the_choice_of_the_checkpoint():
    # Two checkpoints that match on complementary halves: each resample takes the larger mean, which
    # is 1/2 + |count - 50| / 100, count ~ Binomial(100, 1/2): its 2.5% and 97.5% points.
    first = np.repeat([1.0, 0.0], 50)
    low, high = maximum_interval([first, 1 - first], np.arange(100), 0)
    assert (low, high) == (pytest.approx(0.5, abs=0.005), pytest.approx(0.61, abs=0.015))
    low, high = maximum_interval([first], np.arange(100), 0)
    assert (low, high) == (pytest.approx(0.4, abs=0.015), pytest.approx(0.6, abs=0.015))


def test_departure_10_the_gold_run_chosen_on_the_other_split(hand):
    result = summarize(hand, METRIC, "val", "test_acc", "train_acc", {}, SIGN)
    heldout = result["heldout"]
    # Training accuracy is best at iteration 2, where the gold run attends to place 2.
    assert heldout["gold_iteration"] == 2
    assert heldout["best_perf"] == 0.9
    # β of the negative sentences ties places 1 and 2 but where it votes against 1 (sentence 3).
    assert heldout["agr_unif"] == 0.5
    assert result["agr_unif"] == 0.75


def test_logs_that_lack_something_are_refused(hand):
    del hand.metas["normal_B", 2, "test_acc"]
    args = (hand, METRIC, "val", "test_acc", None, {}, SIGN)
    assert "no test_acc of normal_B at iteration 2" in refused(summarize, *args)
    for key in [key for key in hand.arrays if key[0] in ("normal_B", "normal_C")]:
        del hand.arrays[key]
    assert "hold no run normal_B" in refused(summarize, *args)


def test_what_is_undefined_is_a_dash_and_greek_a_formula(hand):
    result = summarize(hand, METRIC, "val", "test_acc", "train_acc", {}, SIGN)
    result["agr_unif"], result["agr_unif_interval"] = np.nan, (np.nan, np.nan)
    result["alpha_corrs"][0], result["alpha_corrs_interval"][0] = np.nan, np.nan
    result["best_perf"] = np.nan
    results = {("hand", METRIC, "val", "test_acc"): result}
    for fmt in ("text", "markdown", "latex"):
        text = result_tables(results, "accuracy", fmt)
        assert "nan" not in text.lower()
        lines = [line.strip("| \\").replace("&", "|") for line in text.splitlines()]
        cells = [re.split(r" *\| *| {2,}", line) for line in lines]
        level = "agr\\_unif" if fmt == "latex" else "agr_unif"
        assert [level, "-"] in cells and ["best accuracy (gold run)", "-"] in cells
        assert [row[1:3] for row in cells if row[0] == str(result["iterations"][0])] == [["-", "-"]]
    rows = [line for line in text.splitlines() if not line.startswith("%")]
    assert any(r"agreement of $\alpha$" in row for row in rows)
    assert any(r"0.625 $\pm$ 0.177" in row for row in rows)
    assert "".join(rows).isascii()
    table = format_table([{"β, Δ": "ξ", "λ": 0.5}], "latex")
    assert all(rf"$\{name}$" in table for name in ("beta", "Delta", "lambda", "xi"))


def test_planted_words_are_counted_beside_chance(hand, folder, classification):
    planted = classification.planted
    assert planted.planted_rows("hand", hand) == []
    # One word per sentence (place 1); the third sentence has no planted word.
    positions = {"test": [[0], [0], [], [0]], "train": []}
    write_json("data/hand_truth.json", {"positions": positions})
    mask = planted.planted_mask("hand", hand)
    assert mask.nonzero()[0].tolist() == [1, 4, 10]
    rows = planted.planted_rows("hand", hand)
    assert [row["α of normal_A"] for row in rows] == [0, 1, 0]
    assert rows[1]["β of uniform"] == pytest.approx(2 / 3)
    assert all(row["chance"] == pytest.approx(1 / 3) for row in rows)
    write_json("data/hand_truth.json", {"positions": {"test": [[5]] * 4, "train": []}})
    assert "hand_truth.json does not fit the logs" in refused(planted.planted_mask, "hand", hand)


def test_chance_of_planted_words_is_that_of_random_orders(classification):
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 60, 200)
    mask = Ragged.from_rows([rng.random(length) < 0.2 for length in lengths])
    found = [
        classification.planted.hit_rate(Ragged(rng.random(len(mask.values)), mask.offsets), mask)
        for _ in range(100)
    ]
    assert np.mean(found) == pytest.approx(classification.planted._chance(mask), abs=0.012)
