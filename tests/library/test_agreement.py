"""Agreement metrics: hand-checked values, and parity with one row at a time."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from attention_dynamics.analysis.agreement import expected_by_chance, shuffled, top_match
from attention_dynamics.analysis.kendall import kendall_tau
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


def test_kendall_tau_by_hand():
    # 1 2 3 against 1 3 2: two pairs agree, one does not.
    assert kendall_tau(rows([1, 2, 3]), rows([1, 3, 2])) == pytest.approx([1 / 3])
    # A tie in a: the pairs are (tie), +, +; tau-b = 2 / sqrt(2 * 3).
    assert kendall_tau(rows([1, 1, 2]), rows([1, 2, 3])) == pytest.approx([2 / math.sqrt(6)])
    undefined = kendall_tau(rows([1, 1, 1], [1]), rows([1, 2, 3], [2]))
    assert np.isnan(undefined).all()


def test_kendall_tau_does_not_exceed_1():
    # Without clipping, the rounding of 65 / sqrt(65) / sqrt(65) gives 1.0000000000000002.
    tied = rows([*range(11), 10])
    assert kendall_tau(tied, tied).tolist() == [1.0]
    assert kendall_tau(tied, rows([*range(11, 0, -1), 1])).tolist() == [-1.0]


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
