"""Speed and memory of the translation experiment beside a plain reference of the same method.

    python benchmarks/translation.py
    python benchmarks/translation.py --only train grad --rounds 9
    python benchmarks/translation.py --device cuda --only train beta grad beam

Both sides run on the same generated sentence pairs, as long as those of Multi30k, with interleaved
timings in one process, after a check that their results agree. A row shows medians and reference /
ours; the floor is the time of our matrix products alone. Sections:

    train      one training step of the paper's model
    evaluate   token accuracy and perplexity of a validation set
    beta       α and β
    grad       Δ
    beam       translations by beam search
    embedding  one epoch of β^px with its validation
    ibm1       expectation maximization of IBM model 1

Prints a table per section and adds it, with facts about the machine, to benchmarks/results/.
"""

import argparse
import functools

import numpy as np
import torch
from measure import (
    compared,
    matmul_floor,
    modules_of,
    parse_sections,
    run_sections,
    section_parser,
    time_interleaved,
)
from reference import translation as reference
from torch.nn import functional as F

from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import run_script
from attention_dynamics.runs.embedding_baseline import train_baseline

CONFIG = {"hidden_dim": 256, "dropout": 0.5, "num_layers": 2, "batch_size": 16}
VOCAB = 8000

# Pieces of a sentence of Multi30k, <s> and </s> included.
MEAN, SPREAD, LONGEST = 17, 5, 57


def sized(size: int, args: argparse.Namespace) -> int:
    """``size`` sentence pairs, or a handful."""
    return min(size, 24) if args.quick else size


def config_of(args: argparse.Namespace) -> tuple[int, dict]:
    """The number of pieces and the model config, or tiny ones."""
    return (300, {**CONFIG, "hidden_dim": 16}) if args.quick else (VOCAB, CONFIG)


def generated_pairs(num_pairs: int, vocab: int, seed: int) -> list[reference.Pair]:
    """Sentence pairs: log-normal lengths, both sides alike, pieces drawn by Zipf's law."""
    rng = np.random.default_rng(seed)
    sigma = np.sqrt(np.log(1 + (SPREAD / MEAN) ** 2))
    common, apart = rng.normal(size=(num_pairs, 1)), rng.normal(size=(num_pairs, 2))
    spread = sigma * (0.9 * common + np.sqrt(1 - 0.9**2) * apart)
    lengths = np.exp(np.log(MEAN) - sigma**2 / 2 + spread).round().clip(3, LONGEST).astype(int)
    share = 1 / np.arange(10, 6 + vocab)
    words = 4 + rng.choice(vocab - 4, lengths.sum() - 2 * lengths.size, p=share / share.sum())
    sentences = np.split(words, np.cumsum(lengths.ravel() - 2)[:-1])
    ids = [[reference.BOS, *sentence.tolist(), reference.EOS] for sentence in sentences]
    return list(zip(ids[::2], ids[1::2], strict=True))


def as_pairs(pairs: list[reference.Pair]):
    """Sentence pairs in the experiment's own storage."""
    src, trg = (Ragged.from_rows(side) for side in zip(*pairs, strict=True))
    return modules_of("translation").data.Pairs(src, trg, [""] * len(pairs))


def workload(args: argparse.Namespace, size: int, seed: int) -> tuple:
    """The modules of translation/, and for either side ``size`` pairs and an untrained model.

    Returns:
        modules, (reference pairs, reference model), (our pairs, our model); the models have the
        same weights and are in evaluation mode.
    """
    vocab, config = config_of(args)
    made, modules = generated_pairs(size, vocab, seed), modules_of("translation")
    torch.manual_seed(0)
    sizes = (config[key] for key in ("hidden_dim", "num_layers", "dropout"))
    plain = reference.AttentionTranslator(vocab, *sizes)
    ours = modules.models.AttentionTranslator(vocab, config, False)
    ours.load_state_dict(plain.state_dict())
    return modules, (made, plain.eval()), (as_pairs(made), ours.to(args.device).eval())


def timed_row(args, plain, ours, what: str, with_floor=True, rounds=None):
    """The row that compares the functions ``plain`` and ``ours``."""
    times = time_interleaved([plain, ours], rounds or min(args.rounds, 3))
    floor = matmul_floor(ours, args.device) if with_floor else None
    return [compared("Multi30k-like", what, "s", *times, floor)]


def train_section(args: argparse.Namespace) -> list[dict]:
    rounds, batch_size = 3 * args.rounds, CONFIG["batch_size"]
    _, (made, plain), (pairs, ours) = workload(args, batch_size * (rounds + 2), seed=0)
    # Without dropout, which either side draws in its own order.
    batch = pairs.batch(np.arange(batch_size)).to(args.device)
    our_loss = F.cross_entropy(ours(batch), batch.targets).item()
    plain_loss = reference.loss_of(plain, next(reference.batches(made, batch_size))).item()
    np.testing.assert_allclose(our_loss, plain_loss, rtol=1e-5)

    plain_adam = torch.optim.Adam(plain.train().parameters())
    our_adam = torch.optim.Adam(ours.train().parameters(), fused=True)
    plain_batches = reference.batches(made, batch_size)
    our_batches = iter(np.arange(len(made)).reshape(-1, batch_size))

    def step(adam: torch.optim.Adam, loss: torch.Tensor) -> None:
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()

    def plain_step():
        step(plain_adam, reference.loss_of(plain, next(plain_batches)))

    def our_step():
        batch = pairs.batch(next(our_batches)).to(args.device)
        step(our_adam, F.cross_entropy(ours(batch), batch.targets))

    what = f"training step, batch {batch_size}"
    return timed_row(args, plain_step, our_step, what, rounds=rounds)


def evaluate_section(args: argparse.Namespace) -> list[dict]:
    modules, (made, plain_model), (pairs, our_model) = workload(args, sized(1014, args), seed=1)

    def plain():
        return reference.token_scores(plain_model, made, CONFIG["batch_size"])

    def ours():
        return modules.evaluation.token_scores(our_model, pairs, args.device)

    np.testing.assert_allclose(plain(), ours(), rtol=1e-5)
    return timed_row(args, plain, ours, f"accuracy and perplexity, {len(made)} pairs")


def scores_section(args: argparse.Namespace, size: int, kinds: tuple[str, ...]) -> list[dict]:
    """α and β, or Δ: there ours computes α and β in the same pass, which is counted."""
    batch_size, with_grad = CONFIG["batch_size"], "grad" in kinds
    modules, (made, plain_model), (pairs, our_model) = workload(args, sized(size, args), seed=2)

    def plain():
        if not with_grad:
            return reference.pair_scores(plain_model, made, batch_size, with_grad)
        batches = reference.batches(made, batch_size)
        return [reference.gate_gradients(plain_model, batch) for batch in batches]

    def ours():
        grad_bsize = batch_size if with_grad else None
        return modules.eval_dump.dump(our_model, pairs, args.device, grad_bsize)[0]

    scores, found = reference.pair_scores(plain_model, made, batch_size, with_grad), ours()
    for kind in kinds:
        flat = np.concatenate([getattr(pair, kind).ravel() for pair in scores])
        np.testing.assert_allclose(flat, found[kind], atol=1e-5)
    what = "Δ of {} pairs (ours: α and β too)" if with_grad else "α and β of {} pairs"
    return timed_row(args, plain, ours, what.format(len(made)))


def beam_section(args: argparse.Namespace) -> list[dict]:
    modules, (made, plain_model), (pairs, our_model) = workload(args, sized(128, args), seed=4)

    def plain():
        return [reference.beam_search(plain_model, src, max_len=MEAN) for src, _ in made]

    def ours():
        return modules.decoding.beam_search(our_model, pairs.src, args.device, max_len=MEAN)

    hypotheses = plain()
    assert hypotheses == ours(), "the hypotheses differ"
    what = f"beam of 5, {len(made)} sentences, at most {MEAN} pieces"
    return timed_row(args, plain, ours, what, with_floor=False)


def embedding_section(args: argparse.Namespace) -> list[dict]:
    """One epoch with a validation before and after it, from the same start, and the table."""
    vocab, _ = config_of(args)
    made = generated_pairs(sized(64 * 30, args), vocab, seed=5)
    val_made = generated_pairs(sized(128, args), vocab, seed=6)
    pairs, val_pairs = as_pairs(made), as_pairs(val_made)
    settings = argparse.Namespace(embed_dim=256, bsize=64, epochs=1, seed=0)
    targets = sum(len(trg) - 1 for _, trg in val_made)

    @torch.no_grad()
    def loss_of(model) -> float:
        batches = reference.batches(val_made, settings.bsize)
        return sum(reference.embedding_loss(model, batch).item() for batch in batches) / targets

    def plain():
        torch.manual_seed(0)
        model = reference.EmbeddingTranslator(vocab, settings.embed_dim)
        adam = torch.optim.Adam(model.parameters())
        losses = [loss_of(model)]
        order = np.random.default_rng(settings.seed).permutation(len(made))
        for batch in reference.batches([made[place] for place in order], settings.bsize):
            adam.zero_grad()
            reference.embedding_loss(model, batch).backward()
            adam.step()
        return model.table(), [*losses, loss_of(model)]

    def ours():
        torch.manual_seed(0)
        build = modules_of("translation").embedding_beta.build
        model, *losses_of = build(pairs, val_pairs, vocab, settings.embed_dim, args.device)
        losses = train_baseline(model, *losses_of, len(pairs), settings)
        return model.beta().cpu().numpy(), losses

    np.testing.assert_allclose(plain()[1], ours()[1], rtol=1e-4)
    return timed_row(args, plain, ours, f"epoch of {len(made)} pairs", with_floor=False)


def ibm1_section(args: argparse.Namespace) -> list[dict]:
    vocab, iterations = config_of(args)[0], 3
    made = generated_pairs(sized(1000, args), vocab, seed=7)
    pairs = as_pairs(made)

    def plain():
        return reference.ibm1(made, iterations)

    def ours():
        return modules_of("translation").ibm1_beta.train(pairs, vocab, iterations)[0]

    table, found = plain(), ours().tocoo()
    assert len(table) == found.nnz
    cells = zip(found.row.tolist(), found.col.tolist(), strict=True)
    np.testing.assert_allclose(found.data, [table[cell] for cell in cells], rtol=1e-5, atol=1e-9)
    what = f"{iterations} iterations, {len(made)} pairs"
    return timed_row(args, plain, ours, what, with_floor=False)


RUN_SECTION = {
    "train": train_section,
    "evaluate": evaluate_section,
    "beta": functools.partial(scores_section, size=64, kinds=("alpha", "beta")),
    "grad": functools.partial(scores_section, size=32, kinds=("grad",)),
    "beam": beam_section,
    "embedding": embedding_section,
    "ibm1": ibm1_section,
}


def main(argv=None) -> None:
    parser = section_parser(__doc__, RUN_SECTION)
    run_sections(parse_sections(parser, "translation", argv), RUN_SECTION)


if __name__ == "__main__":
    run_script(main)
