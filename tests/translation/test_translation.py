"""The translator's fast paths equal the plain reference, whatever the lengths."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from attention_dynamics.analysis.ragged import Ragged

CPU = torch.device("cpu")
VOCAB, HIDDEN, BATCH = 23, 8, 4
LENGTHS = [(5, 7), (2, 3), (9, 2), (1, 1), (6, 12)]  # pieces between <s> and </s>

# float32 arithmetic in another order, on numbers of about 1.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def random_pairs(lengths: list[tuple[int, int]], seed: int = 0) -> list[tuple[list, list]]:
    """Pairs of so many pieces between <s> and </s>."""
    rng = np.random.default_rng(seed)
    return [
        tuple([1, *rng.integers(3, VOCAB, length).tolist(), 2] for length in pair)
        for pair in lengths
    ]


def as_pairs(translation, pairs):
    """Pairs in the experiment's own storage."""
    src, trg = (Ragged.from_rows(side) for side in zip(*pairs, strict=True))
    return translation.data.Pairs(src, trg, [""] * len(pairs))


def whole_batch(translation, pairs):
    return as_pairs(translation, pairs).batch(np.arange(len(pairs)))


def both_models(translation, plain_translation, uniform=False, num_layers=2, dropout=0.0, seed=0):
    """The reference model and ours, with the same weights, large enough for uneven attention."""
    torch.manual_seed(seed)
    plain = plain_translation.AttentionTranslator(VOCAB, HIDDEN, num_layers, dropout, uniform)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.mul_(2)
    ours = our_model(translation, uniform, num_layers, dropout)
    ours.load_state_dict(plain.state_dict())
    return plain, ours


def our_model(translation, uniform=False, num_layers=2, dropout=0.0):
    config = {"hidden_dim": HIDDEN, "dropout": dropout, "num_layers": num_layers, "batch_size": 4}
    return translation.models.AttentionTranslator(VOCAB, config, uniform)


def batch_of(plain_translation, pairs):
    return next(plain_translation.batches(pairs, len(pairs)))


def flat_scores(scores, kind: str) -> np.ndarray:
    return np.concatenate([getattr(pair, kind).ravel() for pair in scores])


side = st.integers(0, 15)
pairs_given = st.lists(st.tuples(side, side), min_size=1, max_size=6)


# --- training ---


@settings(max_examples=25, deadline=None)
@given(pairs_given, st.integers(0, 1000), st.booleans(), st.integers(1, 3))
def test_loss_and_gradients_equal_the_reference(
    translation, plain_translation, lengths, seed, uniform, num_layers
):
    pairs = random_pairs(lengths, seed)
    plain, ours = both_models(translation, plain_translation, uniform, num_layers, seed=seed)
    plain_loss = plain_translation.loss_of(plain, batch_of(plain_translation, pairs))
    plain_loss.backward()
    batch = whole_batch(translation, pairs)
    loss = F.cross_entropy(ours(batch), batch.targets)
    loss.backward()
    torch.testing.assert_close(loss, plain_loss, **TOLERANCE)
    theirs = dict(plain.named_parameters())
    for name, parameter in ours.named_parameters():
        wanted = theirs[name].grad
        if uniform and name.startswith("attn_lin"):
            assert parameter.grad is None or not parameter.grad.any()
            assert wanted is None or not wanted.any()
            continue
        # Sums over all tokens of the batch: a few more roundings.
        torch.testing.assert_close(
            parameter.grad, wanted, rtol=1e-4, atol=2e-5, msg=lambda text, n=name: f"{n}: {text}"
        )


def test_dropout_acts_in_training_only_and_only_between_layers(translation, plain_translation):
    batch = whole_batch(translation, random_pairs(LENGTHS))
    _, model = both_models(translation, plain_translation, dropout=0.5)
    _, without = both_models(translation, plain_translation, dropout=0.0)
    _, one_layer = both_models(translation, plain_translation, num_layers=1, dropout=0.5)
    assert not torch.equal(model.train()(batch), model(batch))
    assert torch.equal(model.eval()(batch), without.train()(batch))
    assert torch.equal(one_layer.train()(batch), one_layer(batch))


def test_evaluation_leaves_the_mode_of_the_model_alone(translation):
    model, pairs = our_model(translation, dropout=0.5), as_pairs(translation, random_pairs(LENGTHS))
    for training in (True, False):
        model.train(training)
        first = translation.evaluation.token_scores(model, pairs, CPU)
        found = translation.decoding.beam_search(model, pairs.src, CPU, max_len=9)
        assert model.training == training
        assert translation.evaluation.token_scores(model, pairs, CPU) == first  # no dropout
        assert translation.decoding.beam_search(model, pairs.src, CPU, max_len=9) == found


# --- α, β, Δ and the measures ---


@settings(max_examples=12, deadline=None)
@given(pairs_given, st.integers(0, 1000), st.booleans(), st.integers(1, 3))
def test_alpha_beta_and_grad_equal_the_reference(
    translation, plain_translation, lengths, seed, uniform, num_layers
):
    pairs = random_pairs(lengths, seed)
    plain, ours = both_models(translation, plain_translation, uniform, num_layers, seed=seed)
    wanted = plain_translation.pair_scores(plain, pairs, BATCH, with_grad=True)
    output = translation.scores.score_batch(ours.eval(), whole_batch(translation, pairs), True)
    for kind in ("alpha", "beta", "grad"):
        found = getattr(output, kind).numpy()
        np.testing.assert_allclose(found, flat_scores(wanted, kind), rtol=1e-4, atol=1e-5)
    accuracy, perplexity = plain_translation.token_scores(plain, pairs, BATCH)
    assert 100 * output.correct.double().mean().item() == pytest.approx(accuracy, abs=1e-9)
    assert np.exp(-output.log_prob.double().mean().item()) == pytest.approx(perplexity, rel=1e-5)
    measured = translation.evaluation.token_scores(ours, as_pairs(translation, pairs), CPU)
    assert measured == pytest.approx((accuracy, perplexity), rel=1e-5)


@pytest.mark.parametrize("uniform", [False, True])
def test_scores_in_parts_equal_those_at_once(translation, plain_translation, monkeypatch, uniform):
    """The rows and replicas that are in memory together decide nothing."""
    scores = translation.scores
    _, model = both_models(translation, plain_translation)
    model.uniform = uniform
    batch = whole_batch(translation, random_pairs(LENGTHS))
    at_once = scores.score_batch(model.eval(), batch, with_grad=True)
    monkeypatch.setattr(scores, "_ROWS_AT_ONCE", 7)
    monkeypatch.setattr(scores, "_REPLICAS_AT_ONCE", 40)
    in_parts = scores.score_batch(model, batch, with_grad=True)
    for found, expected in zip(in_parts, at_once, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_predictions_with_small_and_huge_logits(translation, plain_translation, scale):
    """Beside float64 and autograd; a sure model's log-probabilities keep their digits."""
    _, model = both_models(translation, plain_translation)
    with torch.no_grad():
        model.hidden2vocab.weight *= scale
    outputs = torch.randn(20, model.hidden2vocab.in_features).relu()
    logits = model.hidden2vocab(outputs).detach()
    targets = logits.argmax(dim=1)
    targets[::4] = 5
    found = translation.scores.predict(model, outputs, targets, with_slope=True)
    exact = logits.double().log_softmax(dim=1)
    torch.testing.assert_close(
        found.log_prob, exact.gather(1, targets[:, None]).squeeze(1).float(), rtol=1e-6, atol=1e-6
    )
    assert found.correct.tolist() == (logits.argmax(dim=1) == targets).tolist()
    weight = model.hidden2vocab.weight.double()
    slope = (weight[targets] - exact.exp() @ weight).float()
    torch.testing.assert_close(found.slope, slope, rtol=1e-5, atol=1e-5 * scale)


# --- translating ---


def models_that_end(translation, plain_translation, uniform=False, num_layers=2):
    """The reference model and ours after a short training: their translations end somewhere."""
    plain, ours = both_models(translation, plain_translation, uniform, num_layers)
    lengths = np.random.default_rng(0).integers(1, 10, 24).tolist()
    batch = whole_batch(translation, random_pairs([(length, length) for length in lengths]))
    adam = torch.optim.Adam(ours.parameters(), lr=0.02)
    for _ in range(60):
        adam.zero_grad()
        F.cross_entropy(ours(batch), batch.targets).backward()
        adam.step()
    plain.load_state_dict(ours.state_dict())
    return plain, ours


# Without a piece, and of 300 pieces, among them.
TO_TRANSLATE = [(length, 0) for length in (0, 1, 5, 300, 8, 0, 13, 2, 21, 4)]


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("uniform", [False, True])
def test_beam_search_equals_the_reference(translation, plain_translation, uniform, num_layers):
    sentences = [src for src, _ in random_pairs(TO_TRANSLATE)]
    plain, ours = models_that_end(translation, plain_translation, uniform, num_layers)
    for beam_size, max_len in ((5, 30), (2, 30), (5, 5), (1, 30)):
        wanted = [
            plain_translation.beam_search(plain, src, beam_size, max_len) for src in sentences
        ]
        assert len({len(pieces) for pieces in wanted}) > 2  # they leave the batch one by one
        src = Ragged.from_rows(sentences)
        found = translation.decoding.beam_search(ours, src, CPU, beam_size, max_len)
        assert found == wanted
        backwards = src.take(range(len(sentences))[::-1])
        found = translation.decoding.beam_search(ours, backwards, CPU, beam_size, max_len)
        assert found == wanted[::-1]


# --- the baselines ---


def test_embedding_beta_gradients_equal_the_reference(translation, plain_translation):
    pairs = random_pairs(LENGTHS)
    torch.manual_seed(0)
    plain = plain_translation.EmbeddingTranslator(VOCAB, 6)
    ours = translation.embedding_beta.BagOfPieces(VOCAB, 6)
    ours.load_state_dict(plain.state_dict())
    batch = batch_of(plain_translation, pairs)
    plain_translation.embedding_loss(plain, batch).backward()
    (-ours(whole_batch(translation, pairs)).sum()).backward()
    for (name, parameter), other in zip(ours.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(
            parameter.grad, other.grad, **TOLERANCE, msg=lambda text, n=name: f"{n}: {text}"
        )
    np.testing.assert_allclose(ours.beta().numpy(), plain.table(), **TOLERANCE)


def test_ibm1_equals_the_reference(translation, plain_translation):
    pairs = random_pairs([(length, 20 - length) for length in range(20)])
    for iterations in (1, 4):
        wanted = plain_translation.ibm1(pairs, iterations)
        table, _ = translation.ibm1_beta.train(as_pairs(translation, pairs), VOCAB, iterations)
        found = table.toarray()
        assert table.nnz == len(wanted)
        for cell, probability in wanted.items():
            assert found[cell] == pytest.approx(probability, rel=1e-5, abs=1e-9)
