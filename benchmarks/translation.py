"""Speed and memory of the translation experiment beside a plain reference of the same method.

    python benchmarks/translation.py
    python benchmarks/translation.py --only train grad --rounds 9
    python benchmarks/translation.py --device cuda --only train beta grad beam

Both sides work on the same made-up sentence pairs, with lengths like those of Multi30k, in turn, in
one process; that both give the same results is checked before anything is timed. A row shows the
medians and reference / ours; where a floor stands, that is what ours' matrix products alone take at
the rate of a large product here, with the ratio if there were nothing else. Sections:

    train      one training step of the paper's model
    evaluate   token accuracy and perplexity of a validation set
    beta       α and β
    grad       Δ
    beam       translations by beam search
    embedding  one epoch of β^px with its validation
    ibm1       expectation maximization of IBM model 1
    memory     logs of the size of Multi30k's, 60 checkpoints

Prints a table per section and keeps it, with facts about the machine, in benchmarks/results/.
"""

import argparse
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from measure import (
    bounded,
    compared,
    in_process,
    matmul_floor,
    modules_of,
    parse_sections,
    run_sections,
    section_parser,
    time_interleaved,
)
from reference import translation as reference
from torch.nn import functional as F

from attention_dynamics.analysis.logs import Logs, save_logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import run_script
from attention_dynamics.device import peak_memory_mb
from attention_dynamics.runs.embedding_baseline import train_baseline

CONFIG = {"hidden_dim": 256, "dropout": 0.5, "num_layers": 2, "batch_size": 16}
VOCAB = 8000
GIGABYTE = 1e9

# Pieces of a sentence of Multi30k, <s> and </s> included.
MEAN, SPREAD, LONGEST = 17, 5, 57


def parse_args(argv=None) -> argparse.Namespace:
    return parse_sections(section_parser(__doc__, RUN_SECTION), "translation", argv)


def experiment() -> SimpleNamespace:
    """The modules of ``translation/``."""
    return modules_of("translation")


def sized(size: int, args: argparse.Namespace) -> int:
    """``size`` sentence pairs, or a handful."""
    return min(size, 24) if args.quick else size


def config_of(args: argparse.Namespace) -> tuple[int, dict]:
    """The number of pieces and the model config, or tiny ones."""
    return (300, {**CONFIG, "hidden_dim": 16}) if args.quick else (VOCAB, CONFIG)


def made_pairs(num_pairs: int, vocab: int, seed: int) -> list[reference.Pair]:
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
    return experiment().data.Pairs(src, trg, [""] * len(pairs))


def both_models(args: argparse.Namespace, seed: int = 0):
    """The reference model and ours, with the same weights, in evaluation mode."""
    vocab, config = config_of(args)
    torch.manual_seed(seed)
    plain = reference.AttentionTranslator(
        vocab, config["hidden_dim"], config["num_layers"], config["dropout"]
    )
    ours = experiment().models.AttentionTranslator(vocab, config, False)
    ours.load_state_dict(plain.state_dict())
    return plain.eval(), ours.to(args.device).eval()


def train_section(args: argparse.Namespace) -> list[dict]:
    rounds, batch_size = 3 * args.rounds, CONFIG["batch_size"]
    made = made_pairs(batch_size * (rounds + 2), config_of(args)[0], seed=0)
    pairs = as_pairs(made)
    plain, ours = both_models(args)
    # Without dropout, which either side draws in its own order.
    batch = pairs.batch(np.arange(batch_size)).to(args.device)
    our_loss = F.cross_entropy(ours(batch), batch.targets).item()
    plain_loss = reference.loss_of(plain, next(reference.batches(made, batch_size))).item()
    np.testing.assert_allclose(our_loss, plain_loss, rtol=1e-5)

    plain.train()
    ours.train()
    plain_adam = torch.optim.Adam(plain.parameters())
    our_adam = torch.optim.Adam(ours.parameters(), fused=True)
    plain_batches = reference.batches(made, batch_size)
    our_batches = iter(np.arange(len(made)).reshape(-1, batch_size))

    def plain_step():
        reference.train_step(plain, plain_adam, next(plain_batches))

    def our_step():
        batch = pairs.batch(next(our_batches)).to(args.device)
        loss = F.cross_entropy(ours(batch), batch.targets)
        our_adam.zero_grad(set_to_none=True)
        loss.backward()
        our_adam.step()

    times = time_interleaved([plain_step, our_step], rounds)
    floor = matmul_floor(our_step, args.device)
    what = f"training step, batch {batch_size}"
    return [compared("Multi30k-like", what, "s", *times, 1.5, floor)]


def evaluate_section(args: argparse.Namespace) -> list[dict]:
    made = made_pairs(sized(1014, args), config_of(args)[0], seed=1)
    pairs, (plain_model, our_model) = as_pairs(made), both_models(args)

    def plain():
        return reference.token_scores(plain_model, made, CONFIG["batch_size"])

    def ours():
        return experiment().evaluation.token_scores(our_model, pairs, args.device)

    np.testing.assert_allclose(plain(), ours(), rtol=1e-5)
    times = time_interleaved([plain, ours], min(args.rounds, 3))
    what = f"accuracy and perplexity, {len(made)} pairs"
    return [compared("Multi30k-like", what, "s", *times, 3.0, matmul_floor(ours, args.device))]


def flat_scores(scores: list[reference.Scores], kind: str) -> np.ndarray:
    """One kind of score of all pairs, as the logs have it."""
    return np.concatenate([getattr(pair, kind).ravel() for pair in scores])


def beta_section(args: argparse.Namespace) -> list[dict]:
    made = made_pairs(sized(64, args), config_of(args)[0], seed=2)
    pairs, (plain_model, our_model) = as_pairs(made), both_models(args)

    def plain():
        return reference.pair_scores(plain_model, made, CONFIG["batch_size"], with_grad=False)

    def ours():
        return experiment().eval_dump.dump(our_model, pairs, args.device, None)[0]

    scores, found = plain(), ours()
    for kind in ("alpha", "beta"):
        np.testing.assert_allclose(flat_scores(scores, kind), found[kind], atol=1e-5)
    times = time_interleaved([plain, ours], min(args.rounds, 3))
    what = f"α and β of {len(made)} pairs"
    return [compared("Multi30k-like", what, "s", *times, 5.0, matmul_floor(ours, args.device))]


def grad_section(args: argparse.Namespace) -> list[dict]:
    """Ours reads α and β in the same pass, which is counted; the reference does Δ alone."""
    batch_size = CONFIG["batch_size"]
    made = made_pairs(sized(32, args), config_of(args)[0], seed=3)
    pairs, (plain_model, our_model) = as_pairs(made), both_models(args)

    def plain():
        batches = reference.batches(made, batch_size)
        return [reference.gate_gradients(plain_model, batch) for batch in batches]

    def ours():
        return experiment().eval_dump.dump(our_model, pairs, args.device, batch_size)[0]

    scores = reference.pair_scores(plain_model, made, batch_size, with_grad=True)
    np.testing.assert_allclose(flat_scores(scores, "grad"), ours()["grad"], atol=1e-5)
    times = time_interleaved([plain, ours], min(args.rounds, 3))
    what = f"Δ of {len(made)} pairs (ours: α and β too)"
    return [compared("Multi30k-like", what, "s", *times, 5.0, matmul_floor(ours, args.device))]


@torch.no_grad()
def let_it_end(model: torch.nn.Module) -> None:
    """Make an untrained model end its translations, after as many pieces as the source has.

    A cell of the last layer counts: upwards in the encoder, by whose last state the decoder starts,
    downwards in the decoder; below 0 it makes </s> all but certain. The other pieces' probabilities
    become as uneven as a trained model's.
    """
    step, hidden = 0.05, model.decoder_lstm.hidden_size
    for lstm, up in ((model.encoder_lstm, 1), (model.decoder_lstm, -1)):
        for name, values in lstm.named_parameters():
            if f"_l{lstm.num_layers - 1}" not in name:
                continue
            values[::hidden] = 0  # the first unit's rows of the four gates
            if name.startswith("bias_ih"):
                values[::hidden] = torch.tensor([10.0, 10.0, up * np.arctanh(step), 10.0])
    model.extra_ff.weight[0] = 0
    model.extra_ff.weight[0, 0], model.extra_ff.bias[0] = -1000, -500 * step
    model.hidden2vocab.weight *= 12
    model.hidden2vocab.weight[:, 0] = 0
    model.hidden2vocab.weight[reference.EOS] = 0
    model.hidden2vocab.weight[reference.EOS, 0] = 10
    model.hidden2vocab.bias[reference.EOS] = -100


def beam_section(args: argparse.Namespace) -> list[dict]:
    vocab, _ = config_of(args)
    made = made_pairs(sized(128, args), vocab, seed=4)
    pairs, (plain_model, our_model) = as_pairs(made), both_models(args)
    for model in (plain_model, our_model):
        let_it_end(model)

    def plain():
        return [reference.beam_search(plain_model, src) for src, _ in made]

    def ours():
        return experiment().decoding.beam_search(our_model, pairs.src, args.device)

    hypotheses = plain()
    assert hypotheses == ours(), "the hypotheses differ"
    pieces = np.mean([len(hypothesis) for hypothesis in hypotheses])
    times = time_interleaved([plain, ours], min(args.rounds, 3))
    what = f"beam of 5, {len(made)} sentences, {pieces:.0f} pieces on average"
    return [compared("Multi30k-like", what, "s", *times, 3.0)]


def embedding_section(args: argparse.Namespace) -> list[dict]:
    """One epoch with a validation before and after it, from the same start, and the table."""
    vocab, _ = config_of(args)
    made = made_pairs(sized(64 * 30, args), vocab, seed=5)
    val_made = made_pairs(sized(128, args), vocab, seed=6)
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
        shuffled = [made[place] for place in order]
        reference.embedding_epoch(model, adam, shuffled, settings.bsize)
        return model.table(), [*losses, loss_of(model)]

    def ours():
        torch.manual_seed(0)
        build = experiment().embedding_beta.build
        model, *losses_of = build(pairs, val_pairs, vocab, settings.embed_dim, args.device)
        losses = train_baseline(model, *losses_of, len(pairs), settings)
        return model.beta().cpu().numpy(), losses

    np.testing.assert_allclose(plain()[1], ours()[1], rtol=1e-4)
    times = time_interleaved([plain, ours], min(args.rounds, 3))
    # No target was set for it.
    return [compared("Multi30k-like", f"epoch of {len(made)} pairs", "s", *times, 1.0)]


def ibm1_section(args: argparse.Namespace) -> list[dict]:
    vocab, _ = config_of(args)
    made = made_pairs(sized(1000, args), vocab, seed=7)
    pairs, iterations = as_pairs(made), 3

    def plain():
        return reference.ibm1(made, iterations)

    def ours():
        return experiment().ibm1_beta.train(pairs, vocab, iterations)[0]

    table, found = plain(), ours().tocoo()
    assert len(table) == found.nnz
    cells = zip(found.row.tolist(), found.col.tolist(), strict=True)
    np.testing.assert_allclose(found.data, [table[cell] for cell in cells], rtol=1e-5, atol=1e-9)
    times = time_interleaved([plain, ours], min(args.rounds, 3))
    what = f"{iterations} iterations, {len(made)} pairs"
    return [compared("Multi30k-like", what, "s", *times, 1.0)]  # no target was set for it


def write_logs(path: Path, args: argparse.Namespace) -> dict:
    """Dump once, write logs of many checkpoints filled with its numbers; sizes and peak memory.

    Runs in a process of its own.
    """
    examples, checkpoints, with_grad = (8, 3, 1) if args.quick else (1014, 60, 20)
    made = made_pairs(2 * examples, config_of(args)[0], seed=8)
    pairs, (_, model) = as_pairs(made), both_models(args)
    some = pairs.take(range(min(2 * CONFIG["batch_size"], len(pairs))))
    experiment().eval_dump.dump(model, some, args.device, CONFIG["batch_size"])
    logs = Logs(
        dataset="made",
        src=pairs.src,
        trg=pairs.trg,
        splits={"val": examples, "train": examples},
        index=np.concatenate([np.arange(examples), np.arange(examples)]),
    )
    rng = np.random.default_rng(0)
    for iteration in range(checkpoints):
        kinds = ("alpha", "beta", "grad") if iteration < with_grad else ("alpha", "beta")
        for kind in kinds:
            values = rng.standard_normal(logs.num_scores, dtype=np.float32)
            logs.arrays["normal_A", iteration, kind] = values
    save_logs(path, logs)
    return {"file": path.stat().st_size, "peak": int(peak_memory_mb() * 1e6)}


def memory_section(args: argparse.Namespace) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        written = in_process(write_logs, Path(folder) / "made_logs.pkl", args)
    name = "1014 + 1014 pairs, 60 checkpoints" if not args.quick else "a few pairs"
    return [
        bounded(name, "peak memory, dumping", "GB", written["peak"] / GIGABYTE, 6.0),
        bounded(name, "log file", "GB", written["file"] / GIGABYTE, None),
    ]


RUN_SECTION = {
    "train": train_section,
    "evaluate": evaluate_section,
    "beta": beta_section,
    "grad": grad_section,
    "beam": beam_section,
    "embedding": embedding_section,
    "ibm1": ibm1_section,
    "memory": memory_section,
}


def main(argv=None) -> None:
    run_sections(parse_args(argv), RUN_SECTION)


if __name__ == "__main__":
    run_script(main)
