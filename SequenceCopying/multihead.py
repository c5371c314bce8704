"""Find good and bad attention heads, and train models that combine them (Section 5.2).

    python multihead.py
    python multihead.py --num_good 3 --num_bad 10 --num_random 10 --num_samples 6 --num_steps 120

Copies permutations of 40 tokens. All models start from one random body. Head initializations are
tried until 20 good and 20 bad heads are found. A head is *good* if the single-head model started
from it exceeds an accuracy of 0.95 within 200 steps on each of the data seeds 0, 1, 2. It is *bad*
if on each it never does and ends below 0.6. Other heads are dropped. Then 50 models of 8 bad heads
are trained, 50 of 7 bad heads and a good one, and 50 of 8 random heads.

Writes re_{num_heads}headcomb.pkl, (bad_histories, good_histories, random_histories), each a dict
from the tuple of head names to the history: a list of dicts of step, acc, loss and attn_acc,
attn_acc_m1, attn_acc_p1 (the token that the mean over heads attends to most is the one being
copied, the one after it, the one before it), before the updates of steps 0, 10, ... A .json file
beside it records the settings. Prints the share of each kind that exceeds 0.95, with a 95% interval
(Wilson), and Fisher's exact test for every pair of kinds; and of all heads tried, how many are
good, bad and neither, and how many learn with one order of the data (data seed) and not with
another. Draw the learning curves with plot_multihead.py.

If a run is interrupted, the same command resumes it: trials of heads, finished combinations and
training states are in --folder. A later call with other numbers of heads and samples reuses them.
--report prints what the heads tried so far are, and writes it to {folder}/multihead.json.
"""

import argparse
import itertools
import math
import re
import sys
import time
from contextlib import closing
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
from histories import fisher_rows, proportion_row, read_output
from models import Head, MultiheadCopier
from tqdm import tqdm
from training import (
    DATA_SEEDS,
    GOOD,
    TRIAL_EVERY,
    TRIAL_MEASURES,
    History,
    TrialSettings,
    add_steps,
    classify_head,
    is_good,
    make_body,
    make_head,
    train_trial,
)
from workers import add_jobs_option, default_jobs, run_all, run_parallel

from attention_dynamics.cli import (
    InputError,
    RunError,
    add_options,
    count,
    run_script,
    script_parser,
    seed,
)
from attention_dynamics.device import add_device_options, peak_memory_mb, setup_device
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.runs.outputs import load_state, output, save_state
from attention_dynamics.runs.records import differences, locked, provenance
from attention_dynamics.storage.files import check_writable, read_json, write_json

KINDS = ("bad", "good", "random")  # in the order of the output
LABELS = {"bad": "{} bad heads", "good": "{} bad heads and a good one", "random": "{} random heads"}
CANDIDATES, RANDOM = range(2)  # streams of head initializations

Names = tuple[str, ...]
Combinations = dict[Names, History]


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    defaults = TrialSettings()
    add_options(
        parser,
        num_good=(count, 20, "good heads to find, from which combinations are drawn"),
        num_bad=(count, 20, "bad heads to find, likewise"),
        num_random=(count, 30, "random heads, likewise"),
        max_candidates=(count, 1000, "number of heads to try before giving up"),
        num_samples=(count, 50, "number of combinations of each kind"),
        num_heads=(count, 8, "number of heads in a combination"),
        num_steps=(count, defaults.num_steps, "number of updates in a trial"),
        hidden_dim=(count, defaults.hidden_dim, "size of embeddings and states"),
        seq_length=(count, defaults.seq_length, "number of tokens to copy"),
        bsize=(count, defaults.bsize, "sequences in a batch"),
        seed=(seed, defaults.seed, "random seed (body, heads, evaluation set, combinations)"),
        folder=(Path, Path("multihead_runs"), "directory of trials and finished combinations"),
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a finished output")
    parser.add_argument("--report", action="store_true", help="only report on the heads tried")
    add_jobs_option(add_device_options(parser))
    args = parser.parse_args(argv)
    possible = {
        "bad": math.comb(args.num_bad, args.num_heads),
        "good": args.num_good * math.comb(args.num_bad, args.num_heads - 1),
        "random": math.comb(args.num_random, args.num_heads),
    }
    kind, most = min(possible.items(), key=lambda item: item[1])
    if most < args.num_samples:
        parser.error(
            f"--num_samples: too many combinations of {args.num_heads} heads of the kind {kind!r} "
            f"(expected at most {most}, got {args.num_samples}); give fewer, or more heads"
        )
    return args


def open_folder(folder: Path, settings: TrialSettings) -> None:
    """Record the settings of the trials in ``folder``; InputError if it has others."""
    record = folder / "settings.json"
    if record.exists() and (what := differences(read_json(record), asdict(settings))):
        raise InputError(
            f"{folder} belongs to a run with other settings ({what}); give another --folder"
        )
    write_json(record, asdict(settings))


def try_candidate(
    settings: TrialSettings, folder: Path, number: int, wanted: set[str], device: str, threads: int
) -> str | None:
    """The kind of candidate ``number``; None if it is good or bad but not ``wanted``.

    As many trials are made as are needed to decide that; they are saved in ``folder``.
    """
    device = setup_device(device, threads)
    path = folder / "candidates" / str(number)
    trials = [rebuild(trial) for trial in load_state(path, asdict(settings)) or []]
    while (kind := classify_head(trials)) is None:
        if trials and ("good" if is_good(trials[0]) else "bad") not in wanted:
            return None
        state = path.with_name(f"{number},{len(trials)}.state")
        model = MultiheadCopier(make_body(settings), [make_head(settings, CANDIDATES, number)])
        trials.append(train_trial(settings, model, len(trials), device, is_good, state))
        save_state(path, asdict(settings), trials)
        state.unlink(missing_ok=True)
    return kind


def rebuild(history: History) -> History:
    """A saved history, made of new dicts (see add_steps)."""
    return add_steps(history, TRIAL_EVERY, TRIAL_MEASURES)


def find_heads(args: argparse.Namespace, settings: TrialSettings, device: str, jobs: int) -> dict:
    """{"good": names, "bad": names}: the first of each kind among the candidates 0, 1, 2, ..."""
    limits = {"good": args.num_good, "bad": args.num_bad}
    found: dict[str, list[str]] = {"good": [], "bad": []}

    def wanted() -> set[str]:
        return {kind for kind, names in found.items() if len(names) < limits[kind]}

    numbers = range(args.max_candidates)
    tasks = ((settings, args.folder, number, wanted(), device, args.threads) for number in numbers)
    progress = tqdm(total=sum(limits.values()), unit="head", disable=not sys.stderr.isatty())
    with progress, closing(run_parallel(try_candidate, tasks, jobs)) as kinds:
        for number, kind in enumerate(kinds):
            if kind in wanted():
                found[kind].append(f"{kind}{number}")
                progress.update()
            progress.set_postfix(tried=number + 1)
            if not wanted():
                break
    counts = " ".join(f"{kind} {len(found[kind])}/{limits[kind]}" for kind in found)
    print(f"{counts} heads among {number + 1} candidates")
    if wanted():
        raise RunError(f"not enough heads in --max_candidates {args.max_candidates}")
    return found


def report_heads(folder: Path, settings: TrialSettings) -> dict:
    """Print and return what the heads tried so far are.

    "heads" has the share of each kind among those decided, and the share of those tried with
    several orders of the data that learn with one and not with another. "orders" has a row for each
    of the latter: a trial ends when its accuracy exceeds GOOD, so the final one says if it learned.
    """
    paths = [path for path in (folder / "candidates").glob("*") if path.name.isdigit()]
    paths.sort(key=lambda path: int(path.name))
    tried = {path.name: load_state(path, asdict(settings)) for path in paths}
    kinds = [kind for trials in tried.values() if (kind := classify_head(trials))]
    orders = []
    for name, trials in tried.items():
        if len(trials) > 1:
            row = {"head": int(name), "orders": len(trials), "learns": sum(map(is_good, trials))}
            for order, trial in itertools.zip_longest(DATA_SEEDS, trials):
                row[f"acc, order {order}"] = trial and trial[-1]["acc"]
            orders.append(row)
    names = {"good": "good", "bad": "bad", "neither": "dropped"}
    outcomes = {name: [one == kind for one in kinds] for name, kind in names.items()}
    differ = [0 < row["learns"] < row["orders"] for row in orders]
    outcomes["learn with one order, not with another"] = differ
    rows = [proportion_row(name, "heads", of) for name, of in outcomes.items() if of]
    if not rows:
        raise InputError(f"{folder} holds no head that has been tried; run multihead.py first")
    undecided = len(tried) - len(kinds)
    print(f"heads tried: {len(tried)}, of which {undecided} undecided")
    for table in filter(None, (rows, orders)):
        print(format_table(table))
    return {"heads": rows, "orders": orders, "undecided": undecided}


def choose_combinations(args: argparse.Namespace, heads: dict[str, list[str]]) -> list[list[Names]]:
    """--num_samples different combinations of head names of each kind."""
    chosen = []
    for index, kind in enumerate(KINDS):
        rng = np.random.default_rng([args.seed, index])
        pool = heads["random" if kind == "random" else "bad"]
        combinations: dict[Names, None] = {}
        while len(combinations) < args.num_samples:
            size = args.num_heads - (kind == "good")
            drawn = sorted(rng.choice(len(pool), size, replace=False))
            names = tuple(pool[number] for number in drawn)
            if kind == "good":
                names += (heads["good"][rng.integers(len(heads["good"]))],)
            combinations[names] = None
        chosen.append(list(combinations))
    return chosen


def named_head(settings: TrialSettings, name: str) -> Head:
    """The initialization of a head from its name, such as good12."""
    stream = RANDOM if name.startswith("random") else CANDIDATES
    return make_head(settings, stream, int(re.sub(r"\D", "", name)))


def train_combination(
    settings: TrialSettings, folder: Path, names: Names, device: str, threads: int
) -> History:
    """The history of a model of several heads (data seed 0), which is saved in ``folder``."""
    device = setup_device(device, threads)
    path = folder / "combinations" / "+".join(names)
    history = load_state(path, asdict(settings))
    if history is None:
        state = path.with_name(f"{path.name}.state")
        heads = [named_head(settings, name) for name in names]
        model = MultiheadCopier(make_body(settings), heads)
        history = train_trial(settings, model, 0, device, lambda _: False, state)
        save_state(path, asdict(settings), history)
        state.unlink(missing_ok=True)
    return history


def train(
    args: argparse.Namespace, settings: TrialSettings, device: str
) -> tuple[Combinations, ...]:
    """Find the heads and train their combinations."""
    jobs = args.jobs or default_jobs(device)
    open_folder(args.folder, settings)
    heads = find_heads(args, settings, device, jobs)
    heads["random"] = [f"random{number}" for number in range(args.num_random)]
    chosen = choose_combinations(args, heads)
    tasks = [
        (settings, args.folder, names, device, args.threads)
        for combinations in chosen
        for names in combinations
    ]
    trained = iter(run_all(train_combination, tasks, jobs, "model"))
    return parse(tuple({names: next(trained) for names in combinations} for combinations in chosen))


def parse(content: object) -> tuple[Combinations, ...]:
    """The histories by kind, from the content of an output."""
    return tuple(
        {names: rebuild(history) for names, history in of_kind.items()}
        for _, of_kind in zip(KINDS, content, strict=True)
    )


def label_of(kind: str, num_heads: int) -> str:
    """A kind of combination in words."""
    return LABELS[kind].format(num_heads - (kind == "good"))


def output_path(num_heads: int) -> Path:
    """The path of the histories of combinations of ``num_heads`` heads."""
    return Path(f"re_{num_heads}headcomb.pkl")


def load_combinations(path: Path) -> tuple[Combinations, ...]:
    """The histories at ``path``, by kind.

    Those written by earlier versions have no attention accuracies.
    """
    return read_output(path, "multihead.py", parse)


def main(argv=None) -> None:
    args = parse_args(argv)
    started = time.perf_counter()
    device = setup_device(args.device, args.threads).type
    settings = TrialSettings(**{f.name: getattr(args, f.name) for f in fields(TrialSettings)})
    if args.report:
        results = report_heads(args.folder, settings)
        record = {"settings": asdict(settings), **provenance(), "results": results}
        write_json(args.folder / "multihead.json", record)
        return
    path = output_path(args.num_heads)
    check_writable(path, args.folder)
    numbers = ("num_good", "num_bad", "num_random", "num_samples", "num_heads")
    described = {**asdict(settings), **{name: getattr(args, name) for name in numbers}}
    exceed = f"exceed {GOOD}"
    stored = output(path, described, args.overwrite, replace_stale=False)
    with stored as out, locked(args.folder):
        if out.is_current:
            print(f"{path} is up to date; use --overwrite to make it again")
        histories = load_combinations(path) if out.is_current else train(args, settings, device)
        rows = [
            proportion_row(label_of(kind, args.num_heads), exceed, [*map(is_good, one.values())])
            for kind, one in zip(KINDS, histories, strict=True)
        ]
        tests = fisher_rows(rows, exceed)
        if not out.is_current:
            results = {
                "shares": rows,
                "fisher": tests,
                **report_heads(args.folder, settings),
                "seconds": time.perf_counter() - started,
                "peak_memory_mb": peak_memory_mb(),
                "device": device,
                "threads": args.threads,
            }
            out.write(histories, results)
            print(path)
    print(format_table(rows))
    print("Fisher's exact test:")
    print(format_table(tests, digits=4))


if __name__ == "__main__":
    run_script(main)
