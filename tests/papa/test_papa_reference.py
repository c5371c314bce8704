"""The plain reference of PAPA: the published code's numbers, and the library's own attention."""

import pytest
import torch
import torch.nn.functional as F
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
    """What the published code gave for the encoder of :func:`golden_encoder`."""
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
def test_averages_are_the_published_ones(plain, golden, golden_encoder, batch):
    ids, valid = golden["input_ids"].split(batch), golden["attention_mask"].split(batch)
    batches = [{"ids": a, "valid": b} for a, b in zip(ids, valid, strict=True)]
    sums, patterns, avgs = plain.averages(golden_encoder, batches)
    close(sums, golden["attention_sums"])
    close(avgs, golden["avgs"])
    torch.testing.assert_close(patterns, golden["attention_patterns_sums"], rtol=0, atol=0)


def test_the_order_is_the_published_one(plain, golden):
    assert plain.sorted_heads(golden["lambdas"]) == golden["sorted_heads"]


def golden_cases() -> list[str]:
    return ["dynamic", "mixed", *(f"constant={number}" for number in (0, 1, 4, 6, 11, 12))]


@pytest.mark.parametrize("batch", (1, 5, 12))
@pytest.mark.parametrize("case", golden_cases())
def test_results_are_the_published_ones(plain, golden, golden_encoder, case, batch):
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
def test_without_constants_it_is_the_stock_model(plain, family):
    stock, batch = small_encoder(family), small_batch()
    encoder = plain.PlainEncoder(stock).eval()
    with torch.no_grad():
        expected = stock(
            batch["ids"],
            attention_mask=batch["valid"],
            output_hidden_states=True,
            output_attentions=True,
        )
        states, attentions = encoder(**batch), encoder.attentions(**batch)
    assert len(states) == 3 and len(attentions) == 2
    for actual, same in zip(states, expected.hidden_states, strict=True):
        close(actual, same)
    for actual, same in zip(attentions, expected.attentions, strict=True):
        close(actual, same)
    assert attentions[0].std() > 0.05  # not uniform: scores count


@pytest.mark.parametrize("family", FAMILIES)
def test_in_training_it_drops_what_the_stock_model_drops(plain, family):
    """The full matrices go through dropout one layer after another, so a seed says which places."""
    stock, batch = small_encoder(family).train(), small_batch()
    encoder = plain.PlainEncoder(stock).train()
    with torch.no_grad():
        torch.manual_seed(2)
        expected = stock(batch["ids"], attention_mask=batch["valid"]).last_hidden_state
        torch.manual_seed(2)
        close(encoder(**batch)[-1], expected)
        assert not torch.allclose(encoder(**batch)[-1], expected, atol=1e-2)  # other places


# --- constants ---


def test_masked_and_normalised_by_hand(plain):
    attention = torch.tensor([[[0.2, 0.3, 0.5], [0.0, 1.0, 0.0], [0.6, 0.0, 0.2]]])
    valid = torch.tensor([[1.0, 0.0, 1.0]])
    expected = [[0.2 / 0.7, 0.0, 0.5 / 0.7], [0.0, 0.0, 0.0], [0.75, 0.0, 0.25]]
    close(plain.masked_normalised(attention, valid), torch.tensor([[expected]]), 1e-7)
    only_middle = torch.tensor([[0.0, 1.0, 0.0]])
    expected = [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    close(plain.masked_normalised(attention, only_middle), torch.tensor([[expected]]), 1e-7)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("example", (0, 1))
def test_the_average_of_one_example_gives_its_own_states(plain, family, example):
    """Then each head's constant is its attention: nothing changes but the rows of padding."""
    stock = small_encoder(family)
    batch = {name: values[example : example + 1] for name, values in small_batch().items()}
    _, _, avgs = plain.averages(stock, [batch])
    heads = [(layer, head) for layer in range(2) for head in range(4)]
    tokens = batch["valid"][0].bool()
    with torch.no_grad():
        expected = plain.PlainEncoder(stock).eval()(**batch)
        for constant_heads in (heads, heads[1:6]):
            constant = plain.PlainEncoder(stock, avgs, constant_heads).eval()(**batch)
            for actual, same in zip(constant, expected, strict=True):
                close(actual[:, tokens], same[:, tokens])
        shuffled = plain.PlainEncoder(stock, avgs.flip(1), heads).eval()(**batch)[-1]
        assert not torch.allclose(shuffled[:, tokens], expected[-1][:, tokens], atol=1e-2)


def test_only_the_named_heads_are_constant_and_padding_queries_get_nothing(plain):
    stock, batch = small_encoder("bert"), small_batch()
    constants = torch.rand(2, 4, 10, 10, generator=torch.Generator().manual_seed(0))
    encoder = plain.PlainEncoder(stock, constants, [(0, 2)]).eval()
    with torch.no_grad():
        attention, above = encoder.attentions(**batch)
        dynamic = plain.PlainEncoder(stock).eval().attentions(**batch)[0]
    valid = batch["valid"].float()
    for head in (0, 1, 3):
        close(attention[:, head], dynamic[:, head] * valid.unsqueeze(2), 1e-6)
    close(attention[:, 2], plain.masked_normalised(constants[0], valid)[:, 2], 1e-7)
    close(attention.sum(-1), valid.unsqueeze(1).expand(3, 4, 10), 1e-6)
    close(above.sum(-1), torch.ones(3, 4, 10), 1e-6)  # a layer without constants: as it was


def test_mixtures_go_from_the_constant_to_the_dynamic_attention(plain):
    stock, batch = small_encoder("bert"), small_batch()
    constants = torch.rand(2, 4, 10, 10, generator=torch.Generator().manual_seed(0))
    encoder = plain.PlainEncoder(stock, constants, mixed=True).eval()
    constant = plain.masked_normalised(constants[0], batch["valid"].float())
    with torch.no_grad():
        dynamic = plain.PlainEncoder(stock).eval().attentions(**batch)[0]
        close(encoder.attentions(**batch)[0], (dynamic + constant) / 2, 1e-6)
        encoder.lambdas[0] = torch.tensor([-50.0, 50.0, torch.log(torch.tensor(3.0)), 0.0])
        mixed = encoder.attentions(**batch)[0]
    for head, share in enumerate((0, 1, 0.75, 0.5)):
        close(mixed[:, head], share * dynamic[:, head] + (1 - share) * constant[:, head], 1e-6)


def test_constant_attention_is_dropped_out_in_training(plain):
    stock = small_encoder("bert", attention_probs_dropout_prob=0.5)
    constants = torch.rand(2, 4, 10, 10, generator=torch.Generator().manual_seed(0))
    heads = [(layer, head) for layer in range(2) for head in range(4)]
    attention = plain.PlainEncoder(stock, constants, heads).train().stock.encoder.layer[1].attention
    states = torch.randn(3, 10, 32, generator=torch.Generator().manual_seed(0))
    attention.self.valid = small_batch()["valid"].float()
    torch.manual_seed(3)
    context, _ = attention.self(states)
    torch.manual_seed(3)
    dropped = F.dropout(plain.masked_normalised(constants[1], attention.self.valid), 0.5)
    value = attention.self.stock.value(states).view(3, 10, 4, 8)
    close(context, torch.einsum("bhij,bjhs->bihs", dropped, value).reshape(3, 10, 32))


# --- training ---


def trained_parts(plain, encoder, model, labels) -> set[str]:
    """Names of the parameters that a step of training changes; checks its loss, too."""
    parameters = plain.freeze_encoder(model)
    before = {name: value.clone() for name, value in model.named_parameters()}
    batch = small_batch()
    torch.manual_seed(4)
    with torch.no_grad():
        scores = model.train()(**batch).log_softmax(-1).flatten(0, -2)
    counted = labels.flatten() >= 0
    expected = -scores[counted, labels.flatten()[counted]].mean()
    torch.manual_seed(4)
    loss = plain.training_step(model, torch.optim.AdamW(parameters), **batch, labels=labels)
    assert loss == pytest.approx(expected.item(), abs=1e-6)
    return {name for name, value in model.named_parameters() if not value.equal(before[name])}


def test_a_step_trains_the_head_and_lambda_alone(plain):
    stock, labels = small_encoder("bert"), torch.tensor([0, 2, 1])
    head = {
        "pooler.weights_per_layer",
        "pooler.dense_across_layers.weight",
        "pooler.dense_across_layers.bias",
        "classifier.weight",
        "classifier.bias",
    }
    encoder = plain.PlainEncoder(stock)
    model = plain.SequenceClassifier(encoder, 10, 3)
    assert trained_parts(plain, encoder, model, labels) == head
    constants = torch.rand(2, 4, 10, 10, generator=torch.Generator().manual_seed(0))
    mixed = plain.PlainEncoder(stock, constants, mixed=True)
    model = plain.SequenceClassifier(mixed, 10, 3)
    assert trained_parts(plain, mixed, model, labels) == {*head, "encoder.lambdas"}


def test_a_step_trains_the_token_head_on_counted_tokens(plain):
    labels = torch.randint(0, 3, (3, 10), generator=torch.Generator().manual_seed(0))
    labels = labels.masked_fill(small_batch()["valid"] == 0, -100)
    encoder = plain.PlainEncoder(small_encoder("roberta"))
    model = plain.TokenClassifier(encoder, 3)
    assert trained_parts(plain, encoder, model, labels) == {
        "dense_across_layers_1.weight",
        "dense_across_layers_1.bias",
        "decoder.weight",
        "decoder.bias",
    }


# --- the benchmark ---


def test_the_benchmark_runs(tmp_path):
    options = ["--quick", "--rounds", "1", "--models", "minilm"]
    process = run_script("benchmarks/papa.py", *options, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    for row in ("8 of 8 heads constant, beside sdpa", "layers x batch", "step on cached states"):
        assert row in process.stdout
    assert not list(tmp_path.iterdir())  # --quick keeps no results
