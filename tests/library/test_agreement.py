"""Agreement metrics: hand-checked values, and parity with one row at a time."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from attention_dynamics.analysis import agreement as agreement_module
from attention_dynamics.analysis.agreement import (
    agreement,
    bootstrap_interval,
    expected_by_chance,
    kendall_tau,
    shuffled,
    top_match,
)
from attention_dynamics.analysis.ragged import Ragged, offsets_of


def rows(*vectors) -> Ragged:
    return Ragged.from_rows([np.array(vector, dtype=np.float32) for vector in vectors])


def test_top_match_by_hand():
    # n = 3: ceil(0.15) = 1, so the arg-max of a must be a maximum of b.
    assert top_match(rows([0, 5, 1]), rows([1, 2, 1])).tolist() == [1]
    assert top_match(rows([0, 5, 1]), rows([3, 2, 1])).tolist() == [0]
    # Ties with the maximum count as in the top; of several maxima of a the first is asked.
    assert top_match(rows([0, 5, 1]), rows([2, 2, 2])).tolist() == [1]
    assert top_match(rows([5, 5, 0]), rows([1, 2, 0])).tolist() == [0]
    # n = 21: ceil(1.05) = 2, so the second highest is in the top.
    b = np.arange(21)
    second = np.where(b == 19, 1, 0)
    third = np.where(b == 18, 1, 0)
    assert top_match(rows(second, third), rows(b, b)).tolist() == [1, 0]


def test_top_match_is_not_symmetric():
    a, b = rows([3, 2, 1] + [0] * 18), rows([2, 3, 1] + [0] * 18)
    c = rows([2, 3, 4] + [0] * 18)
    assert top_match(a, b)[0] == 1
    assert top_match(a, c)[0] == 0
    assert top_match(c, b)[0] == 0
    assert top_match(rows([1, 0, 0]), rows([1, 1, 1]))[0] == 1
    assert top_match(rows([1, 1, 1]), rows([0, 1, 0]))[0] == 0


def test_kendall_tau_by_hand():
    # 1 2 3 against 1 3 2: two pairs agree, one does not.
    assert kendall_tau(rows([1, 2, 3]), rows([1, 3, 2])) == pytest.approx([1 / 3])
    # A tie in a: the pairs are (tie), +, +; tau-b = 2 / sqrt(2 * 3).
    assert kendall_tau(rows([1, 1, 2]), rows([1, 2, 3])) == pytest.approx([2 / math.sqrt(6)])
    undefined = kendall_tau(rows([1, 1, 1], [1]), rows([1, 2, 3], [2]))
    assert np.isnan(undefined).all()


vectors = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=50), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(vectors, st.integers(0, 2**32 - 1))
def test_all_rows_at_once_equal_one_at_a_time(first, seed):
    rng = np.random.default_rng(seed)
    second = [rng.permutation(row) if rng.random() < 0.5 else rng.random(len(row)) for row in first]
    a, b = rows(*first), rows(*second)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        slow_tau = [kendalltau(x, y).statistic for x, y in zip(first, second, strict=True)]
    slow_top = [
        float(np.sum(b[i] > b[i][np.argmax(a[i])]) < math.ceil(0.05 * len(a[i])))
        for i in range(len(a))
    ]
    # Integers behind both: only the last division may round differently.
    np.testing.assert_allclose(kendall_tau(a, b), slow_tau, rtol=0, atol=1e-12)
    assert top_match(a, b).tolist() == slow_top


def test_long_rows_equal_one_at_a_time():
    rng = np.random.default_rng(3)
    lengths = [2500, 17, 16, 33, 1, 700]
    offsets = offsets_of(lengths)
    a = Ragged(rng.standard_normal(offsets[-1]), offsets)
    b = Ragged(np.round(rng.standard_normal(offsets[-1]), 1), offsets)
    slow = [kendalltau(a[i], b[i]).statistic for i in (0, 1, 2, 3, 5)]
    taus = kendall_tau(a, b)
    assert np.isnan(taus[4])
    np.testing.assert_allclose(taus[[0, 1, 2, 3, 5]], slow, rtol=0, atol=1e-12)


def test_unknown_metric_is_named():
    with pytest.raises(ValueError, match="spearman"):
        agreement("spearman", rows([1, 2]), rows([1, 2]))


def test_shuffled_keeps_each_row_and_its_seed():
    a = Ragged.from_rows([np.arange(30.0), np.arange(100.0, 105.0)])
    once, again, other = shuffled(a, 7), shuffled(a, 7), shuffled(a, 8)
    assert np.array_equal(once.values, again.values)
    assert not np.array_equal(once.values, other.values)
    assert sorted(once[0]) == list(a[0])
    assert sorted(once[1]) == list(a[1])
    assert list(once[0]) != list(a[0])


def test_expectation_of_the_baseline_is_that_of_many_shuffles():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 45, 300)
    offsets = offsets_of(lengths)
    gold = Ragged(rng.random(offsets[-1]), offsets)
    tied = Ragged(rng.integers(0, 9, offsets[-1]).astype(float), offsets)
    shuffles = [top_match(gold, shuffled(tied, seed)) for seed in range(200)]
    # 60,000 draws of 0 or 1: the standard error of the mean is below 0.002.
    expected = expected_by_chance("top 5% match", tied).mean()
    assert np.mean(shuffles) == pytest.approx(expected, abs=0.008)
    # Without ties it is ceil(0.05 n) / n exactly.
    untied = expected_by_chance("top 5% match", gold)
    np.testing.assert_allclose(untied, np.ceil(0.05 * lengths) / lengths, rtol=1e-12)
    taus = expected_by_chance("kendall tau", rows([1, 2, 3], [2, 2]))
    assert taus[0] == 0
    assert np.isnan(taus[1])


def test_bootstrap_interval_covers_what_it_should():
    rng = np.random.default_rng(1)
    covered = 0
    for trial in range(100):
        sample = (rng.random(200) < 0.3).astype(float)
        low, high = bootstrap_interval(sample, np.arange(200), trial, resamples=300)
        covered += low <= 0.3 <= high
    # 95 expected; fewer than 85 or all 100 would each have a probability below 1%.
    assert 85 <= covered <= 99


def test_bootstrap_interval_keeps_the_rows_of_an_example_together():
    # 20 examples of 50 equal rows each: as uncertain as 20 numbers, not as 1000.
    values = np.repeat(np.random.default_rng(2).random(20), 50)
    together = bootstrap_interval(values, np.repeat(np.arange(20), 50), 0)
    apart = bootstrap_interval(values, np.arange(1000), 0)
    assert together[1] - together[0] > 4 * (apart[1] - apart[0])
    assert np.isnan(bootstrap_interval(np.array([np.nan]), np.array([0]), 0)).all()


def test_rows_are_padded_to_little_more_than_their_length(monkeypatch):
    """A document without a word beside long ones: the rows padded together are alike in length."""
    lengths = np.array([2] * 40 + [1, 3000, 2500, 2000])
    rng = np.random.default_rng(0)
    first, second = (
        Ragged(rng.standard_normal(lengths.sum(), dtype=np.float32), offsets_of(lengths))
        for _ in range(2)
    )
    sizes, tau_b = [], agreement_module._tau_b

    def noted(a, b, lengths):
        sizes.append(a.size)
        return tau_b(a, b, lengths)

    monkeypatch.setattr(agreement_module, "_tau_b", noted)
    taus = kendall_tau(first, second)
    longer = np.flatnonzero(lengths > 1)
    expected = [kendalltau(first[row], second[row]).statistic for row in longer]
    np.testing.assert_allclose(taus[longer], expected, atol=1e-12)
    assert np.isnan(taus[40]) and max(sizes) <= agreement_module._SCORES_AT_ONCE
