"""Speed and memory of the classification experiment beside a plain reference of the same method.

    python benchmarks/classification.py
    python benchmarks/classification.py --only train agreement --rounds 9
    python benchmarks/classification.py --device cuda --only train eval_dump embedding

Both sides work on the same made-up texts, in turn, in one process; a row shows the medians and
reference / ours. A floor is what no side can leave out, measured alone, with the ratio if there
were nothing else: of eval_dump the matrix products of ours at the rate of a large product here, of
the embedding an epoch's updates by the optimizer. Sections:

    train      one training step of the paper's model
    resume     what it costs a step that training can be stopped and go on (no reference)
    eval_dump  the whole step from data and checkpoints to the logs on disk
    agreement  top 5% match and Kendall's tau of the gold run with the iterations of another
    embedding  one epoch of β^px with its validation
    logistic   β^lr: the same coefficients, peak memory
    scale      logs of IMDB's size: their file, and the memory that collecting them takes

Prints a table per section and keeps it, with facts about the machine, in benchmarks/results/.
"""

import argparse
import contextlib
import io
import json
import pickle
import random
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from measure import (
    bounded,
    compared,
    in_process,
    matmul_floor,
    modules_of,
    parse_sections,
    resume_rows,
    run_sections,
    section_parser,
    time_interleaved,
)
from reference import classification as reference
from torch import nn
from torch.nn import functional as F

from attention_dynamics.analysis import agreement
from attention_dynamics.analysis.logs import Logs, load_logs, save_logs
from attention_dynamics.analysis.ragged import Ragged, offsets_of
from attention_dynamics.analysis.statistics import summarize
from attention_dynamics.cli import run_script
from attention_dynamics.device import peak_memory_mb
from attention_dynamics.names import METRICS
from attention_dynamics.runs.embedding_baseline import train_baseline

CONFIG = {"hidden_dim": 256, "intermediate_dim": 256, "embed_dim": 300, "batch_size": 32}
GIGABYTE = 1e9


@dataclass(frozen=True)
class Workload:
    """Made-up texts: ``texts`` of them, log-normal lengths, words drawn by Zipf's law.

    ``mean`` is that of the lengths, ``sigma`` the spread of their logarithm, ``longest`` the limit;
    ``vocab`` includes the four specials.
    """

    name: str
    texts: int
    mean: float
    sigma: float
    longest: int
    vocab: int

    def lengths(self, rng: np.random.Generator) -> np.ndarray:
        """``(texts,)`` int64, <bos> and <eos> included."""
        drawn = rng.lognormal(np.log(self.mean) - self.sigma**2 / 2, self.sigma, self.texts)
        return np.clip(drawn.round(), 3, self.longest).astype(np.int64)

    def words(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """``(count,)`` int64 word indices from 4 on, the frequent ones first."""
        share = 1 / np.arange(10, 6 + self.vocab)
        return 4 + rng.choice(self.vocab - 4, count, p=share / share.sum())

    def examples(self, seed: int) -> list[reference.Example]:
        """``texts`` examples ``(token ids, label)``; some words speak for label 1, so there is
        something to learn."""
        rng = np.random.default_rng(seed)
        examples = []
        for length in self.lengths(rng):
            words = self.words(rng, length - 2)
            label = int((words % 7 == 0).sum() * 7 + rng.normal() * 3 > length)
            examples.append(([reference.BOS, *words.tolist(), reference.EOS], label))
        return examples


SHORT = Workload("SST-like, 20 tokens", 1821, 20, 0.5, 60, 6000)
LONG = Workload("250 tokens", 1000, 250, 0.65, 1000, 20_000)


def parse_args(argv=None) -> argparse.Namespace:
    return parse_sections(section_parser(__doc__, RUN_SECTION), "classification", argv)


def experiment(module: str):
    """A module of ``classification/``."""
    return getattr(modules_of("classification"), module)


def as_split(examples: list[reference.Example]):
    """Examples in the experiment's own storage."""
    ids = Ragged.from_rows([np.array(tokens, dtype=np.int64) for tokens, _ in examples])
    return experiment("data").Split(ids, np.array([label for _, label in examples]))


def sized(workload: Workload, texts: int, args: argparse.Namespace) -> Workload:
    """``workload`` with so many texts, or the tiny version of it."""
    if args.quick:
        return replace(workload, texts=40, mean=min(workload.mean, 20), longest=60, vocab=500)
    return replace(workload, texts=texts)


def both_models(vocab: int, config: dict) -> tuple[nn.Module, nn.Module]:
    """The reference model and ours, with the same weights."""
    torch.manual_seed(0)
    plain = reference.AttentionClassifier(vocab, config)
    ours = experiment("models").AttentionClassifier(vocab, config, False)
    ours.load_state_dict(plain.state_dict())
    return plain, ours


def train_section(args: argparse.Namespace) -> list[dict]:
    rows = []
    for workload, rounds, at_least in (
        (SHORT, 3 * args.rounds, 1.6),
        (LONG, min(args.rounds, 3), 4.0),  # a step of the reference takes many seconds here
    ):
        workload = sized(workload, 32 * 40, args)
        examples = workload.examples(seed=0)
        split = as_split(examples)
        plain, ours = both_models(workload.vocab, CONFIG)
        plain_adam = torch.optim.Adam(plain.parameters())
        our_adam = torch.optim.Adam(ours.to(args.device).parameters(), fused=True)
        # Both sides see the same batches in the same order.
        order = np.random.default_rng(0).permutation(len(examples))
        batch_size = CONFIG["batch_size"]
        batches = [order[place : place + batch_size] for place in range(0, len(order), batch_size)]
        plain_batches, our_batches = iter(batches * rounds), iter(batches * rounds)

        def plain_step(model=plain, adam=plain_adam, batches=plain_batches, examples=examples):
            reference.train_step(model, adam, [examples[place] for place in next(batches)])

        def our_step(model=ours, adam=our_adam, batches=our_batches, split=split):
            ids, lengths, labels = split.batch(next(batches))
            score = model(ids.to(args.device), lengths).score
            loss = F.binary_cross_entropy_with_logits(score, labels.to(args.device))
            adam.zero_grad(set_to_none=True)
            loss.backward()
            adam.step()

        times = time_interleaved([plain_step, our_step], rounds)
        rows.append(compared(workload.name, "training step", "s", *times, at_least))
    return rows


def resume_section(args: argparse.Namespace) -> list[dict]:
    workload = sized(SHORT, 32 * 40, args)
    split, (_, model) = as_split(workload.examples(seed=0)), both_models(workload.vocab, CONFIG)

    def loss_of(step: int) -> torch.Tensor:
        examples = np.arange(step * CONFIG["batch_size"], (step + 1) * CONFIG["batch_size"])
        ids, lengths, labels = split.batch(examples % len(split))
        return F.binary_cross_entropy_with_logits(model(ids, lengths).score, labels)

    return resume_rows(workload.name, model, loss_of, 5 if args.quick else 20 * args.rounds, 250)


def write_experiment(
    folder: Path, workload: Workload, num_test: int, checkpoints: int
) -> list[dict]:
    """Data, configs and untrained checkpoints of a dataset "made"; returns its log config."""
    vocab = workload.vocab
    for number, (split, texts) in enumerate((("train", workload.texts), ("test", num_test))):
        examples = replace(workload, texts=texts).examples(seed=number)
        content = {
            "vocab": [f"word{index}" for index in range(vocab)],
            "XY": [[tokens[1:-1], label] for tokens, label in examples],
        }
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / f"made_{split}.json").write_text(json.dumps(content))
    (folder / "data" / "w2v.pkl").write_bytes(pickle.dumps({}))
    entries = [
        {"name": "normal_A", "iteration": iteration, "seed": 20, "uniform": False}
        for iteration in range(checkpoints)
    ]
    (folder / "configs").mkdir()
    (folder / "configs" / "made_log.json").write_text(json.dumps(entries))
    (folder / "configs" / "model.json").write_text(json.dumps(CONFIG))
    _, _, known = reference.load_dataset(folder / "data", "made", num_test)
    plain, _ = both_models(known, CONFIG)
    run = f"h_dim={CONFIG['hidden_dim']},b_size={CONFIG['batch_size']},seed=20,normal"
    run = folder / "models" / "made" / run
    run.mkdir(parents=True)
    for entry in entries:
        torch.save(plain.state_dict(), run / f"model{entry['iteration']}")
    return entries


def eval_dump_section(args: argparse.Namespace) -> list[dict]:
    rows = []
    for workload, texts, num_test, checkpoints, rounds in (
        (SHORT, 6920, 500, 2, args.rounds),
        (LONG, 2000, 48, 1, 1),  # minutes for the reference
    ):
        workload = sized(workload, texts, args)
        num_test = 20 if args.quick else num_test
        with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
            folder = Path(name)
            entries = write_experiment(folder, workload, num_test, checkpoints)

            def plain(folder=folder, entries=entries, num_test=num_test):
                logs = reference.eval_dump(folder, "made", CONFIG, entries, num_test)
                with open("reference_logs.pkl", "wb") as stream:
                    pickle.dump(logs, stream)

            def ours(num_test=num_test, threads=args.threads):
                options = f"--dataset made --test_set_size {num_test} --threads {threads}"
                options += f" --device {args.device} --overwrite"
                with contextlib.redirect_stdout(io.StringIO()):
                    experiment("eval_dump").main(options.split())

            times = time_interleaved([plain, ours], rounds)
            floor = matmul_floor(ours, args.device)
        what = f"{checkpoints} checkpoint(s), 2 x {num_test} texts"
        rows.append(compared(workload.name, what, "s", *times, 5.0, floor))
    return rows


def agreement_section(args: argparse.Namespace) -> list[dict]:
    """The agreement of the gold run with several iterations of another, as collect does it."""
    rows = []
    for workload, texts in ((SHORT, 1821), (replace(LONG, name="240 tokens", mean=240), 1000)):
        workload = sized(workload, texts, args)
        rng = np.random.default_rng(0)
        offsets = offsets_of(workload.lengths(rng))
        gold = rng.standard_normal(offsets[-1], dtype=np.float32)
        others = [rng.standard_normal(offsets[-1], dtype=np.float32) for _ in range(22)]
        plain_gold = np.split(gold, offsets[1:-1])
        plain_others = [np.split(other, offsets[1:-1]) for other in others]
        for metric, iterations, at_least in (
            ("top 5% match", 22, 50.0),  # the paper's number of iterations
            ("kendall tau", 3, 8.0),  # one takes the reference a second
        ):

            def plain(metric=metric, first=plain_gold, others=plain_others[:iterations]):
                return [reference.agreement(metric, first, second) for second in others]

            def ours(metric=metric, first=gold, others=others[:iterations], offsets=offsets):
                first = Ragged(first, offsets)
                return [
                    agreement.agreement(metric, first, Ragged(second, offsets)) for second in others
                ]

            np.testing.assert_allclose(plain(), ours(), atol=1e-12)
            times = time_interleaved([plain, ours], args.rounds)
            what = f"{metric}, {workload.texts} texts, {iterations} iterations"
            rows.append(compared(workload.name, what, "s", *times, at_least))
    return rows


def embedding_section(args: argparse.Namespace) -> list[dict]:
    """One epoch with a validation before and after it, from the same start."""
    return [
        embedding_row(sized(SHORT, 6920, args), sized(SHORT, 1821, args), args),
        embedding_row(sized(LONG, 2000, args), sized(LONG, 500, args), args),
    ]


def embedding_row(workload: Workload, val_workload: Workload, args: argparse.Namespace) -> dict:
    train_set, val_set = workload.examples(seed=0), val_workload.examples(seed=1)
    train_split, val_split = as_split(train_set), as_split(val_set)
    settings = argparse.Namespace(embed_dim=256, bsize=64, epochs=1, lr=1.5e-4, seed=0)

    def plain():
        model = reference.EmbeddingClassifier(workload.vocab, settings.embed_dim)
        rng = random.Random(settings.seed)
        reference.embedding_beta(
            model, train_set, val_set, settings.epochs, settings.bsize, settings.lr, rng
        )

    def ours():
        model, *losses_of = experiment("embedding_beta").build(
            train_split, val_split, workload.vocab, settings.embed_dim, args.device
        )
        train_baseline(model, *losses_of, len(train_split), settings)

    model = experiment("embedding_beta").BagOfWords(workload.vocab, settings.embed_dim)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    adam = torch.optim.Adam(model.parameters(), fused=True)

    def updates():
        for _ in range(0, len(train_set), settings.bsize):
            adam.step()

    *times, floor = time_interleaved([plain, ours, updates], args.rounds)
    return compared(workload.name, f"epoch of {len(train_set)} texts", "s", *times, 8.0, floor)


def logistic_fit(workload: Workload, is_plain: bool) -> tuple[np.ndarray, int, int]:
    """A fit with C = 1 in a process of its own: coefficients, peak bytes before and after."""
    module, examples = experiment("logistic_beta"), workload.examples(seed=0)
    split = as_split(examples)
    before = int(peak_memory_mb() * 1e6)
    if is_plain:
        counts = reference.count_matrix(examples, workload.vocab)
        regression = reference.logistic_fit(counts, [label for _, label in examples], 1.0)
    else:
        regression = module.LogisticRegression(C=1.0, max_iter=1000)
        regression.fit(module.word_shares(split, workload.vocab), split.labels)
    return regression.coef_, before, int(peak_memory_mb() * 1e6)


def logistic_section(args: argparse.Namespace) -> list[dict]:
    """Memory is that of the fit alone: what the libraries and the texts take is subtracted."""
    workload = sized(replace(LONG, mean=240, vocab=40_000), 4000, args)
    plain, plain_before, plain_after = in_process(logistic_fit, workload, True)
    ours, our_before, our_after = in_process(logistic_fit, workload, False)
    difference = float(np.abs(plain - ours).max() / np.abs(plain).max())
    memory = (plain_after - plain_before) / GIGABYTE, max(our_after - our_before, 1) / GIGABYTE
    name = f"{workload.texts} texts, {workload.vocab} words"
    return [
        compared(name, "memory of the fit", "GB", *memory, 10.0),
        bounded(name, "peak memory of the process", "GB", our_after / GIGABYTE, None),
        bounded(name, "difference of coefficients (C = 1)", "", difference, 1e-4),
    ]


RUNS = (*(f"normal_{letter}" for letter in "ABCDEF"), "uniform")


def write_scale_logs(path: Path, workload: Workload, examples: int, checkpoints: int) -> dict:
    """Logs of 7 runs with made-up scores, in a process of its own: sizes, and peak memory."""
    rng = np.random.default_rng(0)
    splits = {split: replace(workload, texts=examples).lengths(rng) for split in ("val", "train")}
    lengths = np.concatenate(list(splits.values()))
    total = int(lengths.sum())
    logs = Logs(
        dataset="made",
        src=Ragged(workload.words(rng, total), offsets_of(lengths)),
        trg=rng.integers(0, 2, len(lengths)),
        splits={split: len(of_split) for split, of_split in splits.items()},
        index=np.concatenate([np.arange(examples), np.arange(examples)]),
    )
    for name in RUNS:
        for iteration in range(checkpoints):
            for metric in ("test_acc", "train_acc"):
                logs.metas[name, iteration, metric] = float(rng.random())
            for kind in ("alpha", "beta", "grad"):
                values = rng.standard_normal(total, dtype=np.float32)
                logs.arrays[name, iteration, kind] = values
    save_logs(path, logs)
    numbers = sum(array.nbytes for array in logs.arrays.values())
    return {"numbers": numbers, "file": path.stat().st_size, "peak": int(peak_memory_mb() * 1e6)}


def collect_scale_logs(path: Path) -> dict:
    """All four summaries of those logs, in a process of its own: seconds and peak memory."""
    seconds = {}
    start = time.perf_counter()
    logs = load_logs(path)
    seconds["load"] = time.perf_counter() - start
    sign = np.repeat(2 * logs.trg - 1, logs.src.lengths).astype(np.float32)
    words = np.random.default_rng(0).standard_normal((2, int(logs.src.values.max()) + 1))
    baselines = {
        "px": words[0].astype(np.float32)[logs.src.values] * sign,
        "logistic": words[1][logs.src.values] * sign,
    }
    for metric in METRICS:
        for split, perf, heldout in (
            ("val", "test_acc", "train_acc"),
            ("train", "train_acc", "test_acc"),
        ):
            start = time.perf_counter()
            summarize(logs, metric, split, perf, heldout, baselines, sign)
            seconds[f"{metric}, {split}"] = time.perf_counter() - start
    return {"seconds": seconds, "peak": int(peak_memory_mb() * 1e6)}


def scale_section(args: argparse.Namespace) -> list[dict]:
    """IMDB's size: 22 checkpoints of 7 runs, 4000 texts of each split."""
    examples, checkpoints = (20, 3) if args.quick else (4000, 22)
    workload = sized(replace(LONG, mean=240, vocab=60_000), examples, args)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made_logs.pkl"
        written = in_process(write_scale_logs, path, workload, examples, checkpoints)
        read = in_process(collect_scale_logs, path)
    overhead = written["file"] / written["numbers"]
    name = f"{len(RUNS)} runs x {checkpoints} checkpoints x {2 * examples} texts"
    return [
        bounded(name, "log file / raw numbers", "", overhead, 1.1),
        bounded(name, "log file", "GB", written["file"] / GIGABYTE, None),
        bounded(name, "peak memory, writing", "GB", written["peak"] / GIGABYTE, 8.0),
        bounded(name, "peak memory, collecting", "GB", read["peak"] / GIGABYTE, 8.0),
        *(
            bounded(name, f"collecting: {what}", "s", seconds, None)
            for what, seconds in read["seconds"].items()
        ),
    ]


RUN_SECTION = {
    "train": train_section,
    "resume": resume_section,
    "eval_dump": eval_dump_section,
    "agreement": agreement_section,
    "embedding": embedding_section,
    "logistic": logistic_section,
    "scale": scale_section,
}


def main(argv=None) -> None:
    run_sections(parse_args(argv), RUN_SECTION)


if __name__ == "__main__":
    run_script(main)
