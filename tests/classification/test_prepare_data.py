"""prepare_data.py of classification/: tokeniser, public formats, own files, archives, errors."""

import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_refused, run_script, write
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from attention_dynamics.cli import InputError, RunError
from attention_dynamics.runs.records import locked
from attention_dynamics.storage import archives
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.pickles import load_pickle


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
        ("a_b\x00c\ufeff hy\u00adphen", "a _ b c hyphen"),
        # Entities only with their semicolon.
        ("?item=3&section=2 &section; &ltd &ampamp;", "? item = 3 & section = 2 & section ; & ltd "
         "& ampamp ;"),
        # Word boundaries of Unicode (UAX #29), from `regex`'s \\b with the flags V1 and WORD.
        ("हिन्दी में", "हिन्दी में"),
        ("می\u200cخواهم بروم\u200c", "می\u200cخواهم بروم"),
        ("我喜欢电影", "我 喜 欢 电 影"),
        ("カタカナ ひらがな", "カタカナ ひ ら が な"),
        ("ภาษาไทย ๑๒", "ภ า ษ า ไ ท ย ๑๒"),
        ("தமிழ் 한국어 הצה״ל col·legi", "தமிழ் 한국어 הצה״ל col·legi"),
        ("👍🏽👨\u200d👩\u200d👧 🇩🇪🇫🇷 1\ufe0f\u20e3 ❤\ufe0f😂😂",
         "👍🏽 👨\u200d👩\u200d👧 🇩🇪 🇫🇷 1\ufe0f\u20e3 ❤\ufe0f 😂 😂"),
        ("1`dカ don't我", "1 'd カ do n't 我"),
        (" \n\t ", ""),
    ],
)  # fmt: skip
def test_tokens(classification, text, tokens):
    assert classification.preparation.tokeniser.tokenise(text) == tokens.split()


CHARACTERS = "aSn'tdmrevl.,-_!*1 2&<>/;`\"’é\u0301İ\u200d\u200c👍🏽🇩हि我カ\u0e32"


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=list(CHARACTERS)) | st.text())
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
    assert "train has 3 examples (1 of label 0, 2 of label 1)" in facts["warnings"][1]
    assert "25,000 examples (12,500 of label 0, 12,500 of label 1)" in facts["warnings"][1]


def test_imdb_order_depends_on_the_seed_only(prepare, folder):
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


POST = (
    "From: someone@example.org\nSubject: x\n\nIn article <1> he writes:\n> quoted\n"
    "My caf\xe9 answer.\n\nMore.\n\n--\nsignature\n"
)


def test_newsgroups(prepare, folder):
    for split, groups in {"train": ("baseball", "hockey"), "test": ("hockey",)}.items():
        for group in groups:
            path = folder / "news" / f"20news-bydate-{split}" / f"rec.sport.{group}" / "101"
            post = POST.replace("\n", "\r\n") if group == "hockey" else POST
            write(path, post.encode("latin-1"))
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


def test_amazon_polarity_csv_joins_title_and_text(prepare, folder):
    members = {f"{split}.csv": '"2","Great","Buy it"\n"1","","No"\n' for split in ("train", "test")}
    sets = prepare("Amzn", "--source", tar(folder / "amazon.tgz", members))
    assert sets["train"] == [(["great", "buy", "it"], 1), (["no"], 0)]


def test_sms_keeps_quotes_and_tabs_of_messages(prepare, folder):
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


def test_own_labels_are_sorted_and_noted(prepare, folder, capsys):
    train, test = "text,label\nGood,yes\nBad,no\n", "text,label\nBad,no\n"
    sets = prepare("mine", *mine(folder, train, test))
    assert [label for _, label in sets["train"]] == [1, 0]
    assert "note: label 'no' is 0 and 'yes' is 1" in capsys.readouterr().err
    sets = prepare("mine", *mine(folder, train, test), "--labels", "yes", "no", "--overwrite")
    assert [label for _, label in sets["train"]] == [0, 1]


def test_own_labels_that_are_numbers_are_ordered_by_size(prepare, folder):
    files = mine(folder, "text,label\nTen,10\nNine,9.0\n", "text,label\nTen,10.0\n")
    sets = prepare("mine", *files)
    assert [label for _, label in sets["train"]] == [1, 0]
    assert sets["test"] == [(["ten"], 1)]
    assert "label '9' is 0 and '10' is 1" in about(folder, "mine")["notes"][0]


@pytest.mark.parametrize("absent", ["", "NA", "NaN", "null", "None"])
def test_own_label_that_is_absent(prepare, folder, absent):
    files = mine(folder, f"text,label\nGood,yes\nBad,{absent}\n", "text,label\nGood,yes\n")
    with pytest.raises(InputError, match=r"train.csv line 3 has no label .* --labels ZERO ONE"):
        prepare("mine", *files)
    if absent:
        sets = prepare("mine", *files, "--labels", absent, "yes")
        assert sets["train"] == [(["good"], 1), (["bad"], 0)]


def test_own_files_under_a_known_name(prepare, folder):
    files = mine(folder, "text,label\nGood,1\nBad,0\n", "text,label\nBad,0\n")
    assert prepare("IMDB", *files)["train"] == [(["good"], 1), (["bad"], 0)]
    sets = prepare("SMS", *files, "--label_column", "label", "--overwrite")
    assert sets["train"] == [(["good"], 1), (["bad"], 0)]


# --- What is written


def test_vocabulary_is_sorted_by_training_count_then_first_occurrence(prepare, folder):
    train = "text,label\nb a a,1\nc b a,0\n"
    prepare("mine", *mine(folder, train, "text,label\nz c y z,1\n"))
    content = json.loads((folder / "data" / "mine_train.json").read_text())
    assert content == {"vocab": ["a", "b", "c", "z", "y"], "XY": [[[1, 0, 0], 1], [[2, 1, 0], 0]]}
    content = json.loads((folder / "data" / "mine_test.json").read_text())
    assert content["XY"] == [[[3, 2, 4, 3], 1]]


def test_load_dataset_reads_prepared_files(prepare, folder, classification):
    prepare("mine", *mine(folder, "text,label\na a a b,1\n,0\n", "text,label\na z,1\n"))
    loaded = classification.data.load_dataset("mine")
    assert loaded.vocabulary == ["<pad>", "<bos>", "<eos>", "<unk>", "a"]
    assert loaded.train.ids.lengths.tolist() == [6, 2]
    assert loaded.test.ids.values.tolist() == [1, 4, 3, 2]


def test_load_dataset_counts_no_word_spelled_like_a_special(folder, classification):
    content = {"vocab": ["<unk>", "good", "<pad>", "bad"], "XY": [[[0, 1, 2, 3] * 3, 1], [[1], 0]]}
    for split in ("train", "test"):
        write(folder / f"data/mine_{split}.json", json.dumps(content))
    loaded = classification.data.load_dataset("mine")
    assert loaded.vocabulary == ["<pad>", "<bos>", "<eos>", "<unk>", "good", "bad"]
    assert loaded.train.ids.values.tolist() == [1, *[3, 4, 0, 5] * 3, 2, 1, 4, 2]


def test_canonical_name(folder, classification):
    names = classification.data.canonical_name
    assert [names(name) for name in ("SST", "SST2", "sst", "SNS", "mine")] == [
        "Furd", "Furd", "Furd", "SMS", "mine",
    ]  # fmt: skip
    write(folder / "data/SST2_train.json", "{}")  # data of one's own under that name
    assert names("SST2") == "SST2"


def test_warning_for_many_empty_documents(prepare, folder):
    train = "text,label\n" + "good,1\nbad,0\n" * 10
    prepare("mine", *mine(folder, train + ",0\n", "text,label\na,1\nb,0\n"))
    assert "MOST LIKELY" not in str(about(folder, "mine")["warnings"])  # 1 of 21
    prepare("mine", *mine(folder, train + ",0\n,1\n", "text,label\na,1\nb,0\n"), "--overwrite")
    warning = "MOST LIKELY MISREAD: 2 of 22 train documents (9%) have no text"
    assert about(folder, "mine")["warnings"][0].startswith(warning)


def test_preparation_in_another_directory_of_the_repository(prepare, classification, monkeypatch):
    root = Path(classification.prepare_data.__file__).parents[1]
    for place in (root, root / "translation"):
        monkeypatch.chdir(place)
        with pytest.raises(InputError, match=r"run prepare_data.py in .*classification"):
            classification.prepare_data.main([])


def test_preparation_checks_its_outputs_before_it_reads(prepare, folder):
    write(folder / "data", "a file")
    with pytest.raises(InputError, match=r"cannot be written"):
        prepare("SMS", "--source", folder / "nowhere")


def test_preparation_is_locked(prepare, folder):
    with locked(folder / "data/SMS_about.json"), pytest.raises(RunError, match="being written"):
        prepare("SMS", "--source", folder / "nowhere")


def test_about_holds_no_path_of_an_option_with_equals_sign(prepare, folder, classification):
    path = write(folder / "SMSSpamCollection", SMS * 5)
    classification.prepare_data.main(["--dataset=SMS", f"--source={path}"])
    command = "python prepare_data.py --dataset=SMS --source=SMSSpamCollection"
    assert about(folder, "SMS")["command"] == command


def test_summary_and_about(prepare, folder, capsys):
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


def test_duplicates_ignore_punctuation(prepare, folder, capsys):
    """Public copies differ in it; an example without a word is the duplicate of none."""
    train = 'text,label\n"Oil, up",1\n.,0\n!,1\noil up,0\n'
    prepare("mine", *mine(folder, train, "text,label\noil . up !,1\n.,0\n"))
    printed = capsys.readouterr()
    assert "WARNING: 2 training examples are also test examples: kept" in printed.err
    assert ["training", "examples", "that", "repeat", "an", "earlier", "one", "1"] in [
        line.split() for line in printed.out.splitlines()
    ]


def test_warning_for_test_set_that_starts_with_one_class(
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
@pytest.mark.parametrize("header", ["", "4 3\n", "\ufeff"])
def test_word_vectors(prepare, folder, name, header):
    path = folder / name
    if name.endswith("zip"):
        zipped(path, {"vectors.txt": header + GLOVE})
    else:
        write(path, header + GLOVE.replace("\n", " \n").replace(" ", "\t"))
    prepare("mine", *mine(folder, *OWN), "--word_vectors", path)
    vectors = load_pickle(folder / "data" / "w2v.pkl")
    assert list(vectors) == ["a", "b"]
    np.testing.assert_array_equal(vectors["b"], np.array([-1, 0.5, 2e-3], dtype=np.float32))
    assert vectors["b"].dtype == np.float32
    facts = about(folder, "mine")
    assert facts["words with a vector"] == 2
    assert facts["share of training tokens with a vector"] == pytest.approx(2 / 3)
    assert facts["word_vectors"]["name"] == name


def test_word_vectors_are_stored_for_all_datasets(prepare, folder):
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


def test_word_vectors_for_few_words_give_a_warning(prepare, folder):
    train = "text,label\n" + " ".join(map(str, range(20))) + " paris,1\nb,0\n"
    path = write(folder / "vectors.txt", "Paris 1 2\nb 3 4\n")
    prepare("mine", *mine(folder, train, OWN[1]), "--word_vectors", path)
    warnings = about(folder, "mine")["warnings"]
    assert f"{path} has vectors for 1 of 23 words" in warnings[-1]
    assert "it has 1 more words in capitals only" in warnings[-1]
    prepare("mine", *mine(folder, "text,label\na,1\nb,0\n", OWN[1]), "--word_vectors", path,
            "--overwrite")  # fmt: skip
    assert "has vectors for" not in str(about(folder, "mine")["warnings"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,1,2,3\n", "vectors.txt line 1 is not a word and its numbers, separated by spaces"),
        ("a 1 2 3\nb 1 2\n", "vectors.txt line 2 has 2 numbers, the first vector has 3"),
        ("a 1 2 3\nb 1 x 2\n", "vectors.txt line 2 is not a word and its numbers"),
        ("a 1 2 3\nb 1 nan 2\n", "vectors.txt line 2 is not a word and its numbers"),
        ("<html>\n", "vectors.txt line 1 is not a word and its numbers"),
        ("", "holds no vector"),
    ],
)
def test_word_vectors_malformed(prepare, folder, content, message):
    path = write(folder / "vectors.txt", content)
    with pytest.raises(InputError, match=message):
        prepare("mine", *mine(folder, *OWN), "--word_vectors", path)


# --- The toy corpus


def test_toy_truth_has_the_positions_of_the_evidence(prepare, folder):
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


def test_toy_evidence_has_its_documented_strength(classification):
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


def test_toy_negates_the_documented_fraction_of_words(classification):
    toy = classification.preparation.toy.make_toy(0)
    words = negated = 0
    for tokens in toy.sentences["train"]:
        words += len(tokens) - tokens.count("not")
        negated += tokens.count("not")  # each precedes a word
    # Seeds 0 to 3: 0.1546 to 0.1574; a standard error of 0.0013.
    assert negated / words == pytest.approx(0.156, abs=0.004)


def test_toy_depends_on_the_seed(classification):
    one, two = (classification.preparation.toy.make_toy(seed) for seed in (0, 1))
    assert one.sentences["test"] != two.sentences["test"]
    assert one.evidence.keys() != two.evidence.keys()


# --- Archives


def test_archive_limit_counts_all_files(folder, monkeypatch):
    monkeypatch.setattr(archives, "MOST_BYTES", 100)
    source = Source(zipped(folder / "a.zip", {"a": "x" * 60, "b": "x" * 60}))
    with pytest.raises(InputError, match="reached in b"):
        for _, stream in source.open_all(source.names):
            stream.read()


def test_source_with_a_file_twice(prepare, folder):
    lines = "sentence\tlabel\ngood\t1\nbad\t0\n"
    for name in ("train.tsv", "train.tsv.gz", "test.tsv"):
        write(folder / "sst" / name, lines)
    with pytest.raises(InputError, match=r"train.tsv more than once \(train.tsv, train.tsv.gz"):
        prepare("Furd", "--source", folder / "sst")
    with tarfile.open(folder / "twice.tar", "w") as archive:
        for _ in range(2):
            archive.add(folder / "sst/test.tsv", "test.tsv")
    with pytest.raises(InputError, match=r"holds test.tsv more than once \(test.tsv, test.tsv"):
        Source(folder / "twice.tar")


def test_corrupt_archives(prepare, folder):
    whole = write(folder / "SMSSpamCollection.gz", SMS * 500).read_bytes()
    cut = folder / "cut.gz"
    cut.write_bytes(whole[:-20])
    with pytest.raises(InputError, match=r"cut.gz is corrupt or truncated"):
        prepare("SMS", "--source", cut)
    random = os.urandom(3000).hex()
    archive = tar(folder / "a.tgz", {"SMSSpamCollection": random}).read_bytes()
    (folder / "b.tgz").write_bytes(archive[: len(archive) // 2])
    (folder / "c.tar.gz").write_bytes(b"no archive at all")
    (folder / "d.zip").write_bytes(zipped(folder / "a.zip", {"x": random}).read_bytes()[:1000])
    for name in ("b.tgz", "c.tar.gz", "d.zip"):
        with pytest.raises(InputError, match=f"{name}.* is corrupt or truncated"):
            prepare("SMS", "--source", folder / name)


# --- Downloads: without the network


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


def test_download_from_changed_repository(prepare, hub):
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
    assert_refused(process, "stanfordnlp/imdb could not be downloaded", "as --source")


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
        (
            "AG_News",
            {"test.csv": AG_OWN},
            "does not look like AG_News: expected train.csv",
        ),
        (
            "AG_News",
            {"train.csv": '"5","a","b"\n', "test.csv": AG_OWN},
            "train.csv line 1 has the label '5'; accepted are 1, 2, 3, 4",
        ),
        (
            "AG_News",
            {"train.csv": "a,b,c,d\n", "test.csv": AG_OWN},
            "train.csv has 4 column.s., expected class,title,description.* --train FILE --test",
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
        ("Yelp", {"train.csv": "a\n", "test.csv": ""}, r"has 1 column\(s\), expected class,text"),
        ("Amzn", {"reviews.txt": "x"}, "does not look like Amzn: expected train.csv and test.csv"),
        ("SMS", {"a.txt": "x", "b.txt": "x"}, "expected one file SMSSpamCollection; .* a.txt, b"),
        ("SMS", {"SMSSpamCollection": "ham hello\n"}, "line 1 is not ham or spam, TAB, message"),
        (
            "SMS",
            {"SMSSpamCollection": "ham\ta\nSPAM\tb\n"},
            "line 2 has the label 'SPAM'; accepted are ham, spam",
        ),
        ("SMS", {"SMSSpamCollection": b"ham\ta\nham\t\xa3\n"}, "not UTF-8 text: line 2, byte 10"),
        (
            "SMS",
            {"SMSSpamCollection": "ham\ta\n".encode("utf-16")},
            "not UTF-8 .* -f UTF-16 -t",
        ),
        ("SMS", {"SMSSpamCollection": ""}, "SMS has no train example"),
        (
            "SMS",
            {"SMSSpamCollection": "ham\ta\n" * 10},
            "the training set has 8 examples of label 0 and 0 of label 1: a classifier needs both",
        ),
    ],
)
def test_source_errors(prepare, folder, dataset, files, message):
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
def test_own_file_errors(prepare, folder, suffix, train, options, message):
    test = '{"text": "a", "label": 1}\n' if suffix == "jsonl" else "text,label\na,1\n"
    with pytest.raises(InputError, match=message):
        prepare("mine", *mine(folder, train, test, suffix), *options)
    assert not (folder / "data").exists()


def test_label_only_in_the_test_file(prepare, folder):
    files = mine(folder, "text,label\na,no\nb,yes\n", "text,label\na,perhaps\n")
    with pytest.raises(InputError, match=r"test.csv line 2 has the label 'perhaps'; .* no and yes"):
        prepare("mine", *files)


def test_directory_instead_of_a_file(prepare, folder):
    for name in ("a.csv", "b.csv"):
        write(folder / "several" / name, "text,label\na,1\nb,0\n")
    several = folder / "several"
    with pytest.raises(InputError, match=r"--train must be one file, but .* holds a.csv, b"):
        prepare("mine", "--train", several, "--test", several / "a.csv")


def test_drop_duplicates_leaves_nothing(prepare, folder):
    files = mine(folder, "text,label\na,1\nb,0\n", "text,label\na,1\n")
    with pytest.raises(InputError, match="without those that are in the test set, the training"):
        prepare("mine", *files, "--drop_duplicates")


def test_source_missing_or_empty(prepare, folder):
    with pytest.raises(InputError, match=r"source .*nowhere does not exist"):
        prepare("SMS", "--source", folder / "nowhere")
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match=r"source .*empty holds no file"):
        prepare("SMS", "--source", folder / "empty")


def test_existing_files_are_not_replaced_without_overwrite(prepare, folder):
    prepare("mine", *mine(folder, *OWN))
    before = (folder / "data" / "mine_train.json").read_bytes()
    with pytest.raises(InputError, match=r"mine_about.json already exists; use --overwrite"):
        prepare("mine", *mine(folder, "text,label\nx,1\ny,0\n", OWN[1]))
    assert (folder / "data" / "mine_train.json").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dataset", "Foo"], "unknown --dataset Foo: known are IMDB, Furd, AG_News, Newsgroups"),
        (["--dataset", "IMDB"], "--dataset IMDB needs --source PATH"),
        (["--dataset", "IMDB", "--source", "a", "--download"], "--source and --download exclude"),
        (["--dataset", "mine", "--train", "a"], "--train and --test go together"),
        (["--source", "a"], "--dataset toy is generated and takes no --source"),
        (["--dataset", "SMS", "--source", "a", "--labels", "x", "y"], "--labels says how to read"),
        (["--dataset", "SMS", "--source", "a", "--revision", "x"], "--revision goes with --down"),
        (["--seed", "-1"], "--seed: must be from 0 to"),
    ],
)
def test_option_conflicts(classification, folder, capsys, options, message):
    with pytest.raises(SystemExit) as ended:
        classification.prepare_data.main(options)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not (folder / "data").exists()
