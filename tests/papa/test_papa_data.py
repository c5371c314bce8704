"""PAPA's data: layouts, tasks from files and the hub, datasets and batches, metrics, the toy."""

import gzip
import json
import math
from types import SimpleNamespace

import datasets
import huggingface_hub
import numpy as np
import pytest
import torch
from conftest import GOLDEN, ROOT, load_folder
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertTokenizer, RobertaTokenizer

from attention_dynamics.cli import InputError

CLS, SEP, PAD = 1, 2, 0


@pytest.fixture(scope="module")
def papa():
    """The modules of papa/."""
    return load_folder(ROOT / "papa")


@pytest.fixture(scope="module")
def bert():
    """A tokenizer with token types: [PAD] 0, [CLS] 1, [SEP] 2, and the words below from 4."""
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "the", "dog", "##s", "run", "and", "cat"]
    vocab = {word: place for place, word in enumerate(words)}
    return BertTokenizer(vocab=vocab, model_max_length=64)


@pytest.fixture(scope="module")
def roberta():
    """A tokenizer of letters without token types: <s> 0, <pad> 1, </s> 2, space 4, a 5, b 6 ..."""
    vocab = {piece: place for place, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>"])}
    vocab |= {letter: place + 4 for place, letter in enumerate("Ġabcd")}
    return RobertaTokenizer(vocab=vocab, merges=[], add_prefix_space=True)


def write(path, text: str) -> str:
    """Write a file (gzipped if its name says so) and its folders; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def refused(*parts: str):
    """A context in which an InputError of one line with all ``parts`` is raised."""
    pattern = "".join(f"(?=.*{part})" for part in parts)
    return pytest.raises(InputError, match=rf"^{pattern}[^\n]*$")


# --- Layouts


def test_layout_is_that_of_the_published_code(papa):
    golden = torch.load(GOLDEN / "papa" / "expected.pt", weights_only=True)
    assert len(golden["input_ids_before_layout"]) == 12
    for place, before in enumerate(golden["input_ids_before_layout"]):
        ids, mask, origin = papa.data.sequence_layout(before, SEP, PAD, 16)
        assert ids == golden["input_ids"][place].tolist()
        assert mask == golden["attention_mask"][place].tolist()
        assert [before[j] if j >= 0 else PAD for j in origin] == ids


@pytest.mark.parametrize(
    ("before", "length", "ids", "origin"),
    [
        # a single sentence that is cut; a pair of which both are cut; an odd length
        ([1, 7, 8, 9, 6, 5, 2], 8, [1, 7, 8, 9, 0, 0, 0, 2], [0, 1, 2, 3, -1, -1, -1, 6]),
        ([1, 7, 7, 7, 7, 2, 8, 9, 9, 2], 8, [1, 7, 7, 7, 2, 8, 9, 2], [0, 1, 2, 3, 5, 6, 7, 9]),
        ([1, 7, 8, 2, 9, 2], 7, [1, 7, 8, 2, 9, 0, 2], [0, 1, 2, 3, 4, -1, 5]),
        # RoBERTa: two separators between the sentences, both move
        ([1, 7, 2, 2, 8, 2], 8, [1, 7, 0, 0, 2, 2, 8, 2], [0, 1, -1, -1, 2, 3, 4, 5]),
    ],
)
def test_sequence_layout(papa, before, length, ids, origin):
    laid_out = papa.data.sequence_layout(before, SEP, PAD, length)
    assert laid_out == (ids, [int(j >= 0) for j in origin], origin)


words_of = st.lists(st.integers(3, 50), max_size=30)


@given(words_of, st.none() | words_of, st.integers(0, 1), st.integers(4, 40))
def test_sequence_layout_against_the_specification(papa, first, second, more_separators, length):
    before = [CLS, *first, SEP]
    if second is not None:
        before += [SEP] * more_separators + [*second, SEP]
    ids, mask, origin = papa.data.sequence_layout(before, SEP, PAD, length)
    # Written from the specification: three slices.
    half, separator, last = length // 2, len(first) + 1, len(before) - 1
    expected = [PAD] * length
    expected[: min(separator, half)] = before[: min(separator, half)]
    middle = before[separator:last][: length - 1 - half]
    expected[half : half + len(middle)] = middle
    expected[-1] = SEP
    assert ids == expected
    assert len(mask) == len(origin) == length
    # What is masked is padding; no token is there twice, and their order is kept.
    kept = [j for j in origin if j >= 0]
    assert kept == sorted(set(kept))
    assert kept[-1] == last
    assert sum(mask) == min(separator, half) + len(middle) + 1
    assert [before[j] for j in kept] == [token for token, m in zip(ids, mask, strict=True) if m]
    # Nothing is lost where both parts fit.
    if separator <= half and last - separator <= length - 1 - half:
        assert kept == [*range(len(before))]


@given(words_of, st.integers(4, 40))
def test_token_layout_loses_nothing_up_to_the_cut(papa, words, length):
    before = [CLS, *words, SEP]
    ids, mask, origin = papa.data.token_layout(before, SEP, PAD, length)
    kept = min(len(words) + 1, length - 1)
    assert ids == before[:kept] + [PAD] * (length - 1 - kept) + [SEP]
    assert mask == [1] * kept + [0] * (length - 1 - kept) + [1]
    assert origin == [*range(kept), *[-1] * (length - 1 - kept), len(words) + 1]


def test_layout_without_a_separator_is_refused(papa):
    for layout in (papa.data.sequence_layout, papa.data.token_layout):
        with refused("--use_papa_preprocess", "separator"):
            layout([1, 7, 8], SEP, PAD, 8)


# --- Datasets


def rows_of(encoded, column: str) -> list[list[int]]:
    return [encoded[place][column].tolist() for place in range(len(encoded))]


def test_encode_sequences(papa, bert):
    split = papa.glue.SequenceSplit([("the dogs run",), ("",), ("cat and dog",)], [1, 0, 1])
    encoded = papa.data.encode_sequences(split, bert, 8, papa_layout=True)
    assert rows_of(encoded, "input_ids") == [
        [1, 4, 5, 6, 0, 0, 0, 2],  # "run" is beyond the half
        [1, 0, 0, 0, 0, 0, 0, 2],
        [1, 9, 8, 5, 0, 0, 0, 2],
    ]
    assert rows_of(encoded, "attention_mask")[1] == [1, 0, 0, 0, 0, 0, 0, 1]
    assert rows_of(encoded, "token_type_ids") == [[0] * 8] * 3
    assert [encoded[place]["labels"] for place in range(3)] == [1, 0, 1]
    plain = papa.data.encode_sequences(split, bert, 8, papa_layout=False, max_samples=2)
    assert rows_of(plain, "input_ids") == [[1, 4, 5, 6, 7, 2, 0, 0], [1, 2, 0, 0, 0, 0, 0, 0]]
    free = papa.data.encode_sequences(split, bert, 5, papa_layout=False, pad_to_max_length=False)
    assert rows_of(free, "input_ids") == [[1, 4, 5, 6, 2], [1, 2], [1, 9, 8, 5, 2]]
    unlabelled = papa.data.encode_sequences(
        split._replace(labels=None), bert, 8, papa_layout=True, max_samples=99
    )
    assert len(unlabelled) == 3
    assert set(unlabelled[0]) == {"input_ids", "attention_mask", "token_type_ids"}


def test_token_types_of_pairs_move_unless_published(papa, bert):
    split = papa.glue.SequenceSplit([("the dog", "cat and")], [0])
    ids = [1, 4, 5, 0, 0, 2, 9, 8, 0, 2]
    moved = papa.data.encode_sequences(split, bert, 10, papa_layout=True)
    assert rows_of(moved, "input_ids") == [ids]
    assert rows_of(moved, "token_type_ids") == [[0, 0, 0, 0, 0, 0, 1, 1, 0, 1]]
    published = papa.data.encode_sequences(
        split, bert, 10, papa_layout=True, published_token_types=True
    )
    assert rows_of(published, "input_ids") == [ids]
    # As the tokenizer has them: [CLS] the dog [SEP] | cat and [SEP], then padding.
    assert rows_of(published, "token_type_ids") == [[0, 0, 0, 0, 1, 1, 1, 0, 0, 0]]


def test_pairs_of_roberta(papa, roberta):
    split = papa.glue.SequenceSplit([("a", "b"), ("", "")], [0.5, 2.0])
    encoded = papa.data.encode_sequences(split, roberta, 10, papa_layout=True)
    assert set(encoded[0]) == {"input_ids", "attention_mask", "labels"}
    assert rows_of(encoded, "input_ids") == [
        [0, 4, 5, 1, 1, 2, 2, 4, 6, 2],
        [0, 1, 1, 1, 1, 2, 2, 1, 1, 2],
    ]


LABELS = ("B-X", "I-X", "O")


def test_align_labels(papa):
    number_of = {"B-X": 0, "I-X": 1, "O": 2, "B-Y": 3}
    words = [None, 0, 0, 1, 2, 2, 2, 3, 3, None]
    labels = ["B-X", "O", "I-X", "B-Y"]
    assert papa.data.align_labels(labels, words, False, number_of) == [
        -100, 0, -100, 2, 1, -100, -100, 3, -100, -100,
    ]  # fmt: skip
    # Inside of what B-X begins is I-X; there is no I-Y.
    assert papa.data.align_labels(labels, words, True, number_of) == [
        -100, 0, 1, 2, 1, 1, 1, 3, 3, -100,
    ]  # fmt: skip


def test_encode_tokens(papa, bert, roberta):
    split = papa.token_tasks.TokenSplit([["the", "dogs", "run"]], [["O", "B-X", "I-X"]])
    encode = papa.data.encode_tokens
    encoded = encode(split, LABELS, bert, 8, papa_layout=True)
    assert rows_of(encoded, "input_ids") == [[1, 4, 5, 6, 7, 0, 0, 2]]
    assert rows_of(encoded, "labels") == [[-100, 2, 0, -100, 1, -100, -100, -100]]
    assert rows_of(encoded, "attention_mask") == [[1, 1, 1, 1, 1, 0, 0, 1]]
    all_tokens = encode(split, LABELS, bert, 8, papa_layout=True, label_all_tokens=True)
    assert rows_of(all_tokens, "labels") == [[-100, 2, 0, 1, 1, -100, -100, -100]]
    cut = encode(split, LABELS, bert, 4, papa_layout=True)
    assert rows_of(cut, "input_ids") == [[1, 4, 5, 2]]
    assert rows_of(cut, "labels") == [[-100, 2, 0, -100]]
    plain = encode(split, LABELS, bert, 8, papa_layout=False)
    assert rows_of(plain, "input_ids") == [[1, 4, 5, 6, 7, 2, 0, 0]]
    letters = papa.token_tasks.TokenSplit([["ab", "c"]], [["B-X", "O"]])
    encoded = encode(letters, LABELS, roberta, 9, papa_layout=True)
    assert rows_of(encoded, "input_ids") == [[0, 4, 5, 6, 4, 7, 1, 1, 2]]
    assert rows_of(encoded, "labels") == [[-100, 0, -100, -100, 2, -100, -100, -100, -100]]


def test_special_tokens_in_texts_are_text(papa, bert, roberta):
    split = papa.glue.SequenceSplit([("the [SEP] dog",)], [0])
    unknown = bert.unk_token_id  # of "[", "sep" and "]"
    (ids,) = rows_of(papa.data.encode_sequences(split, bert, 14, papa_layout=True), "input_ids")
    assert ids == [1, 4, *[unknown] * 3, 5, *[0] * 7, 2]
    split = papa.token_tasks.TokenSplit([["a", "</s>"]], [["O", "B-X"]])
    encoded = papa.data.encode_tokens(split, LABELS, roberta, 12, papa_layout=True)
    assert rows_of(encoded, "input_ids")[0].count(roberta.sep_token_id) == 1
    assert rows_of(encoded, "labels")[0][:4] == [-100, 2, -100, 0]


def test_lost_words_are_counted(papa, bert, capsys):
    split = papa.token_tasks.TokenSplit(
        [["the", "dogs", "run"], ["the", "\u200b"], ["cat"]], [["O"] * 3, ["O"] * 2, ["O"]]
    )
    papa.data.encode_tokens(split, LABELS, bert, 4, papa_layout=True)
    assert "2 of 6 words, in 2 of 3 sentences, are beyond --max_seq_length 4" in (
        capsys.readouterr().err
    )


def test_encoding_refuses_impossible_lengths(papa, bert):
    split = papa.glue.SequenceSplit([("the", "dog")], [0])
    with refused("--max_seq_length 65", "at most 64"):
        papa.data.encode_sequences(split, bert, 65, papa_layout=True)
    with refused("--max_seq_length 3", "at least 4"):
        papa.data.encode_sequences(split, bert, 3, papa_layout=True)
    with refused("--max_seq_length 2", "at least 3"):
        papa.data.encode_tokens(
            papa.token_tasks.TokenSplit([["the"]], [["O"]]), LABELS, bert, 2, papa_layout=True
        )


def test_encoding_refuses_unsuitable_tokenizers(papa, bert):
    class Slow:
        is_fast = False

    split = papa.token_tasks.TokenSplit([["the"]], [["O"]])
    with refused("token classification needs a fast tokenizer"):
        papa.data.encode_tokens(split, LABELS, Slow(), 8, papa_layout=False)
    no_separator = BertTokenizer(vocab=bert.get_vocab())
    no_separator.sep_token = None
    with refused("--use_papa_preprocess", "separator"):
        papa.data.encode_tokens(split, LABELS, no_separator, 8, papa_layout=True)


# --- Batches


def test_batches_are_padded_to_the_longest(papa, bert):
    split = papa.glue.SequenceSplit([("the dog",), ("cat",)], [1, 0])
    encoded = papa.data.encode_sequences(split, bert, 8, papa_layout=False, pad_to_max_length=False)
    batch = papa.data.Collator(pad_id=8)([encoded[0], encoded[1]])
    assert batch["input_ids"].tolist() == [[1, 4, 5, 2], [1, 9, 2, 8]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert batch["labels"].tolist() == [1, 0]
    assert {value.dtype for value in batch.values()} == {torch.int64}
    assert "positions" not in batch


def test_unused_positions_are_dropped(papa, bert):
    collate = papa.data.Collator(bert.pad_token_id, drop_unused_positions=True)
    split = papa.glue.SequenceSplit(
        [("the", "dog cat and"), ("cat and", "run"), ("", "")], [1.5] * 3
    )
    encoded = papa.data.encode_sequences(split, bert, 12, papa_layout=True)
    batch = collate([encoded[place] for place in range(3)])
    places = [0, 1, 2, 6, 7, 8, 9, 11]
    assert batch["positions"].tolist() == places
    assert batch["positions"].dtype == torch.int64
    whole = papa.data.Collator(bert.pad_token_id)([encoded[place] for place in range(3)])
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        assert batch[name].tolist() == whole[name][:, places].tolist()
    assert whole["attention_mask"].sum() == batch["attention_mask"].sum()
    assert batch["labels"].tolist() == [1.5] * 3
    assert batch["labels"].dtype == torch.float32
    # Nothing is left out where every position is used by some example.
    full = papa.glue.SequenceSplit([("the the the the the", "cat cat cat cat")], [0])
    encoded = papa.data.encode_sequences(full, bert, 12, papa_layout=True)
    assert "positions" not in collate([encoded[0]])
    assert collate([encoded[0]])["input_ids"].shape == (1, 12)


def test_labels_of_words_are_dropped_with_their_positions(papa, bert):
    split = papa.token_tasks.TokenSplit([["the"], ["dogs", "run"]], [["O"], ["B-X", "O"]])
    encoded = papa.data.encode_tokens(split, LABELS, bert, 10, papa_layout=True)
    batch = papa.data.Collator(0, drop_unused_positions=True)([encoded[0], encoded[1]])
    assert batch["positions"].tolist() == [0, 1, 2, 3, 9]
    assert batch["input_ids"].tolist() == [[1, 4, 0, 0, 2], [1, 5, 6, 7, 2]]
    assert batch["labels"].tolist() == [[-100, 2, -100, -100, -100], [-100, 0, -100, 2, -100]]


# --- Tasks of GLUE from a directory

# name -> (header and rows of train.tsv, sentences of the first example, labels)
TRAIN = {
    "cola": (['gj04\t1\t\tThe "sailors" sleep.', "gj04\t0\t*\tSleep the."], [1, 0]),
    "sst2": (["sentence\tlabel", "good \t1", "bad\t0"], [1, 0]),
    "mrpc": (
        ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", '1\t7\t8\tHe "said.\tShe.'],
        [1],
    ),
    "qqp": (["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "0\t1\t2\tA?\tB?\t0"], [0]),
    "stsb": (["index\tsentence1\tsentence2\tscore", "0\tA.\tB.\t3.800", "1\tA\tB\t0"], [3.8, 0.0]),
    "mnli": (
        ["index\tsentence1\tsentence2\tlabel1\tgold_label", "0\tP.\tH.\tneutral\tneutral"],
        [1],
    ),
    "qnli": (["index\tquestion\tsentence\tlabel", "0\tWho?\tHe.\tnot_entailment"], [1]),
    "rte": (["index\tsentence1\tsentence2\tlabel", "0\tA.\tB.\tentailment"], [0]),
    "wnli": (["index\tsentence1\tsentence2\tlabel", "0\tA.\tB.\t1"], [1]),
}
FIRST = {
    "cola": ('The "sailors" sleep.',), "sst2": ("good ",), "mrpc": ('He "said.', "She."),
    "qqp": ("A?", "B?"), "stsb": ("A.", "B."), "mnli": ("P.", "H."), "qnli": ("Who?", "He."),
    "rte": ("A.", "B."), "wnli": ("A.", "B."),
}  # fmt: skip
RTE = "sentence1\tsentence2\tlabel\na\tb\t"
COLA = {
    "train.tsv.gz": "gj04\t1\t\tThe sailors sleep.\n",
    "dev.tsv": "cj99\t1\t\tIt runs.\n",
    "test.tsv": "index\tsentence\n0\tBill ran.\n",
}
_MNLI = "sentence1\tsentence2\tgold_label\nP.\tH.\t"
MNLI = {
    "train.tsv": f"{_MNLI}neutral\nP.\tH.\t-\nQ.\tI.\tentailment\n",
    "dev_matched.tsv": f"{_MNLI}contradiction\n",
    "dev_mismatched.tsv": f"{_MNLI}neutral\n",
    "test_matched.tsv": "index\tsentence1\tsentence2\n0\tP.\tH.\n",
    "test_mismatched.tsv": "index\tsentence1\tsentence2\n0\tP.\tH.\n",
}


def write_folder(folder, files: dict[str, str]) -> str:
    for name, text in files.items():
        write(folder / name, text)
    return str(folder)


@pytest.mark.parametrize("name", TRAIN)
def test_glue_directory_is_read(papa, tmp_path, name):
    rows, labels = TRAIN[name]
    folder = write_folder(tmp_path, {"train.tsv": "\n".join(rows) + "\n"})
    task = papa.glue.load_sequence_task(name.upper(), task_dir=folder, splits=["train"])
    assert (task.name, task.labels) == (name, papa.glue.GLUE[name].labels)
    assert list(task.splits) == ["train"]
    assert task.splits["train"].texts[0] == FIRST[name]
    assert task.splits["train"].labels == labels


def test_glue_directory_has_all_splits(papa, tmp_path, capsys):
    load = papa.glue.load_sequence_task
    splits = ("train", "validation", "test")
    cola = load("CoLA", task_dir=write_folder(tmp_path / "c", COLA), splits=splits)
    assert list(cola.splits) == list(splits)
    assert cola.splits["validation"] == ([("It runs.",)], [1])
    assert cola.splits["test"] == ([("Bill ran.",)], None)
    mnli = load("mnli", task_dir=write_folder(tmp_path / "m", MNLI), splits=splits)
    kinds = ("matched", "mismatched")
    assert list(mnli.splits) == ["train", *(f"{s}_{k}" for s in splits[1:] for k in kinds)]
    assert [one.labels for one in mnli.splits.values()] == [[1, 0], [2], [1], None, None]
    assert "1 pairs have no agreed label (-) and are left out" in capsys.readouterr().err


def test_glue_directory_errors(papa, tmp_path):
    def load(name, files, *splits):
        folder = write_folder(tmp_path / str(len(list(tmp_path.iterdir()))), files)
        papa.glue.load_sequence_task(name, task_dir=folder, splits=splits or ["train"])

    with refused("has no split validation", "no dev.tsv", "holds train.tsv"):
        load("rte", {"train.tsv": RTE + "1\n"}, "train", "validation")
    with refused("no split validation_mismatched"):
        load("mnli", {"dev_matched.tsv": MNLI["dev_matched.tsv"]}, "validation")
    with refused("has no columns question1", "it has index, sentence1"):
        load("qqp", {"train.tsv": "index\tsentence1\tlabel\n0\ta\t1\n"})
    with refused("several tasks", "a/train.tsv, b/train.tsv", "give the directory of sst2"):
        load("sst2", {"a/train.tsv": "x", "b/train.tsv": "x"})
    with refused("line 2 has the label 'maybe'", "entailment, not_entailment"):
        load("rte", {"train.tsv": RTE + "maybe\n"})
    with refused("train.tsv has no pair with an agreed label"):
        load("mnli", {"train.tsv": f"{_MNLI}-\n"})
    with refused("line 2 has no label"):
        load("rte", {"train.tsv": RTE + "-1\n"})
    with refused("line 3 has no label", "in all rows"):
        load("rte", {"test.tsv": RTE + "1\na\tb\t-1\n"}, "test")
    with refused("line 2 has the label 'high': a regression needs a number"):
        load("stsb", {"train.tsv": RTE.replace("label", "score") + "high\n"})
    with refused("has no column 'label'"):
        load("sst2", {"train.tsv": "sentence\ngood\n"})
    for text in ("sentence\tlabel\n", ""):
        with refused("train.tsv has no rows"):
            load("sst2", {"train.tsv": text})
    with refused("--task_dir", "does not exist"):
        papa.glue.load_sequence_task("rte", task_dir=str(tmp_path / "nowhere"))
    with refused("--task_dir needs the --task_name"):
        papa.glue.load_sequence_task(task_dir=str(tmp_path))


def test_task_names(papa):
    with refused("--task_name kola", "cola, mnli, mrpc, qnli, qqp, rte, sst2, stsb, wnli"):
        papa.glue.load_sequence_task("kola")
    with refused("--task_name srl", "ner, pos, chunk"):
        papa.token_tasks.load_token_task("srl")
    assert papa.glue.glue_name("SST-2") == "sst2"
    assert papa.token_tasks.token_task_name("NER") == "ner"


@pytest.mark.parametrize("row", ["1\t7\t8\tHe\tsaid.\tShe said.", "1\t7\t8\tHe said."])
def test_malformed_rows_of_glue_are_counted_but_refused_in_a_test_set(papa, tmp_path, capsys, row):
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    rows = f"{header}0\t1\t2\tA\tB\n{row}\n1\t3\t4\tC\tD\n"
    folder = write_folder(tmp_path, {"train.tsv": rows, "test.tsv": rows})
    load = papa.glue.load_sequence_task
    assert load("mrpc", task_dir=folder, splits=["train"]).splits["train"] == (
        [("A", "B"), ("C", "D")], [0, 1],
    )  # fmt: skip
    assert "1 row(s) have more or fewer than 5 fields and are left out (the first one: line 3)" in (
        capsys.readouterr().err
    )
    with refused("test.tsv line 3 has . field"):
        load("mrpc", task_dir=folder, splits=["test"])


# --- Own files


def load_own(
    papa, folder, suffix: str, train: str, validation: str = "", test: str = "", **options
):
    texts = {"train": train, "validation": validation, "test": test}
    files = {
        split: write(folder / f"{split}{suffix}", text) if text else None
        for split, text in texts.items()
    }
    splits = [split for split, text in texts.items() if text]
    return papa.glue.load_sequence_task(files=files, splits=splits, **options)


def test_own_csv_with_names_as_labels(papa, tmp_path):
    task = load_own(
        papa, tmp_path, ".csv",
        'text,label\n"a, ""b""\nc",spam\nd,ham\n', "label,text\nham,e\n", "text\nf\n",
    )  # fmt: skip
    assert (task.name, task.labels) == (None, ("ham", "spam"))
    assert task.splits["train"] == ([('a, "b"\nc',), ("d",)], [1, 0])
    assert task.splits["validation"] == ([("e",)], [0])
    assert task.splits["test"] == ([("f",)], None)


def test_own_tsv_with_numbers_as_labels(papa, tmp_path):
    task = load_own(
        papa, tmp_path, ".tsv.gz",
        'sentence1\tsentence2\tlabel\na "b\tc\t10\nd\te\t-1\nf\tg\t2\n',
    )  # fmt: skip
    assert task.labels == ("-1", "2", "10")
    assert task.splits["train"] == ([('a "b', "c"), ("d", "e"), ("f", "g")], [2, 0, 1])


@pytest.mark.parametrize("whole", [False, True])
def test_own_json(papa, tmp_path, whole):
    rows = [{"sentence": "a", "label": 0.5}, {"label": 2, "sentence": "b\u2028c", "more": 1}]
    text = json.dumps(rows, indent=1) if whole else "\n\n".join(map(json.dumps, rows)) + "\n"
    task = load_own(papa, tmp_path, ".json", text)
    assert task.labels == ()  # a regression
    assert task.splits["train"] == ([("a",), ("b\u2028c",)], [0.5, 2.0])


@pytest.mark.parametrize("labels", [("1.0", "0.0", "1"), ("01", "+0", "1e0"), ("1.", "-0", "1")])
def test_integers_in_any_spelling_are_classes(papa, tmp_path, labels):
    rows = "".join(f"a{label},{label}\n" for label in labels)
    task = load_own(papa, tmp_path, ".csv", "text,label\n" + rows, "text,label\nb,1.00\n")
    assert task.labels == ("0", "1")
    assert task.splits["train"].labels == [1, 0, 1]
    assert task.splits["validation"].labels == [1]


@pytest.mark.parametrize("missing", ["", "NA", "NaN", "nan", "None", "null"])
def test_missing_labels_are_not_a_class(papa, tmp_path, missing):
    rows = f"text,label\na,x\nb,{missing}\nc,y\n"
    with refused("line 3 has no label"):
        load_own(papa, tmp_path, ".csv", rows)
    task = load_own(
        papa, tmp_path, ".csv", "text,label\na,x\nc,y\n", "", f"text,label\nd,{missing}"
    )
    assert task.splits["test"] == ([("d",)], None)


def test_a_task_of_glue_from_own_files(papa, tmp_path):
    task = load_own(
        papa, tmp_path, ".csv",
        "premise,hypothesis,label\na,b,2\nc,d,entailment\n", "premise,hypothesis,label\na,b,1\n",
        task_name="MNLI",
    )  # fmt: skip
    assert task.name == "mnli"
    assert list(task.splits) == ["train", "validation"]
    assert task.splits["train"] == ([("a", "b"), ("c", "d")], [2, 0])
    cola = load_own(papa, tmp_path, ".tsv", "gj04\t1\t\tIt runs.\n", task_name="cola")
    assert cola.splits["train"] == ([("It runs.",)], [1])


def test_labels_come_from_training_when_only_evaluating(papa, tmp_path):
    files = {
        "train": write(tmp_path / "a.csv", "text,label\na,x\nb,y\n"),
        "validation": write(tmp_path / "b.csv", "text,label\nc,y\n"),
    }
    task = papa.glue.load_sequence_task(files=files, splits=["validation"])
    assert task.splits["validation"].labels == [1]


OWN_ERRORS = {
    ("one class", ".csv", "text,label\na,1\nb,1\n", ""): "has 1 different label",
    ("unseen label", ".csv", "text,label\na,x\nb,y\n", "text,label\nc,z\n"): (
        r"validation.csv line 2 has the label 'z' \(expected one of x, y\)"
    ),
    ("0 is no label", ".csv", "text,label\na,1\nb,2\n", "text,label\nc,0\n"): "the label '0'",
    ("no label", ".csv", "text,label\na,x\nb,\nc,y\n", ""): "line 3 has no label",
    ("not a number", ".csv", "text,label\na,1.5\nb,2\n", "text,label\nc,q\n"): "needs a number",
    ("no text", ".csv", "review,label\na,1\n", ""): (
        r"no columns sentence1 \+ sentence2 or sentence or text; it has review, label"
    ),
    ("no column of labels", ".csv", "text,stars\na,1\n", ""): "no column 'label'; it has text, s",
    ("fields", ".tsv", "text\tlabel\na\t1\t2\n", ""): r"line 2 has 3 field\(s\)",
    ("suffix", ".xlsx", "text,label\n", ""): "train.xlsx must end in .csv, .tsv, .json",
    ("json", ".json", '{"text": "a", "label": 1}\n{"text": \n', ""): "line 2 is malformed JSON",
    ("json array", ".json", '[{"text": "a", "label": 1},\n', ""): "train.json is malformed JSON",
    ("json rows", ".json", "[1]", ""): "element 1 is not a JSON object",
    (
        "json key",
        ".json",
        '{"text": "a", "label": 1}\n{"text": "b"}\n{"text": "c", "label": 2}',
        "",
    ): ("line 2 has no label"),
    ("json half", ".json", '{"text": "a\\ud800", "label": 1}\n', ""): "lone surrogate",
    ("json text", ".json", '{"text": 5, "label": 1}\n', ""): r"line 1: a text is not a string",
    ("empty", ".csv", "text,label\n", ""): "train.csv has no rows",
}


@pytest.mark.parametrize("case", OWN_ERRORS, ids=[case[0] for case in OWN_ERRORS])
def test_own_files_errors(papa, tmp_path, case):
    with refused(OWN_ERRORS[case]):
        load_own(papa, tmp_path, *case[1:])


def test_own_options_errors(papa, tmp_path):
    load = papa.glue.load_sequence_task
    train = write(tmp_path / "a.csv", "text,label\na,1\nb,0\n")
    with refused("split validation is needed: give --validation_file beside --train_file"):
        load(files={"train": train})
    with refused("split train is needed", "beside --validation_file"):
        load(files={"validation": train}, splits=["validation"])
    with refused("--train_file", "nowhere.csv does not exist"):
        load(files={"train": str(tmp_path / "nowhere.csv")}, splits=["train"])
    with refused("--train_file must be one file", "holds a.csv, b.csv"):
        write(tmp_path / "b.csv", "x")
        load(files={"train": str(tmp_path)}, splits=["train"])
    with refused("either --task_dir, or --train_file"):
        load("cola", files={"train": train}, task_dir=str(tmp_path))
    with refused("no data: give --task_name"):
        load()
    with refused("no data: give --dataset_name"):
        papa.token_tasks.load_token_task("ner")


# --- Labelled words

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

-DOCSTART- -X- -X- O

Peter NNP B-NP B-PER
"""
WNUT = "the\tO\n#big\tB-loc\na b\tI-loc\n\t\nit\tO\r\n \n\n"
CONLLU = """# sent_id = 1
1-2\tIt's\t_\t_\t_\t_\t_\t_\t_\t_
1\tIt\tit\tPRON\tPRP\t_\t3\tnsubj\t_\t_
2\t's\tbe\tAUX\tVBZ\t_\t3\tcop\t_\t_
2.1\tgone\tgo\tVERB\tVBN\t_\t_\t_\t_\t_
3\tNew York\tNew York\tPROPN\tNNP\t_\t0\troot\t_\t_

# sent_id = 2
1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
"""


def load_words(papa, folder, name: str, text: str, task_name: str = "ner", **options):
    path = write(folder / name, text)
    return papa.token_tasks.load_token_task(
        task_name, files={"train": path}, splits=["train"], **options
    )


@pytest.mark.parametrize(
    ("task_name", "labels"),
    [
        ("ner", [["B-ORG", "O"], ["B-PER"]]),
        ("pos", [["NNP", "VBZ"], ["NNP"]]),
        ("CHUNK", [["B-NP", "B-VP"], ["B-NP"]]),
    ],
)
def test_conll_2003(papa, tmp_path, task_name, labels):
    task = load_words(papa, tmp_path, "train.txt", CONLL_2003, task_name)
    assert task.name == task_name.lower()
    assert task.splits["train"] == ([["EU", "rejects"], ["Peter"]], labels)
    assert task.labels == tuple(sorted({label for row in labels for label in row}))


def test_conll_with_tabs_in_blank_lines(papa, tmp_path):
    task = load_words(papa, tmp_path, "train.conll.gz", WNUT)
    assert task.splits["train"] == (
        [["the", "#big", "a b"], ["it"]],
        [["O", "B-loc", "I-loc"], ["O"]],
    )
    assert task.labels == ("B-loc", "I-loc", "O")
    same = load_words(papa, tmp_path, "two", "a B-X\nb O", "chunk")  # the last of two columns
    assert same.splits["train"] == ([["a", "b"]], [["B-X", "O"]])


def test_conll_with_windows_line_ends_and_byte_order_marks(papa, tmp_path):
    expected = load_words(papa, tmp_path, "a.conll", CONLL_2003)
    marked = "\ufeff" + CONLL_2003.replace("\n", "\r\n") + "\r\n\ufeff"  # two files, one empty
    assert load_words(papa, tmp_path, "b.conll", marked) == expected
    doubled = "\ufeff" + CONLL_2003 + "\n\ufeff" + CONLL_2003
    words = load_words(papa, tmp_path, "c.conll", doubled).splits["train"].words
    assert words == 2 * expected.splits["train"].words


def test_conll_comments_are_left_out(papa, tmp_path, capsys):
    # MultiCoNER: as many columns as the words have; CoNLL-2012: more.
    text = (
        "#begin document (bc/cctv/00); part 000\n"
        "# id 7f1a domain=en\n# _ _ O\n#1 _ _ B-X\nb _ _ O\n\n# id 7f1b domain=en\n# _ _ O\n"
    )
    task = load_words(papa, tmp_path, "a.conll", text)
    assert task.splits["train"] == (
        [["#", "#1", "b"], ["#"]],
        [["O", "B-X", "O"], ["O"]],
    )
    assert "3 comment line(s) (#) are left out" in capsys.readouterr().err


SCHEMES = {
    "types": "O PER PER O ORG PER",
    "IOB1": "O I-PER I-PER O I-ORG I-PER",
    "BIOES": "O B-PER E-PER O S-ORG S-PER",
    "BILOU": "O B-PER L-PER O U-ORG U-PER",
    "IOE": "O I-PER E-PER O E-ORG E-PER",
    "BMES": "O B-PER M-PER O S-ORG S-PER",
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tag_schemes_are_converted_to_bio(papa, tmp_path, scheme, capsys):
    tags = SCHEMES[scheme].split()
    rows = [json.dumps({"tokens": [*"abcdef"], "ner_tags": tags})]
    task = load_words(papa, tmp_path, "a.json", "\n".join(rows))
    assert task.splits["train"].labels == [["O", "B-PER", "I-PER", "O", "B-ORG", "B-PER"]]
    assert task.labels == ("B-ORG", "B-PER", "I-ORG", "I-PER", "O")
    assert "are converted to BIO" in capsys.readouterr().err


def test_adjacent_entities_of_a_type_stay_apart(papa):
    tags = {"I B I": "B B I", "S S B E B E": "B B B I B I", "I E I E": "B I B I", "I O I": "B O B"}
    for before, after in tags.items():
        converted = papa.token_tasks.to_bio(
            [tag if tag == "O" else f"{tag}-X" for tag in before.split()]
        )
        assert " ".join(tag[0] for tag in converted) == after


def test_bio_labels_are_not_changed(papa, tmp_path, capsys):
    # The I-Y at the start is an error of BIO data: some B-X is not after an entity of its type.
    task = load_words(papa, tmp_path, "a.conll", "a I-Y\nb O\nc B-X\nd I-X\n")
    assert task.splits["train"].labels == [["I-Y", "O", "B-X", "I-X"]]
    assert task.labels == ("B-X", "I-X", "I-Y", "O")
    assert "converted" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ("NOUN VERB", "'NOUN' does not mark an entity .*--task_name pos"),
        ("O B_PER", "does not mark an entity"),
        ("O PER-B", "does not mark an entity"),
        ("O B-PER LOC", "mix 'B-PER' and 'LOC'"),
    ],
)
def test_labels_that_mark_no_entities_are_refused(papa, tmp_path, labels, reason):
    text = "".join(f"w {label}\n" for label in labels.split())
    with refused("a.conll line 1", reason):
        load_words(papa, tmp_path, "a.conll", text)


def test_missed_entities_without_prefixes_count(papa, tmp_path):
    """seqeval alone reads the type ORG as outside: F1 of 1 with every ORG missed."""
    task = load_words(papa, tmp_path, "a.conll", "a PER\nb O\nc ORG\n")
    number = {label: index for index, label in enumerate(task.labels)}
    labels = [[number[label] for label in task.splits["train"].labels[0]]]
    logits = one_hot([[labels[0][0], number["O"], number["O"]]], len(task.labels))
    scores = papa.metrics.token_metrics("ner", logits, labels, task.labels)
    assert (scores["precision"], scores["recall"]) == (1.0, 0.5)


def test_conll_with_chosen_columns(papa, tmp_path):
    task = load_words(
        papa, tmp_path, "a.conll", "1 cat X B-Y\n2 dog Z O\n", "pos",
        text_column_name="1", label_column_name="2",
    )  # fmt: skip
    assert task.splits["train"] == ([["cat", "dog"]], [["X", "Z"]])


def test_conllu(papa, tmp_path):
    task = load_words(papa, tmp_path, "a.conllu.gz", CONLLU, "pos")
    assert task.splits["train"] == (
        [["It", "'s", "New York"], ["Go"]],
        [["PRON", "AUX", "PROPN"], ["VERB"]],
    )
    other = load_words(papa, tmp_path, "a.conllu", CONLLU, "pos", label_column_name="XPOS")
    assert other.splits["train"].labels == [["PRP", "VBZ", "NNP"], ["VB"]]
    by_lemma = load_words(
        papa, tmp_path, "a.conllu", CONLLU, "pos",
        text_column_name="lemma", label_column_name="deprel",
    )  # fmt: skip
    assert by_lemma.splits["train"].words == [["it", "be", "New York"], ["go"]]


def test_json_of_words(papa, tmp_path):
    rows = [
        {"id": "1", "tokens": ["a", "b"], "pos_tags": [3, 4], "ner_tags": ["O", "B-X"]},
        {"id": "2", "tokens": [], "pos_tags": [], "ner_tags": []},
    ]
    text = "\n".join(map(json.dumps, rows))
    assert load_words(papa, tmp_path, "a.json", text).splits["train"] == (
        [["a", "b"]],
        [["O", "B-X"]],
    )
    assert load_words(papa, tmp_path, "a.json", text, "pos").labels == ("3", "4")
    others = json.dumps({"words": ["a", "b"], "tags": ["O", "Y"], "lemmas": ["c", "d"]})
    assert load_words(papa, tmp_path, "b.json", others).splits["train"].words == [["a", "b"]]
    chosen = load_words(papa, tmp_path, "b.json", others, text_column_name="lemmas")
    assert chosen.splits["train"] == ([["c", "d"]], [["O", "B-Y"]])


WORD_ERRORS = {
    ("one column", "a.conll", "a\nb\n", "ner"): r"line 1 has 1 column\(s\)",
    (
        "ragged",
        "a.conll",
        "a O\nb\n",
        "ner",
    ): r"line 2 has 1 column\(s\) \(expected 2, as in line 1\)",
    ("one label", "a.conll", "a O\nb O\n", "ner"): r"1 different label\(s\)",
    ("empty", "a.conll", "\n \n", "ner"): "a.conll has no sentences",
    ("documents", "a.conll", "-DOCSTART- O\n\n", "ner"): "a.conll has no sentences",
    ("csv", "a.csv", "tokens,tags\n", "ner"): "a.csv: .*CoNLL, CoNLL-U or json",
    ("entities", "a.conllu", CONLLU, "ner"): "--task_name pos, or --label_column_name",
    ("fields", "a.conllu", "1\tIt\n", "pos"): r"line 1 has 2 field\(s\) \(expected 10",
    ("json lengths", "a.json", '{"tokens": ["a"], "ner_tags": []}', "ner"): (
        "line 1: not a list of words and one of as many labels"
    ),
    ("json half", "a.json", '{"tokens": ["\\ud800"], "ner_tags": ["O"]}', "ner"): "lone surrogate",
    ("json text", "a.json", '{"tokens": "a", "ner_tags": "O"}', "ner"): "not a list of words",
    ("json empty", "a.json", '{"tokens": [], "ner_tags": []}', "ner"): "has no sentences",
    ("json columns", "a.json", '{"tokens": []}', "ner"): "only the column tokens",
}


@pytest.mark.parametrize("case", WORD_ERRORS, ids=[case[0] for case in WORD_ERRORS])
def test_word_files_errors(papa, tmp_path, case):
    with refused(WORD_ERRORS[case]):
        load_words(papa, tmp_path, *case[1:])


def test_chosen_columns_errors(papa, tmp_path):
    with refused("has 2 column", "no word in column 0 with its label in column 5"):
        load_words(papa, tmp_path, "a.conll", "a O\n", label_column_name="5")
    with refused("--label_column_name tag", "give a number, from 0"):
        load_words(papa, tmp_path, "a.conll", "a O\n", label_column_name="tag")
    with refused("no column 'tag'", "id, form, lemma"):
        load_words(papa, tmp_path, "a.conllu", CONLLU, "pos", label_column_name="tag")
    with refused("no column 'tag'", "it has tokens, ner_tags", "--label_column_name"):
        load_words(
            papa, tmp_path, "a.json", '{"tokens": [], "ner_tags": []}', label_column_name="tag"
        )


def test_labels_unknown_to_training_are_refused(papa, tmp_path):
    files = {
        "train": write(tmp_path / "a.conll", "a O\nb B-X\n"),
        "validation": write(tmp_path / "b.conll", "a O\n\nb O\nc B-Y\n"),
    }
    with refused("sentence at .*b.conll line 3 has the label 'B-Y'", "expected one of B-X, O"):
        papa.token_tasks.load_token_task("ner", files=files)


# --- The hub


@pytest.fixture
def hub(monkeypatch):
    """Put splits there by ``hub["train"] = datasets.Dataset``; ``hub["asked"]`` is what was."""
    state = {}

    def load_dataset(*names, cache_dir):
        state["asked"] = (*names, cache_dir)
        return {split: rows for split, rows in state.items() if split != "asked"}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return state


def table(columns: dict, **features) -> datasets.Dataset:
    rows = datasets.Dataset.from_dict(columns)
    for name, feature in features.items():
        rows = rows.cast_column(name, feature)
    return rows


def test_hub_has_glue(papa, hub):
    label = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    columns = {"premise": ["p"], "hypothesis": ["h"], "label": [2], "idx": [0]}
    hub["train"] = hub["validation_matched"] = table(columns, label=label)
    hub["validation_mismatched"] = table(columns | {"label": [0]}, label=label)
    hub["test_matched"] = hub["test_mismatched"] = table(columns | {"label": [-1]}, label=label)
    task = papa.glue.load_sequence_task(
        "MNLI", cache_dir="here", splits=("train", "validation", "test")
    )
    assert hub["asked"] == ("nyu-mll/glue", "mnli", "here")
    assert task.splits["validation_mismatched"] == ([("p", "h")], [0])
    assert task.splits["train"].labels == [2]
    assert task.splits["test_mismatched"].labels is None
    del hub["test_mismatched"]
    with refused("nyu-mll/glue has no split test_mismatched on the hub; it has train"):
        papa.glue.load_sequence_task("MNLI", splits=["test"])


def test_hub_dataset_of_your_own(papa, hub):
    label = datasets.ClassLabel(names=["neg", "pos"])
    hub["train"] = table({"text": ["a", "b"], "label": [1, 0]}, label=label)
    hub["test"] = table({"text": ["c"], "label": [-1]}, label=label)
    task = papa.glue.load_sequence_task(
        dataset_name="some/reviews", dataset_config_name="plain", splits=["test"]
    )
    assert hub["asked"] == ("some/reviews", "plain", None)
    assert task.labels == ("neg", "pos")
    assert task.splits["train"] == ([("a",), ("b",)], [1, 0])
    assert task.splits["test"] == ([("c",)], None)


def test_hub_dataset_of_words(papa, hub):
    names = ["O", "B-X", "B-A"]  # an order of its own, and one label that does not occur
    tags = datasets.List(datasets.ClassLabel(names=names))
    columns = {"id": ["0"], "tokens": [["a", "b"]], "ner_tags": [[1, 0]]}
    hub["train"] = hub["validation"] = table(columns, ner_tags=tags)
    task = papa.token_tasks.load_token_task("ner", dataset_name="some/entities")
    assert hub["asked"] == ("some/entities", None)
    assert task.labels == tuple(names)
    assert task.splits["validation"] == ([["a", "b"]], [["B-X", "O"]])
    hub["train"] = hub["validation"] = table(columns | {"ner_tags": [["B-Z", "O"]]})
    assert papa.token_tasks.load_token_task("ner", dataset_name="some/entities").labels == (
        "B-Z",
        "O",
    )


def test_without_network_the_cache_is_asked_once(papa, monkeypatch, tmp_path):
    class Unreachable:
        def head(self, url, timeout):
            asked.append(timeout)
            raise ConnectionError("no route")

    asked = []
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", Unreachable)
    with refused(
        "nyu-mll/glue cola could not be downloaded", "check the name and the network", "--task_dir"
    ):
        papa.glue.load_sequence_task("COLA", cache_dir=str(tmp_path))
    assert huggingface_hub.constants.HF_HUB_OFFLINE
    assert datasets.config.HF_HUB_OFFLINE
    with refused("some/words en could not be downloaded", "--train_file and --validation_file"):
        papa.token_tasks.load_token_task(
            "pos", dataset_name="some/words", dataset_config_name="en", cache_dir=str(tmp_path)
        )
    assert asked == [5]  # offline from then on


# --- Metrics


def one_hot(predicted: list, columns: int) -> np.ndarray:
    return np.eye(columns)[np.array(predicted)]


def test_metrics_of_classification(papa):
    labels, logits = [1, 1, 0, 0], one_hot([1, 0, 0, 0], 2)
    metrics = papa.metrics.metrics
    # 1 true positive, 1 false negative, 2 true negatives: 2 / sqrt(1 * 2 * 2 * 3).
    assert metrics("cola", logits, labels) == {
        "matthews_correlation": pytest.approx(2 / math.sqrt(12), abs=1e-12)
    }
    for name in ("mrpc", "qqp"):
        assert metrics(name, logits, labels) == {
            "accuracy": 0.75,
            "f1": pytest.approx(2 / 3, abs=1e-12),
            "combined_score": pytest.approx((0.75 + 2 / 3) / 2, abs=1e-12),
        }
    for name in ("rte", "sst2", "qnli", "wnli", None):
        assert metrics(name, logits, labels) == {"accuracy": 0.75}
    assert metrics("mnli", one_hot([2, 1, 0], 3), [2, 0, 0]) == {
        "accuracy": pytest.approx(2 / 3, abs=1e-12)
    }
    # One class only: as scikit-learn has it, and GLUE.
    assert metrics("cola", one_hot([1, 1, 1], 2), [1, 0, 1]) == {"matthews_correlation": 0.0}
    assert metrics("mrpc", one_hot([0, 0], 2), [1, 0])["f1"] == 0.0


def test_metrics_of_regression(papa):
    # Deviations (-1, 0, 1) and (-4, -1, 5) / 3: 3 / sqrt(2 * 42 / 9).
    pearson = pytest.approx(3 / math.sqrt(28 / 3), abs=1e-12)
    logits, labels = np.array([[1.0], [2.0], [3.0]]), np.array([1.0, 2.0, 4.0])
    assert papa.metrics.metrics("stsb", logits, labels) == {
        "pearson": pearson,
        "spearmanr": pytest.approx(1.0, abs=1e-12),
        "combined_score": pytest.approx((3 / math.sqrt(28 / 3) + 1) / 2, abs=1e-12),
    }
    assert papa.metrics.metrics(None, logits, labels) == {
        "mse": pytest.approx(1 / 3, abs=1e-12),
        "pearson": pearson,
        "spearmanr": pytest.approx(1.0, abs=1e-12),
    }
    flat = papa.metrics.metrics("stsb", np.ones((3, 1)), labels)
    assert flat == {"pearson": 0.0, "spearmanr": 0.0, "combined_score": 0.0}


def test_metrics_of_entities(papa):
    names = ("B-X", "B-Y", "I-X", "O")
    labels = [[-100, 0, 2, -100, 3, 1], [3, 0, 3, -100, -100, -100]]
    # Found: the first X; lost: Y; the second X, and one that is none: at a position that counts.
    predicted = [[3, 0, 2, 1, 3, 3], [0, 0, 3, 0, 0, 0]]
    logits = one_hot(predicted, 4)
    scores = papa.metrics.token_metrics("ner", logits, labels, names)
    assert scores == {
        "precision": pytest.approx(2 / 3, abs=1e-12),
        "recall": pytest.approx(2 / 3, abs=1e-12),
        "f1": pytest.approx(2 / 3, abs=1e-12),
        "accuracy": pytest.approx(5 / 7, abs=1e-12),
    }
    whole = papa.metrics.token_metrics("ner", logits, labels, names, entity_level=True)
    assert whole == {
        **{f"overall_{name}": value for name, value in scores.items()},
        "X_precision": pytest.approx(2 / 3, abs=1e-12),
        "X_recall": 1.0,
        "X_f1": pytest.approx(0.8, abs=1e-12),
        "X_number": 2,
        "Y_precision": 0.0,
        "Y_recall": 0.0,
        "Y_f1": 0.0,
        "Y_number": 1,
    }


def test_metrics_of_parts_of_speech(papa):
    names = ("NOUN", "VERB", "X")
    labels = [[-100, 0, 0, 1, -100]]
    logits = one_hot([[2, 0, 1, 1, 2]], 3)
    accuracy = {"accuracy": pytest.approx(2 / 3, abs=1e-12)}
    assert papa.metrics.token_metrics("pos", logits, labels, names) == accuracy
    assert papa.metrics.token_metrics("pos", logits, labels, names, entity_level=True) == {
        **accuracy,
        "NOUN_precision": 1.0, "NOUN_recall": 0.5, "NOUN_number": 2,
        "NOUN_f1": pytest.approx(2 / 3, abs=1e-12),
        "VERB_precision": 0.5, "VERB_recall": 1.0, "VERB_number": 1,
        "VERB_f1": pytest.approx(2 / 3, abs=1e-12),
        "X_precision": 0.0, "X_recall": 0.0, "X_number": 0, "X_f1": 0.0,
    }  # fmt: skip


def test_main_metric_is_among_the_metrics(papa):
    logits, labels = one_hot([1, 0, 0], 2), [1, 1, 0]
    for name in (*papa.glue.GLUE, None):
        one = np.array([[1.0], [0.5], [0.2]]) if name == "stsb" else logits
        assert papa.metrics.main_metric(name) in papa.metrics.metrics(name, one, labels)
    names = ("B-X", "O")
    for name in papa.token_tasks.TOKEN_TASKS:
        for entity_level in (False, True):
            scores = papa.metrics.token_metrics(name, logits[None], [labels], names, entity_level)
            assert papa.metrics.main_metric(name, entity_level) in scores
    assert papa.metrics.main_metric("cola") == "matthews_correlation"
    assert papa.metrics.main_metric("mrpc") == "f1"
    assert papa.metrics.main_metric("ner", entity_level=True) == "overall_f1"


# --- Predictions


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("cola", "0 1"), ("mrpc", "0 1"), ("qqp", "0 1"), ("sst2", "0 1"), ("wnli", "0 1"),
        ("rte", "entailment not_entailment"), ("qnli", "entailment not_entailment"),
        ("mnli", "entailment neutral"), ("stsb", "5.000 0.000"), (None, "bad good"),
    ],
)  # fmt: skip
def test_predictions_have_the_format_of_submissions_to_glue(papa, tmp_path, name, values):
    labels = papa.glue.GLUE[name].labels if name else ("bad", "good")
    task = papa.glue.SequenceTask(name, labels, {})
    logits = one_hot([0, 1], len(labels)) if labels else np.array([[5.25], [-0.5]])
    output = SimpleNamespace(predictions=logits)
    papa.run_papa_glue.write_predictions(tmp_path, task, {"test_mismatched": output})
    first, second = values.split()
    assert (tmp_path / f"predict_results_{name or 'own'}-mm.txt").read_text() == (
        f"index\tprediction\n0\t{first}\n1\t{second}\n"
    )


# --- The toy


def test_toy_is_a_directory_of_rte(papa, tmp_path):
    for name, *options in (("a",), ("b",), ("c", "--seed", "1")):
        papa.toy.main(["--output_dir", str(tmp_path / name), *options])
    files = {
        f"{f}{s}": (tmp_path / f / f"{s}.tsv").read_text() for f in "abc" for s in ("train", "dev")
    }
    assert files["atrain"] == files["btrain"]
    assert files["adev"] == files["bdev"]
    assert files["atrain"] != files["ctrain"]
    task = papa.glue.load_sequence_task("rte", task_dir=str(tmp_path / "a"))
    train, dev = task.splits["train"], task.splits["validation"]
    assert (len(train.texts), len(dev.texts)) == (1000, 300)
    assert (sum(train.labels), sum(dev.labels)) == (500, 150)
    assert len({*train.texts, *dev.texts}) == 1300


def test_toy_labels_tell_whether_the_premise_lists_the_hypothesis(papa):
    pairs = papa.toy.make_pairs(200, seed=3)
    assert [entailed for *_, entailed in pairs] == [True, False] * 100
    for premise, hypothesis, entailed in pairs:
        *subject, thing = hypothesis.rstrip(".").split()
        assert premise.split()[:2] == subject
        assert (thing in premise.rstrip(".").replace(",", "").split()) == entailed
