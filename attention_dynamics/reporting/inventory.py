"""What exists of each experiment: data, runs, dumps, baselines, results, figures; and what is next.

Everything is read from the files that the scripts leave (run.json, the .json beside an output, the
times of files), never from the scripts themselves, so that a look takes seconds. Paths are relative
to the repository's root, which must be the working directory.
"""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attention_dynamics.cli import InputError
from attention_dynamics.runs.configs import read_log_config
from attention_dynamics.storage.files import read_json, sha256
from attention_dynamics.storage.pickles import load_pickle

DONE, MISSING, INCOMPLETE, STALE, DAMAGED = "done", "missing", "incomplete", "stale", "damaged"
FOLDERS = ("classification", "translation", "SequenceCopying", "papa")
# The settings of the paper that copying_runs.sh trains, and how the paper calls them.
COPYING = {f"vocab{vocab}seq_length40bsize128no_rep": f"40 of {vocab}" for vocab in (40, 60)}


class Step(NamedTuple):
    """One step of an experiment on one data set.

    Attributes:
        folder: of the experiment.
        dataset: its name; of SequenceCopying the setting, of papa the model and task.
        what: "data", "runs", "dump", "px", ..., "results" or "figures".
        state: one of the five above.
        detail: what is there, or what is wrong, in a few words.
        command: what makes it, in the repository's root; "" when the step is done.
    """

    folder: str
    dataset: str
    what: str
    state: str
    detail: str
    command: str


class Output(NamedTuple):
    """An output beside the logs of a data set: its path below the folder, and its script."""

    what: str
    pattern: str
    script: str


_BASELINES = {
    "classification": (
        Output("px", "outputs/{}embedding*beta.pkl", "embedding_beta.py"),
        Output("logistic", "outputs/{}_logistic_beta.pkl", "logistic_beta.py"),
    ),
    "translation": (
        Output("px", "outputs/{}embedding*translation.pkl", "embedding_beta.py"),
        Output("ibm1", "outputs/{}_ibm1_beta.pkl", "ibm1_beta.py"),
    ),
}
_COLLECT = {
    "classification": "collect_classification_stats.py",
    "translation": "collect_translation_stats.py",
}
_OPTIONS = {
    "classification": "--include_kendall_tau --include_train_results",
    "translation": "--include_kendall_tau --include_train_results --include_bleu_results",
}


def check_root() -> None:
    """Refuse a working directory that holds none of the experiments' folders."""
    if not any(Path(folder).is_dir() for folder in FOLDERS):
        raise InputError(
            f"{Path.cwd()} holds none of {', '.join(FOLDERS)}: go to the root of the repository"
        )


def inventory() -> list[Step]:
    """Every step of every data set of the four experiments, in their order."""
    check_root()
    steps = []
    for folder in ("classification", "translation"):
        for dataset in datasets_of(folder):
            steps += _dataset_steps(folder, dataset)
    return [*steps, *_copying_steps(), *_papa_steps()]


def next_steps(steps: list[Step]) -> list[Step]:
    """The first step that is not done of each data set that has been begun."""
    found = []
    for key in dict.fromkeys((step.folder, step.dataset) for step in steps):
        own = [step for step in steps if (step.folder, step.dataset) == key]
        if any(step.state != MISSING for step in own):
            found += [step for step in own if step.state != DONE][:1]
    return found


def datasets_of(folder: str) -> list[str]:
    """The data sets of classification or translation: those with a log config, then all others."""
    base = Path(folder)
    names = [path.name.removesuffix("_log.json") for path in base.glob("configs/*_log.json")]
    if folder == "classification":
        names += [path.name.removesuffix("_train.json") for path in base.glob("data/*_train.json")]
    else:
        known = {name.replace("_", "-"): name for name in names}
        names += [known.get(p.parent.name, p.parent.name) for p in base.glob("data/*/about.json")]
    names += [path.name for path in base.glob("models/*") if path.is_dir()]
    names += [path.name.removesuffix("_logs.pkl") for path in base.glob("outputs/*_logs.pkl")]
    return sorted(dict.fromkeys(names), key=lambda name: (name == "toy", name.lower()))


def data_files(folder: str, dataset: str) -> list[Path]:
    """The files that training reads of a data set; empty when they are not there."""
    base = Path(folder) / "data"
    if folder == "classification":
        paths = [base / f"{dataset}_{split}.json" for split in ("train", "test")]
        return paths if all(path.exists() for path in paths) else []
    home = base / dataset
    home = home if home.is_dir() else base / dataset.replace("_", "-")
    names = {"about.json", "truth.json"}
    paths = sorted(p for p in home.glob("*") if p.is_file() and p.name not in names)
    return paths if any(path.name.startswith("train.") for path in paths) else []


@functools.cache
def _digest(path: Path, _time: int) -> str:
    return sha256(path)[:16]


def same_data(folder: str, dataset: str, checksum: object) -> bool:
    """Whether a record's ``checksum`` of the data is that of the files that are there now.

    It joins the first 16 digits of each file's SHA-256 by +; in classification a last part stands
    for the word vectors, which are not compared here.
    """
    files = data_files(folder, dataset)
    now = {_digest(path, path.stat().st_mtime_ns) for path in files}
    parts = str(checksum).split("+")
    return set(parts[:2] if folder == "classification" else parts) <= now


def _record(path: Path) -> dict | None:
    """A JSON record; None when there is none. InputError when it is damaged."""
    if not path.exists():
        return None
    content = read_json(path, "record")
    if not isinstance(content, dict):
        raise InputError(f"record {path} is no JSON object")
    return content


def _settings(record: dict | None) -> dict:
    settings = (record or {}).get("settings")
    return settings if isinstance(settings, dict) else {}


def _guarded(make: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """(state, detail) of a step, a damaged file being a state of its own.

    A third part is the command, where it is not the one that usually makes the step.
    """
    try:
        return make()
    except InputError as error:
        return DAMAGED, str(error)


def read_results(path: Path) -> dict[tuple[str, str, str, str], dict]:
    """The results of a collect script: {(dataset, metric, split, performance): statistics}.

    Those of the published code are read too: they have fewer statistics, and no intervals. Raises
    InputError when the file is damaged, or holds something else.
    """
    results = load_pickle(path, "results")
    whole = isinstance(results, dict) and results
    for key, result in results.items() if whole else ():
        whole = whole and isinstance(key, tuple) and len(key) == 4
        whole = whole and all(isinstance(part, str) for part in key) and isinstance(result, dict)
        whole = whole and all(_is_number(result.get(k)) for k in ("agr_unif", "baseline"))
        whole = whole and _is_number(result.get("best_perf"))
        curves = (
            [result.get(k) for k in ("iterations", "alpha_corrs", "alpha_perfs")] if whole else []
        )
        whole = whole and all(isinstance(curve, (list, tuple, np.ndarray)) for curve in curves)
        whole = whole and len({len(curve) for curve in curves}) == 1
    if not whole:
        raise InputError(f"results {path} are not those of a collect script: collect them again")
    return results


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _dataset_steps(folder: str, dataset: str) -> Iterator[Step]:
    """The steps of one data set of classification or translation."""
    toy = "bash run.sh" + ("" if folder == "classification" else f" {folder}")

    def step(what: str, make: Callable[[], tuple[str, ...]], usual: str) -> Step:
        state, detail, *instead = _guarded(make)
        command = toy if dataset == "toy" else f"cd {folder} && {[usual, *instead][-1]}"
        return Step(folder, dataset, what, state, detail, "" if state == DONE else command)

    files = data_files(folder, dataset)
    prepare = f"python prepare_data.py --dataset {dataset} --source PATH (or see --help)"
    yield step(
        "data", lambda: (DONE, f"{len(files)} files") if files else (MISSING, "no data"), prepare
    )
    yield step(
        "runs",
        lambda: _runs_state(folder, dataset),
        f"DATASETS={dataset} bash train_runs.sh",
    )
    logs = Path(folder) / "outputs" / f"{dataset}_logs.pkl"
    runs = [p for p in Path(folder).glob(f"models/{dataset}/*/run.json") if p.exists()]
    yield step(
        "dump",
        lambda: _output_state(folder, dataset, logs, runs),
        f"DATASETS={dataset} bash dump_logs.sh",
    )
    for what, pattern, script in _BASELINES[folder]:
        found = sorted(Path(folder).glob(pattern.format(dataset)))
        path = found[0] if found else Path(folder) / pattern.format(dataset)
        yield step(
            what,
            lambda path=path: _output_state(folder, dataset, path, []),
            f"python {script} --dataset {dataset}",
        )
    collect = (
        f"python {_COLLECT[folder]} --datasets {dataset} --out_file results/{dataset}.pkl "
        f"{_OPTIONS[folder]}"
    )
    inputs = [
        logs,
        *(p for o in _BASELINES[folder] for p in Path(folder).glob(o[1].format(dataset))),
    ]
    yield step("results", lambda: _results_state(folder, dataset, inputs), collect)
    figures = sorted(Path(folder).glob(f"figures/{dataset}_val_*top5.svg"))
    yield step(
        "figures",
        lambda: _made_state(figures, inputs, "figures"),
        f"python plot_dynamics.py --dataset {dataset}",
    )


def _runs_state(folder: str, dataset: str) -> tuple[str, ...]:
    """The runs that the log config lists (without one, all there are), taken together.

    Where all that is wrong is that the log config does not list what finished runs have, a third
    part is the command that writes it anew: training would skip or refuse these runs.
    """
    base, config = Path(folder), Path(folder) / "configs" / f"{dataset}_log.json"
    there = sorted(path for path in base.glob(f"models/{dataset}/*") if path.is_dir())
    if not config.exists():
        if not there:
            return MISSING, "no run"
        open_runs = [p.name for p in there if not (_record(p / "run.json") or {}).get("finished")]
        if open_runs:
            return INCOMPLETE, f"{len(open_runs)} of {len(there)} not finished: {open_runs[0]}"
        detail = f"{len(there)} finished, but {config} does not exist"
        return INCOMPLETE, detail, _relisting(dataset)
    wanted: dict[tuple[int, bool], list[int]] = {}
    for entry in read_log_config(config):
        wanted.setdefault((entry["seed"], entry["uniform"]), []).append(entry["iteration"])
    problems, finished = [], 0
    for (seed, uniform), iterations in wanted.items():
        kind = "uniform" if uniform else "normal"
        run = f"seed {seed} {kind}"
        mine = [path for path in there if path.name.endswith(f"seed={seed},{kind}")]
        states = [_run_state(folder, dataset, path, iterations) for path in mine]
        if (DONE, "") in states:
            finished += 1
        else:
            state, detail, *instead = states[0] if states else (MISSING, "not trained")
            problems.append((state, f"{run} {detail}", *instead))
    if not problems:
        return DONE, f"{finished} finished"
    if len(problems) == len(wanted) and not there:
        return MISSING, f"none of {len(wanted)}"
    worst = STALE if any(problem[0] == STALE for problem in problems) else INCOMPLETE
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    instead = problems[0][2:] if all(len(problem) == 3 for problem in problems) else ()
    return worst, f"{finished} of {len(wanted)} finished: {problems[0][1]}{more}", *instead


def _relisting(dataset: str) -> str:
    return f"DATASETS={dataset} bash dump_logs.sh --make_log_config --overwrite"


def _run_state(folder: str, dataset: str, run: Path, iterations: list[int]) -> tuple[str, ...]:
    record = _record(run / "run.json")
    lost = [t for t in iterations if not (run / f"model{t}").exists()]
    if record is not None:
        if not record.get("finished"):
            return INCOMPLETE, "is not finished"
        if not same_data(folder, dataset, _settings(record).get("data")):
            return STALE, "was trained on other data than is there now"
    if lost:
        instead = () if record is None else (_relisting(dataset),)
        return INCOMPLETE, f"lacks checkpoint {lost[0]}, which the log config lists", *instead
    return DONE, ""


def _output_state(folder: str, dataset: str, path: Path, inputs: list[Path]) -> tuple[str, str]:
    """A dump or baseline, by the record beside it."""
    if not path.exists():
        parts = len([*path.with_suffix(".parts").glob("*")])
        if parts:
            return INCOMPLETE, f"{parts} parts are kept; the same command goes on"
        return MISSING, f"no {Path(*path.parts[1:])}"
    record = _record(path.with_suffix(".json"))
    if record is None:
        return DONE, f"{path.name}, made by other code"
    if not same_data(folder, dataset, _settings(record).get("data")):
        return STALE, f"{path.name} was made from other data than is there now"
    return _made_state([path], inputs, path.name)


def _made_state(made: list[Path], inputs: list[Path], name: str) -> tuple[str, str]:
    """Whether the files ``made`` are there, and not older than their ``inputs``."""
    if not made:
        return MISSING, f"no {name}"
    oldest = min(path.stat().st_mtime for path in made)
    newer = [path for path in inputs if path.exists() and path.stat().st_mtime > oldest]
    if newer:
        return STALE, f"{made[0].name} is older than {Path(*newer[0].parts[1:])}"
    return DONE, made[0].name if len(made) == 1 else f"{len(made)} files"


def _results_state(folder: str, dataset: str, inputs: list[Path]) -> tuple[str, str]:
    damaged, made = None, []
    for path in sorted(Path(folder).glob("results/*.pkl")):
        try:
            if any(key[0] == dataset for key in read_results(path)):
                made.append(path)
        except InputError as error:
            damaged = error
    if damaged and not made:
        raise damaged
    newest = sorted(made, key=lambda path: path.stat().st_mtime)[-1:]
    return _made_state(newest, inputs, "results")


def _copying_steps() -> Iterator[Step]:
    base = Path("SequenceCopying")

    def step(dataset: str, what: str, make: Callable, command: str) -> Step:
        state, detail = _guarded(make)
        command = "" if state == DONE else f"cd {base} && {command}"
        return Step(str(base), dataset, what, state, detail, command)

    histories = [base / "logs" / f"{name}.pkl" for name in COPYING]
    others = {path.stem for path in base.glob("logs/*.pkl")} - set(COPYING)
    for path in [*histories, *(base / "logs" / f"{name}.pkl" for name in sorted(others))]:
        name = COPYING.get(path.stem, path.stem)
        yield step(name, "results", lambda path=path: _recorded(path), "bash copying_runs.sh")
    for path in sorted(base.glob("re_*headcomb.pkl")) or [base / "re_8headcomb.pkl"]:
        yield step(path.stem, "results", lambda path=path: _recorded(path), "python multihead.py")
    # One figure shows both settings, and needs both.
    figures = sorted(base.glob(f"figures/copying_{'_'.join(COPYING)}.svg"))
    draw = "python plot_copying.py" if all(map(Path.exists, histories)) else "bash copying_runs.sh"
    for name in COPYING.values():
        yield step(name, "figures", lambda: _made_state(figures, histories, "figure"), draw)
    yield step(
        "toy classifier", "figures",
        lambda: _made_state([*base.glob("figures/toy_dynamics.svg")], [], "figure"),
        "python toy_dynamics.py",
    )  # fmt: skip


def _recorded(path: Path) -> tuple[str, str]:
    """A pickle with a record beside it that says its checksum."""
    if not path.exists():
        return MISSING, f"no {Path(*path.parts[1:])}"
    record = _record(path.with_suffix(".json"))
    if record is None:
        return DONE, f"{path.name}, made by other code"
    if record.get("sha256") != sha256(path):
        return DAMAGED, f"{path} is not the file that its record describes"
    return DONE, path.name


def _papa_steps() -> Iterator[Step]:
    base = Path("papa")
    outputs = sorted(path for path in base.glob("outputs/*") if path.is_dir())
    if not outputs:
        detail = (MISSING, "no outputs")
        yield Step("papa", "minilm_toy_cola", "runs", *detail, "bash run.sh papa")
    for output in outputs:
        name = output.name
        model, _, task = name.partition("_")
        runs = f"cd papa && bash papa_runs.sh {model} {task} (with the options of its data)"
        runs = "bash run.sh papa" if name == "minilm_toy_cola" else runs
        records = sorted(output.glob("results/*/run.json"))

        def step(what: str, make: Callable, command: str, name=name) -> Step:
            state, detail = _guarded(make)
            return Step("papa", name, what, state, detail, "" if state == DONE else command)

        for what, file in (("constants", "avgs.pt"), ("order", "sorted_heads.json")):
            path = output / {"constants": "constants", "order": "sorted"}[what] / file
            yield step(
                what, lambda path=path: _made_state([path] if path.exists() else [], [], path.name),
                runs,
            )  # fmt: skip
        yield step("runs", lambda output=output: _papa_runs(output), runs)
        yield step(
            "results",
            lambda name=name, records=records: _made_state(_papa_results(name), records, "results"),
            f"cd papa && python collect_papa_stats.py --folders outputs/{name} "
            f"--out_file results/{name}.json",
        )
        yield step(
            "figures",
            lambda records=records, name=name: _made_state(
                [*base.glob("figures/scores.svg"), *base.glob(f"figures/{name}_*.svg")],
                records, "figures",
            ),
            f"cd papa && python plot_papa.py --folders outputs/{name}",
        )  # fmt: skip


def _papa_runs(output: Path) -> tuple[str, str]:
    records = [_record(path) for path in sorted(output.glob("results/*/run.json"))]
    started = [p for p in output.glob("results/*") if p.name[:1].isdigit() and p.is_dir()]
    if not started:
        return MISSING, "no run"
    if len(records) < len(started):
        return INCOMPLETE, f"{len(records)} of {len(started)} finished"
    heads = {record.get("static_heads_num") for record in records}
    if 0 not in heads:
        return INCOMPLETE, f"{len(records)} finished, none with 0 constant heads"
    return DONE, f"{len(records)} finished, {len(heads)} numbers of constant heads"


def _papa_results(name: str) -> list[Path]:
    """The newest results file that holds the folder ``name``."""
    made = []
    for path in Path("papa").glob("results/*.json"):
        content = read_json(path, "results")
        if isinstance(content, dict) and name in content:
            made.append(path)
    return sorted(made, key=lambda path: path.stat().st_mtime)[-1:]
