"""The paper's toy classifier, exactly: why attention follows the knowledge of words (Section 3).

    python toy_dynamics.py
    python toy_dynamics.py --time 1000 --mistake 2

Two words, and attention by a gate of each word alone. Word 0 says "positive"; word 1 says nothing.
There are two sentences, equally frequent: {0, 1}, positive, and {1, 1}, negative. With gates a0 and
a1, word 0 gets the share p = sigmoid(a0 - a1) of the attention in the positive sentence. The scores
are

    s+ = p β0 + (1 - p) β1,    s- = β1,

and the loss, log(1 + exp(-y s)) on average, is L = (softplus(-s+) + softplus(s-)) / 2. Training
follows its gradient: with g+ = sigmoid(-s+), g- = sigmoid(s-) and a = a0 - a1 (both gates learn,
each by half of it),

    dβ0/dt = g+ p / 2
    dβ1/dt = (g+ (1 - p) - g-) / 2
    da/dt  = g+ p (1 - p) (β0 - β1)

so that attention moves to a word only once β says more for it (β0 > β1): knowledge leads. Three
starts are integrated (scipy, DOP853):

    uniform    β0 = β1 = 0, p = 1/2. At first β0 - β1 = t/4, and p = 1/2 + t²/256: attention is one
               order behind. Later p -> 1, and L -> 2/t.
    mistaken   β0 = -m, β1 = m (--mistake m): the wrong word first draws the attention, until β has
               been unlearned.
    frozen     p = 1/2 for ever. β0 and -β1 grow without bound, and L falls below any value without
               attention, though only as 10/t.

Two things have a closed form, and the integration is checked against them before anything is drawn.
With p frozen at 1 the words part: y = β0 and y = -β1 both follow dy/dt = sigmoid(-y) / 2, solved by
y + exp(y) = t/2 + const, y = c - W(exp(c)) with Lambert's W. And when only the positive sentence is
there, (β0 - β1)² - 1 / (p (1 - p)) never changes.

Writes {out_dir}/toy_dynamics.svg, .png, .csv, and prints the losses and the differences from the
closed forms.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp
from scipy.special import expit, lambertw

from attention_dynamics.cli import RunError, run_script, script_parser
from attention_dynamics.reporting.figures import write_figure
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.storage.files import check_writable

POINTS = 401
# Of the integration (per step); the checks allow what adds up over it.
RTOL, ATOL = 1e-10, 1e-12
CHECK = 1e-7


class Course(NamedTuple):
    """The model over time, each (time,): t, β0, β1, the share p of word 0, and the loss L."""

    t: np.ndarray
    beta0: np.ndarray
    beta1: np.ndarray
    p: np.ndarray
    loss: np.ndarray


def positive_number(text: str) -> float:
    """The type of an option that is a number above 0 (and at most 1e6)."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1e6:
        raise argparse.ArgumentTypeError(f"must be a number above 0 (at most 1e6), not {text}")
    return number


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--time",
        type=positive_number,
        default=300.0,
        help="how long to follow the gradient (default: %(default)s)",
    )
    parser.add_argument(
        "--mistake",
        type=positive_number,
        default=1.5,
        help="m, how wrong β is in the mistaken start (default: %(default)s)",
    )
    parser.add_argument(
        "--out_dir", default="figures", help="folder to write to (default: %(default)s)"
    )
    return parser.parse_args(argv)


def gradient(state: np.ndarray, frozen: bool, negatives: bool) -> np.ndarray:
    """d(β0, β1, a)/dt of the equations above.

    Args:
        state: (β0, β1, a).
        frozen: whether the gates stay as they are.
        negatives: whether the negative sentence is there.
    """
    beta0, beta1, a = state
    p, q = expit(a), expit(-a)
    g_plus = expit(-(p * beta0 + q * beta1))
    g_minus = expit(beta1) if negatives else 0.0
    moved = 0.0 if frozen else g_plus * p * q * (beta0 - beta1)
    return np.array([g_plus * p / 2, (g_plus * q - g_minus) / 2, moved])


def follow(
    start: tuple[float, float, float],
    time: float,
    frozen: bool = False,
    negatives: bool = True,
) -> Course:
    """The gradient flow from ``start`` = (β0, β1, a), at POINTS times from 0 to ``time``.

    Raises RunError when the integration fails.
    """
    found = solve_ivp(
        lambda _, state: gradient(state, frozen, negatives),
        (0, time),
        start,
        method="DOP853",
        t_eval=np.linspace(0, time, POINTS),
        rtol=RTOL,
        atol=ATOL,
    )
    if not found.success:
        raise RunError(f"the integration from {start} failed: {found.message}")
    beta0, beta1, a = found.y
    p = expit(a)
    s_plus = p * beta0 + (1 - p) * beta1
    loss = (np.logaddexp(0, -s_plus) + np.logaddexp(0, beta1)) / 2
    return Course(found.t, beta0, beta1, p, loss)


def parted(start: float, t: np.ndarray) -> np.ndarray:
    """y(t) of dy/dt = sigmoid(-y) / 2 with y(0) = ``start``: c - W(exp(c)), c = t/2 + y + exp(y).

    W(exp(c)) is found from w + log w = c by Newton's method, since exp(c) overflows.
    """
    c = t / 2 + start + np.exp(start)
    w = np.where(c < 700, lambertw(np.exp(np.minimum(c, 700))).real, c - np.log(np.maximum(c, 1)))
    for _ in range(4):
        w = w * (1 + c - np.log(w)) / (1 + w)
    return c - w


def differences(time: float) -> dict[str, float]:
    """The largest differences of the integration from the two closed forms, up to ``time``."""
    # At a = 40, 1 - p is below 1e-17.
    alone = follow((0.5, -0.25, 40.0), time, frozen=True)
    from_words = max(
        np.abs(alone.beta0 - parted(0.5, alone.t)).max(),
        np.abs(-alone.beta1 - parted(0.25, alone.t)).max(),
    )
    positive = follow((0.6, -0.2, 0.3), time, negatives=False)
    invariant = (positive.beta0 - positive.beta1) ** 2 - 1 / (positive.p * (1 - positive.p))
    return {
        "p = 1, Lambert's W": float(from_words),
        "positive sentence alone, invariant": float(np.abs(invariant - invariant[0]).max()),
    }


def draw_courses(courses: dict[str, Course]) -> Figure:
    """A column for each start: β0 and β1, p, and the loss over time."""
    figure = Figure(figsize=(9.6, 6.4))
    FigureCanvasAgg(figure)
    grid = figure.subplots(3, len(courses), sharex=True, sharey="row")
    for column, (name, course) in enumerate(courses.items()):
        beta, share, loss = grid[:, column]
        beta.set_title(name)
        beta.axhline(0, color="#6b6b6b", linewidth=0.8)
        beta.plot(course.t, course.beta0, color="#D55E00", linewidth=2, label=r"$\beta_0$")
        dashes = {"dashes": (4, 2), "label": r"$\beta_1$"}
        beta.plot(course.t, course.beta1, color="#B8860B", linewidth=2, **dashes)
        share.axhline(0.5, color="#6b6b6b", linewidth=0.8)
        share.plot(course.t, course.p, color="#0072B2", linewidth=2)
        share.set_ylim(-0.03, 1.03)
        loss.plot(course.t, course.loss, color="#333333", linewidth=2)
        loss.set_yscale("log")
        loss.set_xlabel("time t")
    for axes, label in zip(
        grid[:, 0], (r"$\beta$", "attention p on word 0", "loss L"), strict=True
    ):
        axes.set_ylabel(label)
    grid[0, 0].legend(frameon=False)
    figure.align_ylabels(grid[:, 0])
    figure.tight_layout()
    return figure


def main(argv=None) -> None:
    args = parse_args(argv)
    stem = Path(args.out_dir) / "toy_dynamics"
    check_writable(f"{stem}.svg")
    for what, difference in differences(args.time).items():
        if not difference < CHECK:
            raise RunError(f"the integration is {difference:.1g} off the closed form ({what})")
        print(f"largest difference from the closed form ({what}): {difference:.1g}")
    starts = {
        "uniform": ((0.0, 0.0, 0.0), False),
        "mistaken": ((-args.mistake, args.mistake, 0.0), False),
        "frozen": ((0.0, 0.0, 0.0), True),
    }
    courses = {name: follow(start, args.time, frozen) for name, (start, frozen) in starts.items()}
    last = [
        {
            "start": name,
            "β0": float(course.beta0[-1]),
            "β1": float(course.beta1[-1]),
            "p": float(course.p[-1]),
            "lowest p": float(course.p.min()),
            "L": float(course.loss[-1]),
            "L t": float(course.loss[-1] * course.t[-1]),
        }
        for name, course in courses.items()
    ]
    print(f"at time {args.time:g}:\n{format_table(last, digits=4)}")
    rows = [
        {"start": name, **dict(zip(Course._fields, map(float, point), strict=True))}
        for name, course in courses.items()
        for point in zip(*course, strict=True)
    ]
    for path in write_figure(stem, lambda: draw_courses(courses), rows, "Toy classifier"):
        print(path)


if __name__ == "__main__":
    run_script(main)
