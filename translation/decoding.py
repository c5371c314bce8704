"""Beam search, its default width, and BLEU (docs/method.md, section 3.3)."""

import sys

import numpy as np
import torch
from data import BOS, EOS
from models import AttentionTranslator, fused_attention, padded, real_places
from sacrebleu.metrics import BLEU
from sentencepiece import SentencePieceProcessor
from tqdm import tqdm

from attention_dynamics.analysis.ragged import Ragged, batches_by_length

BEAM_SIZE, MAX_LEN = 5, 100

# Sentences decoded together, and their (padded) source tokens, at most.
_SENTENCES, _TOKENS = 64, 4096


def translate(
    model, src: Ragged, pieces: SentencePieceProcessor, device, beam_size: int = BEAM_SIZE
) -> list[str]:
    """The translations of encoded source sentences, as text."""
    return pieces.decode(beam_search(model, src, device, beam_size))


def bleu(hypotheses: list[str], references: list[str]) -> tuple[float, str]:
    """Corpus BLEU in percent against raw references, and sacrebleu's signature."""
    metric = BLEU()
    score = metric.corpus_score(hypotheses, [references]).score
    return score, str(metric.get_signature())


@torch.no_grad()
def beam_search(
    model: AttentionTranslator,
    src: Ragged,
    device: torch.device,
    beam_size: int = BEAM_SIZE,
    max_len: int = MAX_LEN,
) -> list[list[int]]:
    """The most probable translation found for each source sentence.

    Hypotheses are ranked by the sum of their log-probabilities, not normalized by length; finished
    ones stay in the beam. A sentence leaves the batch when its best hypothesis is finished: a sum
    of log-probabilities can only fall, so that nothing in the beam can come to exceed it.

    Args:
        model: the translator.
        src: rows of piece ids with <s> and </s>.
        device: of the model.
        beam_size: hypotheses kept per sentence; 1 is greedy decoding.
        max_len: tokens of a hypothesis, <s> and </s> counted, at most.

    Returns:
        Piece ids of each translation, without <s> and </s>.
    """
    training = model.training
    model.eval()
    found: list[list[int]] = [[]] * len(src)
    batches = batches_by_length(src.lengths, _SENTENCES, _TOKENS)
    hidden = not sys.stderr.isatty()
    for examples in tqdm(batches, unit="batch", desc="beam search", leave=False, disable=hidden):
        batch = src.take(examples)
        ids, lengths = torch.from_numpy(batch.values), torch.from_numpy(batch.lengths)
        best = _search(model, ids, lengths, device, beam_size, max_len)
        for example, translation in zip(examples, best, strict=True):
            found[example] = translation
    model.train(training)
    return found


def _search(model, src, lengths, device, beam_size: int, max_len: int) -> list[list[int]]:
    """:func:`beam_search` for the sentences of one batch, flat."""
    states, (h, c) = model.encode(src.to(device), lengths)
    keys = padded(states, lengths)  # (batch, src_len, 2 * hidden)
    mask = real_places(lengths).to(device)[:, None, :]
    batch = len(lengths)
    # (layer, batch, beam, hidden)
    h, c = (part[:, :, None].repeat(1, 1, beam_size, 1) for part in (h, c))
    scores = torch.full((batch, beam_size), -torch.inf, device=device)
    scores[:, 0] = 0  # at first there is one hypothesis, <s>
    tokens = torch.full((batch, beam_size, 1), BOS, device=device)
    sentence = np.arange(batch)
    best: list[list[int]] = [[]] * batch
    for step in range(max_len - 1):
        finished = tokens[:, :, -1] == EOS
        alive = ~finished & (scores > -torch.inf)  # (batch, beam)
        new_h, new_c, log_probs, words = _expand(model, tokens, h, c, alive, keys, mask, beam_size)
        # Every hypothesis has beam_size candidates; a finished one is its own only candidate.
        shape = (*scores.shape, beam_size)
        sums = scores.new_full(shape, -torch.inf)
        sums[alive] = scores[alive].unsqueeze(1) + log_probs
        sums[:, :, 0] = torch.where(finished, scores, sums[:, :, 0])
        next_words = torch.full(shape, EOS, device=device)
        next_words[alive] = words
        scores, chosen = sums.flatten(1).topk(beam_size, dim=1)  # (batch, beam)
        parent = chosen // beam_size
        word = next_words.flatten(1).gather(1, chosen)
        old = tokens.gather(1, parent[:, :, None].expand(-1, -1, step + 1))
        tokens = torch.cat([old, word[:, :, None]], dim=2)
        place = parent[None, :, :, None].expand_as(h)
        h, c = new_h.gather(2, place), new_c.gather(2, place)
        done = tokens[:, 0, -1] == EOS
        if step == max_len - 2:
            done = torch.ones_like(done)
        if done.any():
            for number in done.nonzero().squeeze(1).tolist():
                ids = tokens[number, 0, 1:].tolist()
                best[sentence[number]] = ids[: ids.index(EOS)] if EOS in ids else ids
            left = (~done).nonzero().squeeze(1)
            if not len(left):
                break
            sentence = sentence[left.cpu().numpy()]
            tokens, scores, keys, mask = tokens[left], scores[left], keys[left], mask[left]
            h, c = h[:, left], c[:, left]
    return best


def _expand(model, tokens, h, c, alive, keys, mask, beam_size: int):
    """The next states of all places, and the best continuations of the ``alive`` hypotheses.

    Returns:
        h, c (layer, batch, beam, hidden); log-probabilities and piece ids (alive, beam_size).
    """
    embedded = model.embedding(tokens[:, :, -1][alive])  # (alive, hidden)
    start = (h[:, alive], c[:, alive])
    output, (next_h, next_c) = model.decoder_lstm(embedded[None], start)
    decoded = output[0]
    h, c = h.clone(), c.clone()
    h[:, alive], c[:, alive] = next_h, next_c
    query = model.query(decoded)
    queries = query.new_zeros(*alive.shape, query.shape[1])
    queries[alive] = query
    context = fused_attention(queries, keys, mask)
    logits = model.hidden2vocab(model.combine(decoded, context[alive]))  # (alive, vocab)
    highest, words = logits.topk(beam_size, dim=1)
    return h, c, highest - logits.logsumexp(dim=1, keepdim=True), words
