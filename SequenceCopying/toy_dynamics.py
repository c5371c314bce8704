"""The two-word classifier of the paper, exactly: attention follows knowledge (Section 3).

    python toy_dynamics.py
    python toy_dynamics.py --time 1000 --mistake 2

Word 0 means "positive", word 1 means nothing. Two sentences are equally frequent: {0, 1}, positive,
and {1, 1}, negative. In the positive sentence word 0 gets the share p of the attention. β0 and β1
are the votes of the words, a is the attention logit, p = sigmoid(a). Training follows the gradient
of the loss (docs/method.md, section 5): with g+ = sigmoid(-s+), g- = sigmoid(s-) and the scores
s+ = p β0 + (1 - p) β1 and s- = β1,

    dβ0/dt = g+ p / 2
    dβ1/dt = (g+ (1 - p) - g-) / 2
    da/dt  = g+ p (1 - p) (β0 - β1)

Attention moves to word 0 only while β0 > β1: knowledge comes first. Three starts are integrated
(scipy, DOP853):

    uniform    β0 = β1 = 0, p = 1/2: at first β0 - β1 = t/4 and p = 1/2 + t²/256, so attention lags
               by one order; later p -> 1 and L -> 2/t
    mistaken   β0 = -m, β1 = m (--mistake m): the wrong word attracts the attention until β has
               been unlearned
    frozen     p = 1/2 throughout: even so L falls below any value, but only as 10/t

Writes {out_dir}/toy_dynamics.svg, .png, .csv and prints the final values.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp
from scipy.special import expit

from attention_dynamics.cli import RunError, add_options, run_script, script_parser
from attention_dynamics.reporting.figures import write_figure
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.storage.files import check_writable

POINTS = 401
RTOL, ATOL = 1e-10, 1e-12  # of each step of the integration

Course = dict[str, np.ndarray]


def positive_number(text: str) -> float:
    """The type of an option that takes a positive number (at most 1e6)."""
    number = float(text)
    if not 0 < number <= 1e6:
        raise argparse.ArgumentTypeError(f"expected a positive number of at most 1e6, got {text}")
    return number


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    add_options(
        parser,
        time=(positive_number, 300.0, "end time of the gradient flow"),
        mistake=(positive_number, 1.5, "m, the initial error of β in the mistaken start"),
        out_dir=(str, "figures", "output directory"),
    )
    return parser.parse_args(argv)


def gradient(state: np.ndarray, frozen: bool) -> np.ndarray:
    """d(β0, β1, a)/dt at ``state``, by the equations above; da/dt = 0 if p is ``frozen``."""
    beta0, beta1, a = state
    p, q = expit(a), expit(-a)
    g_plus, g_minus = expit(-(p * beta0 + q * beta1)), expit(beta1)
    moved = 0.0 if frozen else g_plus * p * q * (beta0 - beta1)
    return np.array([g_plus * p / 2, (g_plus * q - g_minus) / 2, moved])


def follow(start: tuple[float, float, float], time: float, frozen: bool = False) -> Course:
    """The gradient flow from ``start`` = (β0, β1, a): t, beta0, beta1, p (of word 0) and loss.

    Each has POINTS values, at times from 0 to ``time``. Raises RunError if the integration fails.
    """
    times = np.linspace(0, time, POINTS)
    options = {"method": "DOP853", "t_eval": times, "rtol": RTOL, "atol": ATOL}
    solution = solve_ivp(lambda _, state: gradient(state, frozen), (0, time), start, **options)
    if not solution.success:
        raise RunError(f"the integration from {start} failed: {solution.message}")
    beta0, beta1, a = solution.y
    p = expit(a)
    s_plus = p * beta0 + (1 - p) * beta1
    loss = (np.logaddexp(0, -s_plus) + np.logaddexp(0, beta1)) / 2
    return {"t": solution.t, "beta0": beta0, "beta1": beta1, "p": p, "loss": loss}


def draw_courses(courses: dict[str, Course]) -> Figure:
    """A column for each start: β0 and β1, p, and the loss over time."""
    figure = Figure(figsize=(9.6, 6.4))
    FigureCanvasAgg(figure)
    grid = figure.subplots(3, len(courses), sharex=True, sharey="row")
    lines = (  # row, quantity, color, more
        (0, "beta0", "#D55E00", {"label": r"$\beta_0$"}),
        (0, "beta1", "#B8860B", {"dashes": (4, 2), "label": r"$\beta_1$"}),
        (1, "p", "#0072B2", {}),
        (2, "loss", "#333333", {}),
    )
    for column, (name, course) in zip(grid.T, courses.items(), strict=True):
        column[0].set_title(name)
        for axes, level in zip(column, (0, 0.5), strict=False):
            axes.axhline(level, color="#6b6b6b", linewidth=0.8)
        for row, quantity, color, more in lines:
            column[row].plot(course["t"], course[quantity], color=color, linewidth=2, **more)
        column[1].set_ylim(-0.03, 1.03)
        column[2].set_yscale("log")
        column[2].set_xlabel("time t")
    labels = (r"$\beta$", "attention p on word 0", "loss L")
    for axes, label in zip(grid[:, 0], labels, strict=True):
        axes.set_ylabel(label)
    grid[0, 0].legend(frameon=False)
    figure.align_ylabels(grid[:, 0])
    figure.tight_layout()
    return figure


def main(argv=None) -> None:
    args = parse_args(argv)
    stem = Path(args.out_dir) / "toy_dynamics"
    check_writable(f"{stem}.svg")
    starts = {
        "uniform": ((0.0, 0.0, 0.0), False),
        "mistaken": ((-args.mistake, args.mistake, 0.0), False),
        "frozen": ((0.0, 0.0, 0.0), True),
    }
    courses = {name: follow(start, args.time, frozen) for name, (start, frozen) in starts.items()}
    rows = [
        {"start": name, **dict(zip(course, map(float, point), strict=True))}
        for name, course in courses.items()
        for point in zip(*course.values(), strict=True)
    ]
    last = [
        {
            "start": end["start"],
            "β0": end["beta0"],
            "β1": end["beta1"],
            "p": end["p"],
            "lowest p": float(courses[end["start"]]["p"].min()),
            "L": end["loss"],
            "L t": end["loss"] * end["t"],
        }
        for end in rows[POINTS - 1 :: POINTS]
    ]
    print(f"at time {args.time:g}:\n{format_table(last, digits=4)}")
    for path in write_figure(stem, lambda: draw_courses(courses), rows, "Toy classifier"):
        print(path)


if __name__ == "__main__":
    run_script(main)
