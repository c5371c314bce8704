"""The classification scripts on a small dataset: training, dumps, baselines, the whole chain."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SMALL_ITERATIONS, SMALL_MODEL, train_small_set

from attention_dynamics.analysis.logs import load_logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import InputError
from attention_dynamics.lstm import lstm_states
from attention_dynamics.storage.files import read_json, write_json
from attention_dynamics.storage.pickles import load_pickle

FOLDER = "models/small/h_dim=6,b_size=8,seed=20,normal"


def train(classification, seed: int = 20, *more: str, folder: str = FOLDER) -> dict[str, bytes]:
    """Train 12 steps; the bytes of each checkpoint by name."""
    args = ["--dataset", "small", "--seed", str(seed), "--steps", "12", "--overwrite", *more]
    classification.train_classifier.main(args)
    return {path.name: path.read_bytes() for path in Path(folder).glob("model*")}


def model_of(classification, uniform: bool = False):
    torch.manual_seed(0)
    return classification.models.AttentionClassifier(30, SMALL_MODEL, uniform)


# --- data ---------------------------------------------------------------------------------------


def test_vocabulary_holds_frequent_words_and_those_with_a_vector(small_set, classification):
    # Counts: a 3, b 3 (first seen before a), c 2 (rare), d 1 (rare, has a vector).
    words = ["a", "b", "c", "d", "e"]
    pairs = [[[1, 0, 0], 1], [[1, 1, 2], 0], [[0, 2, 3], 1]]
    write_json("data/x_train.json", {"vocab": words, "XY": pairs})
    write_json("data/x_test.json", {"vocab": ["ignored"], "XY": [[[4, 0], 0], [[], 1.0]]})
    Path("data/w2v.pkl").write_bytes(pickle.dumps({"d": np.ones(7), "e": np.ones(7)}))
    dataset = classification.data.load_dataset("x")
    # e has a vector but is no training word.
    assert dataset.vocabulary == ["<pad>", "<bos>", "<eos>", "<unk>", "b", "a", "d"]
    assert dataset.train.ids[2].tolist() == [1, 5, 3, 6, 2]
    assert dataset.test.ids[0].tolist() == [1, 3, 5, 2]
    assert dataset.test.ids[1].tolist() == [1, 2]
    assert dataset.test.labels.tolist() == [0, 1]


def test_order_of_examples_and_batch_size_change_no_score(classification):
    split = random_split(classification, 40)
    model = model_of(classification)
    found, correct = classification.eval_dump.dump(model, split, torch.device("cpu"))
    order = np.random.default_rng(1).permutation(40)
    again, correct_again = classification.eval_dump.dump(
        model, split.take(order), torch.device("cpu")
    )
    assert correct[order].tolist() == correct_again.tolist()
    for kind, values in found.items():
        expected = values[split.ids.places(order)]
        np.testing.assert_allclose(again[kind], expected, rtol=0, atol=1e-6)
    for number in range(40):  # each alone: no padding at all
        alone, _ = classification.eval_dump.dump(model, split.take([number]), torch.device("cpu"))
        for kind, values in found.items():
            mine = Ragged(values, split.ids.offsets)[number]
            np.testing.assert_allclose(alone[kind], mine, rtol=0, atol=1e-6)


def random_split(classification, size: int, longest: int = 30):
    rng = np.random.default_rng(0)
    rows = [np.r_[1, rng.integers(4, 30, rng.integers(0, longest)), 2] for _ in range(size)]
    return classification.data.Split(Ragged.from_rows(rows), rng.integers(0, 2, size))


# --- model --------------------------------------------------------------------------------------


def test_the_model_line_by_line(classification):
    """score = Σ α_l β_l, with everything written out for one sentence."""
    model = model_of(classification)
    ids, lengths = torch.tensor([1, 9, 4, 2, 1, 5, 2]), torch.tensor([4, 3])
    reading = model(ids, lengths)
    states, _ = model.encoder(model.embedding(ids[:4]).unsqueeze(1))
    states = states.squeeze(1)
    inner = torch.relu(model.hidden2attn_intermediate(states))
    alpha = torch.softmax(model.attn_intermediate2logit(inner).squeeze(1), 0)
    beta = model.hidden2beta(states).squeeze(1)
    torch.testing.assert_close(reading.alpha[:4], alpha, rtol=0, atol=1e-6)
    torch.testing.assert_close(reading.beta[:4], beta, rtol=0, atol=1e-6)
    torch.testing.assert_close(reading.score[0], (alpha * beta).sum(), rtol=0, atol=1e-6)
    uniform = model_of(classification, uniform=True)(ids, lengths)
    torch.testing.assert_close(uniform.alpha, torch.tensor([1 / 4] * 4 + [1 / 3] * 3))


def test_delta_is_the_derivative_by_a_gate(classification):
    """Δ against central differences of the loss, the embedding of one token scaled by 1 ± ε."""
    model = model_of(classification).double()
    ids, lengths = torch.tensor([1, 9, 4, 2, 1, 5, 2]), torch.tensor([4, 3])
    labels = torch.tensor([1.0, 0.0], dtype=torch.float64)
    words = classification.models.projected_words(model, torch.arange(len(model.embedding.weight)))
    _, grad = classification.models.influence(model, words, ids, lengths, labels)

    def loss(token: int, scale: float) -> float:
        embedded = model.embedding(ids).detach().clone()
        embedded[token] *= scale
        states, _ = lstm_states(model.encoder, embedded, lengths)
        score = model.attend(states, lengths).score
        bce = torch.nn.functional.binary_cross_entropy_with_logits
        return bce(score, labels, reduction="sum").item()

    for token in range(7):
        slope = (loss(token, 1 + 1e-5) - loss(token, 1 - 1e-5)) / 2e-5
        assert grad[token].item() == pytest.approx(-slope, abs=1e-8)


def test_departure_3_a_sure_model_has_finite_gradients(classification):
    model = model_of(classification)
    with torch.no_grad():
        model.hidden2beta.bias.fill_(200.0)
    lengths, labels = torch.tensor([3]), torch.tensor([0.0])
    words = classification.models.projected_words(model, torch.arange(len(model.embedding.weight)))
    ids = torch.tensor([1, 4, 2])
    _, grad = classification.models.influence(model, words, ids, lengths, labels)
    assert torch.isfinite(grad).all()


def test_one_step_moves_what_should_move(classification):
    ids, lengths = torch.tensor([1, 9, 4, 2, 1, 5, 2]), torch.tensor([4, 3])
    for uniform in (False, True):
        model = model_of(classification, uniform)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        optimizer = torch.optim.Adam(model.parameters())
        torch.nn.functional.binary_cross_entropy_with_logits(
            model(ids, lengths).score, torch.tensor([1.0, 0.0])
        ).backward()
        optimizer.step()
        for name, value in model.state_dict().items():
            attention = name.startswith(("hidden2attn", "attn_inter"))
            # A bias added to all logits leaves the softmax as it is, but for rounding.
            if name == "attn_intermediate2logit.bias":
                continue
            assert torch.equal(value, before[name]) == (uniform and attention), name
        touched = (model.embedding.weight != before["embedding.weight"]).any(dim=1)
        assert touched.nonzero().squeeze(1).tolist() == [1, 2, 4, 5, 9]


# --- training -----------------------------------------------------------------------------------


def test_batches_follow_the_rule(classification):
    """N = 7, batches of 3: a new order every 2 steps; the window runs on modulo N."""
    steps = list(classification.train_classifier.batches(7, 3, 6, seed=5))
    rng = np.random.default_rng(5)
    for step, examples in enumerate(steps):
        if step % 2 == 0:
            order = rng.permutation(7)
        expected = [order[i % 7] for i in range(step * 3, step * 3 + 3)]
        assert examples.tolist() == expected
    # A set smaller than one batch still trains.
    assert len(next(classification.train_classifier.batches(2, 3, 1, seed=5))) == 3


def test_the_same_seed_gives_the_same_bytes_whatever_is_saved(small_set, classification):
    first = train(classification)
    assert sorted(first) == ["model0", "model11"]
    often = train(classification, 20, "--save_every", "1", "--test_set_size", "3")
    assert len(set(often.values())) == 12
    assert {name: often[name] for name in first} == first
    other = train(classification, 21, folder=FOLDER.replace("20", "21"))
    assert other["model11"] != first["model11"]


def test_checkpoints_are_taken_before_their_update(small_set, classification):
    """model{t} of a long run equals what a run of t steps ends in (its last checkpoint)."""
    long = train(classification, 20, "--custom_saves", "0,5")
    args = ["--dataset", "small", "--seed", "20", "--steps", "5", "--overwrite"]
    classification.train_classifier.main(args)
    assert (Path(FOLDER) / "model4").read_bytes() == long["model5"]


def test_a_finished_run_is_not_trained_again(small_set, classification, capsys):
    args = ["--dataset", "small", "--seed", "20", "--steps", "3"]
    classification.train_classifier.main(args)
    before = (Path(FOLDER) / "model2").stat().st_mtime_ns
    classification.train_classifier.main(args)
    assert "finished already" in capsys.readouterr().out
    assert (Path(FOLDER) / "model2").stat().st_mtime_ns == before
    with pytest.raises(InputError, match=r"steps was 3, is 4.*--overwrite"):
        classification.train_classifier.main([*args[:-1], "4"])


def test_pretrained_embeddings_are_used_when_asked(small_set, classification):
    """Departure 2: word vectors steer the vocabulary only, unless --pretrained_embeddings."""
    vectors = {f"w{i}": np.full(7, i, dtype=np.float32) for i in range(40)}
    Path("data/w2v.pkl").write_bytes(pickle.dumps(vectors))
    dataset = classification.data.load_dataset("small")
    place = dataset.vocabulary.index("w1")
    for more, expected in (((), False), (("--pretrained_embeddings",), True)):
        train(classification, 20, *more)
        state = torch.load(Path(FOLDER) / "model0", weights_only=True)
        assert torch.equal(state["embedding.weight"][place], torch.ones(7)) == expected
    for vectors in ({"w1": np.ones(3)}, {}):
        Path("data/w2v.pkl").write_bytes(pickle.dumps(vectors))
        with pytest.raises(InputError, match=r"of 7 numbers \(embed_dim of the config\)"):
            train(classification, 20, "--pretrained_embeddings")


# --- baselines ----------------------------------------------------------------------------------


def test_embedding_beta_is_seeded_and_finds_the_planted_words(small_set, classification):
    args = ["--dataset", "small", "--epochs", "20", "--lr", "0.01", "--overwrite"]
    results = []
    for seed in ("0", "0", "1"):
        classification.embedding_beta.main([*args, "--seed", seed])
        results.append(load_pickle("outputs/smallembedding256beta.pkl"))
    assert np.array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])
    words = classification.data.load_dataset("small").vocabulary
    assert results[0].shape == (len(words),)
    ranked = [words[i] for i in np.argsort(results[0])]
    assert (ranked[0], ranked[-1]) == ("w2", "w1")


def test_bag_of_words_scores_the_mean_embedding(classification):
    """Scores and validation loss, written out; β is the score of a word alone, without the bias."""
    split = random_split(classification, 20)
    torch.manual_seed(0)
    baseline = classification.embedding_beta.build(split, split, 30, 6, torch.device("cpu"))
    model, loss_of, validation_loss = baseline
    ids, lengths, labels = split.batch(np.arange(20))
    means = torch.stack([model.embedding(row).mean(dim=0) for row in ids.split(lengths.tolist())])
    score = model.linear(means).squeeze(1)
    torch.testing.assert_close(model(ids, lengths), score, rtol=1e-5, atol=1e-6)
    losses = -(labels * score.sigmoid().log() + (1 - labels) * (-score).sigmoid().log())
    assert validation_loss() == pytest.approx(losses.sum().item(), rel=1e-5)
    assert loss_of(np.array([3, 5])).item() == pytest.approx(losses[[3, 5]].sum().item(), rel=1e-5)
    alone = model(torch.arange(30), torch.ones(30, dtype=torch.int64)) - model.linear.bias
    torch.testing.assert_close(model.beta(), alone, rtol=1e-5, atol=1e-6)


def test_embedding_beta_may_keep_the_untrained_model(small_set, classification):
    # A step this large makes every epoch worse than none.
    args = ["--dataset", "small", "--epochs", "2", "--lr", "50"]
    classification.embedding_beta.main(args)
    record = read_json("outputs/smallembedding256beta.json")
    losses = record["results"]["validation_losses"]
    assert record["results"]["best_epoch"] == int(np.argmin(losses)) == 0
    assert len(losses) == 3
    torch.manual_seed(0)
    words = classification.data.load_dataset("small").vocabulary
    start = classification.embedding_beta.BagOfWords(len(words), 256).beta().numpy()
    np.testing.assert_array_equal(load_pickle("outputs/smallembedding256beta.pkl"), start)


def test_logistic_beta_equals_the_dense_fit(small_set, classification):
    """Departure 11: at the optimum, which the default tolerance of the recipe does not reach."""
    from sklearn.linear_model import LogisticRegression

    dataset = classification.data.load_dataset("small")
    vocab = len(dataset.vocabulary)
    dense = np.zeros((len(dataset.train), vocab))
    for i in range(len(dataset.train)):
        for token in dataset.train.ids[i]:
            dense[i, token] += 1 / len(dataset.train.ids[i])
    ids = dataset.train.ids.values.copy()
    sparse = classification.logistic_beta.word_shares(dataset.train, vocab)
    np.testing.assert_array_equal(dataset.train.ids.values, ids)
    np.testing.assert_allclose(sparse.toarray(), dense, rtol=1e-12)
    coefficients = [
        LogisticRegression(C=10, tol=1e-8, max_iter=10**5).fit(x, dataset.train.labels).coef_
        for x in (dense, sparse)
    ]
    np.testing.assert_allclose(*coefficients, rtol=1e-4, atol=1e-8)
    classification.logistic_beta.main(["--dataset", "small"])
    beta = load_pickle("outputs/small_logistic_beta.pkl")[0]
    assert dataset.vocabulary[int(beta.argmax())] == "w1"
    assert dataset.vocabulary[int(beta.argmin())] == "w2"


def test_agreement_is_collected_for_each_similar_regularization_strength(
    golden_classification, classification, capsys
):
    choices = classification.logistic_beta.choices
    assert choices([0.70, 0.79, 0.80, 0.80, 0.789]) == [2, 1, 3]  # the published choice first
    (golden_classification / "golden").rename("outputs")
    args = ["--datasets", "Furd", "--out_file", "r.pkl"]
    classification.collect_classification_stats.main(args)
    key = ("Furd", "top 5% match", "val", "test_acc")
    old = load_pickle("r.pkl")[key]  # of a file with the published choice only
    classification.logistic_beta.main(["--dataset", "Furd", "--overwrite"])
    strengths = read_json("outputs/Furd_logistic_beta.json")["results"]["C"]
    assert len(strengths) > 1
    classification.collect_classification_stats.main(args)
    new = load_pickle("r.pkl")[key]
    assert new["agr_logistic"] == old["agr_logistic"]
    names = [f"agr_logistic_C{strength:g}" for strength in strengths[1:]]
    assert all(0 <= new[name] <= 1 for name in names)
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "agr_l" in line]
    assert rows[-2 * len(strengths) :][: len(strengths)] == ["agr_logistic", *names]


# --- the whole chain ----------------------------------------------------------------------------


def test_train_dump_baselines_collect(small_set, classification, capsys):
    train_small_set(classification)
    classification.eval_dump.main(["--dataset", "small"])
    collect = classification.collect_classification_stats.main
    both = ["--include_kendall_tau", "--include_train_results"]
    args = ["--datasets", "small", "--out_file", "results/r.pkl", *both]

    collect(args)
    err = capsys.readouterr().err
    assert "python embedding_beta.py --embed_dim 256 --dataset small" in err
    assert "python logistic_beta.py --dataset small" in err
    assert "agr_px" not in load_pickle("results/r.pkl")["small", "kendall tau", "val", "test_acc"]

    classification.embedding_beta.main(["--dataset", "small", "--epochs", "3"])
    classification.logistic_beta.main(["--dataset", "small"])
    collect(args)
    results = load_pickle("results/r.pkl")
    assert set(results) == {
        ("small", metric, split, perf)
        for metric in ("top 5% match", "kendall tau")
        for split, perf in (("val", "test_acc"), ("train", "train_acc"))
    }
    logs = load_logs("outputs/small_logs.pkl")
    assert logs.splits == {"val": 30, "train": 30}
    for key, numbers in results.items():
        assert numbers["iterations"] == list(SMALL_ITERATIONS)
        for name in ("unif", "px", "logistic", "grad", "normal"):
            low, high = numbers[f"agr_{name}_interval"]
            assert low <= numbers[f"agr_{name}"] <= high
            assert f"xi_{name}" in numbers
        accuracies = [logs.metas["normal_A", t, key[3]] for t in SMALL_ITERATIONS]
        assert numbers["best_perf"] == max(accuracies)
    # The same command gives the same file (seeded shuffles, departure 8).
    before = Path("results/r.pkl").read_bytes()
    collect(args)
    assert Path("results/r.pkl").read_bytes() == before
    for fmt, mark in (("markdown", "|"), ("latex", "\\toprule"), ("csv", "dataset,metric,split")):
        collect([*args, "--format", fmt])
        assert mark in capsys.readouterr().out


def test_departure_9_the_dataset_is_read_once(small_set, classification):
    """Data files are opened as often for nine checkpoints as for one."""
    train_small_set(classification)
    opened: list[str] = []
    sys.addaudithook(lambda event, args: event == "open" and opened.append(str(args[0])))
    entries, counts = read_json("configs/small_log.json"), []
    for some in (entries, entries[:1]):
        write_json("configs/small_log.json", some)
        opened.clear()
        classification.eval_dump.main(["--dataset", "small"])
        counts.append(sum(path.endswith("small_train.json") for path in opened))
    assert counts[0] == counts[1] > 0


def test_a_dump_that_is_up_to_date_is_left_alone(small_set, classification, capsys):
    train_small_set(classification)
    classification.eval_dump.main(["--dataset", "small"])
    before = Path("outputs/small_logs.pkl").stat().st_mtime_ns
    classification.eval_dump.main(["--dataset", "small"])
    assert "up to date" in capsys.readouterr().out
    assert Path("outputs/small_logs.pkl").stat().st_mtime_ns == before
    # A retrained checkpoint makes it stale.
    args = ["--dataset", "small", "--seed", "20", "--steps", "12", "--custom_saves", "0,5"]
    classification.train_classifier.main([*args, "--overwrite", "--config", "configs/model.json"])
    classification.eval_dump.main(["--dataset", "small", "--test_set_size", "10"])
    assert load_logs("outputs/small_logs.pkl").splits == {"val": 10, "train": 10}


def test_odd_documents(small_set, classification):
    """Length 0, 2,500 tokens, an unknown word, one class in the test set, fewer than a batch."""
    words = [f"w{i}" for i in range(40)] + ["never in training"]
    pairs = [[[], 1], [[3] * 2500, 1], [[40], 1]]
    write_json("data/small_test.json", {"vocab": words, "XY": pairs})
    content = read_json("data/small_train.json")
    write_json("data/small_train.json", {**content, "vocab": words})
    train_small_set(classification)
    classification.eval_dump.main(["--dataset", "small", "--test_set_size", "4000"])
    classification.embedding_beta.main(["--dataset", "small", "--epochs", "1"])
    classification.logistic_beta.main(["--dataset", "small"])
    logs = load_logs("outputs/small_logs.pkl")
    assert logs.splits == {"val": 3, "train": 3}
    assert logs.src.lengths[:3].tolist() == [2, 2502, 3]
    assert logs.src[2].tolist() == [1, 3, 2]  # <bos> <unk> <eos>
    for t in SMALL_ITERATIONS:
        assert [len(row) for row in logs.scores("normal_A", t, "alpha", "val")] == [2, 2502, 3]
        assert all(np.isfinite(logs.arrays["normal_A", t, kind]).all() for kind in ("beta", "grad"))
    both = ["--include_kendall_tau", "--include_train_results"]
    classification.collect_classification_stats.main(
        ["--datasets", "small", "--out_file", "r.pkl", *both]
    )
