"""The plain reference of PAPA: published numbers, and the library's own attention."""

import pytest
import torch
from conftest import GOLDEN, plain_reference, run_script
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    DebertaConfig,
    DebertaModel,
    RobertaConfig,
    RobertaModel,
)

TOLERANCE = 1e-5  # float32, another order of sums through 3 layers
LENGTH = 16
SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,  # attention far from uniform
    "pad_token_id": 0,
}
DISENTANGLED = {"relative_attention": True, "position_biased_input": False, "type_vocab_size": 0}


@pytest.fixture(scope="module")
def plain():
    """benchmarks/reference/papa.py."""
    return plain_reference("papa")


@pytest.fixture(scope="module")
def golden() -> dict:
    """The output of the published code for :func:`golden_encoder`."""
    return torch.load(GOLDEN / "papa" / "expected.pt", weights_only=True)


@pytest.fixture(scope="module")
def golden_encoder():
    """A random BERT with 3 layers and 4 heads."""
    return AutoModel.from_pretrained(GOLDEN / "papa" / "encoder").eval()


def small_encoder(family: str, **changes):
    """A random encoder of 2 layers and 4 heads, in evaluation mode, with the library's eager
    attention."""
    torch.manual_seed(1)
    settings = {**SIZES, "attn_implementation": "eager", **changes}
    if family == "bert":
        return BertModel(BertConfig(**settings)).eval()
    if family == "roberta":
        return RobertaModel(RobertaConfig(**settings)).eval()
    types = {"deberta": ["c2p", "p2c"], "deberta, keys": ["c2p"], "deberta, short": ["p2c", "c2p"]}
    span = 5 if family == "deberta, short" else -1  # positions further apart count as 5
    config = DebertaConfig(
        **settings, **DISENTANGLED, pos_att_type=types[family], max_relative_positions=span
    )
    model = DebertaModel(config).eval()
    with torch.no_grad():  # they start at 0
        for layer in model.encoder.layer:
            layer.attention.self.q_bias.normal_()
            layer.attention.self.v_bias.normal_()
    return model


FAMILIES = ("bert", "roberta", "deberta", "deberta, keys", "deberta, short")


def small_batch() -> dict[str, torch.Tensor]:
    """Three examples of 10 positions: full, with padding in the middle, with padding at the end."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 60, (3, 10), generator=generator)
    valid = torch.ones(3, 10, dtype=torch.long)
    valid[1, 4:8] = 0
    valid[2, 6:] = 0
    return {"ids": ids * valid, "valid": valid}


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


# --- the published code's numbers ---


@pytest.mark.parametrize("batch", (1, 5, 12))
def test_reference_gives_the_published_averages(plain, golden, golden_encoder, batch):
    ids, valid = golden["input_ids"].split(batch), golden["attention_mask"].split(batch)
    sums, patterns, avgs = plain.averages(golden_encoder, zip(ids, valid, strict=True))
    close(sums, golden["attention_sums"])
    close(avgs, golden["avgs"])
    torch.testing.assert_close(patterns, golden["attention_patterns_sums"], rtol=0, atol=0)


def golden_cases() -> list[str]:
    return ["dynamic", "mixed", *(f"constant={number}" for number in (0, 1, 4, 6, 11, 12))]


@pytest.mark.parametrize("batch", (1, 5, 12))
@pytest.mark.parametrize("case", golden_cases())
def test_reference_gives_the_published_results(plain, golden, golden_encoder, case, batch):
    constant_heads = []
    if case.startswith("constant="):
        constant_heads = golden["sorted_heads"][: int(case.removeprefix("constant="))]
    encoder = plain.PlainEncoder(golden_encoder, golden["avgs"], constant_heads, case == "mixed")
    if case == "mixed":
        encoder.lambdas.data.copy_(golden["lambdas"])
    labels = len(golden["classifier"]["bias"])
    sequences = plain.SequenceClassifier(encoder, LENGTH, labels).eval()
    sequences.pooler.load_state_dict(golden["pooler"])
    sequences.classifier.load_state_dict(golden["classifier"])
    tokens = plain.TokenClassifier(encoder, labels).eval()
    tokens.load_state_dict(golden["token_head"], strict=False)
    found = {"pooled": [], "logits": [], "token_logits": [], "last_hidden_valid": []}
    with torch.no_grad():
        for ids, valid in zip(
            golden["input_ids"].split(batch), golden["attention_mask"].split(batch), strict=True
        ):
            hidden_states = encoder(ids, valid)
            found["last_hidden_valid"].append(hidden_states[-1] * valid.unsqueeze(2))
            found["pooled"].append(sequences.pooler(hidden_states, valid))
            found["logits"].append(sequences(ids, valid))
            found["token_logits"].append(tokens(ids, valid))
    for name, parts in found.items():
        close(torch.cat(parts), golden["results"][case][name])


# --- the library's own attention ---


@pytest.mark.parametrize("family", FAMILIES)
def test_reference_without_constants_is_the_stock_model(plain, family):
    stock, batch = small_encoder(family), small_batch()
    encoder = plain.PlainEncoder(stock).eval()
    with torch.no_grad():
        expected = stock(
            batch["ids"],
            attention_mask=batch["valid"],
            output_hidden_states=True,
            output_attentions=True,
        )
        states, attentions = encoder(**batch), encoder.attentions
    assert len(states) == 3 and len(attentions) == 2
    for actual, same in zip(states, expected.hidden_states, strict=True):
        close(actual, same)
    for actual, same in zip(attentions, expected.attentions, strict=True):
        close(actual, same)
    assert attentions[0].std() > 0.05  # not uniform: scores count


@pytest.mark.parametrize("family", FAMILIES)
def test_reference_drops_the_weights_that_the_stock_model_drops(plain, family):
    """Full matrices go through dropout layer by layer: a seed drops the same weights."""
    stock, batch = small_encoder(family).train(), small_batch()
    encoder = plain.PlainEncoder(stock).train()
    with torch.no_grad():
        torch.manual_seed(2)
        expected = stock(batch["ids"], attention_mask=batch["valid"]).last_hidden_state
        torch.manual_seed(2)
        close(encoder(**batch)[-1], expected)
        assert not torch.allclose(encoder(**batch)[-1], expected, atol=1e-2)  # other weights


# --- constants ---


def test_masked_normalized_matches_values_computed_by_hand(plain):
    attention = torch.tensor([[[0.2, 0.3, 0.5], [0.0, 1.0, 0.0], [0.6, 0.0, 0.2]]])
    valid = torch.tensor([[1.0, 0.0, 1.0]])
    expected = [[0.2 / 0.7, 0.0, 0.5 / 0.7], [0.0, 0.0, 0.0], [0.75, 0.0, 0.25]]
    close(plain.masked_normalized(attention, valid), torch.tensor([[expected]]), 1e-7)
    only_middle = torch.tensor([[0.0, 1.0, 0.0]])
    expected = [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    close(plain.masked_normalized(attention, only_middle), torch.tensor([[expected]]), 1e-7)


# --- the benchmark ---


def test_benchmark_runs(tmp_path):
    options = ["--quick", "--rounds", "1", "--models", "minilm"]
    process = run_script("benchmarks/papa.py", *options, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    for row in ("8 of 8 heads constant, beside sdpa", "layers x batch", "step on cached states"):
        assert row in process.stdout
    assert not list(tmp_path.iterdir())  # --quick writes no results
