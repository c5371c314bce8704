"""Find good and bad attention heads, and train models that combine them (Section 5.2).

    python multihead.py
    python multihead.py --num_good 3 --num_bad 10 --num_random 10 --num_samples 6 --num_steps 120

Copies permutations of 40 tokens. All models start from one random body. Head initializations are
tried until 20 good and 20 bad heads are found. A head is *good* if the single-head model started
from it exceeds an accuracy of 0.95 within 200 steps on each of the data seeds 0, 1, 2. It is *bad*
if on each it never does and ends below 0.6. Other heads are dropped. Then 50 models of 8 bad heads
are trained, 50 of 7 bad heads and a good one, and 50 of 8 random heads.

Writes re_{num_heads}headcomb.pkl, (bad_histories, good_histories, random_histories), each a dict
from the tuple of head files in {folder}/heads to the history: a list of dicts of step, acc, loss
and attn_acc, attn_acc_m1, attn_acc_p1 (of the mean attention over heads, see seq2seq.py), before
the updates of steps 0, 10, ... A .json file beside it records the settings. Prints the share of
each kind that exceeds 0.95, with a 95% interval (Wilson), and Fisher's exact test for every pair of
kinds. Draw the learning curves with plot_multihead.py.

If a run is interrupted, the same command resumes it: heads, finished combinations and training
states are in --folder. A later call with other numbers of heads and samples reuses them.
"""

import argparse
import math
import sys
import time
from contextlib import closing
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
from histories import fisher_rows, is_evaluation, proportion_row
from models import Body, Head, MultiheadCopier
from tqdm import tqdm
from training import (
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
from workers import add_jobs_option, default_jobs, run_parallel

from attention_dynamics.cli import InputError, RunError, count, run_script, script_parser, seed
from attention_dynamics.device import add_device_options, peak_memory_mb, setup_device
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.runs.checkpoints import load_checkpoint, save_checkpoint
from attention_dynamics.runs.outputs import Output, load_state, output, save_state
from attention_dynamics.runs.records import differences, locked
from attention_dynamics.storage.files import check_writable, read_json, write_json
from attention_dynamics.storage.pickles import load_pickle

KINDS = ("bad", "good", "random")  # in the order of the output
LABELS = {"bad": "{} bad heads", "good": "{} bad heads and a good one", "random": "{} random heads"}
CANDIDATES, RANDOM = range(2)  # streams of head initializations

Names = tuple[str, ...]
Combinations = dict[Names, History]


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    defaults = TrialSettings()
    numbers = {
        "heads": {
            "num_good": (20, "number of good heads to find"),
            "num_bad": (20, "number of bad heads to find"),
            "num_random": (30, "number of random heads"),
            "max_candidates": (1000, "number of heads to try before giving up"),
        },
        "combinations": {
            "num_samples": (50, "number of combinations of each kind"),
            "num_heads": (8, "number of heads in a combination"),
        },
        "training": {
            "num_steps": (defaults.num_steps, "number of updates in a trial"),
            "hidden_dim": (defaults.hidden_dim, "size of embeddings and states"),
            "seq_length": (defaults.seq_length, "number of tokens to copy"),
            "bsize": (defaults.bsize, "sequences in a batch"),
        },
    }
    for title, options in numbers.items():
        group = parser.add_argument_group(title)
        for name, (default, meaning) in options.items():
            group.add_argument(
                f"--{name}", type=count, default=default, help=f"{meaning} (default: %(default)s)"
            )
    parser.add_argument(
        "--seed",
        type=seed,
        default=defaults.seed,
        help="random seed (body, heads, evaluation set, choice of combinations; "
        "default: %(default)s)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("multihead_runs"),
        help="directory of heads and finished combinations (default: %(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a finished output")
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
                f"--num_samples: too many combinations of {args.num_heads} heads of the kind "
                f"{kind!r} (expected at most {number}, got {args.num_samples}); give a smaller "
                f"--num_samples, or more heads"
            )
    return args


def open_folder(folder: Path, settings: TrialSettings) -> None:
    """Create the restart folder with its body, or check that it belongs to these settings."""
    record = folder / "settings.json"
    if record.exists():
        earlier = read_json(record, "restart folder's")
        if not isinstance(earlier, dict):
            raise InputError(f"{record}: is corrupt; remove {folder}, or give another --folder")
        if what := differences(earlier, asdict(settings)):
            raise InputError(
                f"{record}: belongs to a run with other settings ({what}); give another --folder"
            )
        load_checkpoint(folder / "body", make_body(settings))
        for abandoned in folder.rglob(".*.part"):  # by a process that was killed
            abandoned.unlink()
        return
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: holds files, but no settings.json; give another --folder")
    save_checkpoint(folder / "body", make_body(settings))
    write_json(record, asdict(settings))


def load_trial(path: Path, content: object) -> History:
    """The history in the cached ``content`` of ``path``; raises InputError if it is not one."""
    if not (isinstance(content, list) and content and all(map(is_trial_entry, content))):
        raise InputError(f"{path}: is corrupt; remove it and rerun to recreate it")
    return rebuild(content)


def is_trial_entry(entry: object) -> bool:
    """Whether ``entry`` is an evaluation of a trial, also of an earlier version."""
    return is_evaluation(entry, ("acc", "loss"))


def rebuild(history: History) -> History:
    """A saved history with steps, made of new dicts (see add_steps)."""
    return add_steps(history, TRIAL_EVERY, TRIAL_MEASURES)


def candidate_path(folder: Path, number: int) -> Path:
    """The path of the trials of a candidate head."""
    return folder / "candidates" / str(number)


def combination_path(folder: Path, names: Names) -> Path:
    """The path of the history of a combination."""
    return folder / "combinations" / "+".join(names)


def head_path(folder: Path, name: str) -> Path:
    """The path of the initialization of a head."""
    return folder / "heads" / name


def load_model(settings: TrialSettings, folder: Path, heads: list[Head]) -> MultiheadCopier:
    """The untrained model of the body in ``folder`` and ``heads``."""
    body = Body(settings.task.vocab, settings.hidden_dim)
    load_checkpoint(folder / "body", body)
    return MultiheadCopier(body, heads)


def try_candidate(
    settings: TrialSettings, folder: Path, number: int, wanted: frozenset, device: str, threads: int
) -> list[History]:
    """The trials of candidate ``number``, as many as tell whether it is of a ``wanted`` kind.

    The trials are saved in ``folder``, and so is the head once it is known to be good or bad.
    """
    device = setup_device(device, threads)
    path, described = candidate_path(folder, number), asdict(settings)
    cached = load_state(path, described)
    trials = [load_trial(path, trial) for trial in (cached if isinstance(cached, list) else [])]
    while (kind := classify_head(trials)) is None:
        if trials and ("good" if is_good(trials[0]) else "bad") not in wanted:
            return trials
        model = load_model(settings, folder, [make_head(settings, CANDIDATES, number)])
        state = path.with_name(f"{number},{len(trials)}.state")
        trials.append(train_trial(settings, model, len(trials), device, is_good, state))
        save_state(path, described, trials)
        state.unlink(missing_ok=True)
    if kind != "dropped":
        save_head(folder, f"{kind}{number}", settings, CANDIDATES, number)
    return trials


def save_head(folder: Path, name: str, settings: TrialSettings, stream: int, number: int) -> None:
    """Save an initialization under ``name``, unless it is saved already."""
    if not head_path(folder, name).exists():
        save_checkpoint(head_path(folder, name), make_head(settings, stream, number))


def find_heads(args: argparse.Namespace, settings: TrialSettings, device: str, jobs: int) -> dict:
    """{"good": names, "bad": names}: the first of each kind among the candidates 0, 1, 2, ...

    The result does not depend on the number of jobs.
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
    with progress, closing(run_parallel(try_candidate, candidates(), jobs)) as results:
        for number, trials in results:
            finished[number] = trials
            while following in finished:
                kind = classify_head(finished.pop(following))
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


def choose_combinations(args: argparse.Namespace, heads: dict[str, list[str]]) -> dict:
    """{kind: --num_samples different combinations of head names}."""
    chosen = {}
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
        chosen[kind] = list(combinations)
    return chosen


def train_combination(
    settings: TrialSettings, folder: Path, names: Names, device: str, threads: int
) -> History:
    """The history of a model of several heads (data seed 0), which is saved in ``folder``."""
    device = setup_device(device, threads)
    heads = []
    for name in names:
        heads.append(Head(settings.hidden_dim))
        load_checkpoint(head_path(folder, name), heads[-1])
    model = load_model(settings, folder, heads)
    path = combination_path(folder, names)
    state = path.with_name(f"{path.name}.state")
    history = train_trial(settings, model, 0, device, lambda _: False, state)
    save_state(path, asdict(settings), history)
    state.unlink(missing_ok=True)
    return history


def train_combinations(
    args: argparse.Namespace, settings: TrialSettings, combinations: dict, device: str, jobs: int
) -> tuple[Combinations, ...]:
    """The histories of all combinations, by kind; saved histories are not trained again."""
    finished: Combinations = {}
    missing = []
    for names in dict.fromkeys(names for kind in KINDS for names in combinations[kind]):
        path = combination_path(args.folder, names)
        history = load_state(path, asdict(settings))
        if history is None:
            missing.append(names)
        else:
            finished[names] = load_trial(path, history)
    tasks = [(settings, args.folder, names, device, args.threads) for names in missing]
    done, total = len(finished), len(finished) + len(missing)
    progress = tqdm(total=total, initial=done, unit="model", disable=not sys.stderr.isatty())
    with progress, closing(run_parallel(train_combination, tasks, jobs)) as trained:
        for index, history in trained:
            finished[missing[index]] = rebuild(history)
            progress.update()
    return tuple({names: finished[names] for names in combinations[kind]} for kind in KINDS)


def train_all(
    args: argparse.Namespace, settings: TrialSettings, device: str, out: Output
) -> tuple[Combinations, ...]:
    """Find the heads, train their combinations and write the histories to ``out``."""
    started = time.perf_counter()
    jobs = args.jobs or default_jobs(device)
    open_folder(args.folder, settings)
    heads = find_heads(args, settings, device, jobs)
    heads["random"] = [f"random{number}" for number in range(args.num_random)]
    for number, name in enumerate(heads["random"]):
        save_head(args.folder, name, settings, RANDOM, number)
    combinations = choose_combinations(args, heads)
    histories = train_combinations(args, settings, combinations, device, jobs)
    rows = summary_rows(args.num_heads, histories)
    results = {
        "shares": rows,
        "fisher": fisher_rows(rows, f"exceed {GOOD}"),
        "seconds": time.perf_counter() - started,
        "peak_memory_mb": peak_memory_mb(),
        "device": device,
        "threads": args.threads,
    }
    out.write(histories, results)
    print(out.path)
    return histories


def summary_rows(num_heads: int, histories: tuple[Combinations, ...]) -> list[dict]:
    """The number of combinations of each kind that learn."""
    return [
        proportion_row(
            label_of(kind, num_heads), f"exceed {GOOD}", [*map(is_good, of_kind.values())]
        )
        for kind, of_kind in zip(KINDS, histories, strict=True)
    ]


def label_of(kind: str, num_heads: int) -> str:
    """A kind of combination in words."""
    return LABELS[kind].format(num_heads - (kind == "good"))


def output_path(num_heads: int) -> Path:
    """The path of the histories of combinations of ``num_heads`` heads."""
    return Path(f"re_{num_heads}headcomb.pkl")


def load_combinations(path: Path) -> tuple[Combinations, ...]:
    """The histories at ``path``, by kind; raises InputError if it is not such a file.

    Entries written by earlier versions have no "step" (it is added) and no attention accuracies.
    """
    if not path.exists():
        raise InputError(f"{path}: does not exist; make it with multihead.py")
    content = load_pickle(path, "combinations")
    if not (
        isinstance(content, tuple)
        and len(content) == len(KINDS)
        and all(isinstance(of_kind, dict) and of_kind for of_kind in content)
        and all(
            isinstance(history, list) and history and all(map(is_trial_entry, history))
            for of_kind in content
            for history in of_kind.values()
        )
    ):
        raise InputError(
            f"{path}: holds no histories of combinations; make it again with multihead.py "
            "--overwrite"
        )
    return tuple(
        {names: rebuild(history) for names, history in of_kind.items()} for of_kind in content
    )


def main(argv=None) -> None:
    args = parse_args(argv)
    device = setup_device(args.device, args.threads).type
    settings = TrialSettings(
        **{field.name: getattr(args, field.name) for field in fields(TrialSettings)}
    )
    path = output_path(args.num_heads)
    check_writable(path, args.folder)
    numbers = ("num_good", "num_bad", "num_random", "num_samples", "num_heads")
    described = {**asdict(settings), **{name: getattr(args, name) for name in numbers}}
    stored = output(path, described, args.overwrite, replace_stale=False)
    with stored as out, locked(args.folder):
        if out.is_current:
            print(f"{path} is up to date; use --overwrite to make it again")
            histories = load_combinations(path)
        else:
            histories = train_all(args, settings, device, out)
    rows = summary_rows(args.num_heads, histories)
    print(format_table(rows))
    print("Fisher's exact test:")
    print(format_table(fisher_rows(rows, f"exceed {GOOD}"), digits=4))


if __name__ == "__main__":
    run_script(main)
