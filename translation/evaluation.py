"""Token accuracy and perplexity of a translator on sentence pairs."""

import math

import numpy as np
import torch
from data import Pairs
from models import AttentionTranslator
from scores import predict

from attention_dynamics.analysis.ragged import batches_by_length

# Sentences and (padded) target tokens of one batch, at most.
_SENTENCES, _TOKENS = 256, 8192


@torch.no_grad()
def token_scores(
    model: AttentionTranslator, pairs: Pairs, device: torch.device
) -> tuple[float, float]:
    """(accuracy in percent, perplexity) over all targets after <s>, given those before each."""
    training = model.training
    model.eval()
    correct, loss = 0, 0.0
    for examples in batches_by_length(pairs.trg.lengths, _SENTENCES, _TOKENS):
        batch = pairs.batch(np.sort(examples)).to(device)
        prediction = predict(model, model.outputs(batch), batch.targets)
        loss -= float(prediction.log_prob.cpu().double().sum())
        correct += int(prediction.correct.sum())
    model.train(training)
    return percent_and_perplexity(correct, loss, int((pairs.trg.lengths - 1).sum()))


def percent_and_perplexity(correct: int, loss: float, num_targets: int) -> tuple[float, float]:
    """Accuracy in percent and exp(mean loss); inf where a float cannot hold it."""
    mean = loss / num_targets
    return 100 * correct / num_targets, math.exp(mean) if mean < 700 else math.inf
