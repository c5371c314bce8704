"""Speed and memory of the classification experiment beside a plain reference of the same method.

    python benchmarks/classification.py
    python benchmarks/classification.py --only train agreement --rounds 9
    python benchmarks/classification.py --device cuda --only train scores embedding

Both sides run on the same generated texts with interleaved timings in one process. A row shows
medians and reference / ours; the floor is the time of our matrix products alone. Sections:

    train      one training step of the paper's model
    scores     α, β and Δ of a checkpoint
    agreement  top 5% match and Kendall's tau between the gold run and iterations of another run
    embedding  one epoch of β^px with its validation
    logistic   β^lr: memory of the fit, and the difference of the coefficients

Prints a table per section and adds it, with facts about the machine, to benchmarks/results/.
"""

import argparse
import random
from dataclasses import dataclass, replace

import numpy as np
import torch
from measure import (
    compared,
    in_process,
    matmul_floor,
    modules_of,
    parse_sections,
    run_sections,
    section_parser,
    time_interleaved,
)
from reference import classification as reference
from torch import nn
from torch.nn import functional as F

from attention_dynamics.analysis import agreement
from attention_dynamics.analysis.ragged import Ragged, offsets_of
from attention_dynamics.cli import run_script
from attention_dynamics.device import peak_memory_mb
from attention_dynamics.runs.embedding_baseline import train_baseline

CONFIG = {"hidden_dim": 256, "intermediate_dim": 256, "embed_dim": 300, "batch_size": 32}


@dataclass(frozen=True)
class Workload:
    """Generated texts: ``texts`` of them, log-normal lengths, words drawn by Zipf's law.

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

    def examples(self, seed: int) -> list[reference.Example]:
        """``texts`` examples ``(token ids, label)``; some words are evidence for label 1."""
        rng = np.random.default_rng(seed)
        share = 1 / np.arange(10, 6 + self.vocab)
        share /= share.sum()
        examples = []
        for length in self.lengths(rng):
            words = 4 + rng.choice(self.vocab - 4, length - 2, p=share)
            label = int((words % 7 == 0).sum() * 7 + rng.normal() * 3 > length)
            examples.append(([reference.BOS, *words.tolist(), reference.EOS], label))
        return examples


SHORT = Workload("SST-like, 20 tokens", 1821, 20, 0.5, 60, 6000)
LONG = Workload("250 tokens", 1000, 250, 0.65, 1000, 20_000)


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
    for workload, rounds in (
        (SHORT, 3 * args.rounds),
        (LONG, min(args.rounds, 3)),  # a step of the reference takes many seconds here
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
        rows.append(compared(workload.name, "training step", "s", *times))
    return rows


def scores_section(args: argparse.Namespace) -> list[dict]:
    """α, β and Δ of a checkpoint."""
    rows = []
    for workload, texts, rounds in (
        (SHORT, 1000, args.rounds),
        (LONG, 96, 1),  # half a minute for the reference
    ):
        workload = sized(workload, texts, args)
        examples = workload.examples(seed=0)
        split, (plain_model, our_model) = as_split(examples), both_models(workload.vocab, CONFIG)
        our_model.to(args.device).requires_grad_(False)

        def plain(model=plain_model, examples=examples):
            return reference.example_scores(model, examples, CONFIG["batch_size"])

        def ours(model=our_model, split=split):
            return experiment("eval_dump").dump(model, split, args.device)[0]

        expected, found = plain(), ours()
        for kind, values in found.items():
            flat = np.concatenate([scores[kind] for scores in expected])
            np.testing.assert_allclose(flat, values, atol=1e-5)
        times = time_interleaved([plain, ours], rounds)
        floor = matmul_floor(ours, args.device)
        rows.append(
            compared(workload.name, f"α, β, Δ of {len(examples)} texts", "s", *times, floor)
        )
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
        for metric, iterations in (
            ("top 5% match", 22),  # the paper's number of iterations
            ("kendall tau", 3),  # one takes the reference a second
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
            rows.append(compared(workload.name, what, "s", *times))
    return rows


def embedding_section(args: argparse.Namespace) -> list[dict]:
    """One epoch with a validation before and after it, from the same start."""
    rows = []
    for workload, texts, val_texts in ((SHORT, 6920, 1821), (LONG, 2000, 500)):
        workload = sized(workload, texts, args)
        train_set = workload.examples(seed=0)
        val_set = sized(workload, val_texts, args).examples(seed=1)
        splits = as_split(train_set), as_split(val_set)
        settings = argparse.Namespace(embed_dim=256, bsize=64, epochs=1, lr=1.5e-4, seed=0)
        sizes = workload.vocab, settings.embed_dim

        def plain(sizes=sizes, sets=(train_set, val_set), settings=settings):
            model, rng = reference.EmbeddingClassifier(*sizes), random.Random(settings.seed)
            reference.embedding_beta(model, *sets, 1, settings.bsize, settings.lr, rng)

        def ours(sizes=sizes, splits=splits, settings=settings):
            build = experiment("embedding_beta").build
            model, *losses_of = build(*splits, *sizes, args.device)
            train_baseline(model, *losses_of, len(splits[0]), settings)

        times = time_interleaved([plain, ours], args.rounds)
        rows.append(compared(workload.name, f"epoch of {len(train_set)} texts", "s", *times))
    return rows


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
    memory = (plain_after - plain_before) / 1e9, max(our_after - our_before, 1) / 1e9
    name = f"{workload.texts} texts, {workload.vocab} words"
    return [
        compared(name, "memory of the fit", "GB", *memory),
        compared(name, "peak memory of the process", "GB", None, our_after / 1e9),
        compared(name, "difference of coefficients (C = 1)", "", None, difference),
    ]


RUN_SECTION = {
    "train": train_section,
    "scores": scores_section,
    "agreement": agreement_section,
    "embedding": embedding_section,
    "logistic": logistic_section,
}


def main(argv=None) -> None:
    parser = section_parser(__doc__, RUN_SECTION)
    run_sections(parse_sections(parser, "classification", argv), RUN_SECTION)


if __name__ == "__main__":
    run_script(main)
