"""Does one good head among bad ones make copying learnable? (Section 5.2, method A.3)

    python multihead.py
    python multihead.py --num_good 3 --num_bad 10 --num_random 10 --num_samples 6 --num_steps 120

Copies permutations of 40 tokens. All models start from one random body. Head initialisations are
tried until 20 good and 20 bad ones are found: *good* when the single-head model started from it
exceeds an accuracy of 0.95 within 200 steps on each of the data seeds 0, 1, 2; *bad* when on each
it never does and ends below 0.6; others are dropped. Then 50 models of 8 bad heads are trained, 50
of 7 bad heads and a good one, and 50 of 8 random heads.

A run may be interrupted: the heads found so far, the finished combinations and the training states
of the others are kept in --folder, and a later call of the same settings goes on from them, with
other numbers of heads and samples too.

Writes re_{num_heads}headcomb.pkl, (bad_histories, good_histories, random_histories), each a dict
from the tuple of head files in {folder}/heads to the history, a list of {"acc", "loss"} before the
updates of steps 0, 10, ...; a .json beside it that says how it was made; and
{out_dir}/re_{num_heads}headcomb.svg, .png, .csv, the mean learning curves. Prints the share of each
kind that exceeds 0.95, with a 95% interval (Wilson).
"""

import argparse
import math
import sys
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import numpy as np
from heads import (
    EVERY,
    GOOD,
    MEASURES,
    Body,
    Head,
    MultiheadCopier,
    Settings,
    is_good,
    make_body,
    make_head,
    train_trial,
    verdict,
)
from histories import check_same, is_evaluation, share_row, write_output
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from tqdm import tqdm
from training import History
from workers import add_jobs_option, default_jobs, side_by_side

from attention_dynamics.cli import InputError, RunError, count, run_script, script_parser, seed
from attention_dynamics.device import add_device_options, peak_memory_mb, setup_device
from attention_dynamics.reporting.figures import write_figure
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.runs.checkpoints import load_checkpoint, save_checkpoint
from attention_dynamics.runs.outputs import keep, kept
from attention_dynamics.runs.records import locked
from attention_dynamics.storage.files import check_writable, read_json, write_json
from attention_dynamics.storage.pickles import load_pickle

KINDS = ("bad", "good", "random")  # in the order of the output
LABELS = {"bad": "{} bad heads", "good": "{} bad heads and a good one", "random": "{} random heads"}
COLOURS = {"bad": "#D55E00", "good": "#0072B2", "random": "#6b6b6b"}
CANDIDATES, RANDOM = range(2)  # streams of head initialisations

Names = tuple[str, ...]


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    numbers = {
        "heads": {
            "num_good": (20, "good heads to find"),
            "num_bad": (20, "bad heads to find"),
            "num_random": (30, "random heads"),
            "max_candidates": (1000, "give up when this many heads have been tried"),
        },
        "combinations": {
            "num_samples": (50, "combinations of each kind"),
            "num_heads": (8, "heads of a combination"),
        },
        "training": {
            "num_steps": (200, "updates of a trial"),
            "hidden_dim": (256, "size of embeddings and states"),
            "seq_length": (40, "tokens to copy"),
            "bsize": (128, "sequences in a batch"),
        },
    }
    for title, of_group in numbers.items():
        group = parser.add_argument_group(title)
        for name, (default, meaning) in of_group.items():
            group.add_argument(
                f"--{name}", type=count, default=default, help=f"{meaning} (default: %(default)s)"
            )
    parser.add_argument(
        "--seed",
        type=seed,
        default=0,
        help="of the body, the heads, the evaluation set and the choice of combinations "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("multihead_runs"),
        help="where heads and finished combinations are kept (default: %(default)s)",
    )
    parser.add_argument(
        "--out_dir", default="figures", help="folder of the figure (default: %(default)s)"
    )
    parser.add_argument("--overwrite", action="store_true", help="make a finished output anew")
    add_jobs_option(add_device_options(parser))
    args = parser.parse_args(argv)
    possible = {
        "bad": math.comb(args.num_bad, args.num_heads),
        "good": args.num_good * math.comb(args.num_bad, args.num_heads - 1),
        "random": math.comb(args.num_random, args.num_heads),
    }
    for kind, number in possible.items():
        if number < args.num_samples:
            parser.error(
                f"only {number} different combination(s) of {args.num_heads} heads of the kind "
                f"{kind!r} can be made, not --num_samples {args.num_samples}"
            )
    return args


def open_folder(folder: Path, settings: Settings) -> None:
    """Make the restart folder with its body, or check that it is one of these settings."""
    record = folder / "settings.json"
    if record.exists():
        earlier, now = read_json(record, "restart folder's"), asdict(settings)
        if not isinstance(earlier, dict) or earlier.keys() != now.keys():
            raise InputError(f"{record} is damaged: remove {folder}, or name another --folder")
        differing = [f"{key} was {earlier[key]!r}" for key in now if earlier[key] != now[key]]
        if differing:
            raise InputError(
                f"{folder} is of other settings ({', '.join(differing)}): name another --folder"
            )
        load_checkpoint(folder / "body", make_body(settings))
        for stale in folder.rglob(".*.part"):  # of a process that was killed
            stale.unlink()
        return
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} holds files, but no settings.json: name another --folder")
    save_checkpoint(folder / "body", make_body(settings))
    write_json(record, asdict(settings))


def damaged_error(path: Path) -> InputError:
    """That what is kept at ``path`` is not what this script keeps."""
    return InputError(f"{path} is damaged: remove it, and it is made again")


def kept_history(path: Path, content: object, longest: int, whole: bool) -> History:
    """A history as it was kept at ``path``, if it is one; else InputError."""
    if (
        isinstance(content, list)
        and (len(content) == longest or (not whole and 1 <= len(content) < longest))
        and all(is_evaluation(entry, MEASURES) for entry in content)
    ):
        return [{key: entry[key] for key in MEASURES} for entry in content]
    raise damaged_error(path)


def candidate_path(folder: Path, number: int) -> Path:
    """Where the trials of a candidate head are kept."""
    return folder / "candidates" / str(number)


def combination_path(folder: Path, names: Names) -> Path:
    """Where the history of a combination is kept."""
    return folder / "combinations" / "+".join(names)


def head_path(folder: Path, name: str) -> Path:
    """Where the initialisation of a head lies."""
    return folder / "heads" / name


def try_candidate(
    settings: Settings, folder: Path, number: int, wanted: frozenset, device: str, threads: int
) -> list[History]:
    """The trials of candidate ``number``, as many as tell whether it is of a ``wanted`` kind.

    Each trial is kept in ``folder``, and so is the head once it is good or bad.
    """
    device = setup_device(device, threads)
    path, described = candidate_path(folder, number), asdict(settings)
    longest = settings.evaluations
    trials = kept(path, described)
    if not isinstance(trials, list | None):
        raise damaged_error(path)
    histories = [kept_history(path, history, longest, False) for history in trials or []]
    while (found := verdict(histories)) is None:
        if histories and ("good" if is_good(histories[0]) else "bad") not in wanted:
            return histories
        body = Body(settings.task.vocab, settings.hidden_dim)
        load_checkpoint(folder / "body", body)
        model = MultiheadCopier(body, [make_head(settings, CANDIDATES, number)])
        state = path.with_name(f"{number},{len(histories)}.state")
        histories.append(train_trial(settings, model, len(histories), device, is_good, state))
        keep(path, described, histories)
        state.unlink(missing_ok=True)
    if found != "dropped" and not head_path(folder, f"{found}{number}").exists():
        head = make_head(settings, CANDIDATES, number)
        save_checkpoint(head_path(folder, f"{found}{number}"), head)
    return histories


def find_heads(args: argparse.Namespace, settings: Settings, device: str, jobs: int) -> dict:
    """{"good": names, "bad": names}: the first ones among the candidates 0, 1, 2, ...

    Which these are does not depend on the number of jobs.
    """
    limits = {"good": args.num_good, "bad": args.num_bad}
    found: dict[str, list[str]] = {"good": [], "bad": []}

    def candidates():
        for number in range(args.max_candidates):
            wanted = frozenset(kind for kind in found if len(found[kind]) < limits[kind])
            if not wanted:
                return
            yield settings, args.folder, number, wanted, device, args.threads

    finished: dict[int, list[History]] = {}
    following = 0  # the next candidate to be counted: they count in order
    progress = tqdm(total=sum(limits.values()), unit="head", disable=not sys.stderr.isatty())
    with progress, closing(side_by_side(try_candidate, candidates(), jobs)) as trials:
        for number, histories in trials:
            finished[number] = histories
            while following in finished:
                kind = verdict(finished.pop(following))
                if kind in found and len(found[kind]) < limits[kind]:
                    found[kind].append(f"{kind}{following}")
                    progress.update()
                following += 1
            counts = " ".join(f"{kind} {len(found[kind])}/{limits[kind]}" for kind in found)
            progress.set_description(f"{counts}, {following} tried")
            if all(len(found[kind]) == limits[kind] for kind in found):
                break
    print(f"{counts} heads among {following} candidates")
    if any(len(found[kind]) < limits[kind] for kind in found):
        raise RunError(f"not enough heads in --max_candidates {args.max_candidates}")
    return found


def make_random_heads(args: argparse.Namespace, settings: Settings) -> list[str]:
    """The names of the random heads, which are kept beside the others."""
    names = [f"random{number}" for number in range(args.num_random)]
    for number, name in enumerate(names):
        if not head_path(args.folder, name).exists():
            head = make_head(settings, RANDOM, number)
            save_checkpoint(head_path(args.folder, name), head)
    return names


def choose_combinations(args: argparse.Namespace, heads: dict[str, list[str]]) -> dict:
    """{kind: --num_samples different combinations of head names}."""
    chosen = {}
    for place, kind in enumerate(KINDS):
        rng = np.random.default_rng([args.seed, place])
        pool = heads["random" if kind == "random" else "bad"]
        combinations: dict[Names, None] = {}
        while len(combinations) < args.num_samples:
            size = args.num_heads - (kind == "good")
            drawn = sorted(rng.choice(len(pool), size, replace=False))
            names = tuple(pool[number] for number in drawn)
            if kind == "good":
                names += (heads["good"][rng.integers(len(heads["good"]))],)
            combinations[names] = None
        chosen[kind] = list(combinations)
    return chosen


def train_combination(
    settings: Settings, folder: Path, names: Names, device: str, threads: int
) -> History:
    """The history of a model of several heads (data seed 0), which is kept in ``folder``."""
    device = setup_device(device, threads)
    body, heads = Body(settings.task.vocab, settings.hidden_dim), []
    load_checkpoint(folder / "body", body)
    for name in names:
        head = Head(settings.hidden_dim)
        load_checkpoint(head_path(folder, name), head)
        heads.append(head)
    model = MultiheadCopier(body, heads)
    path = combination_path(folder, names)
    state = path.with_name(f"{path.name}.state")
    history = train_trial(settings, model, 0, device, lambda _: False, state)
    keep(path, asdict(settings), history)
    state.unlink(missing_ok=True)
    return history


def train_combinations(
    args: argparse.Namespace, settings: Settings, combinations: dict, device: str, jobs: int
) -> tuple[dict[Names, History], ...]:
    """The histories of all combinations, by kind; those that are kept are not trained again."""
    known: dict[Names, History] = {}
    missing = []
    for names in dict.fromkeys(names for kind in KINDS for names in combinations[kind]):
        path = combination_path(args.folder, names)
        history = kept(path, asdict(settings))
        if history is None:
            missing.append(names)
        else:
            known[names] = kept_history(path, history, settings.evaluations, True)
    tasks = [(settings, args.folder, names, device, args.threads) for names in missing]
    total = len(known) + len(missing)
    progress = tqdm(total=total, initial=len(known), unit="model", disable=not sys.stderr.isatty())
    with progress, closing(side_by_side(train_combination, tasks, jobs)) as trained:
        for number, history in trained:
            known[missing[number]] = [{key: e[key] for key in MEASURES} for e in history]
            progress.update()
    return tuple({names: known[names] for names in combinations[kind]} for kind in KINDS)


def train_all(
    args: argparse.Namespace, settings: Settings, device: str, path: Path, described: dict
) -> tuple[dict[Names, History], ...]:
    """Find the heads, train their combinations and write the histories to ``path``."""
    started = time.perf_counter()
    jobs = args.jobs or default_jobs(device)
    open_folder(args.folder, settings)
    heads = find_heads(args, settings, device, jobs)
    heads["random"] = make_random_heads(args, settings)
    combinations = choose_combinations(args, heads)
    histories = train_combinations(args, settings, combinations, device, jobs)
    results = {
        "shares": summary_rows(args.num_heads, histories),
        "seconds": time.perf_counter() - started,
        "peak_memory_mb": peak_memory_mb(),
        "device": device,
        "threads": args.threads,
    }
    write_output(path, histories, described, results)
    print(path)
    return histories


def summary_rows(num_heads: int, histories: tuple[dict[Names, History], ...]) -> list[dict]:
    """How many combinations of each kind learn."""
    return [
        share_row(label_of(kind, num_heads), f"exceed {GOOD}", [*map(is_good, of_kind.values())])
        for kind, of_kind in zip(KINDS, histories, strict=True)
    ]


def label_of(kind: str, num_heads: int) -> str:
    """A kind of combination in words."""
    return LABELS[kind].format(num_heads - (kind == "good"))


def curve_rows(histories: tuple[dict[Names, History], ...]) -> list[dict]:
    """The mean and the standard deviation of the accuracy at each step, of each kind."""
    rows = []
    for kind, of_kind in zip(KINDS, histories, strict=True):
        acc = np.array([[entry["acc"] for entry in history] for history in of_kind.values()])
        for place, (mean, std) in enumerate(zip(acc.mean(axis=0), acc.std(axis=0), strict=True)):
            row = {"kind": kind, "step": EVERY * place, "mean": float(mean), "std": float(std)}
            rows.append(row)
    return rows


def draw_curves(num_heads: int, rows: list[dict]) -> Figure:
    """Mean accuracy over training with a band of one standard deviation, for each kind."""
    figure = Figure(figsize=(7.2, 4.4))
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for kind in KINDS:
        steps, mean, std = (
            np.array([row[key] for row in rows if row["kind"] == kind])
            for key in ("step", "mean", "std")
        )
        colour, label = COLOURS[kind], label_of(kind, num_heads)
        axes.fill_between(steps, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)
        axes.plot(steps, mean, color=colour, linewidth=2, label=label)
    axes.axhline(GOOD, color="#6b6b6b", linewidth=0.8, dashes=(2, 2))
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("training step")
    axes.set_ylabel("accuracy, mean ± std of models")
    axes.legend(frameon=False, loc="upper left")
    figure.tight_layout()
    return figure


def main(argv=None) -> None:
    args = parse_args(argv)
    device = setup_device(args.device, args.threads).type
    settings = Settings(
        seq_length=args.seq_length,
        hidden_dim=args.hidden_dim,
        bsize=args.bsize,
        num_steps=args.num_steps,
        seed=args.seed,
    )
    path = Path(f"re_{args.num_heads}headcomb.pkl")
    check_writable(path, args.folder)
    stem = Path(args.out_dir) / path.stem
    check_writable(f"{stem}.svg")
    numbers = ("num_good", "num_bad", "num_random", "num_samples", "num_heads")
    described = {**asdict(settings), **{name: getattr(args, name) for name in numbers}}
    with locked(path), locked(args.folder):
        if path.exists() and not args.overwrite:
            check_same(path, described)
            print(f"{path} is up to date; --overwrite makes it anew")
            histories = load_pickle(path, "combinations")
        else:
            histories = train_all(args, settings, device, path, described)
    rows = curve_rows(histories)
    for figure in write_figure(
        stem,
        lambda: draw_curves(args.num_heads, rows),
        rows,
        "Good and bad heads",
    ):
        print(figure)
    print(format_table(summary_rows(args.num_heads, histories)))


if __name__ == "__main__":
    run_script(main)
