"""prepare_data.py of classification/: tokenizer, public formats, own files, archives, errors."""

import json
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, assert_refused, refused, run_script, write
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_dynamics.cli import InputError, RunError
from attention_dynamics.runs.records import locked
from attention_dynamics.storage import archives
from attention_dynamics.storage.files import read_json
from attention_dynamics.storage.pickles import load_pickle


@pytest.fixture
def prepare(folder, classification):
    """Run prepare_data in ``folder``; "Furd" -> {"train": [(tokens, label), ...], "test": ...}."""

    def run(dataset: str, *options: object) -> dict[str, list[tuple[list[str], int]]]:
        classification.prepare_data.main(["--dataset", dataset, *map(str, options)])
        name = classification.data.canonical_name(dataset)
        content = {
            split: read_json(folder / "data" / f"{name}_{split}.json")
            for split in ("train", "test")
        }
        words = content["train"]["vocab"]
        assert content["test"]["vocab"] == words
        return {
            split: [([words[index] for index in tokens], label) for tokens, label in part["XY"]]
            for split, part in content.items()
        }

    return run


def about(folder: Path, dataset: str) -> dict:
    return read_json(folder / "data" / f"{dataset}_about.json")


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


# --- The tokenizer


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
    assert classification.preparation.tokenizer.tokenize(text) == tokens.split()


CHARACTERS = "aSn'tdmrevl.,-_!*1 2&<>/;`\"’é\u0301İ\u200d\u200c👍🏽🇩हि我カ\u0e32"


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=list(CHARACTERS)) | st.text())
def test_tokens_of_tokens_are_the_same(classification, text):
    tokenize = classification.preparation.tokenizer.tokenize
    tokens = tokenize(text)
    assert tokenize(" ".join(tokens)) == tokens
    assert not any(token.split() != [token] for token in tokens)


# --- The public distributions


def test_imdb_reads_and_shuffles_by_seed(prepare, folder):
    members = {
        f"aclImdb/{split}/{polarity}/{number}_{rating}.txt": f"{split} {polarity}<br />{number}"
        for split in ("train", "test")
        for polarity, rating in (("neg", 2), ("pos", 9))
        for number in range(30)
    }
    members["aclImdb/train/unsup/0_0.txt"] = "no label"
    members["aclImdb/test/pos/99_7.txt"] = ""
    for name, text in members.items():
        write(folder / name, text)
    reverse = dict(sorted(members.items(), reverse=True))
    first = prepare("IMDB", "--source", zipped(folder / "imdb.zip", reverse))
    again = prepare("IMDB", "--source", folder / "aclImdb", "--overwrite")
    other = prepare("IMDB", "--source", folder / "aclImdb", "--overwrite", "--seed", 1)
    assert again == first
    assert other != first
    assert sorted(other["test"]) == sorted(first["test"])
    # Neither class comes first: the evaluation takes the test examples from the start.
    assert {label for _, label in first["test"][:15]} == {0, 1}
    assert (["train", "neg", "7"], 0) in first["train"] and len(first["train"]) == 60
    assert ([], 1) in first["test"]
    facts = about(folder, "IMDB")
    assert facts["examples without a token"] == 1
    assert "train has 60 examples (30 of label 0, 30 of label 1)" in facts["warnings"][0]
    assert "25,000 examples (12,500 of label 0, 12,500 of label 1)" in facts["warnings"][0]


def test_sst_reads_trees(prepare, folder, classification, monkeypatch):
    complete = {"train": (1, 1), "test": (1, 1)}
    monkeypatch.setitem(classification.data.DATASETS, "Furd", complete)
    members = {f"trees/{split}.txt": text for split, text in TREES.items()}
    sets = prepare("Furd", "--source", zipped(folder / "trees.zip", members))
    assert sets["train"] == [(["it", "shines"], 1), (["(", "bad"], 0)]
    assert sets["test"] == [(["8", "1", "/", "2", "women"], 0), (['"', "great"], 1)]
    assert about(folder, "Furd")["warnings"] == []
    notes = ["train rows left out because they have other labels: 1"]
    assert about(folder, "Furd")["notes"] == notes


AG_OWN = (
    '"1","Storm","Haiti #39;s  quot;straits quot;"\n'
    '"2","Sport","x"\n'
    '"3","Oil","A \\$10 rise\\for ""oil"""\n'
    '"4","Sci","x"\n'
)
AG_TOKENS = [('storm haiti \'s " straits "', 0), ('oil a $ 10 rise for " oil "', 1)]
YELP = '2,"Good\\nfood, ""nice\\"""\n1,Bad\n'
AMAZON = '"2","Great","Buy it"\n"1","","No"\n'


@pytest.mark.parametrize(
    ("dataset", "content", "expected"),
    [
        ("AG_News", AG_OWN, AG_TOKENS),
        ("Yelp", YELP, [('good food , " nice "', 1), ("bad", 0)]),
        ("Amzn", AMAZON, [("great buy it", 1), ("no", 0)]),
    ],
)
def test_csv_distributions_are_read(prepare, folder, dataset, content, expected):
    members = {f"csv/{split}.csv": content for split in ("train", "test")}
    sets = prepare(dataset, "--source", zipped(folder / "a.zip", members))
    assert sets["train"] == sets["test"] == [(text.split(), label) for text, label in expected]


POST = (
    "From: someone@example.org\nSubject: x\n\nIn article <1> he writes:\n> quoted\n"
    "My caf\xe9 answer.\n\nMore.\n\n--\nsignature\n"
)


def test_newsgroups_strips_posts(prepare, folder):
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


def test_sms_keeps_quotes_and_tabs_of_messages(prepare, folder):
    lines = 'ham\tHe said "hi\nspam\tWIN\tnow\n' * 5
    members = {"SMSSpamCollection": lines, "readme": ""}
    sets = prepare("SNS", "--source", zipped(folder / "sms.zip", members))
    assert [len(sets["train"]), len(sets["test"])] == [8, 2]
    assert (["he", "said", '"', "hi"], 0) in sets["train"]
    assert (["win", "now"], 1) in sets["train"]
    assert "all has 10 examples" in about(folder, "SMS")["warnings"][0]


# --- A user's own texts


def mine(folder: Path, train: str, test: str, suffix: str = "csv") -> list[object]:
    return [
        "--train", write(folder / f"train.{suffix}", train),
        "--test", write(folder / f"test.{suffix}", test),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("suffix", "train", "columns"),
    [
        ("csv.gz", 'id,body,class\n1,"Good, ""very""\nso",1\n2,Bad,0\n', ("body", "class")),
        ("csv", '\ufeff\r\nt,l\r\n\r\n"Good, ""very""\r\nso",1\r\nBad,0\r\n\r\n', "tl"),
        ("tsv", '1\tid\tGood, "very" so\n0\tid\tBad\n', (2, 0)),
        ("jsonl", '{"t": "Good,\\"very\\"\\u2028so", "l": true}\n\n{"t": "Bad", "l": 0.0}\n', "tl"),
    ],
)
def test_own_files_are_read(prepare, folder, suffix, train, columns):
    options = ["--text_column", columns[0], "--label_column", columns[1]]
    sets = prepare("mine", *mine(folder, train, train, suffix), *options)
    good = ["good", ",", '"', "very", '"', "so"]
    assert sets["train"] == sets["test"] == [(good, 1), (["bad"], 0)]


def test_own_labels_are_sorted_and_noted(prepare, folder, capsys):
    train, test = "text,label\nGood,yes\nBad,no\n", "text,label\nBad,no\n"
    sets = prepare("IMDB", *mine(folder, train, test))  # a known name may have other texts
    assert [label for _, label in sets["train"]] == [1, 0]
    assert "note: label 'no' is 0 and 'yes' is 1" in capsys.readouterr().err
    sets = prepare("IMDB", *mine(folder, train, test), "--labels", "yes", "no", "--overwrite")
    assert [label for _, label in sets["train"]] == [0, 1]
    # Numbers are ordered by size.
    files = mine(folder, "text,label\nTen,10\nNine,9.0\n", "text,label\nTen,10.0\n")
    assert [label for _, label in prepare("mine", *files)["train"]] == [1, 0]


# --- What is written


def test_vocabulary_is_sorted_by_training_count_then_first_occurrence(prepare, folder):
    train = "text,label\nb a a,1\nc b a,0\n"
    prepare("mine", *mine(folder, train, "text,label\nz c y z,1\n"))
    content = read_json("data/mine_train.json")
    assert content == {"vocab": ["a", "b", "c", "z", "y"], "XY": [[[1, 0, 0], 1], [[2, 1, 0], 0]]}
    assert read_json("data/mine_test.json")["XY"] == [[[3, 2, 4, 3], 1]]


def test_load_dataset_counts_no_word_spelled_like_a_special(folder, classification):
    content = {"vocab": ["<unk>", "good", "<pad>", "bad"], "XY": [[[0, 1, 2, 3] * 3, 1], [[1], 0]]}
    for split in ("train", "test"):
        write(folder / f"data/mine_{split}.json", json.dumps(content))
    loaded = classification.data.load_dataset("mine")
    assert loaded.vocabulary == ["<pad>", "<bos>", "<eos>", "<unk>", "good", "bad"]
    assert loaded.train.ids.values.tolist() == [1, *[3, 4, 0, 5] * 3, 2, 1, 4, 2]


def test_canonical_name_resolves_aliases_unless_data_have_the_name(folder, classification):
    names = classification.data.canonical_name
    given = ("SST", "SST2", "sst", "SNS", "mine")
    assert [names(name) for name in given] == ["Furd", "Furd", "Furd", "SMS", "mine"]
    write(folder / "data/SST2_train.json", "{}")
    assert names("SST2") == "SST2"


def test_warnings_for_empty_documents_and_one_class_at_the_start(
    prepare, folder, classification, monkeypatch
):
    monkeypatch.setattr(classification.prepare_data, "_EVALUATED", 2)
    train = "text,label\n" + "good,1\nbad,0\n" * 10
    prepare("mine", *mine(folder, train + ",0\n", "text,label\na,1\nb,0\n"))
    assert about(folder, "mine")["warnings"] == []  # 1 of 21
    test = "text,label\nc,1\nd,1\ne,0\n"
    prepare("mine", *mine(folder, train + ",0\n,1\n", test), "--overwrite")
    empty, first = about(folder, "mine")["warnings"]
    assert empty.startswith("MOST LIKELY MISREAD: 2 of 22 train documents (9%) have no text")
    assert "the first 2 test examples, which are evaluated, all have the label 1" in first


def test_preparation_checks_its_outputs_before_it_reads(prepare, folder, monkeypatch):
    nowhere = folder / "nowhere"
    with locked(folder / "data/SMS_about.json"), pytest.raises(RunError, match="being written"):
        prepare("SMS", "--source", nowhere)
    write(folder / "data/SMS_about.json", "{}")
    assert "already exists; use --overwrite" in refused(prepare, "SMS", "--source", nowhere)
    monkeypatch.chdir(ROOT)
    assert "run prepare_data.py in " in refused(prepare, "SMS", "--source", nowhere)


def test_summary_and_about(prepare, folder, capsys):
    train = "text,label\na b,1\na b,1\na b c d,0\nx,0\n"
    prepare("mine", *mine(folder, train, "text,label\na b,1\nq,0\n"))
    facts = about(folder, "mine")
    assert list(facts["splits"][0].values()) == ["train", 4, 2, 2, 1, 2.25, 2.0, 4]
    names = ("words", "words in training", "words more than twice in training", "seed")
    assert [facts[name] for name in names] == [6, 5, 2, 0]
    assert facts["train"]["name"] == "train.csv" and len(facts["train"]["sha256"]) == 64
    assert str(folder) not in json.dumps(facts)  # no folders of the machine it was made on
    assert facts["command"].startswith("python prepare_data.py --dataset mine --train train.csv")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["train", "4", "2", "2", "1", "2.2", "2.0", "4"] in rows
    assert ["words", "more", "than", "twice", "in", "training", "2"] in rows


def test_duplicates_ignore_punctuation_and_are_dropped_on_request(prepare, folder):
    """Public copies differ in it; an example without a word is the duplicate of none."""
    train = 'text,label\n"Oil, up",1\n.,0\n!,1\noil up,0\nonly,1\n'
    files = mine(folder, train, "text,label\noil . up !,1\n.,0\n")
    prepare("mine", *files)
    facts = about(folder, "mine")
    assert facts["training examples that repeat an earlier one"] == 1
    assert facts["training examples that are in test"] == 2
    assert "training examples that are also test examples: 2, kept" in facts["warnings"][-1]
    sets = prepare("mine", *files, "--drop_duplicates", "--overwrite")
    assert sets["train"] == [(["."], 0), (["!"], 1), (["only"], 1)]
    assert [tokens for tokens, _ in sets["test"]] == [["oil", ".", "up", "!"], ["."]]
    assert "test examples: 2, left out" in about(folder, "mine")["warnings"][-1]


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


@pytest.mark.parametrize("name", ["vectors.txt.gz", "vectors.zip"])
@pytest.mark.parametrize("header", ["", "4 3\n", "\ufeff"])
def test_word_vectors_are_read(prepare, folder, name, header):
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
    message = refused(prepare, "three", *mine(folder, *OWN), "--word_vectors", other)
    assert "w2v.pkl holds other vectors than " in message and "other.txt for 3" in message
    assert not (folder / "data" / "three_train.json").exists()
    prepare("three", *mine(folder, *OWN), "--word_vectors", other, "--overwrite")
    assert list(load_pickle(folder / "data" / "w2v.pkl")) == ["a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,1,2,3\n", "vectors.txt line 1 is not a word and its numbers, separated by spaces"),
        ("a 1 2 3\nb 1 2\n", "vectors.txt line 2 has 2 numbers, the first vector has 3"),
        ("a 1 2 3\nb 1 nan 2\n", "vectors.txt line 2 is not a word and its numbers"),
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
    truth = read_json("data/toy_truth.json")
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
    evidence = toy.truth["evidence"]
    strengths, votes = [], []
    words = negated = 0
    for tokens, label in [example[1:] for example in toy.examples if example[0] == "train"]:
        words += len(tokens) - tokens.count("not")
        negated += tokens.count("not")  # each precedes a word
        for before, word in zip(["", *tokens], tokens, strict=False):
            if word in evidence:
                strengths.append(evidence[word] * (-1 if before == "not" else 1))
                votes.append(label)
    # Seeds 0 to 3: 0.1546 to 0.1574; a standard error of 0.0013.
    assert negated / words == pytest.approx(0.156, abs=0.004)
    strengths, votes = np.array(strengths), np.array(votes)
    expected = 1 / (1 + np.exp(-strengths))
    noise = classification.preparation.toy.NOISE
    expected = expected * (1 - noise) + (1 - expected) * noise
    for low in (-4.5, -2, 0, 2):
        inside = (strengths >= low) & (strengths < low + 2.5)
        # Some 6,000 words a bin: three standard errors of a share are below 0.02.
        assert votes[inside].mean() == pytest.approx(expected[inside].mean(), abs=0.02)


# --- Archives


def test_archives_with_a_file_twice_or_corrupt(prepare, folder):
    for name in ("train.txt", "train.txt.gz", "test.txt"):
        write(folder / "sst" / name, TREES["train"])
    assert "train.txt more than once (with" in refused(archives.Source, folder / "sst")
    whole = write(folder / "SMSSpamCollection.gz", SMS * 500).read_bytes()
    (folder / "a.gz").write_bytes(whole[:-20])
    (folder / "b.tar.gz").write_bytes(b"no archive at all")
    archive = zipped(folder / "x.zip", {"x": os.urandom(3000).hex()}).read_bytes()
    (folder / "c.zip").write_bytes(archive[:1000])
    for name in ("a.gz", "b.tar.gz", "c.zip"):
        with pytest.raises(InputError, match=f"{name}.* is corrupt or truncated"):
            prepare("SMS", "--source", folder / name)


def test_a_link_in_an_archive_is_not_followed(prepare, folder):
    test = write(folder / "test.txt", TREES["test"])
    with tarfile.open("x.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("train.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        archive.add("test.txt")
    with zipfile.ZipFile("x.zip", "w") as archive:
        link = zipfile.ZipInfo("train.txt")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.write(test, "test.txt")
    for path in ("x.tar.gz", "x.zip"):
        assert "does not look like Furd" in refused(prepare, "Furd", "--source", path)


def test_an_archive_that_fills_the_memory(prepare, folder, monkeypatch):
    monkeypatch.setattr(archives, "MOST_BYTES", 10**6)
    members = {"train.txt": TREES["train"] * 20_000, "test.txt": TREES["test"]}
    source = zipped(folder / "x.zip", members)
    message = refused(prepare, "Furd", "--source", source)
    assert "x.zip" in message and "holds more than 1,000,000 bytes of data" in message


# --- Downloads: without the network


def test_download_reads_the_newest_revision_or_the_given_one(prepare, folder, hub, capsys):
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


def test_download_filters_and_splits(prepare, folder, hub):
    hub.splits = {"train": [{"sms": f"m{n}", "label": n % 2} for n in range(10)]}
    sets = prepare("SMS", "--download")
    assert [len(sets["train"]), len(sets["test"])] == [8, 2]
    rows = [{"text": f"Haiti #39;s {n}", "label": n} for n in range(-1, 4)]
    hub.splits = {"train": rows, "test": rows}
    haiti = ["haiti", "'s"]
    assert prepare("AG_News", "--download")["test"] == [([*haiti, "0"], 0), ([*haiti, "2"], 1)]
    notes = about(folder, "AG_News")["notes"]
    assert "test rows left out because they have other labels: 3" in notes


def test_download_that_fails_is_one_line(prepare, folder, hub):
    hub.splits = {"train": [{"body": "x", "label": 1}], "test": []}
    assert "polarity train has no column text; it has" in refused(prepare, "Yelp", "--download")
    process = run_script(
        "classification/prepare_data.py", "--dataset", "IMDB", "--download", cwd=folder
    )
    assert_refused(process, "stanfordnlp/imdb could not be downloaded", "as --source")


# --- Errors


TREE = {"train.txt": "(3 (2 a))\n(3 (2 b)\n", "test.txt": "(3 (2 a))"}
SMS_FILE = "SMSSpamCollection"


@pytest.mark.parametrize(
    ("dataset", "files", "message"),
    [
        ("IMDB", {"a.txt": "x"}, r"does not look like IMDB: expected .*test}/{neg,pos} of texts"),
        ("Furd", {"train.txt": "(3 (2 a))"}, "expected one train.txt and one test.txt of trees"),
        ("Furd", TREE, "train.txt line 2 is not a sentiment tree"),
        ("AG_News", {"train.csv": '"5","a","b"\n'}, "line 1 has the label '5'; accepted are 1, 2,"),
        ("AG_News", {"train.csv": "a,b,c,d\n"}, "train.csv has 4 column.s., expected class,ti"),
        ("Yelp", {"train.csv": "1,a\n2,b,c\n"}, r"line 2 has 3 field\(s\), the first row has 2"),
        ("SMS", {"a.txt": "x", "b.txt": "x"}, "expected one file SMSSpamCollection; .* a.txt, b"),
        ("SMS", {SMS_FILE: "ham hello\n"}, "line 1 has the label 'ham hello'; acc"),
        ("SMS", {SMS_FILE: b"ham\ta\nham\t\xa3\n"}, "not UTF-8 text: line 2, byte 10"),
        ("SMS", {SMS_FILE: "ham\ta\n".encode("utf-16")}, "not UTF-8 .* -f UTF-16 -t"),
        ("SMS", {SMS_FILE: ""}, "SMS has no train example"),
        ("SMS", {SMS_FILE: "ham\ta\n" * 10}, r"training set has 8 examples \(8 of label 0, 0 of"),
    ],
)
def test_sources_that_are_rejected(prepare, folder, dataset, files, message):
    files = {"test.csv": "", **files} if "train.csv" in files else files
    for name, content in files.items():
        write(folder / "source" / name, content)
    with pytest.raises(InputError, match=message):
        prepare(dataset, "--source", folder / "source")
    assert not (folder / "data").exists()


JSON_ROW = '{"text": "a", "label": 1}\n'


@pytest.mark.parametrize(
    ("suffix", "train", "options", "message"),
    [
        ("csv", "body,label\na,1\n", [], "has no column 'text'; its columns are .'body', 'lab"),
        ("csv", "a,1\n", ["--text_column", 0, "--label_column", 5], "has no column '5'; its col"),
        ("csv", "text,label\na,1\nb,0\nc,2\n", [], "line 4 has a third label; .*'1', '0', '2'"),
        ("csv", "text,label\na,x\nb,x\n", [], "has only the label 'x'"),
        ("csv", "text,label\na,x\nb,NaN\n", [], "line 3 has no label .* --labels ZERO ONE"),
        ("csv", "text,label\n", [], "train.csv holds no row of text and label"),
        ("csv", 'text,label\n"a" b,1\n', [], "line 2 is malformed CSV: ',' expected after"),
        ("csv", "text,label\na,1\nb,-1\n", ["--labels", 0, 1], "line 3 has the label '-1'; acc"),
        ("csv", "text,label\na,1\nb,0\n", ["--drop_duplicates"], "without those that are in the t"),
        ("jsonl", f'{JSON_ROW}{{"text"\n', [], "line 2 is malformed JSON at column 8"),
        ("jsonl", '{"text": "a"}\n', [], "line 1 has no column 'label'; its columns are .'text'"),
        ("jsonl", '{"text": null, "label": 1}\n', [], "line 1: text is None, not a text"),
        ("jsonl", f"{JSON_ROW}[2]\n", [], "line 2 is not a JSON object"),
        ("csv", "", [], "train.csv holds no row"),
        ("csv", "text,label\n".encode("utf-16"), [], "train.csv is not UTF-8 text: line 1"),
        ("xml", "<a>", [], r"must end in .csv, .tsv, .txt \(as .tsv\), .jsonl or .ndjson"),
    ],
)
def test_own_files_that_are_rejected(prepare, folder, suffix, train, options, message):
    test = JSON_ROW if suffix == "jsonl" else "text,label\na,1\n"
    with pytest.raises(InputError, match=message):
        prepare("mine", *mine(folder, train, test, suffix), *options)
    assert not (folder / "data").exists()


def test_paths_that_are_rejected(prepare, folder):
    (folder / "empty").mkdir()
    for name, problem in (("nowhere", "does not exist"), ("empty", "holds no file")):
        assert f"{name} {problem}" in refused(prepare, "SMS", "--source", folder / name)
    files = [write(folder / "several" / name, OWN[0]) for name in ("a.csv", "b.csv")]
    message = refused(prepare, "mine", "--train", folder / "several", "--test", files[0])
    assert "--train must be one file, but " in message and "holds a.csv, b" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dataset", "Foo"], "unknown --dataset Foo: known are IMDB, Furd, AG_News, Newsgroups"),
        (["--dataset", "IMDB"], "--dataset IMDB needs --source PATH"),
        (["--dataset", "IMDB", "--source", "a", "--download"], "--source and --download exclude"),
        (["--dataset", "mine", "--train", "a"], "--train and --test go together"),
        (["--source", "a"], "--dataset toy is generated and takes no --source"),
        (["--dataset", "SMS", "--source", "a", "--revision", "x"], "--revision goes with --down"),
    ],
)
def test_option_conflicts(classification, folder, capsys, options, message):
    with pytest.raises(SystemExit) as ended:
        classification.prepare_data.main(options)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not (folder / "data").exists()
