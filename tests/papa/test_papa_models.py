"""PAPA's models and their plain reference: published numbers, stock models, each other."""

import copy

import pytest
import torch
from conftest import GOLDEN, plain_reference, run_script
from transformers import (
    AlbertConfig,
    AutoConfig,
    AutoModel,
    BertConfig,
    DebertaConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    RemBertConfig,
    RobertaConfig,
    XLMRobertaConfig,
)

from attention_dynamics.cli import InputError

TOLERANCE = 1e-5  # float32, another order of sums
LENGTH, LAYERS, HEADS = 14, 2, 4
SIZES = {
    "hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": 48, "vocab_size": 60, "max_position_embeddings": 40, "num_labels": 3,
    "initializer_range": 0.3,  # attention far from uniform
}  # fmt: skip
RELATIVE = {"relative_attention": True, "position_biased_input": False, "type_vocab_size": 0}
CONFIGS = {
    "bert": BertConfig(**SIZES),
    "roberta": RobertaConfig(**SIZES, pad_token_id=1),
    "xlm-roberta": XLMRobertaConfig(**SIZES, pad_token_id=1),
    "electra": ElectraConfig(**SIZES, embedding_size=16),
    "distilbert": DistilBertConfig(
        dim=32, n_layers=LAYERS, n_heads=HEADS, hidden_dim=48, vocab_size=60, num_labels=3,
        max_position_embeddings=40, initializer_range=0.3,
    ),
    "deberta": DebertaConfig(
        **SIZES, **RELATIVE, pos_att_type=["c2p", "p2c"], max_relative_positions=-1
    ),
    # Positions further apart than 5 count as 5; without positions in the keys' part.
    "deberta, short": DebertaConfig(
        **SIZES, **RELATIVE, pos_att_type=["p2c"], max_relative_positions=5
    ),
}  # fmt: skip
SOME = [[1, 2], [0, 1, 2, 3]]  # constant heads of each layer
ALL = [[0, 1, 2, 3]] * LAYERS
NONE = [[]] * LAYERS


@pytest.fixture(scope="module")
def plain():
    """benchmarks/reference/papa.py."""
    return plain_reference("papa")


@pytest.fixture(scope="module")
def golden() -> dict:
    """The output of the published code for the encoder in tests/golden/papa."""
    return torch.load(GOLDEN / "papa" / "expected.pt", weights_only=True)


def settings(static=NONE, task="sequence", mixed=False, pooler=True, length=LENGTH) -> dict:
    layout = {"task": task, "max_length": length, "pooler": pooler}
    return {**layout, "static_heads": static, "mixed": mixed}


def stock_encoder(family: str, seed: int = 0):
    """A random encoder in evaluation mode, with the library's eager attention."""
    torch.manual_seed(seed)
    config = copy.deepcopy(CONFIGS[family])
    encoder = AutoModel.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():  # biases start at 0
        for name, parameter in encoder.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.3)
    return encoder


def make_model(papa, family: str, stock=None, constants=None, **kind):
    config = copy.deepcopy(CONFIGS[family])
    config.papa = settings(**kind)
    torch.manual_seed(1)
    model = papa.models.PapaModel(config, stock).eval()
    if constants is not None:
        model.set_constants(constants)
    return model


def some_constants() -> torch.Tensor:
    constants = torch.rand(LAYERS, HEADS, LENGTH, LENGTH, generator=torch.manual_seed(5))
    constants[:, :, 3] = 0  # a query that was never seen
    return constants


def some_batch(family: str = "bert") -> dict[str, torch.Tensor]:
    """Four examples: full, two with padding in the middle, one with padding at the end."""
    ids = torch.randint(5, 60, (4, LENGTH), generator=torch.manual_seed(0))
    valid = torch.ones(4, LENGTH, dtype=torch.long)
    valid[1, 4:-1] = 0
    valid[2, 9:-1] = 0
    valid[3, 6:] = 0
    return {
        "input_ids": ids.where(valid > 0, CONFIGS[family].pad_token_id),
        "attention_mask": valid,
    }


def close(actual, expected, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


# --- the published code's numbers ---


def golden_model(papa, golden, case: str, task: str):
    config = AutoConfig.from_pretrained(GOLDEN / "papa" / "encoder", num_labels=3)
    number = int(case.removeprefix("constant=")) if case.startswith("constant=") else 0
    static = [[h for at, h in golden["sorted_heads"][:number] if at == layer] for layer in range(3)]
    config.papa = settings(static, task, case == "mixed", length=16)
    model = papa.models.PapaModel(
        config, AutoModel.from_pretrained(GOLDEN / "papa" / "encoder")
    ).eval()
    model.set_constants(golden["avgs"])
    if case == "mixed":
        for heads, lambdas in zip(model.layers, golden["lambdas"], strict=True):
            heads.lambdas.data.copy_(lambdas)
    if task == "token":
        model.head.token_head.load_state_dict(golden["token_head"])
    else:
        model.head.pooler.load_state_dict(golden["pooler"])
        model.head.classifier.load_state_dict(golden["classifier"])
    return model


CASES = ["dynamic", "mixed", *(f"constant={number}" for number in (0, 1, 4, 6, 11, 12))]


@pytest.mark.parametrize("batch", (1, 5, 12))
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_models_give_the_golden_results(papa, golden, case, batch):
    expected, ids, valid = golden["results"][case], golden["input_ids"], golden["attention_mask"]
    pairs = list(zip(ids.split(batch), valid.split(batch), strict=True))
    sequences = golden_model(papa, golden, case, "sequence")
    close(torch.cat([sequences(*pair).logits for pair in pairs]), expected["logits"])
    states = [sequences.states(*pair) for pair in pairs]
    pooled = [
        sequences.head.pooler(list(of), pair[1], sequences.positions)
        for of, pair in zip(states, pairs, strict=True)
    ]
    close(torch.cat(pooled), expected["pooled"])
    rows = valid.bool()
    close(torch.cat([of[-1] for of in states])[rows], expected["last_hidden_valid"][rows])
    tokens = golden_model(papa, golden, case, "token")
    logits = torch.cat([tokens(*pair).logits for pair in pairs])
    close(logits[rows], expected["token_logits"][rows])


@pytest.mark.parametrize("batch", (1, 5, 12))
@torch.no_grad()
def test_recorded_heads_give_the_golden_sums(papa, golden, batch):
    encoder = AutoModel.from_pretrained(GOLDEN / "papa" / "encoder").eval()
    layers, positions = papa.encoders.replace_attention(
        encoder, papa.attention.RecordedHeads, [[]] * 3, 16
    )
    for ids, valid in zip(
        golden["input_ids"].split(batch), golden["attention_mask"].split(batch), strict=True
    ):
        places = valid.any(dim=0).nonzero()[:, 0]
        positions.used = places
        inputs = {"input_ids": ids[:, places], "attention_mask": valid[:, places]}
        encoder(**inputs, position_ids=places[None])
    close(torch.stack([heads.sums for heads in layers]).float(), golden["attention_sums"])


def test_write_order_gives_the_golden_order(papa, golden, tmp_path):
    papa.constants.write_order(tmp_path, golden["lambdas"], {})
    assert papa.constants.load_order(tmp_path, 3, 4) == golden["sorted_heads"]


# --- stock models and plain reference ---


@pytest.mark.parametrize("family", CONFIGS)
@torch.no_grad()
def test_models_without_constant_heads_are_the_stock_model(papa, family):
    stock, batch = stock_encoder(family), some_batch(family)
    expected = stock(**batch, output_hidden_states=True).hidden_states
    model = make_model(papa, family, copy.deepcopy(stock))
    rows = batch["attention_mask"].bool()
    states = model.states(**batch)
    assert len(states) == LAYERS + 1
    for actual, same in zip(states, expected, strict=True):
        close(actual[rows], same[rows])
    assert family.startswith("deberta") or all(heads.ran for heads in model.layers)


@pytest.mark.parametrize("task", ["sequence", "token"])
@torch.no_grad()
def test_models_with_the_head_of_the_library_give_its_logits(papa, task):
    config = copy.deepcopy(CONFIGS["bert"])
    config.papa = settings(task=task, pooler=False)
    stock = papa.models.stock_class(config.papa)
    stock = stock.from_config(config, attn_implementation="eager").eval()
    model, batch = papa.models.PapaModel(config, copy.deepcopy(stock)).eval(), some_batch()
    rows = batch["attention_mask"].bool() if task == "token" else slice(None)
    close(model(**batch).logits[rows], stock(**batch).logits[rows])


PLAIN = ("bert", "roberta", "deberta", "deberta, short")


@pytest.mark.parametrize(
    ("family", "static", "dropout"),
    [
        *((family, static, False) for family in PLAIN for static in (NONE, SOME, ALL, None)),
        ("bert", ALL, True),
        ("bert", None, True),
    ],
)
@torch.no_grad()
def test_constant_and_mixed_heads_match_the_reference(papa, plain, family, static, dropout):
    """``static`` None: all are mixed. A seed drops the same weights of full matrices."""
    stock, batch, constants = stock_encoder(family), some_batch(family), some_constants()
    heads = [(layer, head) for layer, here in enumerate(static or NONE) for head in here]
    encoder = plain.PlainEncoder(stock, constants, heads, static is None).train(dropout)
    kind = {"static": static} if static else {"mixed": True}
    model = make_model(papa, family, stock, constants, **kind).train(dropout)
    if static is None:
        encoder.lambdas.normal_()
        for heads, lambdas in zip(model.layers, encoder.lambdas, strict=True):
            heads.lambdas.copy_(lambdas)
    torch.manual_seed(3)
    expected = encoder(*batch.values())
    torch.manual_seed(3)
    rows = batch["attention_mask"].bool()
    for actual, same in zip(model.states(**batch), expected, strict=True):
        close(actual[rows], same[rows])


def test_constants_are_masked_and_normalized_as_computed_by_hand(papa, plain):
    """Of each query: no constant; one or two valid keys; a negative constant (after training)."""
    constants = torch.tensor([[[0, 0, 0], [0.2, 0.3, 0.5], [0.6, 0, 0.2], [0.5, 0, -0.5]]])
    constants = torch.cat([constants, torch.zeros(1, 4, 1)], dim=2)  # of the fourth key
    valid = torch.tensor([[True, False, True, True]])
    rows = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 0], [0.75, 0, 0.25, 0], [0.5, 0, -0.5, 0]])
    close(plain.masked_normalized(constants, valid.float())[0, 0], rows)
    value = torch.tensor([1.0, 10.0, 100.0, 1000.0])
    found = papa.attention.constant_context(constants, value.view(1, 1, 4, 1), valid, 0.0)
    close(found.flatten(), rows @ value)
    rows[1] = constants[0, 1]
    found = papa.attention.constant_context(constants, value.view(1, 1, 4, 1), None, 0.0)
    close(found.flatten(), rows @ value)


@pytest.mark.parametrize("family", PLAIN)
def test_layers_of_constant_heads_have_no_queries_and_keys(papa, family):
    model = make_model(papa, family, static=ALL)
    names = [name for name, _ in model.named_parameters()]
    assert not any(part in name for name in names for part in ("query", "key", "pos_"))


# --- saving, heads of tasks, losses ---


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        *((family, {"static": SOME}) for family in CONFIGS),
        ("deberta", {"static": ALL, "task": "token"}),
        ("distilbert", {"mixed": True}),
        ("bert", {"static": SOME, "pooler": False}),
        ("roberta", {"static": SOME, "pooler": False, "task": "token"}),
    ],
)
@torch.no_grad()
def test_saved_and_loaded_models_give_the_same_logits(papa, tmp_path, family, kind):
    model = make_model(papa, family, None, some_constants(), **kind)
    for parameter in model.parameters():
        parameter.add_(0.01 * torch.randn_like(parameter))
    batch = some_batch(family)
    logits = model(**batch).logits
    model.save_pretrained(tmp_path)
    again = papa.models.PapaModel.from_pretrained(tmp_path).eval()
    assert again.config.papa == model.config.papa
    close(again(**batch).logits, logits, 0)


def test_new_heads_have_the_published_initial_weights(papa):
    model = make_model(papa, "bert", stock_encoder("bert"), static=SOME)
    weights = model.head.pooler.weights_per_layer
    close(weights.detach(), torch.full((LAYERS + 1, LENGTH), 1 / LENGTH), 0)
    std = model.head.pooler.dense_across_layers.weight.std().item()
    assert std == pytest.approx(SIZES["initializer_range"], rel=0.1)  # 3,072 values
    mixed = make_model(papa, "bert", stock_encoder("bert"), mixed=True)
    close(mixed.lambdas, torch.zeros(LAYERS, HEADS), 0)


def test_training_computes_labeled_tokens_only(papa):
    """With the loss and the gradients of all tokens."""
    model = make_model(papa, "bert", None, some_constants(), static=SOME, task="token")
    model.freeze()
    batch = some_batch()
    labels = torch.randint(0, 3, (4, LENGTH), generator=torch.manual_seed(6))
    labels = labels.where((batch["attention_mask"] > 0) & (labels != 1), -100)
    outputs, gradients = [], []
    for training in (False, True):
        model.head.train(training)  # its layers have no dropout
        outputs.append(model(**batch, labels=labels))
        outputs[-1].loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.head.parameters()]))
        model.zero_grad()
    close(outputs[1].logits, outputs[0].logits[labels != -100], 1e-6)
    close(outputs[1].loss, outputs[0].loss, 1e-6)
    close(gradients[1], gradients[0], 1e-6)


# --- bad input ---


@pytest.mark.parametrize(
    ("config", "reason"),
    (
        (RemBertConfig(**SIZES, input_embedding_size=16), "they ignore the attention registry"),
        (DebertaV2Config(**SIZES), "expected 2 attention layers, found 0"),
        (AlbertConfig(**SIZES), "expected 2 attention layers, found 1"),
    ),
)
def test_encoders_with_other_attention_are_rejected(papa, config, reason):
    config.papa = settings(static=SOME)
    with pytest.raises(InputError, match=f"{config.model_type}: the attention .*{reason}"):
        papa.models.PapaModel(config)


def test_benchmark_runs(tmp_path):
    options = ["--quick", "--rounds", "1", "--models", "minilm"]
    process = run_script("benchmarks/papa.py", *options, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    for row in ("8 of 8 heads constant, beside sdpa", "layers x batch", "step on cached states"):
        assert row in process.stdout
    assert not list(tmp_path.iterdir())  # --quick writes no results
