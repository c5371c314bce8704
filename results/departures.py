"""What departures from the published code do to the numbers, measured on existing outputs.

    python results/departures.py --classification classification --datasets Furd SMS
    python results/departures.py --translation translation --published_beta published_beta.pkl

The numbers are those of the table in docs/departures.md: agreement by the top 5% match on the
validation examples.

     1  agr_grad: Δ counted once ("here"), and negated twice as published; what chance gives
     5  agr_px: with padding and <s> left out of the targets ("here"), and counted as published; by
        Kendall's tau too
     8  baseline: the lowest and the highest of the seeds 0 to 9, and the exact expectation
    10  agr_unif: the gold checkpoint chosen on the split that is reported, and on the other one

1, 8 and 10 come from the logs in outputs/ of the --classification folder; 5 from the logs and β^px
in outputs/ of the --translation folder and from --published_beta: β^px with the published targets
and the same settings. If that file does not exist, it is trained on the data in that folder
(minutes); an interrupted training resumes.

Prints the numbers and puts them into results/departures.json: "measured" is {departure: {dataset:
numbers}}, with facts on the machine and the logs under "made"; the rest of the file is unchanged.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from measure import keep_results, machine_facts, modules_of

from attention_dynamics.analysis.inputs import AnalysisInputs, summarize_inputs
from attention_dynamics.cli import InputError, add_options, count, run_script, script_parser
from attention_dynamics.names import GOLD, METRICS, PERFORMANCES
from attention_dynamics.runs.embedding_baseline import write_baseline
from attention_dynamics.runs.outputs import read_output_record
from attention_dynamics.runs.paths import translation_beta_path
from attention_dynamics.storage.files import check_writable
from attention_dynamics.storage.pickles import load_pickle

SHUFFLES = range(10)
EMBED_DIM = 256


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    add = parser.add_argument
    folder = {"type": Path, "metavar": "FOLDER"}
    outputs = "directory with outputs/ of classification (default: skip 1, 8 and 10)"
    add("--classification", **folder, help=outputs)
    datasets = "datasets of classification (default: Furd and SMS)"
    add("--datasets", nargs="+", default=["Furd", "SMS"], help=datasets)
    outputs = "directory with outputs/ of translation, and data/ for training (default: skip 5)"
    add("--translation", **folder, help=outputs)
    add(
        "--published_beta",
        type=Path,
        metavar="FILE",
        help="pickle of β^px with the published targets; trained if it does not exist",
    )
    add_options(
        parser,
        pairs=(str, "multi30k", "dataset of translation"),
        threads=(count, 1, "CPU threads of training"),
        out=(Path, Path(__file__).with_name("departures.json"), "results file"),
    )
    args = parser.parse_args(argv)
    if not args.classification and not args.translation:
        parser.error("give --classification or --translation, or both")
    if bool(args.translation) != bool(args.published_beta):
        parser.error("--translation and --published_beta need each other")
    for path in filter(None, (args.out, args.published_beta)):
        check_writable(path)
    return args


@contextlib.contextmanager
def inside(path: Path) -> Iterator[None]:
    """Within the block ``path`` is the working directory, and errors name it."""
    try:
        with contextlib.chdir(path):
            yield
    except (InputError, FileNotFoundError) as error:
        raise InputError(f"{error} (in {path})") from None
    except KeyError as error:
        raise InputError(f"{path}: outputs without {error}; create them again") from None


def facts(measured: AnalysisInputs, threads: int) -> dict:
    """The machine, the training and the data that the numbers of a dataset come from."""
    steps = 1 + max(measured.logs.iterations(GOLD))
    return {**machine_facts(threads), "steps": steps, "data": measured.data}


def classification_effects(dataset: str, threads: int) -> dict:
    """{departure: {dataset: numbers}} of 1, 8 and 10, and "made"; read in the working directory."""
    baselines = modules_of("classification", "baselines").baselines
    measured = replace(baselines.load_inputs(dataset), baselines={})
    logs, accuracy = measured.logs, PERFORMANCES["classification"]["acc"]
    results = [summarize_inputs(measured, METRICS[0], "val", accuracy, s) for s in SHUFFLES]
    arrays = {key: -one if key[2] == "grad" else one for key, one in logs.arrays.items()}
    negated = replace(measured, logs=replace(logs, arrays=arrays))
    published = summarize_inputs(negated, METRICS[0], "val", accuracy, 0)
    drawn, result = [one["baseline"] for one in results], results[0]
    low, high, exact = min(drawn), max(drawn), result["baseline_exact"]
    effects = {
        "1": {"here": result["agr_grad"], "published": published["agr_grad"], "chance": exact},
        "8": {"lowest": low, "highest": high, "range": high - low, "exact": exact},
        "10": {"same split": result["agr_unif"], "other split": result["heldout"]["agr_unif"]},
        "made": facts(measured, threads),
    }
    return {departure: {dataset: numbers} for departure, numbers in effects.items()}


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
    if not published_beta.exists() or read_output_record(published_beta):
        data = module.data.load_dataset(dataset)
        measured.check_data(data.checksum)
        train = PublishedTargets(data.train, module.data.PAD)
        options = {**read_output_record(px)["settings"]}
        del options["data"]
        how = {"overwrite": False, "device": "cpu", "threads": threads}
        write_baseline(
            published_beta,
            argparse.Namespace(**options, **how),
            data.checksum,
            len(train),
            lambda on: module.embedding_beta.build(train, data.val, data.vocab, EMBED_DIM, on),
        )
    beta = module.baselines.of_matrix(load_pickle(published_beta, "baseline"), measured.logs)
    both = replace(measured, baselines={"here": measured.baselines["px"], "published": beta})
    effects = {}
    for metric in METRICS:
        accuracy = PERFORMANCES["translation"]["acc"]
        result = summarize_inputs(both, metric, "val", accuracy, 0)
        effects[metric] = {name: result[f"agr_{name}"] for name in both.baselines}
    return {"5": {dataset: effects}, "made": {dataset: facts(measured, threads)}}


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
        print(json.dumps(effects, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    run_script(main)
