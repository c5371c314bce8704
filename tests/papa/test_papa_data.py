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


@pytest.fixture
def encode(papa):
    """A function (texts, labels, tokenizer, length, options) -> {column: rows}, both kinds."""

    def encode(texts, labels, tokenizer, length, papa_layout=True, published=False, **options):
        pad = options.pop("pad", True)
        data = papa.arguments.DataArguments(max_seq_length=length, pad_to_max_length=pad)
        layout = papa.arguments.LayoutArguments(papa_layout, published)
        split = papa.readers.Split(texts, labels)
        if isinstance(texts[0], tuple):
            return papa.data.encode_sequences(split, tokenizer, data, layout, **options)
        return papa.data.encode_tokens(split, LABELS, tokenizer, data, layout, **options)

    return encode


@pytest.fixture
def load(papa):
    """A function (task, splits, data options) that loads a task of sentences."""

    def load(task_name=None, splits=("train", "validation"), **options):
        data = papa.arguments.DataArguments(task_name=task_name, **options)
        return papa.glue.load_sequence_task(data, "cache", splits)

    return load


@pytest.fixture
def load_words(papa, tmp_path):
    """A function (name and text of a file or data options, task, columns) that loads words."""

    def load_words(name=None, text="", task_name="ner", splits=("train",), **options):
        columns = {key: value for key, value in options.items() if key.endswith("column_name")}
        if name:
            options["train_file"] = write(tmp_path / name, text)
        options = {key: value for key, value in options.items() if key not in columns}
        data = papa.arguments.DataArguments(task_name=task_name, **options)
        tokens = papa.arguments.TokenArguments(**columns)
        return papa.token_tasks.load_token_task(data, tokens, "cache", splits)

    return load_words


def write(path, text: str) -> str:
    """Write a file (gzipped if its name says so) and its folders; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def refused(*parts: str):
    """A context in which an InputError of one line with all ``parts`` is raised."""
    pattern = "".join(f"(?=.*{part})" for part in parts)
    return pytest.raises(InputError, match=rf"^{pattern}[^\n]*$")


# --- layouts


def test_sequence_layout_is_that_of_the_published_code(papa):
    golden = torch.load(GOLDEN / "papa" / "expected.pt", weights_only=True)
    assert len(golden["input_ids_before_layout"]) == 12
    for place, before in enumerate(golden["input_ids_before_layout"]):
        origin = papa.data.sequence_layout(before, SEP, 16)
        ids = [before[j] if j >= 0 else PAD for j in origin]
        assert ids == golden["input_ids"][place].tolist()
        assert [int(j >= 0) for j in origin] == golden["attention_mask"][place].tolist()


@pytest.mark.parametrize(
    ("before", "length", "origin"),
    [
        # a single sentence that is cut; a pair of which both are cut; an odd length
        ([1, 7, 8, 9, 6, 5, 2], 8, [0, 1, 2, 3, -1, -1, -1, 6]),
        ([1, 7, 7, 7, 7, 2, 8, 9, 9, 2], 8, [0, 1, 2, 3, 5, 6, 7, 9]),
        ([1, 7, 8, 2, 9, 2], 7, [0, 1, 2, 3, 4, -1, 5]),
        # RoBERTa: two separators between the sentences, both move
        ([1, 7, 2, 2, 8, 2], 8, [0, 1, -1, -1, 2, 3, 4, 5]),
    ],
)
def test_sequence_layout_by_hand(papa, before, length, origin):
    assert papa.data.sequence_layout(before, SEP, length) == origin


words_of = st.lists(st.integers(3, 50), max_size=30)


@given(words_of, st.none() | words_of, st.integers(0, 1), st.integers(4, 40))
def test_sequence_layout_against_the_specification(papa, first, second, more_separators, length):
    before = [CLS, *first, SEP]
    if second is not None:
        before += [SEP] * more_separators + [*second, SEP]
    origin = papa.data.sequence_layout(before, SEP, length)
    # Written from the specification: three slices.
    half, separator, last = length // 2, len(first) + 1, len(before) - 1
    expected = [PAD] * length
    expected[: min(separator, half)] = before[: min(separator, half)]
    middle = before[separator:last][: length - 1 - half]
    expected[half : half + len(middle)] = middle
    expected[-1] = SEP
    assert [before[j] if j >= 0 else PAD for j in origin] == expected
    kept = [j for j in origin if j >= 0]  # no token is there twice, and their order is kept
    assert kept == sorted(set(kept))
    assert len(kept) == min(separator, half) + len(middle) + 1


@given(words_of, st.integers(4, 40))
def test_token_layout_loses_nothing_up_to_the_cut(papa, words, length):
    origin = papa.data.token_layout([CLS, *words, SEP], SEP, length)
    kept = min(len(words) + 1, length - 1)
    assert origin == [*range(kept), *[-1] * (length - 1 - kept), len(words) + 1]


# --- datasets

LABELS = ("B-X", "I-X", "O")


def rows_of(examples, column: str) -> list[list[int]]:
    return [example[column].tolist() for example in examples]


def test_encode_sequences(encode, bert):
    split = [("the dogs run",), ("",), ("cat and dog",)], [1, 0, 1]
    encoded = encode(*split, bert, 8)
    assert rows_of(encoded, "input_ids") == [
        [1, 4, 5, 6, 0, 0, 0, 2],  # "run" is beyond the half
        [1, 0, 0, 0, 0, 0, 0, 2],
        [1, 9, 8, 5, 0, 0, 0, 2],
    ]
    assert rows_of(encoded, "attention_mask")[1] == [1, 0, 0, 0, 0, 0, 0, 1]
    assert rows_of(encoded, "token_type_ids") == [[0] * 8] * 3
    assert [example["labels"] for example in encoded] == [1, 0, 1]
    plain = encode(*split, bert, 8, papa_layout=False, most=2)
    assert rows_of(plain, "input_ids") == [[1, 4, 5, 6, 7, 2, 0, 0], [1, 2, 0, 0, 0, 0, 0, 0]]
    free = encode(split[0], None, bert, 5, papa_layout=False, pad=False)
    assert rows_of(free, "input_ids") == [[1, 4, 5, 6, 2], [1, 2], [1, 9, 8, 5, 2]]
    assert set(free[0]) == {"input_ids", "attention_mask", "token_type_ids"}


def test_token_types_of_pairs_move_unless_published(encode, bert):
    split = [("the dog", "cat and")], [0]
    moved, published = (encode(*split, bert, 10, published=one) for one in (False, True))
    assert rows_of(moved, "input_ids") == rows_of(published, "input_ids")
    assert rows_of(moved, "input_ids") == [[1, 4, 5, 0, 0, 2, 9, 8, 0, 2]]
    assert rows_of(moved, "token_type_ids") == [[0, 0, 0, 0, 0, 0, 1, 1, 0, 1]]
    # As the tokenizer has them: [CLS] the dog [SEP] | cat and [SEP], then padding.
    assert rows_of(published, "token_type_ids") == [[0, 0, 0, 0, 1, 1, 1, 0, 0, 0]]


def test_encode_pairs_of_roberta(encode, roberta):
    encoded = encode([("a", "b"), ("", "")], [0.5, 2.0], roberta, 10)
    assert set(encoded[0]) == {"input_ids", "attention_mask", "labels"}
    assert rows_of(encoded, "input_ids") == [
        [0, 4, 5, 1, 1, 2, 2, 4, 6, 2],
        [0, 1, 1, 1, 1, 2, 2, 1, 1, 2],
    ]


def test_align_labels(papa):
    number_of = {"B-X": 0, "I-X": 1, "O": 2, "B-Y": 3}
    words = [None, 0, 0, 1, 2, 2, 2, 3, 3, None]
    labels = ["B-X", "O", "I-X", "B-Y"]
    first = [-100, 0, -100, 2, 1, -100, -100, 3, -100, -100]
    assert papa.data.align_labels(labels, words, False, number_of) == first
    # Inside of what B-X begins is I-X; there is no I-Y.
    every = [-100, 0, 1, 2, 1, 1, 1, 3, 3, -100]
    assert papa.data.align_labels(labels, words, True, number_of) == every


def test_encode_tokens(encode, bert, roberta):
    split = [["the", "dogs", "run"]], [["O", "B-X", "I-X"]]
    encoded = encode(*split, bert, 8)
    assert rows_of(encoded, "input_ids") == [[1, 4, 5, 6, 7, 0, 0, 2]]
    assert rows_of(encoded, "labels") == [[-100, 2, 0, -100, 1, -100, -100, -100]]
    assert rows_of(encoded, "attention_mask") == [[1, 1, 1, 1, 1, 0, 0, 1]]
    all_tokens = encode(*split, bert, 8, label_all_tokens=True)
    assert rows_of(all_tokens, "labels") == [[-100, 2, 0, 1, 1, -100, -100, -100]]
    plain = encode(*split, bert, 8, papa_layout=False)
    assert rows_of(plain, "input_ids") == [[1, 4, 5, 6, 7, 2, 0, 0]]
    encoded = encode([["ab", "c"]], [["B-X", "O"]], roberta, 9)
    assert rows_of(encoded, "input_ids") == [[0, 4, 5, 6, 4, 7, 1, 1, 2]]
    assert rows_of(encoded, "labels") == [[-100, 0, -100, -100, 2, -100, -100, -100, -100]]


def test_special_tokens_in_texts_are_text(encode, bert, roberta):
    unknown = bert.unk_token_id  # of "[", "sep" and "]"
    (ids,) = rows_of(encode([("the [SEP] dog",)], [0], bert, 14), "input_ids")
    assert ids == [1, 4, *[unknown] * 3, 5, *[0] * 7, 2]
    encoded = encode([["a", "</s>"]], [["O", "B-X"]], roberta, 12)
    assert rows_of(encoded, "input_ids")[0].count(roberta.sep_token_id) == 1
    assert rows_of(encoded, "labels")[0][:4] == [-100, 2, -100, 0]


def test_encode_tokens_counts_lost_words(encode, bert, capsys):
    words = [["the", "dogs", "run"], ["the", "\u200b"], ["cat"]]
    encoded = encode(words, [["O"] * len(row) for row in words], bert, 4)
    assert rows_of(encoded, "input_ids")[0] == [1, 4, 5, 2]
    assert "note: 2 of 6 words are beyond --max_seq_length 4" in capsys.readouterr().err


def test_encode_refuses_impossible_lengths_and_tokenizers(encode, bert):
    for length in (65, 3):
        with refused(f"--max_seq_length {length}", "at least 4 and at most 64"):
            encode([("the", "dog")], [0], bert, length)
    no_separator = BertTokenizer(vocab=bert.get_vocab())
    no_separator.sep_token = None
    for texts, labels in (([("the",)], [0]), ([["the"]], [["O"]])):
        with refused("--use_papa_preprocess needs a separator"):
            encode(texts, labels, no_separator, 8)


# --- batches


def test_collator_pads_to_the_longest(papa, encode, bert):
    encoded = encode([("the dog",), ("cat",)], [1, 0], bert, 8, papa_layout=False, pad=False)
    batch = papa.data.Collator(pad_id=8)(encoded)
    assert batch["input_ids"].tolist() == [[1, 4, 5, 2], [1, 9, 2, 8]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert batch["labels"].tolist() == [1, 0]
    assert {value.dtype for value in batch.values()} == {torch.int64}
    assert "positions" not in batch


def test_collator_drops_unused_positions(papa, encode, bert):
    collate = papa.data.Collator(bert.pad_token_id, drop_unused_positions=True)
    pairs = [("the", "dog cat and"), ("cat and", "run"), ("", "")]
    encoded = encode(pairs, [1.5] * 3, bert, 12)
    batch, whole = collate(encoded), papa.data.Collator(bert.pad_token_id)(encoded)
    places = [0, 1, 2, 6, 7, 8, 9, 11]
    assert batch["positions"].tolist() == places
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        assert batch[name].tolist() == whole[name][:, places].tolist()
    assert whole["attention_mask"].sum() == batch["attention_mask"].sum()
    assert batch["labels"].tolist() == [1.5] * 3
    assert batch["labels"].dtype == torch.float32
    # Nothing is left out where every position is used by some example.
    full = encode([("the the the the the", "cat cat cat cat")], [0], bert, 12)
    assert "positions" not in collate(full)
    assert collate(full)["input_ids"].shape == (1, 12)
    words = collate(encode([["the"], ["dogs", "run"]], [["O"], ["B-X", "O"]], bert, 10))
    assert words["positions"].tolist() == [0, 1, 2, 3, 9]
    assert words["labels"].tolist() == [[-100, 2, -100, -100, -100], [-100, 0, -100, 2, -100]]


# --- tasks of GLUE from a directory

# name -> (rows of train.tsv, sentences of the first example, labels)
TRAIN = {
    "cola": (
        ['gj04\t1\t\tThe "sailors" sleep.', "gj04\t0\t*\tSleep the."],
        ('The "sailors" sleep.',),
        [1, 0],
    ),
    "sst-2": (["sentence\tlabel", "good \t1", "bad\t0"], ("good ",), [1, 0]),
    "mrpc": (
        ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", '1\t7\t8\tHe "said.\tShe.'],
        ('He "said.', "She."),
        [1],
    ),
    "qqp": (
        ["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "0\t1\t2\tA?\tB?\t0"],
        ("A?", "B?"),
        [0],
    ),
    "stsb": (["sentence1\tsentence2\tscore", "A.\tB.\t3.800", "A\tB\t0"], ("A.", "B."), [3.8, 0]),
    "mnli": (["sentence1\tsentence2\tgold_label", "P.\tH.\tneutral"], ("P.", "H."), [1]),
    "qnli": (["question\tsentence\tlabel", "Who?\tHe.\tnot_entailment"], ("Who?", "He."), [1]),
    "rte": (["sentence1\tsentence2\tlabel", "A.\tB.\tentailment"], ("A.", "B."), [0]),
    "wnli": (["sentence1\tsentence2\tlabel", "A.\tB.\t1"], ("A.", "B."), [1]),
}
RTE = "sentence1\tsentence2\tlabel\na\tb\t"
COLA = {
    "train.tsv.gz": "gj04\t1\t\tThe sailors sleep.\n",
    "dev.tsv": "cj99\t1\t\tIt runs.\n",
    "test.tsv": "index\tsentence\n0\tBill ran.\n",
}
MNLI = {
    f"{name}.tsv": f"sentence1\tsentence2{label}"
    for name, label in (
        ("train", "\tgold_label\nP.\tH.\tneutral\nQ.\tI.\tentailment\n"),
        ("dev_matched", "\tgold_label\nP.\tH.\tcontradiction\n"),
        ("dev_mismatched", "\tgold_label\nP.\tH.\tneutral\n"),
        ("test_matched", "\nP.\tH.\n"),
        ("test_mismatched", "\nP.\tH.\n"),
    )
}


def write_folder(folder, files: dict[str, str]) -> str:
    for name, text in files.items():
        write(folder / name, text)
    return str(folder)


@pytest.mark.parametrize("name", TRAIN)
def test_load_reads_a_glue_directory(papa, load, tmp_path, name):
    rows, first, labels = TRAIN[name]
    folder = write_folder(tmp_path, {"train.tsv": "\n".join(rows) + "\n"})
    task = load(name.upper(), ["train"], task_dir=folder)
    assert task.name == name.replace("-", "")
    assert task.labels == papa.glue.GLUE[task.name]
    assert list(task.splits) == ["train"]
    assert task.splits["train"].texts[0] == first
    assert task.splits["train"].labels == labels


def test_load_reads_all_splits_of_a_glue_directory(papa, load, tmp_path):
    splits = ("train", "validation", "test")
    cola = load("CoLA", splits, task_dir=write_folder(tmp_path / "c", COLA))
    assert list(cola.splits) == list(splits)
    assert cola.splits["validation"] == ([("It runs.",)], [1])
    assert cola.splits["test"] == ([("Bill ran.",)], None)
    mnli = load("mnli", splits, task_dir=write_folder(tmp_path / "m", MNLI))
    kinds = ("matched", "mismatched")
    assert list(mnli.splits) == ["train", *(f"{s}_{k}" for s in splits[1:] for k in kinds)]
    assert [one.labels for one in mnli.splits.values()] == [[1, 0], [2], [1], None, None]


@pytest.mark.parametrize(
    ("name", "files", "splits", "message"),
    [
        ("rte", {"train.tsv": RTE + "1\n"}, ["train", "validation"], "dev.tsv.gz does not exist"),
        ("mnli", {"dev_mismatched.tsv": "x"}, ["validation"], "dev_matched.tsv.gz does not exist"),
        ("qqp", {"train.tsv": "index\n1\n"}, ["train"], "no columns of texts .* it has index"),
        ("rte", {"train.tsv": RTE + "maybe\n"}, ["train"], "line 2 .* 'maybe' .*not_entailment"),
        ("rte", {"train.tsv": RTE + "-1\n"}, ["train"], "line 2 has no label"),
        ("rte", {"test.tsv": RTE + "1\na\tb\t-1\n"}, ["test"], "line 3 has no label.* in all rows"),
        ("stsb", {"train.tsv": RTE + "high\n"}, ["train"], "line 2 .* 'high' .expected numbers"),
        ("sst2", {"train.tsv": "sentence\ngood\n"}, ["train"], "no columns of texts and labels"),
        ("sst2", {"train.tsv": "sentence\tlabel\n"}, ["train"], "train.tsv has no rows"),
    ],
)
def test_load_refuses_a_wrong_glue_directory(load, tmp_path, name, files, splits, message):
    with refused(message):
        load(name, splits, task_dir=write_folder(tmp_path, files))


@pytest.mark.parametrize("row", ["1\t7\t8\tHe\tsaid.\tShe said.", "1\t7\t8\tHe said."])
def test_load_counts_malformed_rows_of_glue_but_refuses_them_in_a_test_set(
    load, tmp_path, capsys, row
):
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    rows = f"{header}0\t1\t2\tA\tB\n{row}\n1\t3\t4\tC\tD\n"
    folder = write_folder(tmp_path, {"train.tsv": rows, "test.tsv": rows})
    task = load("mrpc", ["train"], task_dir=folder)
    assert task.splits["train"] == ([("A", "B"), ("C", "D")], [0, 1])
    assert "1 row(s) have more or fewer than 5 fields and are left out (the first one: line 3)" in (
        capsys.readouterr().err
    )
    with refused("test.tsv line 3 has . field"):
        load("mrpc", ["test"], task_dir=folder)


# --- own files


@pytest.fixture
def load_own(load, tmp_path):
    """A function (suffix, texts of the splits) that writes their files and loads them."""

    def load_own(suffix: str, *texts: str, task_name=None):
        splits = [
            s for s, text in zip(("train", "validation", "test"), texts, strict=False) if text
        ]
        files = {
            f"{split}_file": write(tmp_path / f"{split}{suffix}", text)
            for split, text in zip(splits, filter(None, texts), strict=True)
        }
        return load(task_name, splits, **files)

    return load_own


def test_load_reads_csv_with_names_as_labels(load_own):
    train = 'text,label\n"a, ""b""\nc",spam\nd,ham\n'
    task = load_own(".csv", train, "label,text\nham,e\n", "text\nf\n")
    assert (task.name, task.labels) == (None, ("ham", "spam"))
    assert task.splits["train"] == ([('a, "b"\nc',), ("d",)], [1, 0])
    assert task.splits["validation"] == ([("e",)], [0])
    assert task.splits["test"] == ([("f",)], None)


def test_load_reads_tsv_with_numbers_as_labels(load_own):
    task = load_own(".tsv.gz", 'sentence1\tsentence2\tlabel\na "b\tc\t10\nd\te\t-1\nf\tg\t2\n')
    assert task.labels == ("-1", "2", "10")
    assert task.splits["train"] == ([('a "b', "c"), ("d", "e"), ("f", "g")], [2, 0, 1])


@pytest.mark.parametrize("whole", [False, True])
def test_load_reads_json_with_decimals_as_a_regression(load_own, whole):
    rows = [{"sentence": "a", "label": 0.5}, {"label": 2, "sentence": "b\u2028c", "more": 1}]
    text = json.dumps(rows, indent=1) if whole else "\n\n".join(map(json.dumps, rows)) + "\n"
    task = load_own(".json", text)
    assert task.labels == ()
    assert task.splits["train"] == ([("a",), ("b\u2028c",)], [0.5, 2.0])


def test_load_accepts_integers_in_any_spelling_as_classes(load_own):
    task = load_own(".csv", "text,label\na,1.0\nb,00\nc,1e0\nd,-0\n", "text,label\nb,1.00\n")
    assert task.labels == ("0", "1")
    assert task.splits["train"].labels == [1, 0, 1, 0]
    assert task.splits["validation"].labels == [1]


@pytest.mark.parametrize("missing", ["", "NA", "nan", "None"])
def test_load_accepts_missing_labels_as_no_class(load_own, missing):
    with refused("line 3 has no label"):
        load_own(".csv", f"text,label\na,x\nb,{missing}\nc,y\n")
    task = load_own(".csv", "text,label\na,x\nc,y\n", "", f"text,label\nd,{missing}")
    assert task.splits["test"] == ([("d",)], None)


def test_load_reads_a_task_of_glue_from_own_files(load_own):
    task = load_own(
        ".csv",
        "premise,hypothesis,label\na,b,2\nc,d,entailment\n",
        "premise,hypothesis,label\na,b,1\n",
        task_name="MNLI",
    )
    assert task.name == "mnli"
    assert list(task.splits) == ["train", "validation"]
    assert task.splits["train"] == ([("a", "b"), ("c", "d")], [2, 0])
    cola = load_own(".tsv", "gj04\t1\t\tIt runs.\n", task_name="cola")
    assert cola.splits["train"] == ([("It runs.",)], [1])


OWN_ERRORS = {
    "one class": (".csv", "text,label\na,1\nb,1\n", "", "has 1 different label"),
    "unseen label": (
        ".csv", "text,label\na,x\nb,y\n", "text,label\nc,z\n",
        r"validation.csv line 2 has the label 'z' \(expected x, y\)",
    ),
    "0 is no label": (".csv", "text,label\na,1\nb,2\n", "text,label\nc,0\n", "the label '0'"),
    "not a number": (".csv", "text,label\na,1.5\nb,2\n", "text,label\nc,q\n", "expected numbers"),
    "no text": (".csv", "review,label\na,1\n", "", "columns of texts .*; it has review, label"),
    "no label": (".csv", "text,stars\na,1\n", "", "of texts and labels .*; it has text, stars"),
    "fields": (".tsv", "text\tlabel\na\t1\t2\n", "", r"line 2 has 3 field\(s\)"),
    "suffix": (".xlsx", "text,label\n", "", "train.xlsx must end in .csv, .tsv, .json"),
    "json": (".json", '{"text": "a", "label": 1}\n{"text": \n', "", "line 2 is malformed JSON"),
    "json array": (".json", '[{"text": "a", "label": 1},\n', "", "train.json is malformed JSON"),
    "json rows": (".json", "[1]", "", "that are not JSON objects"),
    "json text": (".json", '{"text": 5, "label": 1}\n', "", "line 1: a text is not a string"),
}  # fmt: skip


@pytest.mark.parametrize("case", OWN_ERRORS)
def test_load_refuses_malformed_own_files(load_own, case):
    *files, message = OWN_ERRORS[case]
    with refused(message):
        load_own(*files)


def test_load_refuses_options_without_data(load, load_words, tmp_path):
    train = write(tmp_path / "a.csv", "text,label\na,1\nb,0\n")
    for message, options in {
        "--task_name kola .*cola, mnli, mrpc": {"task_name": "kola"},
        "split validation is needed: give --validation_file beside --train_file": {
            "train_file": train
        },
        "split train is needed.* beside --validation_file": {"validation_file": train},
        "nowhere.csv does not exist": {"train_file": "nowhere.csv", "validation_file": train},
        "nowhere/train.tsv.gz does not exist": {
            "task_name": "rte",
            "task_dir": str(tmp_path / "nowhere"),
        },
        "--task_dir needs .* and no --train_file": {"train_file": train, "task_dir": str(tmp_path)},
        "--task_dir needs the --task_name": {"task_dir": str(tmp_path)},
        "no data: give --train_file": {},
    }.items():
        with refused(message):
            load(**options)
    with refused("no data: give --train_file"):
        load_words()
    with refused("--task_name srl", "ner, pos, chunk"):
        load_words(task_name="srl")


# --- labelled words

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

-DOCSTART- -X- -X- O

Peter NNP B-NP B-PER
"""
CONLLU = """# sent_id = 1
1-2\tIt's\t_\t_\t_\t_\t_\t_\t_\t_
1\tIt\tit\tPRON\tPRP\t_\t3\tnsubj\t_\t_
2\t's\tbe\tAUX\tVBZ\t_\t3\tcop\t_\t_
2.1\tgone\tgo\tVERB\tVBN\t_\t_\t_\t_\t_
3\tNew York\tNew York\tPROPN\tNNP\t_\t0\troot\t_\t_

# sent_id = 2
1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
"""


@pytest.mark.parametrize(
    ("task_name", "labels"),
    [
        ("ner", [["B-ORG", "O"], ["B-PER"]]),
        ("pos", [["NNP", "VBZ"], ["NNP"]]),
        ("CHUNK", [["B-NP", "B-VP"], ["B-NP"]]),
    ],
)
def test_load_reads_conll_2003(load_words, task_name, labels):
    task = load_words("train.txt", CONLL_2003, task_name)
    assert task.name == task_name.lower()
    assert task.splits["train"] == ([["EU", "rejects"], ["Peter"]], labels)
    assert task.labels == tuple(sorted({label for row in labels for label in row}))


def test_load_reads_conll_with_tabs_and_other_columns(load_words):
    wnut = "the\tO\n#big\tB-loc\na b\tI-loc\n\t\nit\tO\r\n \n\n"
    task = load_words("train.conll.gz", wnut)
    labels = [["O", "B-loc", "I-loc"], ["O"]]
    assert task.splits["train"] == ([["the", "#big", "a b"], ["it"]], labels)
    assert task.labels == ("B-loc", "I-loc", "O")
    same = load_words("two", "a B-X\nb O", "chunk")  # the last of two columns
    assert same.splits["train"] == ([["a", "b"]], [["B-X", "O"]])
    columns = {"text_column_name": "1", "label_column_name": "2"}
    chosen = load_words("a.conll", "1 cat X B-Y\n2 dog Z O\n", "pos", **columns)
    assert chosen.splits["train"] == ([["cat", "dog"]], [["X", "Z"]])


def test_load_reads_conll_with_windows_line_ends_and_byte_order_marks(load_words):
    expected = load_words("a.conll", CONLL_2003)
    marked = "\ufeff" + CONLL_2003.replace("\n", "\r\n") + "\r\n\ufeff"  # two files, one empty
    assert load_words("b.conll", marked) == expected


SCHEMES = {
    "types": "O PER PER O ORG PER",
    "IOB1": "O I-PER I-PER O I-ORG I-PER",
    "BIOES": "O B-PER E-PER O S-ORG S-PER",
    "BILOU": "O B-PER L-PER O U-ORG U-PER",
    "IOE": "O I-PER E-PER O E-ORG E-PER",
    "BMES": "O B-PER M-PER O S-ORG S-PER",
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_load_converts_tag_schemes_to_bio(load_words, scheme, capsys):
    rows = json.dumps({"tokens": [*"abcdef"], "ner_tags": SCHEMES[scheme].split()})
    task = load_words("a.json", rows)
    assert task.splits["train"].labels == [["O", "B-PER", "I-PER", "O", "B-ORG", "B-PER"]]
    assert task.labels == ("B-ORG", "B-PER", "I-ORG", "I-PER", "O")
    assert "are converted to BIO" in capsys.readouterr().err


def test_to_bio_keeps_adjacent_entities_of_a_type_apart(papa):
    tags = {"I B I": "B B I", "S S B E B E": "B B B I B I", "I E I E": "B I B I", "I O I": "B O B"}
    for before, after in tags.items():
        for suffix in ("", "-X"):
            row = [tag if tag == "O" else tag + suffix for tag in before.split()]
            assert " ".join(tag[0] for tag in papa.token_tasks.to_bio(row)) == after


def test_load_does_not_change_bio_labels(load_words, capsys):
    # The I-Y at the start is an error of BIO data: some B-X is not after an entity of its type.
    task = load_words("a.conll", "a I-Y\nb O\nc B-X\nd I-X\n")
    assert task.splits["train"].labels == [["I-Y", "O", "B-X", "I-X"]]
    assert task.labels == ("B-X", "I-X", "I-Y", "O")
    assert "converted" not in capsys.readouterr().err


def test_token_metrics_count_missed_entities_without_prefixes(papa, load_words):
    """seqeval alone reads the type ORG as outside: F1 of 1 with every ORG missed."""
    task = load_words("a.conll", "a PER\nb O\nc ORG\n")
    number = {label: index for index, label in enumerate(task.labels)}
    labels = [[number[label] for label in task.splits["train"].labels[0]]]
    logits = one_hot([[labels[0][0], number["O"], number["O"]]], len(task.labels))
    scores = papa.metrics.token_metrics("ner", logits, labels, task.labels)
    assert (scores["precision"], scores["recall"]) == (1.0, 0.5)


def test_load_reads_conllu(load_words):
    task = load_words("a.conllu.gz", CONLLU, "pos")
    labels = [["PRON", "AUX", "PROPN"], ["VERB"]]
    assert task.splits["train"] == ([["It", "'s", "New York"], ["Go"]], labels)
    columns = {"text_column_name": "lemma", "label_column_name": "xpos"}
    chosen = load_words("a.conllu", CONLLU, "pos", **columns)
    labels = [["PRP", "VBZ", "NNP"], ["VB"]]
    assert chosen.splits["train"] == ([["it", "be", "New York"], ["go"]], labels)


def test_load_reads_json_of_words(load_words):
    rows = [
        {"id": "1", "tokens": ["a", "b"], "pos_tags": [3, 4], "ner_tags": ["O", "B-X"]},
        {"id": "2", "tokens": [], "pos_tags": [], "ner_tags": []},
    ]
    text = "\n".join(map(json.dumps, rows))
    assert load_words("a.json", text).splits["train"] == ([["a", "b"]], [["O", "B-X"]])
    assert load_words("a.json", text, "pos").labels == ("3", "4")
    others = json.dumps({"words": ["a", "b"], "tags": ["O", "Y"], "lemmas": ["c", "d"]})
    assert load_words("b.json", others).splits["train"].texts == [["a", "b"]]
    chosen = load_words("b.json", others, text_column_name="lemmas")
    assert chosen.splits["train"] == ([["c", "d"]], [["O", "B-Y"]])


WORD_ERRORS = {
    "one column": ("a.conll", "a\nb\n", "ner", "no words in column '0' with labels in None"),
    "ragged": ("a.conll", "a O\nb\n", "ner", r"line 2 has 1 column\(s\) \(expected 2\)"),
    "one label": ("a.conll", "a O\nb O\n", "ner", r"1 different label\(s\)"),
    "empty": ("a.conll", "\n \n", "ner", "a.conll has no sentences"),
    "documents": ("a.conll", "-DOCSTART- O\n\n", "ner", "a.conll has no sentences"),
    "no entities": ("a.conllu", CONLLU, "ner", "'AUX' does not mark an entity .*--task_name pos"),
    "mixed tags": ("a.conll", "a O\nb B-PER\nc LOC\n", "ner", "'LOC' does not mark an entity"),
    "fields": ("a.conllu", "1\tIt\n", "pos", r"line 1 has 2 column\(s\) \(expected 10"),
    "json lengths": ("a.json", '{"tokens": ["a"], "ner_tags": []}', "ner", "line 1: not a list of"),
    "json text": ("a.json", '{"tokens": "a", "ner_tags": "O"}', "ner", "not a list of words"),
    "json empty": ("a.json", '{"tokens": [], "ner_tags": []}', "ner", "has no sentences"),
}


@pytest.mark.parametrize("case", WORD_ERRORS)
def test_load_refuses_malformed_files_of_words(load_words, case):
    *file, message = WORD_ERRORS[case]
    with refused(message):
        load_words(*file)


def test_load_refuses_columns_that_do_not_exist(load_words):
    with refused("no words in column '0' with labels in 'tag'", "it has 0, 1: choose with --text"):
        load_words("a.conll", "a O\n", label_column_name="tag")


def test_load_refuses_labels_unknown_to_training(load_words, tmp_path):
    validation = write(tmp_path / "b.conll", "a O\n\nb O\nc B-Y\n")
    splits = ("train", "validation")
    with refused("sentence 2 of .*b.conll has the label 'B-Y'", "expected B-X, O"):
        load_words("a.conll", "a O\nb B-X\n", splits=splits, validation_file=validation)


# --- the hub


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


def test_load_reads_glue_from_the_hub(load, hub):
    label = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    columns = {"premise": ["p"], "hypothesis": ["h"], "label": [2], "idx": [0]}
    hub["train"] = hub["validation_matched"] = table(columns, label=label)
    hub["validation_mismatched"] = table(columns | {"label": [0]}, label=label)
    hub["test_matched"] = hub["test_mismatched"] = table(columns | {"label": [-1]}, label=label)
    task = load("MNLI", ("train", "validation", "test"))
    assert hub["asked"] == ("nyu-mll/glue", "mnli", "cache")
    assert task.splits["validation_mismatched"] == ([("p", "h")], [0])
    assert task.splits["train"].labels == [2]
    assert task.splits["test_mismatched"].labels is None
    del hub["test_mismatched"]
    with refused("nyu-mll/glue has no split test_mismatched on the hub; it has train"):
        load("MNLI", ["test"])


def test_load_reads_your_own_dataset_from_the_hub(load, hub):
    label = datasets.ClassLabel(names=["neg", "pos"])
    hub["train"] = table({"text": ["a", "b"], "label": [1, 0]}, label=label)
    hub["test"] = table({"text": ["c"], "label": [-1]}, label=label)
    task = load(None, ["test"], dataset_name="some/reviews", dataset_config_name="plain")
    assert hub["asked"] == ("some/reviews", "plain", "cache")
    assert task.labels == ("neg", "pos")
    assert task.splits["train"] == ([("a",), ("b",)], [1, 0])
    assert task.splits["test"] == ([("c",)], None)


def test_load_reads_words_from_the_hub(load_words, hub):
    names = ["O", "B-X", "B-A"]  # an order of its own, and one label that does not occur
    tags = datasets.List(datasets.ClassLabel(names=names))
    columns = {"id": ["0"], "tokens": [["a", "b"]], "ner_tags": [[1, 0]]}
    hub["train"] = hub["validation"] = table(columns, ner_tags=tags)
    task = load_words(dataset_name="some/entities", splits=("train", "validation"))
    assert hub["asked"] == ("some/entities", "cache")
    assert task.labels == tuple(names)
    assert task.splits["validation"] == ([["a", "b"]], [["B-X", "O"]])
    hub["train"] = table(columns | {"ner_tags": [["B-Z", "O"]]})
    assert load_words(dataset_name="some/entities").labels == ("B-Z", "O")


def test_load_asks_the_cache_once_without_network(load, load_words, monkeypatch):
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
        load("COLA")
    with refused("some/words en could not be downloaded"):
        load_words(dataset_name="some/words", dataset_config_name="en")
    assert asked == [5]  # offline from then on


# --- metrics


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


# --- predictions


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("cola", "0 1"), ("mrpc", "0 1"), ("qqp", "0 1"), ("sst2", "0 1"), ("wnli", "0 1"),
        ("rte", "entailment not_entailment"), ("qnli", "entailment not_entailment"),
        ("mnli", "entailment neutral"), ("stsb", "5.000 0.000"), (None, "bad good"),
    ],
)  # fmt: skip
def test_predictions_have_the_format_of_submissions_to_glue(papa, tmp_path, name, values):
    labels = papa.glue.GLUE[name] if name else ("bad", "good")
    task = papa.readers.Task(name, labels, {})
    logits = one_hot([0, 1], len(labels)) if labels else np.array([[5.25], [-0.5]])
    output = SimpleNamespace(predictions=logits)
    papa.run_papa_glue.write_predictions(tmp_path, task, {"test_mismatched": output})
    first, second = values.split()
    assert (tmp_path / f"predict_results_{name or 'own'}-mm.txt").read_text() == (
        f"index\tprediction\n0\t{first}\n1\t{second}\n"
    )


# --- the toy


def test_toy_is_a_directory_of_rte(papa, load, tmp_path):
    for name, *options in (("a",), ("b",), ("c", "--seed", "1")):
        papa.toy.main(["--output_dir", str(tmp_path / name), *options])
    files = {
        f"{f}{s}": (tmp_path / f / f"{s}.tsv").read_text() for f in "abc" for s in ("train", "dev")
    }
    assert files["atrain"] == files["btrain"]
    assert files["adev"] == files["bdev"]
    assert files["atrain"] != files["ctrain"]
    task = load("rte", task_dir=str(tmp_path / "a"))
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
