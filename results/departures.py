"""What departures from the published code do to the numbers, measured on outputs that are there.

    python results/departures.py --classification classification --datasets Furd SMS
    python results/departures.py --translation translation --published_beta published_beta.pkl

The numbers are those of the table in docs/departures.md: agreement by the top 5% match on the
validation examples.

     1  agr_grad: Δ counted once ("here"), and negated twice as published; what chance gives
     5  agr_px: with padding and <s> left out of the targets ("here"), and counted as published; by
        Kendall's tau too
     8  baseline: the lowest and the highest of the seeds 0 to 9, and the exact expectation
    10  agr_unif: the gold checkpoint chosen on the split that is reported, and on the other one

1, 8 and 10 are read from the logs in the outputs/ of the --classification folder. 5 is read from
the logs and β^px in the outputs/ of the --translation folder, and from --published_beta: β^px
trained with the published targets and the same settings. Where that file does not exist it is
trained on the data in that folder (minutes) and stored; an interrupted training resumes.

Prints a table and updates results/departures.json: "measured" is {departure: {dataset: numbers}},
with facts on the machine and the logs under "made"; the rest of the file stays as it is.
"""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from measure import keep_results, machine_facts, modules_of

from attention_dynamics.analysis.inputs import summarise_inputs
from attention_dynamics.analysis.logs import Logs
from attention_dynamics.cli import InputError, count, run_script, script_parser
from attention_dynamics.device import set_seed, setup_device
from attention_dynamics.names import GOLD, METRICS, PERFORMANCES
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.runs.embedding_baseline import train_baseline
from attention_dynamics.runs.outputs import read_output_record, record_output
from attention_dynamics.runs.paths import translation_beta_path
from attention_dynamics.runs.records import differences
from attention_dynamics.storage.files import check_writable, write_pickle
from attention_dynamics.storage.pickles import load_pickle

METRIC = METRICS[0]
SHUFFLES = range(10)
EMBED_DIM = 256
OUT = Path(__file__).with_name("departures.json")


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--classification",
        type=folder,
        metavar="FOLDER",
        help="directory with the outputs/ of classification (default: skip 1, 8 and 10)",
    )
    parser.add_argument(
        "--datasets",
        nargs="+",
        default=["Furd", "SMS"],
        help="datasets of classification (default: Furd and SMS)",
    )
    parser.add_argument(
        "--translation",
        type=folder,
        metavar="FOLDER",
        help="directory with the outputs/ of translation, and with its data/ if "
        "--published_beta is trained (default: skip 5)",
    )
    parser.add_argument(
        "--pairs", default="multi30k", help="dataset of translation (default: %(default)s)"
    )
    parser.add_argument(
        "--published_beta",
        type=Path,
        metavar="FILE",
        help="pickle of β^px with the published targets: read if it exists, else trained",
    )
    parser.add_argument(
        "--threads", type=count, default=1, help="CPU threads of training (default: %(default)s)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=OUT,
        help="results file (default: results/departures.json)",
    )
    args = parser.parse_args(argv)
    if not args.classification and not args.translation:
        parser.error("give --classification or --translation, or both")
    if bool(args.translation) != bool(args.published_beta):
        parser.error("--translation and --published_beta need each other")
    for path in filter(None, (args.out, args.published_beta)):
        check_writable(path)
    return args


def folder(text: str) -> Path:
    """The type of an option that names a folder."""
    path = Path(text).absolute()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a directory")
    return path


@contextlib.contextmanager
def inside(path: Path) -> Iterator[None]:
    """Within the block ``path`` is the working directory, and errors name it."""
    with contextlib.chdir(path):
        try:
            yield
        except InputError as error:
            raise InputError(f"{error} (in {path})") from None


def number(result: dict, name: str, dataset: str) -> float:
    """A statistic of a result; InputError when the outputs had not what it is made of."""
    if name not in result:
        raise InputError(f"the outputs of {dataset} give no {name}: dump them with eval_dump.py")
    return result[name]


def facts(logs: Logs, data: str | None, threads: int) -> dict:
    """The machine, the training and the data that the numbers of a dataset come from."""
    steps = 1 + max(logs.iterations(GOLD))
    return {**machine_facts(threads), "steps": steps, "data": data}


# --- classification ---


def classification_effects(dataset: str, threads: int) -> dict:
    """{departure: {dataset: numbers}} of 1, 8 and 10, and "made"; read in the working directory."""
    module = modules_of("classification", "baselines").baselines
    measured = replace(module.load_inputs(dataset), baselines={})
    accuracy = PERFORMANCES["classification"]["acc"]
    result, *others = (summarise_inputs(measured, METRIC, "val", accuracy, s) for s in SHUFFLES)
    negated = {
        key: -values if key[2] == "grad" else values for key, values in measured.logs.arrays.items()
    }
    twice = replace(measured, logs=replace(measured.logs, arrays=negated))
    published = summarise_inputs(twice, METRIC, "val", accuracy, 0)
    baselines = [one["baseline"] for one in (result, *others)]
    found = {
        "1": {
            "here": number(result, "agr_grad", dataset),
            "published": number(published, "agr_grad", dataset),
            "chance": result["baseline_exact"],
        },
        "8": {
            "lowest": min(baselines),
            "highest": max(baselines),
            "range": max(baselines) - min(baselines),
            "exact": result["baseline_exact"],
        },
        "10": {
            "same split": number(result, "agr_unif", dataset),
            "other split": number(number(result, "heldout", dataset), "agr_unif", dataset),
        },
        "made": facts(measured.logs, measured.data, threads),
    }
    return {departure: {dataset: numbers} for departure, numbers in found.items()}


# --- translation ---


@dataclass
class PublishedTargets:
    """Pairs whose batches count ``<s>`` and padding as targets: all pieces, up to the longest."""

    pairs: object
    pad: int

    def __len__(self) -> int:
        return len(self.pairs)

    def batch(self, examples: np.ndarray):
        """Some pairs, as data.Pairs.batch gives them; their targets are no longer its inputs'."""
        lengths = self.pairs.trg.lengths[examples]
        targets = np.full((len(lengths), lengths.max()), self.pad)
        targets[np.arange(lengths.max()) < lengths[:, None]] = self.pairs.trg.take(examples).values
        return self.pairs.batch(examples)._replace(
            targets=torch.from_numpy(targets.ravel()),
            trg_lengths=torch.full((len(lengths),), targets.shape[1]),
        )


def translation_effects(dataset: str, published_beta: Path, threads: int) -> dict:
    """{"5": {dataset: {metric: numbers}}, "made": ...}; read in the working directory."""
    module = modules_of("translation", "data", "embedding_beta", "baselines")
    measured = module.baselines.load_inputs(dataset, EMBED_DIM)
    px = translation_beta_path(dataset, EMBED_DIM)
    if "px" not in measured.baselines:
        raise InputError(next(line for line in measured.missing if line.startswith(str(px))))
    settings = read_output_record(px).get("settings")
    if not isinstance(settings, dict):
        raise InputError(f"{px} has no record of its settings: make it with embedding_beta.py")
    if not published_beta.exists():
        train_published(module, published_beta, settings, threads)
    earlier = read_output_record(published_beta).get("settings", settings)
    if what := differences(earlier, settings):
        raise InputError(f"{published_beta} and {px} are of other settings ({what})")
    try:
        beta = module.baselines.of_matrix(load_pickle(published_beta, "baseline"), measured.logs)
    except ValueError as error:
        raise InputError(
            f"baseline {published_beta} {error}; remove it, and it is trained"
        ) from None
    both = {"here": measured.baselines["px"], "published": beta}
    effects = {}
    for metric in METRICS:
        accuracy = PERFORMANCES["translation"]["acc"]
        result = summarise_inputs(replace(measured, baselines=both), metric, "val", accuracy, 0)
        effects[metric] = {name: result[f"agr_{name}"] for name in both}
    made = facts(measured.logs, settings["data"], threads)
    return {"5": {dataset: effects}, "made": {dataset: made}}


def train_published(module: SimpleNamespace, out: Path, settings: dict, threads: int) -> None:
    """Train β^px with the published targets, and write it to ``out``, with its record.

    Args:
        module: the modules of ``translation/``.
        out: of the pickle.
        settings: of the β^px that it is compared with.
        threads: of the CPU.
    """
    set_seed(settings["seed"])
    device = setup_device("cpu", threads)
    dataset = module.data.load_dataset(settings["dataset"])
    if dataset.checksum != settings["data"]:
        raise InputError(
            "β^px was trained on data that does not match the current data; train it again"
        )
    train_pairs = PublishedTargets(dataset.train, module.data.PAD)
    args, state = SimpleNamespace(**settings), out.with_suffix(".state")
    model, *losses_of = module.embedding_beta.build(
        train_pairs, dataset.val, dataset.vocab, args.embed_dim, device
    )
    losses = train_baseline(model, *losses_of, len(train_pairs), args, state, settings)
    write_pickle(out, model.beta().numpy())
    record_output(out, settings, {"validation_losses": losses})
    state.unlink(missing_ok=True)


def rows_of(effects: dict, *names: str) -> Iterator[dict]:
    """A row for each number, named by its keys."""
    for name, content in effects.items():
        if isinstance(content, dict):
            yield from rows_of(content, *names, name)
        else:
            departure, dataset, *metric = names
            statistic = ", ".join([*metric, name])
            yield {"departure": departure, "dataset": dataset, "of": statistic, "value": content}


def main(argv=None) -> None:
    args = parse_args(argv)
    measured = []
    if args.classification:
        with inside(args.classification):
            for dataset in dict.fromkeys(args.datasets):
                measured.append(classification_effects(dataset, args.threads))
    if args.translation:
        published_beta = args.published_beta.absolute()
        with inside(args.translation):
            measured.append(translation_effects(args.pairs, published_beta, args.threads))
    for effects in measured:
        keep_results(args.out, {"measured": effects})
        effects.pop("made")
    print(format_table([row for effects in measured for row in rows_of(effects)]))


if __name__ == "__main__":
    run_script(main)
