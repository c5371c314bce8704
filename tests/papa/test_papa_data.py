"""PAPA's data: layouts, tasks from files and the hub, datasets and batches, metrics, the toy."""

import json
import math
from types import SimpleNamespace

import datasets
import huggingface_hub
import numpy as np
import pytest
import torch
from conftest import GOLDEN, write
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertTokenizer, RobertaTokenizer

from attention_dynamics.cli import InputError

CLS, SEP, PAD = 1, 2, 0


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
    """A function that encodes texts (tuples: sentences; lists: words) and returns the examples."""

    def encode(texts, labels, tokenizer, length, papa_layout=True, published=False, **options):
        layout = papa.arguments.LayoutArguments(papa_layout, published)
        all_tokens = {key: options.pop(key) for key in ("label_all_tokens",) if key in options}
        data = papa.arguments.DataArguments(max_seq_length=length, **options)
        task = papa.readers.Task(None, LABELS, {"train": papa.readers.Split(texts, labels)})
        of_words = isinstance(texts[0], list)
        encode = papa.data.encode_tokens if of_words else papa.data.encode_sequences
        return encode(task, tokenizer, data, layout, **all_tokens)["train"]

    return encode


@pytest.fixture
def load(papa, tmp_path):
    """A function that loads a task, of words if its name is one of WORD_TASKS.

    ``files``: name -> text. "train.csv" is given as --train_file and so on, those in "glue/" as
    --task_dir; a name that ends in .gz is compressed.
    """

    def load(task_name=None, files=None, splits=None, **options):
        columns = {key: options.pop(key) for key in COLUMNS if key in options}
        for name, text in (files or {}).items():
            path = tmp_path / name
            write(path, text.encode(errors="surrogateescape"))
            if "/" in name:
                options["task_dir"] = str(tmp_path / name.split("/")[0])
            else:
                options[f"{name.split('.')[0]}_file"] = str(path)
        splits = splits or [key.split("_")[0] for key in options if key.endswith("_file")]
        data = papa.arguments.DataArguments(task_name=task_name, **options)
        if task_name and task_name.lower() in WORD_TASKS:
            tokens = papa.arguments.TokenArguments(**columns)
            return papa.token_tasks.load_token_task(data, tokens, "cache", splits or ["train"])
        return papa.glue.load_sequence_task(data, "cache", splits or ["train"])

    return load


COLUMNS = ("text_column_name", "label_column_name")
WORD_TASKS = ("ner", "pos", "chunk", "srl")


def refused(*parts: str):
    """A context in which an InputError of one line with all ``parts`` is raised."""
    pattern = "".join(f"(?=.*{part})" for part in parts)
    return pytest.raises(InputError, match=rf"^{pattern}[^\n]*$")


# --- layouts


def test_sequence_layout_equals_the_golden_one(papa):
    golden = torch.load(GOLDEN / "papa" / "expected.pt", weights_only=True)
    assert len(golden["input_ids_before_layout"]) == 12
    for place, before in enumerate(golden["input_ids_before_layout"]):
        origin = papa.data.sequence_layout(before, SEP, 16)
        ids = [before[j] if j >= 0 else PAD for j in origin]
        assert ids == golden["input_ids"][place].tolist()
        assert [int(j >= 0) for j in origin] == golden["attention_mask"][place].tolist()


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


@given(words_of, st.integers(4, 40))
def test_token_layout_loses_nothing_up_to_the_cut(papa, words, length):
    origin = papa.data.token_layout([CLS, *words, SEP], SEP, length)
    kept = min(len(words) + 1, length - 1)
    assert origin == [*range(kept), *[-1] * (length - 1 - kept), len(words) + 1]


# --- datasets

LABELS = ("B-X", "I-X", "O", "B-Y")


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
    plain = encode(*split, bert, 8, papa_layout=False, max_train_samples=2)
    assert rows_of(plain, "input_ids") == [[1, 4, 5, 6, 7, 2, 0, 0], [1, 2, 0, 0, 0, 0, 0, 0]]
    free = encode(split[0], None, bert, 5, papa_layout=False, pad_to_max_length=False)
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


def test_encode_tokens(encode, bert, roberta, capsys):
    split = [["the", "dogs", "run"]], [["O", "B-X", "I-X"]]
    encoded = encode(*split, bert, 8)
    assert rows_of(encoded, "input_ids") == [[1, 4, 5, 6, 7, 0, 0, 2]]
    assert rows_of(encoded, "labels") == [[-100, 2, 0, -100, 1, -100, -100, -100]]
    assert rows_of(encoded, "attention_mask") == [[1, 1, 1, 1, 1, 0, 0, 1]]
    plain = encode(*split, bert, 5, papa_layout=False, label_all_tokens=True)
    assert rows_of(plain, "input_ids") == [[1, 4, 5, 6, 2]]
    assert rows_of(plain, "labels") == [[-100, 2, 0, 1, -100]]  # inside of what B-X begins is I-X
    assert "note: 1 of 3 words are not used: beyond --max_seq_length 5" in capsys.readouterr().err
    split = [["ab", "c"]], [["B-Y", "O"]]
    every = encode(*split, roberta, 9, label_all_tokens=True)  # there is no I-Y
    assert rows_of(every, "labels") == [[-100, 3, 3, 3, 2, 2, -100, -100, -100]]
    encoded = encode(*split, roberta, 9)
    assert set(encoded[0]) == {"input_ids", "attention_mask", "labels"}
    assert rows_of(encoded, "input_ids") == [[0, 4, 5, 6, 4, 7, 1, 1, 2]]
    assert rows_of(encoded, "labels") == [[-100, 3, -100, -100, 2, -100, -100, -100, -100]]


def test_special_tokens_in_texts_are_text(encode, bert, roberta):
    unknown = bert.unk_token_id  # of "[", "sep" and "]"
    (ids,) = rows_of(encode([("the [SEP] dog",)], [0], bert, 14), "input_ids")
    assert ids == [1, 4, *[unknown] * 3, 5, *[0] * 7, 2]
    encoded = encode([["a", "</s>"]], [["O", "B-X"]], roberta, 12)
    assert rows_of(encoded, "input_ids")[0].count(roberta.sep_token_id) == 1
    assert rows_of(encoded, "labels")[0][:4] == [-100, 2, -100, 0]


def test_encode_refuses_impossible_lengths_and_tokenizers(encode, bert):
    for length in (65, 3):
        with refused(f"--max_seq_length {length}", "at least 4 and at most 64"):
            encode([("the", "dog")], [0], bert, length)
    no_separator = BertTokenizer(vocab=bert.get_vocab())
    no_separator.sep_token = None
    with refused("--use_papa_preprocess needs a separator"):
        encode([("the",)], [0], no_separator, 8)


# --- batches


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

# name -> (train.tsv, texts and label of its first example)
TRAIN = {
    "cola": ('gj04\t1\t\tThe "sailors" sleep.', ('The "sailors" sleep.',), 1),
    "sst-2": ("sentence\tlabel\ngood \t1", ("good ",), 1),
    "mrpc": ('\ufeffQuality\t#1 ID\t#1 String\t#2 String\n1\t7\tA "b.\tC.', ('A "b.', "C."), 1),
    "qqp": ("id\tqid1\tquestion1\tquestion2\tis_duplicate\n0\t1\tA?\tB?\t0", ("A?", "B?"), 0),
    "stsb": ("sentence1\tsentence2\tscore\nA.\tB.\t3.800", ("A.", "B."), 3.8),
    "mnli": ("sentence1\tsentence2\tlabel1\tgold_label\nP.\tH.\tx\tneutral", ("P.", "H."), 1),
    "qnli": ("question\tsentence\tlabel\nWho?\tHe.\tnot_entailment", ("Who?", "He."), 1),
    "rte": ("sentence1\tsentence2\tlabel\nA.\tB.\tentailment", ("A.", "B."), 0),
    "wnli": ("sentence1\tsentence2\tlabel\nA.\tB.\t1", ("A.", "B."), 1),
}
RTE = "sentence1\tsentence2\tlabel\na\tb\t"
PAIR = "sentence1\tsentence2"
MNLI = {
    "archive/MNLI/train.tsv.gz": f"{PAIR}\tgold_label\nP.\tH.\tentailment\nR.\tJ.\t-\n",
    "archive/MNLI/dev_matched.tsv": f"{PAIR}\tgold_label\nP.\tH.\tcontradiction\n",
    "archive/MNLI/dev_mismatched.tsv": f"{PAIR}\tgold_label\nP.\tH.\tneutral\n",
    "archive/MNLI/test_matched.tsv": f"{PAIR}\nP.\tH.\n",
    "archive/MNLI/test_mismatched.tsv": f"{PAIR}\nP.\tH.\n",
}


@pytest.mark.parametrize("name", TRAIN)
def test_load_reads_a_glue_directory(papa, load, name):
    text, first, label = TRAIN[name]
    task = load(name.upper(), {"glue/train.tsv": text})
    assert task.name == name.replace("-", "")
    assert task.labels == papa.glue.GLUE[task.name]
    assert task.splits == {"train": ([first], [label])}


def test_load_reads_all_splits_of_a_glue_directory(load, capsys):
    cola = load("CoLA", {"glue/test.tsv": "index\tsentence\n0\tBill ran.\n"}, ["test"])
    assert cola.splits == {"test": ([("Bill ran.",)], None)}
    mnli = load("mnli", MNLI, ["train", "validation", "test"])
    assert {split: examples.labels for split, examples in mnli.splits.items()} == {
        "train": [0], "validation_matched": [2], "validation_mismatched": [1],
        "test_matched": None, "test_mismatched": None,
    }  # fmt: skip
    note = "1 pair(s) have no agreed label (-) and are left out (the first one: "
    assert note in capsys.readouterr().err


@pytest.mark.parametrize("row", ["a\tb\tc\t1", "a\tb"])
def test_load_leaves_out_malformed_rows_of_glue_except_in_a_test_set(load, capsys, row):
    rows = f"{RTE}0\n{row}\nc\td\t1\n"
    task = load("rte", {"glue/train.tsv": rows})
    assert task.splits["train"] == ([("a", "b"), ("c", "d")], [0, 1])
    note = "1 row(s) have more or fewer than 3 fields and are left out (the first one: line 3)"
    assert note in capsys.readouterr().err
    with refused("test.tsv line 3 has . field"):
        load("rte", {"glue/test.tsv": rows}, ["test"])


# --- own files


@pytest.mark.parametrize(
    ("name", "text", "names", "texts", "labels"),
    [
        (
            "train.csv", 'text,label\n"a, ""b""\nc",spam\nd,ham\n',
            ("ham", "spam"), [('a, "b"\nc',), ("d",)], [1, 0],
        ),
        (
            "train.tsv.gz", 'sentence1\tsentence2\tlabel\na "b\tc\t10\nd\te\t-1\nf\tg\t2\n',
            ("-1", "2", "10"), [('a "b', "c"), ("d", "e"), ("f", "g")], [2, 0, 1],
        ),
        (
            "train.json", '{"text": "a", "label": "x"}\n\n{"label": "y", "text": "b\\u2028c"}\n',
            ("x", "y"), [("a",), ("b\u2028c",)], [0, 1],
        ),
        (  # a regression
            "train.json", '[{"text": "a", "label": 0.5},\n {"text": "b", "label": 2}]',
            (), [("a",), ("b",)], [0.5, 2.0],
        ),
        ("train.csv", "text,label\na,1.0\nb,00\n", ("0", "1"), [("a",), ("b",)], [1, 0]),
    ],
)  # fmt: skip
def test_load_reads_own_files(load, name, text, names, texts, labels):
    task = load(None, {name: text})
    assert (task.name, task.labels) == (None, names)
    assert task.splits == {"train": (texts, labels)}


@pytest.mark.parametrize("missing", ["", "NA", "nan", "None"])
def test_load_accepts_missing_labels_in_a_test_set_only(load, missing):
    files = {"train.csv": "text,label\na,1\nc,0\n", "validation.csv": "label,text\n1.0,e\n"}
    task = load(None, {**files, "test.csv": f"text,label\nd,{missing}"})
    assert task.splits["validation"] == ([("e",)], [1])
    assert task.splits["test"] == ([("d",)], None)
    with refused("line 3 has no label"):
        load(None, {"train.csv": f"text,label\na,x\nb,{missing}\nc,y\n"})


def test_load_reads_a_task_of_glue_from_own_files(load):
    header = "premise,hypothesis,label\n"
    files = {"train.csv": f"{header}a,b,2\nc,d,neutral\n", "validation.csv": f"{header}a,b,0\n"}
    task = load("MNLI", files)
    assert list(task.splits) == ["train", "validation"]
    assert task.splits["train"] == ([("a", "b"), ("c", "d")], [2, 1])


# --- labeled words

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


WNUT = "the\tO\n#big\tB-loc\na b\tI-loc\n\t\nit\tO\r\n \n\n"
JSON = """{"id": "1", "tokens": ["a", "b"], "pos_tags": [3, 4], "ner_tags": ["O", "B-X"]}
{"id": "2", "tokens": [], "pos_tags": [], "ner_tags": []}"""
WORDS = '{"words": ["a", "b"], "tags": ["O", "Y"], "lemmas": ["c", "d"]}'
EU = [["EU", "rejects"], ["Peter"]]


@pytest.mark.parametrize(
    ("name", "text", "task", "columns", "words", "labels"),
    [
        ("train.txt", CONLL_2003, "NER", (), EU, [["B-ORG", "O"], ["B-PER"]]),
        ("train.txt", CONLL_2003, "pos", (), EU, [["NNP", "VBZ"], ["NNP"]]),
        ("train.txt", CONLL_2003, "chunk", (), EU, [["B-NP", "B-VP"], ["B-NP"]]),
        # two files with byte-order marks and Windows line ends, one of them empty
        (
            "train.txt", "\ufeff" + CONLL_2003.replace("\n", "\r\n") + "\r\n\ufeff",
            "ner", (), EU, [["B-ORG", "O"], ["B-PER"]],
        ),
        (
            "train.conll.gz", WNUT,
            "ner", (), [["the", "#big", "a b"], ["it"]], [["O", "B-loc", "I-loc"], ["O"]],
        ),
        (
            "train.conllu.gz", CONLLU,
            "pos", (), [["It", "'s", "New York"], ["Go"]], [["PRON", "AUX", "PROPN"], ["VERB"]],
        ),
        (
            "train.conllu", CONLLU, "pos", ("lemma", "xpos"),
            [["it", "be", "New York"], ["go"]], [["PRP", "VBZ", "NNP"], ["VB"]],
        ),
        ("train.json", JSON, "ner", (), [["a", "b"]], [["O", "B-X"]]),
        ("train.json", JSON, "pos", (), [["a", "b"]], [["3", "4"]]),
        ("train.json", WORDS, "ner", (), [["a", "b"]], [["O", "B-Y"]]),
        ("train.json", WORDS, "pos", ("lemmas",), [["c", "d"]], [["O", "Y"]]),
    ],
)  # fmt: skip
def test_load_reads_words(load, name, text, task, columns, words, labels):
    loaded = load(task, {name: text}, **dict(zip(COLUMNS, columns, strict=False)))
    assert loaded.name == task.lower()
    assert loaded.splits == {"train": (words, labels)}
    assert {*loaded.labels} >= {label for row in labels for label in row}


@pytest.mark.parametrize(
    "tags",
    [
        "O PER PER O ORG PER",  # types
        "O I-PER I-PER O I-ORG I-PER",  # IOB1
        "O B-PER E-PER O S-ORG S-PER",  # BIOES
        "O B-PER L-PER O U-ORG U-PER",  # BILOU
        "O I-PER E-PER O E-ORG E-PER",  # IOE
        "O B-PER M-PER O S-ORG S-PER",  # BMES
    ],
)
def test_load_converts_tag_schemes_to_bio(load, tags, capsys):
    rows = json.dumps({"tokens": [*"abcdef"], "ner_tags": tags.split()})
    task = load("ner", {"train.json": rows})
    assert task.splits["train"].labels == [["O", "B-PER", "I-PER", "O", "B-ORG", "B-PER"]]
    assert task.labels == ("B-ORG", "B-PER", "I-ORG", "I-PER", "O")
    assert "are converted to BIO" in capsys.readouterr().err


def test_to_bio_keeps_adjacent_entities_of_a_type_apart(papa):
    tags = {"I B I": "B B I", "S S B E B E": "B B B I B I", "I E I E": "B I B I", "I O I": "B O B"}
    for before, after in tags.items():
        for suffix in ("", "-X"):
            row = [tag if tag == "O" else tag + suffix for tag in before.split()]
            assert " ".join(tag[0] for tag in papa.token_tasks.to_bio(row)) == after


def test_load_does_not_change_bio_labels(load, capsys):
    # The I-Y at the start is an error of BIO data: some B-X is not after an entity of its type.
    task = load("ner", {"train.conll": "a I-Y\nb O\nc B-X\nd I-X\n"})
    assert task.splits["train"].labels == [["I-Y", "O", "B-X", "I-X"]]
    assert task.labels == ("B-X", "I-X", "I-Y", "O")
    assert "converted" not in capsys.readouterr().err


def test_token_metrics_count_missed_entities_without_prefixes(papa, load):
    """seqeval alone reads the type ORG as outside: F1 of 1 with every ORG missed."""
    task = load("ner", {"train.conll": "a PER\nb O\nc ORG\n"})
    number = {label: index for index, label in enumerate(task.labels)}
    labels = [[number[label] for label in task.splits["train"].labels[0]]]
    logits = one_hot([[labels[0][0], number["O"], number["O"]]], len(task.labels))
    scores = papa.metrics.token_metrics("ner", logits, labels, task.labels)
    assert (scores["precision"], scores["recall"]) == (1.0, 0.5)


TRAIN_CSV = {"train.csv": "text,label\na,x\nb,y\n"}
# message -> (task, files)
REFUSED = {
    "--task_name kola .*cola, mnli, mrpc": ("kola", {}),
    "--task_name srl .*ner, pos, chunk": ("srl", {}),
    "glue must hold one dev.tsv, once; it holds train.tsv": (
        "rte", {"glue/train.tsv": RTE + "1\n"}, ["validation"],
    ),
    "--task_dir needs .* and no --train_file": ("rte", {"glue/train.tsv": "", **TRAIN_CSV}),
    "no data: give --train_file": (None, {}),
    "the split validation is needed.* beside --train_file": (None, TRAIN_CSV, ["validation"]),
    "no columns of texts .* it has index": ("qqp", {"glue/train.tsv": "index\n1\n"}),
    "columns of texts and labels .*it has text, stars": (None, {"train.csv": "text,stars\na,1\n"}),
    "line 2 .* 'maybe' .*not_entailment": ("rte", {"glue/train.tsv": RTE + "maybe\n"}),
    "line 3 has no label.* all rows": ("rte", {"glue/test.tsv": RTE + "1\na\tb\t-1\n"}, ["test"]),
    "line 2 .* 'high' .expected numbers": ("stsb", {"glue/train.tsv": RTE + "high\n"}),
    "has no rows, or some that are not JSON objects": (None, {"train.json": "[1]"}),
    "has 1 different label": (None, {"train.csv": "text,label\na,1\nb,1\n"}),
    r"validation.csv line 2 has the label '0' \(expected x, y\)": (
        None, {**TRAIN_CSV, "validation.csv": "text,label\nc,0\n"},
    ),
    r"line 2 has 3 field\(s\)": (None, {"train.tsv": "text\tlabel\na\t1\t2\n"}),
    "train.xlsx must end in .csv, .tsv, .json": (None, {"train.xlsx": "text,label\n"}),
    "line 2 is malformed JSON": (None, {"train.json": '{"text": "a", "label": 1}\n{"text": \n'}),
    "line 2 has a lone surrogate": (
        None, {"train.json": '{"text": "a", "label": 1}\n{"text": "\\ud800", "label": 0}'},
    ),
    "not UTF-8 text: line 2, byte 6": ("ner", {"train.conll": "a O\nb \udcff\n"}),
    "line 1: a text is not a string": (None, {"train.json": '{"text": 5, "label": 1}\n'}),
    "words in column '0' with labels in None; it has 0: choose": ("ner", {"train.conll": "a\nb\n"}),
    r"line 2 has 1 column\(s\) \(expected 2\)": ("ner", {"train.conll": "a O\nb\n"}),
    r"1 different label\(s\)": ("ner", {"train.conll": "a O\nb O\n"}),
    "train.conll has no sentences": ("ner", {"train.conll": "-DOCSTART- O\n\n"}),
    "'AUX' does not mark an entity .*--task_name pos": ("ner", {"train.conllu": CONLLU}),
    "line 1: not a list of words": ("ner", {"train.json": '{"tokens": ["a"], "ner_tags": []}'}),
    "validation.conll has the label 'B-Y' .expected B-X, O": (
        "ner", {"train.conll": "a O\nb B-X\n", "validation.conll": "a O\n\nb O\nc B-Y\n"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_load_refuses_wrong_input(load, message):
    with refused(message):
        load(*REFUSED[message])


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
    task = load("MNLI", None, ["train", "validation", "test"])
    assert hub["asked"] == ("nyu-mll/glue", "mnli", "cache")
    assert task.splits["validation_mismatched"] == ([("p", "h")], [0])
    assert task.splits["train"].labels == [2]
    assert task.splits["test_mismatched"].labels is None
    own = load(None, None, ["test_matched"], dataset_name="some/pairs", dataset_config_name="plain")
    assert hub["asked"] == ("some/pairs", "plain", "cache")
    assert own.labels == tuple(label.names)
    assert own.splits == {"train": ([("p", "h")], [2]), "test_matched": ([("p", "h")], None)}
    with refused("some/pairs has no split test on the hub; it has train"):
        load(None, None, ["test"], dataset_name="some/pairs")


def test_load_reads_words_from_the_hub(load, hub):
    names = ["O", "B-X", "B-A"]  # an order of its own, and one label that does not occur
    tags = datasets.List(datasets.ClassLabel(names=names))
    columns = {"id": ["0"], "tokens": [["a", "b"]], "ner_tags": [[1, 0]]}
    hub["train"] = hub["validation"] = table(columns, ner_tags=tags)
    task = load("ner", None, ["train", "validation"], dataset_name="some/entities")
    assert hub["asked"] == ("some/entities", "cache")
    assert task.labels == tuple(names)
    assert task.splits["validation"] == ([["a", "b"]], [["B-X", "O"]])
    hub["train"] = table(columns | {"ner_tags": [["B-Z", "O"]]})
    assert load("ner", dataset_name="some/entities").labels == ("B-Z", "O")


def test_load_asks_the_cache_once_without_network(load, monkeypatch):
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
        load("pos", dataset_name="some/words", dataset_config_name="en")
    assert asked == [5]  # offline from then on


# --- metrics


def one_hot(predicted: list, columns: int) -> np.ndarray:
    return np.eye(columns)[np.array(predicted)]


CLASSES = one_hot([1, 0, 0, 0], 2), [1, 1, 0, 0]
VALUES = np.array([[1.0], [2.0], [3.0]]), np.array([1.0, 2.0, 4.0])
# Deviations (-1, 0, 1) and (-4, -1, 5) / 3: 3 / sqrt(2 * 42 / 9).
PEARSON = 3 / math.sqrt(28 / 3)


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        # 1 true positive, 1 false negative, 2 true negatives: 2 / sqrt(1 * 2 * 2 * 3).
        ("cola", CLASSES, {"matthews_correlation": 2 / math.sqrt(12)}),
        ("mrpc", CLASSES, {"accuracy": 0.75, "f1": 2 / 3, "combined_score": (0.75 + 2 / 3) / 2}),
        ("rte", CLASSES, {"accuracy": 0.75}),
        (None, CLASSES, {"accuracy": 0.75}),
        ("mnli", (one_hot([2, 1, 0], 3), [2, 0, 0]), {"accuracy": 2 / 3}),
        # One class only: as scikit-learn has it, and GLUE.
        ("cola", (one_hot([1, 1, 1], 2), [1, 0, 1]), {"matthews_correlation": 0.0}),
        ("qqp", (one_hot([0, 0], 2), [1, 0]), {"accuracy": 0.5, "f1": 0, "combined_score": 0.25}),
        (
            "stsb", VALUES,
            {"pearson": PEARSON, "spearmanr": 1.0, "combined_score": (PEARSON + 1) / 2},
        ),
        (None, VALUES, {"mse": 1 / 3, "pearson": PEARSON, "spearmanr": 1.0}),
        (None, (np.ones((2, 1)), [1.0, 2.0]), {"mse": 0.5, "pearson": 0.0, "spearmanr": 0.0}),
    ],
)  # fmt: skip
def test_metrics_by_hand(papa, name, data, expected):
    scores = papa.metrics.metrics(name, *map(np.asarray, data))
    assert scores == pytest.approx(expected, abs=1e-12)
    assert name is None or papa.metrics.main_metric(name) in scores


def test_token_metrics_of_entities(papa):
    names = ("B-X", "B-Y", "I-X", "O")
    labels = [[-100, 0, 2, -100, 3, 1], [3, 0, 3, -100, -100, -100]]
    # Found: the first X; lost: Y; the second X, and one that is none: at a position that counts.
    logits = one_hot([[3, 0, 2, 1, 3, 3], [0, 0, 3, 0, 0, 0]], 4)
    expected = {"precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "accuracy": 5 / 7}
    scores = papa.metrics.token_metrics("ner", logits, labels, names)
    assert scores == pytest.approx(expected, abs=1e-12)
    types = {"X_precision": 2 / 3, "X_recall": 1, "X_f1": 0.8, "X_number": 2}
    types |= {"Y_precision": 0, "Y_recall": 0, "Y_f1": 0, "Y_number": 1}
    expected = {f"overall_{name}": value for name, value in expected.items()} | types
    scores = papa.metrics.token_metrics("ner", logits, labels, names, entity_level=True)
    assert scores == pytest.approx(expected, abs=1e-12)


def test_token_metrics_of_parts_of_speech(papa):
    names, labels, logits = ("N", "V", "X"), [[-100, 0, 0, 1, -100]], one_hot([[2, 0, 1, 1, 2]], 3)
    scores = papa.metrics.token_metrics("pos", logits, labels, names)
    assert scores == pytest.approx({"accuracy": 2 / 3}, abs=1e-12)
    tags = {"N_precision": 1, "N_recall": 0.5, "N_f1": 2 / 3, "N_number": 2}
    tags |= {"V_precision": 0.5, "V_recall": 1, "V_f1": 2 / 3, "V_number": 1}
    tags |= {"X_precision": 0, "X_recall": 0, "X_f1": 0, "X_number": 0}
    scores = papa.metrics.token_metrics("pos", logits, labels, names, entity_level=True)
    assert scores == pytest.approx({"accuracy": 2 / 3, **tags}, abs=1e-12)


# --- predictions


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("cola", "0 1"), ("wnli", "0 1"), ("rte", "entailment not_entailment"),
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
    first, same, other = (
        load("rte", None, ["train", "validation"], task_dir=str(tmp_path / name)).splits
        for name in "abc"
    )
    assert first == same != other
    with refused("train.tsv holds other pairs; --overwrite replaces them"):
        papa.toy.main(["--output_dir", str(tmp_path / "a"), "--seed", "1"])
    sizes = [(len(one.texts), sum(one.labels)) for one in first.values()]
    assert sizes == [(1000, 500), (300, 150)]
    assert len({*first["train"].texts, *first["validation"].texts}) == 1300
    for (premise, hypothesis), label in zip(*first["train"], strict=True):
        *subject, thing = hypothesis.rstrip(".").split()
        assert premise.split()[:2] == subject
        assert (thing in premise.rstrip(".").replace(",", "").split()) == (label == 0)
