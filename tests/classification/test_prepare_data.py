"""prepare_data.py: the tokeniser, every public format in small, users' files, archives, errors."""

import gzip
import io
import json
import os
import sys
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import assert_refused, run_script
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from attention_dynamics.cli import InputError
from attention_dynamics.storage import archives
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.pickles import load_pickle


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def prepare(folder, classification):
    """Run prepare_data in ``folder``; "Furd" -> {"train": [(tokens, label), ...], "test": ...}."""

    def run(dataset: str, *options: object) -> dict[str, list[tuple[list[str], int]]]:
        classification.prepare_data.main(["--dataset", dataset, *map(str, options)])
        return read_prepared(folder, classification.data.canonical_name(dataset))

    return run


def read_prepared(folder: Path, dataset: str) -> dict[str, list[tuple[list[str], int]]]:
    content = {
        split: json.loads((folder / "data" / f"{dataset}_{split}.json").read_text())
        for split in ("train", "test")
    }
    words = content["train"]["vocab"]
    assert content["test"]["vocab"] == words
    return {
        split: [([words[index] for index in tokens], label) for tokens, label in part["XY"]]
        for split, part in content.items()
    }


def about(folder: Path, dataset: str) -> dict:
    return json.loads((folder / "data" / f"{dataset}_about.json").read_text())


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, gzipped when its name says so, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def tar(path: Path, members: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def zipped(path: Path, members: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


SMS = "ham\tOk lar...\nspam\tWIN £1,000 now!\n"
TREES = {
    "train": "(3 (2 It) (4 shines))\n(1 (2 -LRB-) (0 Bad))\n(2 (2 A) (2 film))\n",
    "dev": "(4 (2 Dev) (4 good))\n",
    "test": "(0 (2 8\xa01\\/2) (1 Women))\n(4 (2 ``) (4 Great))\n",
}


# --- The tokeniser


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("I don't think it's bad.", "i do n't think it 's bad ."),
        ("Can't we'll they've I'd you're I'm", "ca n't we 'll they 've i 'd you 're i 'm"),
        ("couldn’t've", "could n't 've"),
        ("wo n't , it 's", "wo n't , it 's"),
        ("O'Brien's bug-eyed 1930s", "o'brien 's bug-eyed 1930s"),
        ("great<br /><br />film<BR>end", "great film end"),
        ("costs $1,000.50 or 3/4, 21st", "costs $ 1,000.50 or 3 / 4 , 21st"),
        ("wait...... no!!!!! -- (ok)", "wait ... no !!! -- ( ok )"),
        ("``Quoted'' “too”", '" quoted " " too "'),
        ("the U.S. and e.g. this.that", "the u.s. and e.g. this . that"),
        ("&lt;#&gt; AT&amp;T", "< # > at & t"),
        ("cafe\u0301 8\xa01", "café 8 1"),
        ("a_b\x00c\ufeff", "a _ b c"),
        (" \n\t ", ""),
    ],
)
def test_tokens(classification, text, tokens):
    assert classification.preparation.tokeniser.tokenise(text) == tokens.split()


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=list("aSn'tdmrevl.,-_!*1 2&<>/;`\"’é\u0301İ")) | st.text())
def test_tokens_of_tokens_are_the_same(classification, text):
    tokenise = classification.preparation.tokeniser.tokenise
    tokens = tokenise(text)
    assert tokenise(" ".join(tokens)) == tokens
    assert not any(token.split() != [token] for token in tokens)


# --- The public distributions


def imdb_members(root: str = "aclImdb/") -> dict[str, str]:
    return {
        f"{root}README": "not a review",
        f"{root}train/pos/0_10.txt": "Superb!<br />Watch it.",
        f"{root}train/pos/1_7.txt": "",
        f"{root}train/neg/0_1.txt": "Awful.",
        f"{root}train/unsup/0_0.txt": "no label",
        f"{root}test/pos/0_8.txt": "Good",
        f"{root}test/neg/0_4.txt": "Bad",
    }


def test_imdb(prepare, folder):
    sets = prepare("IMDB", "--source", tar(folder / "aclImdb.tar.gz", imdb_members()))
    assert sorted(sets["train"]) == [
        ([], 1),
        (["awful", "."], 0),
        (["superb", "!", "watch", "it", "."], 1),
    ]
    assert sorted(sets["test"]) == [(["bad"], 0), (["good"], 1)]
    facts = about(folder, "IMDB")
    assert facts["examples without a token"] == 1
    assert "train has 3 examples (1 of label 0, 2 of label 1)" in facts["warnings"][0]
    assert "25,000 examples (12,500 of label 0, 12,500 of label 1)" in facts["warnings"][0]


def test_imdb_is_shuffled_by_seed_whatever_it_comes_in(prepare, folder):
    members = {
        f"{split}/{polarity}/{number}_{rating}.txt": f"{split} {polarity} {number}"
        for split in ("train", "test")
        for polarity, rating in (("neg", 2), ("pos", 9))
        for number in range(30)
    }
    for name, text in members.items():
        write(folder / "aclImdb" / name, text)
    reverse = dict(sorted(members.items(), reverse=True))
    first = prepare("IMDB", "--source", zipped(folder / "imdb.zip", reverse))
    again = prepare("IMDB", "--source", folder / "aclImdb", "--overwrite")
    other = prepare("IMDB", "--source", folder / "aclImdb", "--overwrite", "--seed", 1)
    assert again == first
    assert other != first
    assert sorted(other["test"]) == sorted(first["test"])
    # Neither class comes first: the evaluation takes the test examples from the start.
    assert {label for _, label in first["test"][:15]} == {0, 1}


def test_sst_trees(prepare, folder):
    members = {f"trees/{split}.txt": text for split, text in TREES.items()}
    sets = prepare("Furd", "--source", zipped(folder / "trees.zip", members))
    assert sets["train"] == [(["it", "shines"], 1), (["(", "bad"], 0)]
    assert sets["test"] == [(["8", "1", "/", "2", "women"], 0), (['"', "great"], 1)]


def test_sst_tsv(prepare, folder):
    write(folder / "sst" / "train.tsv.gz", 'sentence\tlabel\nit " shines\t1\n-lrb- bad\t0\n')
    write(folder / "sst" / "test.tsv", "sentence\tlabel\nand\\/or\t0\n")
    sets = prepare("Furd", "--source", folder / "sst")
    assert sets["train"] == [(["it", '"', "shines"], 1), (["(", "bad"], 0)]
    assert sets["test"] == [(["and", "/", "or"], 0)]


AG_OWN = (
    '"1","Storm","Haiti #39;s  quot;straits quot;"\n'
    '"2","Sport","x"\n'
    '"3","Oil","A \\$10 rise\\for ""oil"""\n'
    '"4","Sci","x"\n'
)


def test_ag_news(prepare, folder):
    source = zipped(folder / "ag.zip", {"ag/train.csv": AG_OWN, "ag/test.csv": AG_OWN})
    sets = prepare("AG_News", "--source", source)
    expected = [
        (["storm", "haiti", "'s", '"', "straits", '"'], 0),
        (["oil", "a", "$", "10", "rise", "for", '"', "oil", '"'], 1),
    ]
    assert sets["train"] == expected
    assert sets["test"] == expected


@pytest.mark.parametrize(
    "train",
    [
        "label,gt,text,group\n1,0,a world,5\n2,2,some business,5\n0,1,a sport,5\n",
        '"a world",0\n"some business",2\na sport,1\n',
    ],
)
def test_ag_news_from_a_training_file_of_another_layout(prepare, folder, train):
    options = ["--train", write(folder / "train.csv.gz", train)]
    options += ["--test", write(folder / "test.csv", AG_OWN)]
    sets = prepare("AG_News", *options)
    assert sets["train"] == [(["a", "world"], 0), (["some", "business"], 1)]
    assert [label for _, label in sets["test"]] == [0, 1]


POST = (
    "From: someone@example.org\nSubject: x\n\nIn article <1> he writes:\n> quoted\n"
    "My caf\xe9 answer.\n\nMore.\n\n--\nsignature\n"
)


def test_newsgroups(prepare, folder):
    for split, groups in {"train": ("baseball", "hockey"), "test": ("hockey",)}.items():
        for group in groups:
            path = folder / "news" / f"20news-bydate-{split}" / f"rec.sport.{group}" / "101"
            write(path, POST.encode("latin-1"))
    write(folder / "news" / "20news-bydate-train" / "sci.space" / "7", "From: x\n\nother")
    sets = prepare("Newsgroups", "--source", folder / "news")
    tokens = ["my", "café", "answer", ".", "more", "."]
    assert sorted(sets["train"]) == [(tokens, 0), (tokens, 1)]
    assert sets["test"] == [(tokens, 1)]
    assert about(folder, "Newsgroups")["training examples that repeat an earlier one"] == 1


def test_yelp_polarity_csv_with_column_numbers(prepare, folder):
    text = '0,1\n2,"Good\\nfood, ""nice\\"""\n1,Bad\n'
    for split in ("train", "test"):
        write(folder / "yelp" / f"{split}.csv", text)
    sets = prepare("Yelp", "--source", folder / "yelp")
    assert sets["train"] == [(["good", "food", ",", '"', "nice", '"'], 1), (["bad"], 0)]
    notes = about(folder, "Yelp")["notes"]
    assert [note for note in notes if "the first line 0,1 is column numbers" in note] == notes
    assert not any(str(folder) in note for note in notes)


def test_yelp_stars_csv(prepare, folder):
    rows = "".join(f"{n} stars,Cafe,Review Stars: {n}.0\n" for n in range(1, 6))
    write(folder / "yelp" / "dev.csv.gz", "text,label1,label2\n" + rows)
    write(folder / "yelp" / "test.csv.gz", "text,label1,label2\n" + rows)
    sets = prepare("Yelp", "--source", folder / "yelp")
    assert [(tokens[0], label) for tokens, label in sets["train"]] == [
        ("1", 0), ("2", 0), ("4", 1), ("5", 1),
    ]  # fmt: skip
    assert "there is no train.csv: dev.csv is the training set" in about(folder, "Yelp")["notes"]


def test_labelled_sentences_are_split_80_20_by_seed(prepare, folder):
    lines = "".join(f'"Sentence {n}\t{n % 2}\n' for n in range(50))
    source = write(folder / "yelp_labelled.txt", lines)
    first = prepare("Yelp", "--source", source)
    assert [len(first["train"]), len(first["test"])] == [40, 10]
    both = sorted(first["train"] + first["test"], key=lambda row: int(row[0][2]))
    assert both == [(['"', "sentence", str(n)], n % 2) for n in range(50)]
    assert prepare("Yelp", "--source", source, "--overwrite") == first
    assert prepare("Yelp", "--source", source, "--overwrite", "--seed", 3) != first


def test_amazon_polarity_csv_joins_title_and_text(prepare, folder):
    members = {f"{split}.csv": '"2","Great","Buy it"\n"1","","No"\n' for split in ("train", "test")}
    sets = prepare("Amzn", "--source", tar(folder / "amazon.tgz", members))
    assert sets["train"] == [(["great", "buy", "it"], 1), (["no"], 0)]


def review(rating: float, title: str, text: str) -> str:
    return (
        f"<review>\n<unique_id>\nA&B\n</unique_id>\n<rating>\n{rating}\n</rating>\n"
        f"<title>\n{title}\n</title>\n<reviewer>\nSomeone\n</reviewer>\n"
        f"<review_text>\n{text}\n</review_text>\n</review>\n"
    )


def test_multi_domain(prepare, folder):
    for domain in ("books", "dvd"):
        for name, rating in (("negative", 2.0), ("positive", 5.0)):
            text = "".join(review(rating, f"{domain} {n}", "Line\n<b>\n\nend") for n in range(5))
            write(folder / "acl" / domain / f"{name}.review.gz", text)
    sets = prepare("Amzn", "--source", folder / "acl")
    assert [len(sets["train"]), len(sets["test"])] == [16, 4]
    both = sets["train"] + sets["test"]
    tail = ["line", "<", "b", ">", "end"]
    expected = [([d, str(n), *tail], y) for d in ("books", "dvd") for n in range(5) for y in (0, 1)]
    assert sorted(both) == sorted(expected)
    assert sum(label for _, label in both) == 10


def test_sms_both_spellings_and_quotes_are_text(prepare, folder):
    lines = 'ham\tHe said "hi\nspam\tWIN\tnow\n' * 5
    sets = prepare(
        "SNS", "--source", zipped(folder / "sms.zip", {"SMSSpamCollection": lines, "readme": ""})
    )
    assert [len(sets["train"]), len(sets["test"])] == [8, 2]
    assert (["he", "said", '"', "hi"], 0) in sets["train"]
    assert (["win", "now"], 1) in sets["train"]
    assert "all has 10 examples" in about(folder, "SMS")["warnings"][0]


def test_complete_counts_give_no_warning(prepare, folder, classification, monkeypatch):
    monkeypatch.setitem(
        classification.preparation.examples.FULL, "Furd", {"train": (1, 1), "test": (1, 1)}
    )
    members = {f"{split}.txt": text for split, text in TREES.items()}
    prepare("Furd", "--source", zipped(folder / "trees.zip", members))
    assert about(folder, "Furd")["warnings"] == []


# --- A user's own texts


def mine(folder: Path, train: str, test: str, suffix: str = "csv") -> list[object]:
    return [
        "--train", write(folder / f"train.{suffix}", train),
        "--test", write(folder / f"test.{suffix}", test),
    ]  # fmt: skip


def test_own_csv_with_header(prepare, folder):
    train = 'id,body,class\n1,"Good, ""very""\nso",1\n2,Bad,0\n'
    files = mine(folder, train, "id,body,class\n3,Good,1\n", "csv.gz")
    sets = prepare("mine", *files, "--text_column", "body", "--label_column", "class")
    assert sets["train"] == [(["good", ",", '"', "very", '"', "so"], 1), (["bad"], 0)]
    assert sets["test"] == [(["good"], 1)]


def test_own_tsv_without_header_and_with_quotes_as_text(prepare, folder):
    files = mine(folder, 'gj04\t1\t\t"Good\nks08\t0\t*\tBad\n', "l-93\t1\t\tGood\n", "tsv")
    sets = prepare("CoLA", *files, "--text_column", 3, "--label_column", 1)
    assert sets["train"] == [(['"', "good"], 1), (["bad"], 0)]


def test_own_json_lines(prepare, folder):
    train = '{"text": "Good\\u2028day", "label": true}\n\n{"text": "Bad", "label": 0.0}\n'
    sets = prepare("mine", *mine(folder, train, '{"text": "", "label": "1"}\n', "jsonl"))
    assert sets["train"] == [(["good", "day"], 1), (["bad"], 0)]
    assert sets["test"] == [([], 1)]


def test_two_names_are_labels_in_sorted_order_said_aloud(prepare, folder, capsys):
    train, test = "text,label\nGood,yes\nBad,no\n", "text,label\nBad,no\n"
    sets = prepare("mine", *mine(folder, train, test))
    assert [label for _, label in sets["train"]] == [1, 0]
    assert "note: label 'no' is 0 and 'yes' is 1" in capsys.readouterr().err
    sets = prepare("mine", *mine(folder, train, test), "--labels", "yes", "no", "--overwrite")
    assert [label for _, label in sets["train"]] == [0, 1]


def test_a_known_name_takes_own_columns_too(prepare, folder):
    files = mine(folder, "text,label\nGood,1\nBad,0\n", "text,label\nBad,0\n")
    assert prepare("IMDB", *files)["train"] == [(["good"], 1), (["bad"], 0)]
    sets = prepare("SMS", *files, "--label_column", "label", "--overwrite")
    assert sets["train"] == [(["good"], 1), (["bad"], 0)]


# --- What is written


def test_vocabulary_is_by_falling_training_count_then_first_occurrence(prepare, folder):
    train = "text,label\nb a a,1\nc b a,0\n"
    prepare("mine", *mine(folder, train, "text,label\nz c y z,1\n"))
    content = json.loads((folder / "data" / "mine_train.json").read_text())
    assert content == {"vocab": ["a", "b", "c", "z", "y"], "XY": [[[1, 0, 0], 1], [[2, 1, 0], 0]]}
    content = json.loads((folder / "data" / "mine_test.json").read_text())
    assert content["XY"] == [[[3, 2, 4, 3], 1]]


def test_what_is_written_can_be_loaded(prepare, folder, classification):
    prepare("mine", *mine(folder, "text,label\na a a b,1\n,0\n", "text,label\na z,1\n"))
    loaded = classification.data.load_dataset("mine")
    assert loaded.vocabulary == ["<pad>", "<bos>", "<eos>", "<unk>", "a"]
    assert loaded.train.ids.lengths.tolist() == [6, 2]
    assert loaded.test.ids.values.tolist() == [1, 4, 3, 2]


def test_table_and_about(prepare, folder, capsys):
    train = "text,label\na b,1\na b,1\na b c d,0\nx,0\n"
    prepare("mine", *mine(folder, train, "text,label\na b,1\nq,0\n"))
    facts = about(folder, "mine")
    assert facts["splits"][0] == {
        "split": "train", "examples": 4, "label 0": 2, "label 1": 2,
        "min tokens": 1, "mean": 2.25, "median": 2.0, "max": 4,
    }  # fmt: skip
    assert facts["words"] == 6
    assert facts["words in training"] == 5
    assert facts["words more than twice in training"] == 2
    assert facts["training examples that repeat an earlier one"] == 1
    assert facts["training examples that are in test"] == 2
    assert facts["seed"] == 0
    # The folders of the machine it was made on are not in it.
    assert facts["train"]["name"] == "train.csv"
    assert len(facts["train"]["sha256"]) == 64
    assert str(folder) not in json.dumps(facts)
    assert facts["command"].startswith("python prepare_data.py --dataset mine --train train.csv")
    printed = capsys.readouterr()
    rows = [line.split() for line in printed.out.splitlines()]
    assert ["train", "4", "2", "2", "1", "2.2", "2.0", "4"] in rows
    assert ["words", "more", "than", "twice", "in", "training", "2"] in rows
    assert "WARNING: 2 training examples are also test examples: kept" in printed.err


def test_drop_duplicates_leaves_them_out_of_train(prepare, folder):
    train = "text,label\na b,1\nA  b,1\nonly here,0\nx,1\n"
    sets = prepare("mine", *mine(folder, train, "text,label\na b,1\nq,0\n"), "--drop_duplicates")
    assert sets["train"] == [(["only", "here"], 0), (["x"], 1)]
    assert [tokens for tokens, _ in sets["test"]] == [["a", "b"], ["q"]]
    vocabulary = json.loads((folder / "data" / "mine_train.json").read_text())["vocab"]
    assert vocabulary == ["only", "here", "x", "a", "b", "q"]
    assert (
        "2 training examples are also test examples: left out" in about(folder, "mine")["warnings"]
    )


def test_duplicates_are_the_same_words_punctuation_aside(prepare, folder, capsys):
    """Public copies differ in it; an example without a word is the duplicate of none."""
    train = 'text,label\n"Oil, up",1\n.,0\n!,1\noil up,0\n'
    prepare("mine", *mine(folder, train, "text,label\noil . up !,1\n.,0\n"))
    printed = capsys.readouterr()
    assert "WARNING: 2 training examples are also test examples: kept" in printed.err
    assert ["training", "examples", "that", "repeat", "an", "earlier", "one", "1"] in [
        line.split() for line in printed.out.splitlines()
    ]


def test_a_test_set_that_starts_with_one_class_is_said(
    prepare, folder, classification, monkeypatch
):
    monkeypatch.setattr(classification.prepare_data, "_EVALUATED", 2)
    prepare("mine", *mine(folder, "text,label\na,1\nb,0\n", "text,label\nc,1\nd,1\ne,0\n"))
    assert (
        "the first 2 test examples, which are evaluated, all have the label 1"
        in (about(folder, "mine")["warnings"][0])
    )


def test_the_same_command_writes_the_same_bytes(prepare, folder):
    prepare("toy")
    before = {path.name: path.read_bytes() for path in (folder / "data").iterdir()}
    assert sorted(before) == [
        "toy_about.json", "toy_test.json", "toy_train.json", "toy_truth.json", "w2v.pkl",
    ]  # fmt: skip
    prepare("toy", "--overwrite")
    after = {path.name: path.read_bytes() for path in (folder / "data").iterdir()}
    before.pop("toy_about.json"), after.pop("toy_about.json")  # it holds the command
    assert after == before


# --- Word vectors

OWN = ("text,label\na b,1\nc,0\n", "text,label\nd,1\n")
GLOVE = "a 1 2 3\n. . 9 9 9\nb -1 0.5 2e-3\nunused 0 0 0\n"


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz", "vectors.zip"])
@pytest.mark.parametrize("header", ["", "4 3\n"])
def test_word_vectors(prepare, folder, name, header):
    path = folder / name
    if name.endswith("zip"):
        zipped(path, {"vectors.txt": header + GLOVE})
    else:
        write(path, header + GLOVE.replace("\n", " \n"))
    prepare("mine", *mine(folder, *OWN), "--word_vectors", path)
    vectors = load_pickle(folder / "data" / "w2v.pkl")
    assert list(vectors) == ["a", "b"]
    np.testing.assert_array_equal(vectors["b"], np.array([-1, 0.5, 2e-3], dtype=np.float32))
    assert vectors["b"].dtype == np.float32
    facts = about(folder, "mine")
    assert facts["words with a vector"] == 2
    assert facts["share of training tokens with a vector"] == pytest.approx(2 / 3)
    assert facts["word_vectors"]["name"] == name


def test_word_vectors_serve_every_data_set(prepare, folder):
    first = write(folder / "first.txt", GLOVE)
    prepare("one", *mine(folder, *OWN))
    assert load_pickle(folder / "data" / "w2v.pkl") == {}
    prepare("two", *mine(folder, "text,label\nunused,1\nq,0\n", OWN[1]), "--word_vectors", first)
    both = load_pickle(folder / "data" / "w2v.pkl")
    assert list(both) == ["a", "b", "unused"]  # "one" uses a and b
    # Without the option, what is there stays.
    before = (folder / "data" / "w2v.pkl").read_bytes()
    prepare("one", *mine(folder, *OWN), "--overwrite")
    assert (folder / "data" / "w2v.pkl").read_bytes() == before
    assert about(folder, "one")["words with a vector"] == 2

    other = write(folder / "other.txt", "a 5 5 5\n")
    with pytest.raises(InputError, match=r"w2v.pkl holds other vectors than .*other.txt for 3"):
        prepare("three", *mine(folder, *OWN), "--word_vectors", other)
    assert not (folder / "data" / "three_train.json").exists()
    prepare("three", *mine(folder, *OWN), "--word_vectors", other, "--overwrite")
    assert list(load_pickle(folder / "data" / "w2v.pkl")) == ["a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1 2 3\nb 1 2\n", "vectors.txt line 2 has 2 numbers, the first vector has 3"),
        ("a 1 2 3\nb 1 x 2\n", "vectors.txt line 2 is not a word and its numbers"),
        ("a 1 2 3\nb 1 nan 2\n", "vectors.txt line 2 is not a word and its numbers"),
        ("<html>\n", "vectors.txt line 1 is not a word and its numbers"),
        ("", "holds no vector"),
    ],
)
def test_word_vectors_that_are_none(prepare, folder, content, message):
    path = write(folder / "vectors.txt", content)
    with pytest.raises(InputError, match=message):
        prepare("mine", *mine(folder, *OWN), "--word_vectors", path)


# --- The toy corpus


def test_toy_truth_is_where_it_says(prepare, folder):
    sets = prepare("toy")
    assert [len(sets["train"]), len(sets["test"])] == [4000, 1000]
    truth = json.loads((folder / "data" / "toy_truth.json").read_text())
    assert len(truth["evidence"]) == 240
    strengths = np.abs(list(truth["evidence"].values()))
    assert [strengths.min(), strengths.max()] == [0.5, 4.5]
    # The two words of a pair are as strong as each other.
    assert sum(truth["evidence"].values()) == pytest.approx(0)
    for split, examples in sets.items():
        for (tokens, _), positions in zip(examples, truth["positions"][split], strict=True):
            bearing = [place for place, token in enumerate(tokens) if token in truth["evidence"]]
            assert positions == bearing
            assert 8 <= len(tokens) <= 40
            assert tokens[-1] != truth["negation"]


def test_toy_evidence_is_worth_what_it_says(classification):
    """Around evidence words the share of label 1 is sigmoid(strength), by strength in four bins."""
    toy = classification.preparation.toy.make_toy(1)
    strengths, votes = [], []
    for tokens, label in zip(toy.sentences["train"], toy.labels["train"], strict=True):
        for before, word in zip(["", *tokens], tokens, strict=False):
            if word in toy.evidence:
                strengths.append(toy.evidence[word] * (-1 if before == "not" else 1))
                votes.append(label)
    strengths, votes = np.array(strengths), np.array(votes)
    expected = 1 / (1 + np.exp(-strengths))
    noise = classification.preparation.toy.NOISE
    expected = expected * (1 - noise) + (1 - expected) * noise
    for low in (-4.5, -2, 0, 2):
        inside = (strengths >= low) & (strengths < low + 2.5)
        # Some 6,000 words a bin: three standard errors of a share are below 0.02.
        assert votes[inside].mean() == pytest.approx(expected[inside].mean(), abs=0.02)


def test_toy_needs_order(classification):
    """A bag of words classifies 85 to 90% of the test set; one that sees `not` clearly more."""
    toy = classification.preparation.toy.make_toy(0)

    def after_not(words):
        return [f"not {b}" if a == "not" else b for a, b in zip(["", *words], words, strict=False)]

    def accuracy(features):
        counter = CountVectorizer(analyzer=features)
        model = LogisticRegression(C=0.1, max_iter=200)
        model.fit(counter.fit_transform(toy.sentences["train"]), toy.labels["train"])
        return model.score(counter.transform(toy.sentences["test"]), toy.labels["test"])

    # Two standard errors of an accuracy over 1,000 sentences are 0.02.
    assert accuracy(lambda words: words) == pytest.approx(0.875, abs=0.025)
    assert accuracy(after_not) == pytest.approx(0.945, abs=0.02)


def test_toy_depends_on_the_seed(classification):
    one, two = (classification.preparation.toy.make_toy(seed) for seed in (0, 1))
    assert one.sentences["test"] != two.sentences["test"]
    assert one.evidence.keys() != two.evidence.keys()


# --- Archives


def test_archive_names_outside_of_it_are_refused(folder):
    for name in ("../train.txt", "/train.txt", "a/../../train.txt", "..\\train.txt", "C:\\x.txt"):
        for path in (tar(folder / "a.tgz", {name: "x"}), zipped(folder / "a.zip", {name: "x"})):
            with pytest.raises(InputError, match="points outside of the archive: refused"):
                Source(path)


def test_archive_links_are_not_followed(prepare, folder):
    write(folder / "secret.txt", TREES["train"])
    with tarfile.open(folder / "trees.tar", "w") as archive:
        for kind, name in ((tarfile.SYMTYPE, "train.txt"), (tarfile.LNKTYPE, "dev.txt")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, str(folder / "secret.txt")
            archive.addfile(link)
        info = tarfile.TarInfo("test.txt")
        info.size = len(TREES["test"].encode())
        archive.addfile(info, io.BytesIO(TREES["test"].encode()))
    with zipfile.ZipFile(folder / "trees.zip", "w") as archive:
        link = zipfile.ZipInfo("train.txt")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, str(folder / "secret.txt"))
        archive.writestr("test.txt", TREES["test"])
    for name in ("trees.tar", "trees.zip"):
        assert Source(folder / name).names == ["test.txt"]
        with pytest.raises(InputError, match="does not look like Furd"):
            prepare("Furd", "--source", folder / name)


@pytest.mark.parametrize("kind", ["zip", "tgz", "gz"])
def test_archive_that_would_fill_the_memory(prepare, folder, monkeypatch, kind):
    monkeypatch.setattr(archives, "MOST_BYTES", 10_000)
    lines = SMS * 10_000
    if kind == "gz":
        path = write(folder / "SMSSpamCollection.gz", lines)
    else:
        pack = zipped if kind == "zip" else tar
        path = pack(folder / f"sms.{kind}", {"SMSSpamCollection": lines})
    with pytest.raises(InputError, match="holds more than 10,000 bytes of data"):
        prepare("SMS", "--source", path)
    assert not (folder / "data").exists()


def test_the_limit_counts_all_files_together(folder, monkeypatch):
    monkeypatch.setattr(archives, "MOST_BYTES", 100)
    source = Source(zipped(folder / "a.zip", {"a": "x" * 60, "b": "x" * 60}))
    with pytest.raises(InputError, match="reached in b"):
        for _, stream in source.open_all(source.names):
            stream.read()


def test_damaged_archives(prepare, folder):
    whole = write(folder / "SMSSpamCollection.gz", SMS * 500).read_bytes()
    cut = folder / "cut.gz"
    cut.write_bytes(whole[:-20])
    with pytest.raises(InputError, match=r"cut.gz is damaged or cut short"):
        prepare("SMS", "--source", cut)
    random = os.urandom(3000).hex()
    archive = tar(folder / "a.tgz", {"SMSSpamCollection": random}).read_bytes()
    (folder / "b.tgz").write_bytes(archive[: len(archive) // 2])
    (folder / "c.tar.gz").write_bytes(b"no archive at all")
    (folder / "d.zip").write_bytes(zipped(folder / "a.zip", {"x": random}).read_bytes()[:1000])
    for name in ("b.tgz", "c.tar.gz", "d.zip"):
        with pytest.raises(InputError, match=f"{name}.* is damaged or cut short"):
            prepare("SMS", "--source", folder / name)


# --- Downloads: without the network


class HubRows(list):
    """The rows of one split, as `datasets` has them."""

    @property
    def column_names(self):
        return list(self[0])


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for both libraries: ``hub.splits`` is what is there, ``hub.asked`` what was."""
    state = SimpleNamespace(splits={}, asked=[])

    class HfApi:
        def dataset_info(self, name, revision, timeout):
            return SimpleNamespace(sha=revision or "newest")

    def load_dataset(name, revision):
        state.asked.append((name, revision))
        return {split: HubRows(rows) for split, rows in state.splits.items()}

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(HfApi=HfApi))
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return state


def test_download(prepare, folder, hub, capsys):
    rows = [{"title": f"T{n}", "content": "Text", "label": n % 2} for n in range(3)]
    hub.splits = {"train": rows, "test": rows[:1]}
    sets = prepare("Amzn", "--download")
    assert sets["train"] == [(["t0", "text"], 0), (["t1", "text"], 1), (["t2", "text"], 0)]
    assert hub.asked == [("fancyzhx/amazon_polarity", "newest")]
    assert about(folder, "Amzn")["revision"] == "newest"
    assert "downloaded at --revision newest" in capsys.readouterr().err
    prepare("Amzn", "--download", "--revision", "0123", "--overwrite")
    assert hub.asked[1] == ("fancyzhx/amazon_polarity", "0123")
    assert about(folder, "Amzn")["notes"] == []


def test_download_without_a_split_filters_and_splits(prepare, hub):
    hub.splits = {"train": [{"sms": f"m{n}", "label": n % 2} for n in range(10)]}
    sets = prepare("SMS", "--download")
    assert [len(sets["train"]), len(sets["test"])] == [8, 2]
    rows = [{"text": f"Haiti #39;s {n}", "label": n} for n in range(4)]
    hub.splits = {"train": rows, "test": rows}
    assert prepare("AG_News", "--download")["test"] == [
        (["haiti", "'s", "0"], 0),
        (["haiti", "'s", "2"], 1),
    ]


def test_download_of_a_changed_repository(prepare, hub):
    hub.splits = {"train": [{"body": "x", "label": 1}], "test": []}
    with pytest.raises(InputError, match="fancyzhx/yelp_polarity train has no column text; it has"):
        prepare("Yelp", "--download")
    hub.splits = {"train": [{"text": "x", "label": 7}], "test": []}
    with pytest.raises(InputError, match=r"line 0 has the label '7'; accepted are 0, 1"):
        prepare("Yelp", "--download")


def test_download_without_network_is_one_line(folder):
    process = run_script(
        "classification/prepare_data.py", "--dataset", "IMDB", "--download", cwd=folder
    )
    assert_refused(process, "--download cannot get stanfordnlp/imdb", "give it as --source")


# --- Errors


@pytest.mark.parametrize(
    ("dataset", "files", "message"),
    [
        ("IMDB", {"a.txt": "x"}, "does not look like IMDB: expected aclImdb/"),
        ("IMDB", {"train/pos/0_4.txt": "x"}, "0_4.txt has the rating 4: neg is 1 to 4, pos is 7"),
        ("Furd", {"train.txt": "(3 (2 a))"}, "does not look like Furd: expected train.txt and"),
        ("Furd", {"a/train.txt": "x", "b/train.tsv": "x"}, "more than one train file"),
        (
            "Furd",
            {"train.txt": "(3 (2 a))\n(3 (2 b)\n", "test.txt": "(3 (2 a))"},
            "train.txt line 2 is not a sentiment tree",
        ),
        (
            "Furd",
            {"train.tsv": "sentence\tlabel\na\t1\nb\t0\n", "test.tsv": "index\tsentence\n0\ta\n"},
            "test.tsv must hold one tree a line.* its first line has index, sentence",
        ),
        (
            "Furd",
            {"train.tsv": "sentence\tlabel\na\t1\nb\t2\n", "test.tsv": "sentence\tlabel\n"},
            "train.tsv line 3 has the label '2'; accepted are 0, 1",
        ),
        ("AG_News", {"test.csv": AG_OWN}, "does not look like AG_News: .* --train FILE --test"),
        (
            "AG_News",
            {"train.csv": '"5","a","b"\n', "test.csv": AG_OWN},
            "train.csv line 1 has the label '5'; accepted are 1, 2, 3, 4",
        ),
        (
            "AG_News",
            {"train.csv": "text,class\na,1\n", "test.csv": AG_OWN},
            "train.csv has no column gt or label; it has text, class",
        ),
        (
            "AG_News",
            {"train.csv": "a,b,c,d\n", "test.csv": AG_OWN},
            "train.csv has 4 column.s.: expected class,title,description",
        ),
        ("Newsgroups", {"sci.space/1": "x"}, "does not look like Newsgroups: expected 20news"),
        (
            "Yelp",
            {"train.csv": '1,"a\nb\n', "test.csv": ""},
            "train.csv line 2 is malformed CSV: unexpected end of data",
        ),
        (
            "Yelp",
            {"train.csv": "1,a\n2,b,c\n", "test.csv": ""},
            r"train.csv line 2 has 3 field\(s\), the first row has 2",
        ),
        (
            "Yelp",
            {"train.csv": "text,label2\na,Review Stars: 9.0\n", "test.csv": ""},
            "line 2 has the label 'Review Stars: 9.0'; accepted are Review Stars: 1.0 to 5.0",
        ),
        ("Yelp", {"train.csv": "a\n", "test.csv": ""}, "has 1 columns: expected class,text or"),
        (
            "Yelp",
            {"polarity/test.csv": "1,a\n", "uci/yelp_labelled.txt": "a\t1\n"},
            "more than one distribution",
        ),
        ("Yelp", {"yelp_labelled.txt": "just text\n"}, "line 1 is not sentence<TAB>label"),
        ("Amzn", {"reviews.txt": "x"}, "does not look like Amzn: .* of the Multi-Domain set"),
        (
            "Amzn",
            {"books/positive.review": review(2.0, "a", "b")},
            "positive.review line 17 has the label '2.0'; accepted are 4.0 or 5.0",
        ),
        (
            "Amzn",
            {"books/positive.review": review(5.0, "a", "b")[:-20]},
            "positive.review ends at line 16 inside of a <review>: it is cut short",
        ),
        ("Amzn", {"books/positive.review": "words\n"}, "line 1 stands outside of the tags"),
        ("SMS", {"a.txt": "x", "b.txt": "x"}, "expected one file SMSSpamCollection; .* a.txt, b"),
        ("SMS", {"SMSSpamCollection": "ham hello\n"}, "line 1 is not ham or spam, TAB, message"),
        (
            "SMS",
            {"SMSSpamCollection": "ham\ta\nSPAM\tb\n"},
            "line 2 has the label 'SPAM'; accepted are ham, spam",
        ),
        ("SMS", {"SMSSpamCollection": b"ham\ta\nham\t\xa3\n"}, "not UTF-8 text: line 2, byte 10"),
        ("SMS", {"SMSSpamCollection": ""}, "SMS has no train example"),
        (
            "SMS",
            {"SMSSpamCollection": "ham\ta\n" * 10},
            "the training set has 8 examples of label 0 and 0 of label 1: a classifier needs both",
        ),
    ],
)
def test_sources_that_are_not_what_they_should_be(prepare, folder, dataset, files, message):
    for name, content in files.items():
        write(folder / "source" / name, content)
    with pytest.raises(InputError, match=message):
        prepare(dataset, "--source", folder / "source")
    assert not (folder / "data").exists()


@pytest.mark.parametrize(
    ("suffix", "train", "options", "message"),
    [
        ("csv", "body,label\na,1\n", [], "has no column 'text'; its columns are 0 'body', 1 'la"),
        ("csv", "a,1\n", ["--text_column", 0, "--label_column", 5], "has no column '5'; its col"),
        ("csv", "a,1\n", ["--text_column", 0], "both be column numbers, not '0' and 'label'"),
        ("csv", "text,label\na,1\nb,0\nc,2\n", [], "line 4 has a third label; .*'1', '0', '2'"),
        ("csv", "text,label\na,x\nb,x\n", [], "has only the label 'x'"),
        ("csv", "text,label\na,1\nb,1\n", [], "has 0 examples of label 0 and 2 of label 1: a cl"),
        ("csv", "text,label\n", [], "train.csv holds no row of text and label"),
        ("csv", "", [], "train.csv holds no row of text and label"),
        ("csv", "text,label\na,1,2\n", [], r"line 2 has 3 field\(s\), the first row has 2"),
        ("csv", 'text,label\n"a" b,1\n', [], "line 2 is malformed CSV: ',' expected after"),
        ("csv", "text,label\na,1\nb,-1\n", ["--labels", 0, 1], "line 3 has the label '-1'; acc"),
        (
            "jsonl",
            '{"text": "a", "label": 1}\n{"text"\n',
            [],
            "line 2 is malformed JSON at column 8:",
        ),
        ("jsonl", "[1]\n", [], "line 1 is not a JSON object"),
        ("jsonl", '{"text": "a"}\n', [], "line 1 has no column 'label'; its columns are 0 'text'"),
        ("jsonl", '{"text": null, "label": 1}\n', [], "line 1: text is None, not a text"),
        ("xml", "<a>", [], r"must end in .csv, .tsv, .txt \(as .tsv\), .jsonl or .ndjson"),
    ],
)
def test_own_files_that_cannot_be_used(prepare, folder, suffix, train, options, message):
    test = '{"text": "a", "label": 1}\n' if suffix == "jsonl" else "text,label\na,1\n"
    with pytest.raises(InputError, match=message):
        prepare("mine", *mine(folder, train, test, suffix), *options)
    assert not (folder / "data").exists()


def test_a_label_that_only_the_test_file_has(prepare, folder):
    files = mine(folder, "text,label\na,no\nb,yes\n", "text,label\na,perhaps\n")
    with pytest.raises(InputError, match=r"test.csv line 2 has the label 'perhaps'; .* no and yes"):
        prepare("mine", *files)


def test_a_folder_where_a_file_is_needed(prepare, folder):
    for name in ("a.csv", "b.csv"):
        write(folder / "several" / name, "text,label\na,1\nb,0\n")
    several = folder / "several"
    for dataset in ("mine", "Yelp"):
        with pytest.raises(InputError, match=r"--train must be one file, but .* holds a.csv, b"):
            prepare(dataset, "--train", several, "--test", several / "a.csv")


def test_nothing_left_after_dropping_duplicates(prepare, folder):
    files = mine(folder, "text,label\na,1\nb,0\n", "text,label\na,1\n")
    with pytest.raises(InputError, match="without those that are in the test set, the training"):
        prepare("mine", *files, "--drop_duplicates")


def test_missing_and_empty_sources(prepare, folder):
    with pytest.raises(InputError, match=r"source .*nowhere does not exist"):
        prepare("SMS", "--source", folder / "nowhere")
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match=r"source .*empty holds no file"):
        prepare("SMS", "--source", folder / "empty")


def test_finished_files_are_kept_without_overwrite(prepare, folder):
    prepare("mine", *mine(folder, *OWN))
    before = (folder / "data" / "mine_train.json").read_bytes()
    with pytest.raises(InputError, match=r"mine_train.json is there already; --overwrite"):
        prepare("mine", *mine(folder, "text,label\nx,1\ny,0\n", OWN[1]))
    assert (folder / "data" / "mine_train.json").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dataset", "Foo"], "unknown --dataset Foo: known are IMDB, Furd, AG_News, Newsgroups"),
        (["--dataset", "IMDB"], "--dataset IMDB needs --source PATH"),
        (["--dataset", "IMDB", "--source", "a", "--download"], "--source and --download exclude"),
        (["--dataset", "mine", "--train", "a"], "--train and --test go together"),
        (["--source", "a"], "--dataset toy is generated here and takes no --source"),
        (["--dataset", "SMS", "--source", "a", "--labels", "x", "y"], "--labels says how to read"),
        (["--dataset", "SMS", "--source", "a", "--revision", "x"], "--revision goes with --down"),
        (["--seed", "-1"], "--seed must not be negative"),
    ],
)
def test_options_that_do_not_go_together(classification, folder, capsys, options, message):
    with pytest.raises(SystemExit) as ended:
        classification.prepare_data.main(options)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not (folder / "data").exists()
