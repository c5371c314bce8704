"""The translation scripts as users run them: the whole chain, reproducibility, and bad input."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SMALL_RUNS, SMALL_VOCAB, make_small_pairs, refused, run_script
from sentencepiece import SentencePieceTrainer

from attention_dynamics.analysis.logs import load_logs
from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import read_json, sha256, write_json
from attention_dynamics.storage.pickles import load_pickle

GOLD = Path("models/small/h_dim=8,dropout=0.300000,b_size=8,seed=20,normal")
TRAIN = ["--dataset", "small", "--seed", "20", "--epochs", "2", "--custom_saves", "3"]


@pytest.fixture
def small(tmp_path, monkeypatch, translation) -> Path:
    """A working directory with a dataset "small" of 40 + 12 pairs, a small model, a log config."""
    monkeypatch.chdir(tmp_path)
    make_small_pairs(tmp_path, translation)
    return tmp_path


def train_all(translation) -> None:
    for _, seed, uniform in SMALL_RUNS:
        args = ["--dataset", "small", "--seed", str(seed), "--epochs", "2", "--custom_saves", "3"]
        translation.train_translation.main([*args, *(["--uniform"] if uniform else [])])


def test_the_whole_chain(small, translation, capsys):
    train_all(translation)
    assert sorted(path.name for path in GOLD.glob("model*")) == [
        "model", "model0", "model3", "model9"
    ]  # fmt: skip
    run = read_json(GOLD / "run.json")
    assert run["finished"] and run["settings"]["saves"] == [0, 3, 9]
    assert run["results"]["best_epoch"] in (1, 2)
    assert len(run["results"]["val_acc"]) == 2

    translation.eval_dump.main(["--dataset", "small", "--include_train_subset", "--eval_bleu"])
    assert "sacrebleu nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp" in capsys.readouterr().out
    logs = load_logs("outputs/small_logs.pkl")
    assert logs.splits == {"val": 12, "train": 12}
    assert {key[0] for key in logs.arrays if key[2] == "grad"} == {"normal_A"}
    translation.embedding_beta.main(["--dataset", "small", "--epochs", "2", "--bsize", "8"])
    px = load_pickle("outputs/smallembedding256translation.pkl")
    assert px.shape == (SMALL_VOCAB, SMALL_VOCAB)
    translation.ibm1_beta.main(["--dataset", "small"])
    for script in ("collect_translation_stats", "collect_classification_stats"):
        done = run_script(
            f"translation/{script}.py", "--datasets", "small", "--out_file", f"{script}.pkl",
            "--include_kendall_tau", "--include_train_results", "--include_bleu_results",
            cwd=small,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        for line in ("agr_unif", "agr_px", "agr_ibm1", "xi_ibm1", "baseline (exact)", "sacrebleu"):
            assert line in done.stdout
    both = [load_pickle(f"collect_{name}_stats.pkl") for name in ("translation", "classification")]
    assert both[0].keys() == both[1].keys()
    assert {key[3] for key in both[0]} == {"val_acc", "train_acc", "val_bleu", "train_bleu"}

    # A second call finds everything finished.
    capsys.readouterr()
    train_all(translation)
    translation.eval_dump.main(["--dataset", "small", "--include_train_subset", "--eval_bleu"])
    translation.embedding_beta.main(["--dataset", "small", "--epochs", "2", "--bsize", "8"])
    translation.ibm1_beta.main(["--dataset", "small"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert all("finished already" in line or "is up to date" in line for line in lines)


def test_the_same_seed_gives_the_same_bytes_whatever_is_saved(small, translation):
    checksums = []
    for save_every in ("1", "1000"):
        translation.train_translation.main([*TRAIN, "--save_every", save_every, "--overwrite"])
        checksums.append([sha256(GOLD / name) for name in ("model0", "model3", "model9")])
    assert checksums[0] == checksums[1]


def test_checkpoints_are_taken_before_the_update_and_the_last_one_after_it(small, translation):
    translation.train_translation.main([*TRAIN, "--save_every", "1"])
    torch.manual_seed(20)
    dataset = translation.data.load_dataset("small")
    config = read_json("configs/model.json")
    fresh = translation.models.AttentionTranslator(dataset.vocab, config, uniform=False)
    first = torch.load(GOLD / "model0", weights_only=True)
    assert all(torch.equal(value, first[name]) for name, value in fresh.state_dict().items())
    before = torch.load(GOLD / "model8", weights_only=True)
    after = torch.load(GOLD / "model9", weights_only=True)
    assert not torch.equal(before["embedding.weight"], after["embedding.weight"])


def test_model_is_that_of_the_best_epoch(small, translation):
    """A run that ends at the best epoch of a longer one ends in the longer one's "model"."""
    translation.train_translation.main([*TRAIN[:4], "--epochs", "4"])
    best, results = sha256(GOLD / "model"), read_json(GOLD / "run.json")["results"]
    epoch = results["best_epoch"]
    assert epoch == 1 + int(np.argmax(results["val_acc"])) and len(results["val_acc"]) == 4
    translation.train_translation.main([*TRAIN[:4], "--epochs", str(epoch), "--overwrite"])
    assert sha256(GOLD / f"model{5 * epoch - 1}") == best


def test_bleu_of_the_last_checkpoint_alone(small, translation, capsys):
    train_all(translation)
    translation.eval_dump.main(["--dataset", "small", "--eval_bleu", "last", "--beam_size", "1"])
    logs = load_logs("outputs/small_logs.pkl")
    assert {key[:2] for key in logs.metas if key[2] == "val_bleu"} == {
        (name, 9) for name, _, _ in SMALL_RUNS
    }
    collect = translation.collect_translation_stats.main
    args = ["--datasets", "small", "--out_file", "stats.pkl"]
    message = refused(collect, [*args, "--include_bleu_results"])
    assert "hold no val_bleu of normal_A at iteration 0" in message
    assert message.endswith("dump them again with eval_dump.py --eval_bleu all")
    assert "--include_train_subset" in refused(collect, [*args, "--include_train_results"])
    collect([*args, "--embed_dim", "7"])
    assert (
        "agr_px is left out; make it with: python embedding_beta.py --embed_dim 7"
        in capsys.readouterr().err
    )


def test_ibm1_perplexity_is_that_of_the_table_after_each_iteration(small, translation):
    dataset = translation.data.load_dataset("small")
    table, perplexities = translation.ibm1_beta.train(dataset.train, dataset.vocab, 20)
    # After 0, 1, ... iterations: a uniform table first, the returned one last.
    assert perplexities == sorted(perplexities, reverse=True)  # EM never makes it worse
    assert len(perplexities) == 21
    assert perplexities[0] == pytest.approx(dataset.vocab, rel=1e-12)
    src, trg, rows = translation.data.token_pairs(dataset.train.src, dataset.train.trg)
    likelihood = table.toarray()[src, trg].astype(float)
    likelihood = np.add.reduceat(likelihood, rows[:-1]) / np.diff(rows)
    # float32 probabilities
    assert perplexities[-1] == pytest.approx(np.exp(-np.log(likelihood).mean()), rel=1e-6)


# Bad input.


def test_absent_dataset_names_the_command_that_makes_it(small, translation):
    for dataset, way in (
        ("iwslt14", "--dataset iwslt14 --source PATH (see"),
        ("mine", "--dataset mine --train SRC TRG --val SRC TRG --src_lang LANG --trg_lang LANG"),
    ):
        message = refused(translation.train_translation.main, ["--dataset", dataset, "--seed", "1"])
        assert message.startswith(f"no dataset {dataset}: ")
        assert "data/ holds small" in message and way in message


def test_an_empty_line_is_left_out_with_a_note(small, translation, capsys):
    lines = Path("data/small/train.bb").read_text().splitlines()
    content = "\n".join([*lines[:5], "  ", *lines[6:]]) + "\n"
    Path("data/small/train.bb").write_text(content, encoding="utf-8-sig")
    train = translation.data.load_dataset("small").train
    assert len(train) == 39 and train.references[0] == lines[0]  # no byte-order mark
    translation.train_translation.main(TRAIN)
    assert "train pairs left out because a side is empty: 1\n" in capsys.readouterr().err


def test_pieces_that_do_not_fit_the_checkpoints(small, translation):
    train_all(translation)
    pairs, _ = translation.data.read_pairs(translation.data.layout_of("small"), "train")
    model = translation.data.make_pieces(small, pairs, SMALL_VOCAB - 3)
    Path("data/small/small.model").write_bytes(model)
    message = refused(translation.eval_dump.main, ["--dataset", "small"])
    assert "was trained on data that does not match the current data" in message
    for record in Path("models").rglob("run.json"):  # as in the runs of other code
        record.unlink()
    message = refused(translation.eval_dump.main, ["--dataset", "small"])
    assert "does not fit the model" in message
    assert "embedding.weight: copying a param with shape torch.Size([45, 8])" in message


def test_pieces_with_other_special_ids(small, translation):
    SentencePieceTrainer.train(
        input="data/small/train.aa", model_prefix="data/small/small", vocab_size=30, minloglevel=2
    )
    message = refused(translation.train_translation.main, TRAIN)
    assert "pad, bos, eos and unk have the ids (-1, 1, 2, 0)" in message


def test_missing_checkpoints_are_named_with_the_command(small, translation):
    translation.train_translation.main(TRAIN[:6])
    message = refused(translation.eval_dump.main, ["--dataset", "small"])
    assert message.startswith("7 checkpoint(s) of configs/small_log.json are missing")
    assert message.endswith(
        "seed=20,normal/{model3}. Make them with: python train_translation.py --dataset small "
        "--seed 20 --epochs 2 --save_every 10 --custom_saves 0,3,9 --overwrite; likewise 2 "
        "more run(s), with their seeds"
    )
    assert not (small / "outputs").exists()


def test_baselines_that_do_not_fit_are_named(small, translation):
    train_all(translation)
    translation.eval_dump.main(["--dataset", "small"])
    table = {
        "data": np.ones(2, np.float32),
        "indices": np.array([0, 1], np.int32),
        "indptr": np.minimum(np.arange(SMALL_VOCAB + 1), 2),
        "shape": (SMALL_VOCAB, SMALL_VOCAB),
    }
    px, ibm1 = "smallembedding256translation.pkl", "small_ibm1_beta.pkl"
    for name, content, message in (
        (px, np.zeros((7, 7), np.float32), "has the shape (7, 7), but the logs use pieces up to"),
        (px, [1, 2], "holds no array"),
        (ibm1, {"data": np.zeros(3)}, "holds no sparse table"),
        (ibm1, {**table, "indices": np.array([0, 99])}, "no sparse table: indices must be < 45"),
    ):
        path = Path("outputs") / name
        path.write_bytes(pickle.dumps(content))
        collect = ["--datasets", "small", "--out_file", "stats.pkl"]
        message_given = refused(translation.collect_translation_stats.main, collect)
        assert message in message_given and "make it again with: python " in message_given
        path.unlink()


def test_load_dataset_refuses_what_torchtext_would_misalign(small, translation):
    path = Path("data/small/train.aa")
    lines = path.read_bytes()
    for content, message in (
        (lines.replace(b" ", b"\r", 1), "train.aa has 41 sentences, but .*train.bb has 40"),
        (b"\xff\xfe" + lines, "train.aa is not UTF-8 text"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            translation.data.load_dataset("small")
    path.write_bytes(lines.replace(b"\n", b"\r\n"))
    assert len(translation.data.load_dataset("small").train) == 40


@pytest.mark.parametrize("content", ['["one", 2]', '["one", "\\ud800"]'])
def test_load_dataset_refuses_json_that_is_no_list_of_sentences(
    golden_translation, translation, content
):
    Path("data/news-commentary-v14-en-nl/val.src").write_text(content)
    with pytest.raises(InputError, match=r"val\.src must be a JSON list of sentences"):
        translation.data.load_dataset("news_commentary_v14_en_nl")


def test_a_beam_wider_than_the_vocabulary(small, translation):
    message = refused(translation.eval_dump.main, ["--dataset", "small", "--beam_size", "46"])
    assert "--beam_size 46 is more than the vocabulary has pieces, 45" in message


def test_names_are_checked_before_they_are_part_of_a_path(small, translation):
    for script, option, *more in (
        ("train_translation", "--dataset", "--seed", "1"),
        ("eval_dump", "--dataset"),
        ("collect_translation_stats", "--datasets", "--out_file", "x.pkl"),
        ("plot_dynamics", "--dataset"),
    ):
        message = refused(getattr(translation, script).main, [option, "../small", *more])
        assert "must have a plain name" in message
    for languages, message in (
        (["aa"], 'must name the two "languages"'),
        (["../aa", "bb"], "language '../aa' must have a plain name"),
    ):
        write_json("data/small/about.json", {"languages": languages})
        assert message in refused(translation.ibm1_beta.main, TRAIN[:2])
