"""The two-word model: its gradient, what is known in closed form, its figure."""

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import lambertw

from attention_dynamics.storage.files import sha256


@pytest.mark.parametrize("state", [(0.3, -0.7, 0.4), (-1.5, 1.5, 0.0), (2.0, -3.0, -1.2)])
def test_flow_is_minus_the_gradient_of_the_loss(copying, state):
    """Against finite differences of L(β0, β1, a0, a1), written out; a = a0 - a1."""

    def loss(parameters):
        beta0, beta1, a0, a1 = parameters
        p = np.exp(a0) / (np.exp(a0) + np.exp(a1))
        s_plus = p * beta0 + (1 - p) * beta1
        return (np.log1p(np.exp(-s_plus)) + np.log1p(np.exp(beta1))) / 2

    beta0, beta1, a = state
    slopes = approx_fprime(np.array([beta0, beta1, a, 0.0]), loss, 1e-7)
    flow = copying.toy_dynamics.gradient(np.array(state), frozen=False)
    expected = [-slopes[0], -slopes[1], -slopes[2] + slopes[3]]
    # Differences with steps of 1e-7 are good to about as much.
    np.testing.assert_allclose(flow, expected, atol=1e-6)


def test_votes_under_attention_fixed_at_one_have_a_closed_form(copying):
    """With p = 1, y = β0 and y = -β1 both follow dy/dt = sigmoid(-y) / 2.

    It is solved by y + exp(y) = t/2 + const = c, y = c - W(exp(c)) with Lambert's W.
    """
    course = copying.toy_dynamics.follow((0.5, -0.25, 40.0), 1000.0, frozen=True)
    for start, votes in ((0.5, course["beta0"]), (0.25, -course["beta1"])):
        c = course["t"] / 2 + start + np.exp(start)
        np.testing.assert_allclose(votes, c - lambertw(np.exp(c)).real, atol=1e-8)


def test_early_and_late_behavior(copying):
    toy = copying.toy_dynamics
    early = toy.follow((0.0, 0.0, 0.0), 0.1)  # next orders: t² and t³
    np.testing.assert_allclose(early["beta0"] - early["beta1"], early["t"] / 4, atol=0.1**2 / 20)
    np.testing.assert_allclose(early["p"] - 0.5, early["t"] ** 2 / 256, atol=0.1**3 / 500)
    frozen = toy.follow((0.0, 0.0, 0.0), 1e6, frozen=True)
    assert (frozen["p"] == 0.5).all()
    # The next term falls as 1/t times a logarithm.
    assert frozen["loss"][-1] * 1e6 == pytest.approx(10, rel=1e-3)
    assert toy.follow((0.0, 0.0, 0.0), 1e6)["loss"][-1] * 1e6 == pytest.approx(2, rel=1e-3)
    mistaken = toy.follow((-1.5, 1.5, 0.0), 300)
    assert mistaken["p"].min() == pytest.approx(0.1022, abs=5e-4)  # first away from word 0 ...
    assert mistaken["p"][-1] == pytest.approx(0.9747, abs=5e-4)  # ... and then to it


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
