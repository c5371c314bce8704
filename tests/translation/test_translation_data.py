"""translation/prepare_data.py and alignment.py: every form, the toy languages, AER, errors."""

import json
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_refused, run_script, write
from sentencepiece import SentencePieceProcessor

from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import write_json

# The smallest and the largest vocabulary of the texts below lie around it.
PIECES = ("--vocab_size", 40)


@pytest.fixture
def prepare(folder, translation):
    """Run prepare_data in ``folder``; returns its {"train": [(src, trg), ...], "val": ...}."""

    def run(dataset: str, *options: object) -> dict[str, list[tuple[str, str]]]:
        given = ["--dataset", dataset, *options]
        if "--vocab_size" not in options:
            given += PIECES
        translation.prepare_data.main([*map(str, given)])
        return pairs_of(translation, dataset)

    return run


def pairs_of(translation, dataset: str) -> dict[str, list[tuple[str, str]]]:
    """The prepared pairs as the other scripts read them; nothing is left for these to drop."""
    layout = translation.data.layout_of(dataset)
    pairs = {}
    for split in ("train", "val"):
        pairs[split], dropped = translation.data.read_pairs(layout, split)
        assert dropped == 0
    return pairs


def about(folder: Path, name: str) -> dict:
    return json.loads((folder / "data" / name / "about.json").read_text())


def text(language: str, count: int, start: int = 0) -> list[str]:
    """``count`` sentences, number 0 the same in each call; those of two languages are aligned."""
    words = {
        "de": "der die Hund Katze Vogel sieht jagt alte junge gestern heute",
        "en": "the a dog cat bird sees chases old young yesterday today",
    }[language].split()
    drawn = np.random.default_rng(0).integers(0, len(words), (start + count, 6))[start:]
    return [" ".join(words[word] for word in row) + f" {start + n}" for n, row in enumerate(drawn)]


def lines(sentences: list[str]) -> str:
    return "".join(f"{sentence}\n" for sentence in sentences)


def expected_pairs(count: int, start: int = 0) -> list[tuple[str, str]]:
    return [*zip(text("de", count, start), text("en", count, start), strict=True)]


def write_sides(place: Path, stem: str, count: int, start: int = 0, suffix: str = "") -> list[Path]:
    return [
        write(place / f"{stem}.{language}{suffix}", lines(text(language, count, start)))
        for language in ("de", "en")
    ]


def segments(sentences: list[str], doc: str = "69", first: int = 1) -> str:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n<doc docid="{doc}" genre="lectures">\n'
        "<title>A title</title>\n"
        + "".join(
            f'<seg id="{number}"> {sentence} </seg>\n'
            for number, sentence in enumerate(sentences, first)
        )
        + "</doc>\n</mteval>\n"
    )


# --- Multi30k


@pytest.mark.parametrize("form", ["folder", "gz", "archive"])
def test_multi30k(prepare, folder, form):
    place = folder / "task1" / "raw"
    for split, count, start in (("train", 60, 0), ("val", 20, 60)):
        write_sides(place, split, count, start, ".gz" if form == "gz" else "")
    if form == "archive":
        with tarfile.open(folder / "task1.tgz", "w:gz") as archive:
            archive.add(place, "task1/raw")
        place = folder / "task1.tgz"
    pairs = prepare("multi30k", "--source", place)
    assert pairs == {"train": expected_pairs(60), "val": expected_pairs(20, 60)}
    assert (folder / "data/multi30k/val.de").read_text() == lines(text("de", 20, 60))
    assert sorted(path.name for path in (folder / "data/multi30k").iterdir()) == [
        "about.json", "multi30k.model", "train.de", "train.en", "val.de", "val.en",
    ]  # fmt: skip


def test_warning_for_an_incomplete_distribution(prepare, folder, translation, monkeypatch, capsys):
    write_sides(folder / "raw", "train", 60)
    write_sides(folder / "raw", "val", 20, 60)
    prepare("multi30k", "--source", folder / "raw")
    warnings = about(folder, "multi30k")["warnings"]
    assert warnings[0].startswith(
        "train has 60 pairs, the complete public distribution 29,000: its results are not"
    )
    assert "val has 20 pairs, the complete public distribution 1,014" in warnings[1]
    assert f"WARNING: {warnings[0]}\nWARNING: {warnings[1]}" in capsys.readouterr().err
    monkeypatch.setitem(translation.preparation.sources.FULL, "multi30k", {"train": 60, "val": 20})
    prepare("multi30k", "--source", folder / "raw", "--overwrite")
    assert about(folder, "multi30k")["warnings"] == []


def test_sides_are_stripped_and_pairs_with_an_empty_side_dropped(prepare, folder, capsys):
    # A lone carriage return ends a line for torchtext; \u2028 does not.
    odd = ["  ein\rHund \r", "", "\t ", "zwei\u2028Hunde", "drei\xa0Hunde", "\u200b\ufeff"]
    other = ["one dog", "nothing", "nothing", "", "three dogs", "nothing"]
    write(folder / "raw/train.de", lines(text("de", 60) + odd))
    write(folder / "raw/train.en", lines(text("en", 60) + other))
    write_sides(folder / "raw", "val", 20, 60)
    pairs = prepare("multi30k", "--source", folder / "raw")
    tail = [("ein Hund", "one dog"), ("drei\xa0Hunde", "three dogs")]
    assert pairs["train"] == expected_pairs(60) + tail
    facts = about(folder, "multi30k")
    assert facts["train pairs dropped, a side empty"] == 4
    assert facts["val pairs dropped, a side empty"] == 0
    assert "4 train pairs are left out: a side is empty" in facts["warnings"]
    assert "MISREAD: 4 of 66 train pairs (6%) have no text" in str(facts["warnings"])
    assert ["train", "pairs", "dropped,", "a", "side", "empty", "4"] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]


# --- IWSLT14


def test_iwslt14_tokenized(prepare, folder):
    place = folder / "iwslt14.tokenized.de-en"
    write_sides(place / "tmp", "train", 60, suffix=".gz")
    write_sides(place / "tmp", "valid", 20, 60)
    for language in ("de", "en"):  # the text cut by BPE is not the one to take
        write(place / f"train.{language}", "cut@@ ting\n" * 60)
        write(place / f"valid.{language}", "cut@@ ting\n" * 20)
    expected = {"train": expected_pairs(60), "val": expected_pairs(20, 60)}
    assert prepare("iwslt14", "--source", place) == expected
    assert (folder / "data/iwslt14/valid.en").read_text() == lines(text("en", 20, 60))
    assert prepare("iwslt14", "--source", place / "tmp", "--overwrite") == expected
    assert (
        "train has 60 pairs, the complete public distribution 160,239"
        in (about(folder, "iwslt14")["warnings"][0])
    )
    assert about(folder, "iwslt14")["notes"] == []


def test_iwslt14_after_bpe_is_joined(prepare, folder):
    for split, count, start in (("train", 60, 0), ("valid", 20, 60)):
        for language in ("de", "en"):
            cut = lines(text(language, count, start)).replace("Hund", "Hu@@ nd")
            write(folder / "bpe" / f"{split}.{language}", cut.replace("the", "t@@ h@@ e"))
    pairs = prepare("iwslt14", "--source", folder / "bpe")
    assert pairs == {"train": expected_pairs(60), "val": expected_pairs(20, 60)}
    assert "split by BPE" in about(folder, "iwslt14")["notes"][0]


def test_iwslt14_original(prepare, folder):
    for language in ("de", "en"):
        sentences = text(language, 70)
        sentences[3] = "" if language == "en" else sentences[3]
        tagged = "<doc docid='1'>\n<url>http://x</url>\n<title>T</title>\n"
        tagged += "<translator>Only here</translator>\n" if language == "de" else ""
        tagged += lines(sentences[:30]) + "</doc>\n <description>D</description>\n"
        tagged += lines(["<3 is a heart", *sentences[30:]])
        write(folder / f"de-en/train.tags.de-en.{language}", tagged)
        dev = folder / f"de-en/IWSLT14.TED.dev2010.de-en.{language}.xml"
        write(dev, segments(text(language, 9)))
    pairs = prepare("iwslt14", "--source", folder / "de-en")
    whole = expected_pairs(70)
    whole[30:30] = [("<3 is a heart", "<3 is a heart")]
    del whole[3]
    # Each 23rd of the pairs that are left: numbers 23, 46 and 69, counted from 1.
    assert pairs["val"] == [whole[22], whole[45], whole[68]]
    assert pairs["train"] == [pair for pair in whole if pair not in pairs["val"]]
    facts = about(folder, "iwslt14")
    assert facts["train pairs dropped, a side empty"] == 1
    assert "every 23rd training pair is validation" in facts["notes"][0]
    assert "160,239 and 7,283" in facts["notes"][0]


def test_iwslt14_without_training_text(folder):
    write_sides(folder / "sample", "valid", 5, suffix=".gz")
    write(folder / "sample/IWSLT14.TED.dev2010.de-en.de.xml", segments(text("de", 5)))
    process = run_script(
        "translation/prepare_data.py", "--dataset", "iwslt14", "--source", "sample", cwd=folder
    )
    assert_refused(
        process,
        "source sample lacks the training text of iwslt14: expected train.{de,en} beside valid",
        "or train.tags.de-en.{de,en} (original)",
        "sample holds IWSLT14.TED.dev2010.de-en.de.xml, valid.de, valid.en",
        "give --train SRC TRG --val SRC TRG",
    )
    assert not (folder / "data").exists()


def test_iwslt14_from_given_files(prepare, folder):
    train = write_sides(folder, "valid", 60, suffix=".gz")
    val = []
    for language, suffix in (("de", ".gz"), ("en", "")):
        sentences = [s.replace("7", "&lt;7 &amp; 8") for s in text(language, 20, 60)]
        val.append(write(folder / f"dev.de-en.{language}.xml{suffix}", segments(sentences)))
    pairs = prepare("iwslt14", "--train", *train, "--val", *val)
    assert pairs["train"] == expected_pairs(60)
    assert pairs["val"] == [
        tuple(s.replace("7", "<7 & 8") for s in pair) for pair in expected_pairs(20, 60)
    ]
    facts = about(folder, "iwslt14")
    assert [entry["name"] for entry in facts["val"]] == ["dev.de-en.de.xml.gz", "dev.de-en.en.xml"]
    assert "train has 60 pairs, the complete public distribution 160,239" in facts["warnings"][0]
    assert "val has 20 pairs, the complete public distribution 7,283" in facts["warnings"][1]


# --- News-commentary


def table(count: int, turned: bool = False) -> str:
    pairs = [*zip(text("en", count), text("de", count), strict=True)]
    return "".join("\t".join(reversed(pair) if turned else pair) + "\n" for pair in pairs)


@pytest.mark.parametrize(
    ("name", "turned"),
    [
        ("news-commentary-v14.en-nl.tsv.gz", False),
        ("news-commentary-v14.nl-en.tsv", True),
        ("table.txt", False),
    ],
)
def test_news_commentary_table(prepare, folder, name, turned):
    source = write(folder / name, "\t\n" + table(60, turned) + "one side\n\none\t \n")
    pairs = prepare("news_commentary_v14_en_nl", "--source", source, "--val_size", 15)
    assert [len(pairs["train"]), len(pairs["val"])] == [45, 15]
    whole = [(src, trg) for trg, src in expected_pairs(60)]
    # Drawn by seed, but in the order of the file.
    assert pairs["val"] == [pair for pair in whole if pair in pairs["val"]]
    assert pairs["train"] == [pair for pair in whole if pair not in pairs["val"]]
    assert pairs["val"] != whole[:15]
    place = folder / "data/news-commentary-v14-en-nl"
    for split in ("train", "val"):
        for side, ending in enumerate(("src", "trg")):
            sentences = [pair[side] for pair in pairs[split]]
            assert json.loads((place / f"{split}.{ending}").read_text()) == sentences
            assert (place / f"{split}.{ending}_raw").read_text() == lines(sentences)
    facts = about(folder, "news-commentary-v14-en-nl")
    assert facts["train pairs dropped, a side empty"] == 4
    assert facts["languages"] == ["en", "nl"]
    assert "15 pairs, drawn with seed 0, are used" in facts["notes"][-1]
    assert ("read as en, nl" in facts["notes"][0]) == (name == "table.txt")
    assert (place / "news-commentary-v14-en-nl.model").exists()


def test_news_commentary_split_is_by_seed(prepare, folder):
    options = ["--source", write(folder / "en-pt.tsv", table(60)), "--val_size", 15, "--overwrite"]
    first = prepare("news_commentary_v14_en_pt", *options)
    assert prepare("news_commentary_v14_en_pt", *options) == first
    other = prepare("news_commentary_v14_en_pt", *options, "--seed", 1)
    assert other != first
    assert sorted(other["train"] + other["val"]) == sorted(first["train"] + first["val"])


def test_news_commentary_pair_of_files_among_others(prepare, folder):
    for language, own in (("de", "it"), ("en", "pt")):
        sentences = lines(text(language, 60))
        write(folder / f"news/news-commentary-v14.it-pt.{own}.gz", sentences)
        write(folder / f"news/news-commentary-v14.en-pt.{own}", "other\n")
        write(folder / f"news/.news-commentary-v14.it-pt.{own}", "hidden\n")
    pairs = prepare("news_commentary_v14_it_pt", "--source", folder / "news", "--val_size", 10)
    assert sorted(pairs["train"] + pairs["val"]) == sorted(expected_pairs(60))


# --- A pair of files under a new name


def own(folder: Path) -> list[object]:
    train, val = write_sides(folder, "a", 60), write_sides(folder, "b", 20, 60)
    return ["--src_lang", "de", "--trg_lang", "en", "--train", *train, "--val", *val]


def test_own_files(prepare, folder, translation, capsys):
    pairs = prepare("mine", *own(folder))
    assert pairs == {"train": expected_pairs(60), "val": expected_pairs(20, 60)}
    facts = about(folder, "mine")
    assert facts["languages"] == ["de", "en"]
    assert facts["train"][0]["name"] == "a.de"
    assert len(facts["train"][0]["sha256"]) == 64
    # The folders of the machine it was made on are not in it.
    assert str(folder) not in json.dumps(facts)
    assert facts["command"].startswith("python prepare_data.py --dataset mine --src_lang de")

    dataset = translation.data.load_dataset("mine")
    assert dataset.vocab == 40 == facts["vocab_size"] == facts["pieces in the vocabulary"]
    lengths = dataset.val.trg.lengths - 2
    row = next(r for r in facts["splits"] if (r["split"], r["side"]) == ("val", "en"))
    assert row == {
        "split": "val", "side": "en", "pairs": 20, "min pieces": lengths.min(),
        "mean": round(lengths.mean(), 3), "median": np.median(lengths), "max": lengths.max(),
    }  # fmt: skip
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["pieces", "in", "the", "vocabulary", "40"] in printed
    assert any(cells[:3] == ["val", "en", "20"] for cells in printed)


def test_own_files_without_validation(prepare, folder):
    train = write_sides(folder, "a", 60)
    options = ["--src_lang", "de", "--trg_lang", "en", "--train", *train, "--val_size", 5]
    pairs = prepare("mine", *options)
    assert [len(pairs["train"]), len(pairs["val"])] == [55, 5]
    with pytest.raises(InputError, match="--val_size 60 leaves no training pair: there are 60"):
        prepare("other", *options[:-1], 60)
    with pytest.raises(InputError, match="--val_size 2,000 leaves no training pair: there are 60"):
        prepare("other", *options[:-2])


def test_duplicates_are_counted_and_dropped_on_request(prepare, folder):
    options = own(folder)
    for language in ("de", "en"):
        again = text(language, 60) + text(language, 2) + text(language, 3, 60)
        write(folder / f"a.{language}", lines(again))
    pairs = prepare("mine", *options)
    assert len(pairs["train"]) == 65
    facts = about(folder, "mine")
    assert facts["training pairs that repeat an earlier one"] == 2
    assert facts["training pairs that are in validation"] == 3
    assert "3 training pairs are also validation pairs: kept" in facts["warnings"][0]
    pairs = prepare("mine", *options, "--drop_duplicates", "--overwrite")
    assert pairs["train"] == expected_pairs(60) + expected_pairs(2)
    assert (
        "3 training pairs are also validation pairs: left out"
        in (about(folder, "mine")["warnings"][0])
    )
    with pytest.raises(InputError, match="without those that are in validation, no training pair"):
        same = [*options[:-3], "--val", *options[5:7]]
        prepare("mine", *same, "--drop_duplicates", "--overwrite")


def test_existing_files_are_not_replaced_without_overwrite(prepare, folder):
    options = own(folder)
    prepare("mine", *options)
    before = {path.name: path.read_bytes() for path in (folder / "data/mine").iterdir()}
    with pytest.raises(InputError, match=r"mine/about.json already exists; use --overwrite"):
        prepare("mine", *options)
    # What fails while the new files are made leaves the old ones alone.
    with pytest.raises(InputError, match="does not fit the training text"):
        prepare("mine", *options, "--overwrite", "--vocab_size", 9999)
    assert {path.name: path.read_bytes() for path in (folder / "data/mine").iterdir()} == before


def test_vocabulary_of_other_text_is_replaced(prepare, folder, translation):
    options = own(folder)
    write(folder / "data/mine/mine.model", "of another text")
    with pytest.raises(InputError, match=r"mine.model already exists; use --overwrite"):
        prepare("mine", *options)
    prepare("mine", *options, "--overwrite")
    first = (folder / "data/mine/mine.model").read_bytes()
    write(folder / "a.de", lines(text("en", 60)))
    prepare("mine", *options, "--overwrite")
    assert (folder / "data/mine/mine.model").read_bytes() != first
    prepare("mine", *options, "--overwrite", "--vocab_size", 42)
    assert translation.data.load_dataset("mine").vocab == 42


def test_vocabulary_size_errors(prepare, folder, translation):
    options = own(folder)
    message = r"--vocab_size 8000 does not fit .* data/mine: .* to a value <= (\d+);"
    with pytest.raises(InputError, match=message) as error:
        translation.prepare_data.main([*map(str, ["--dataset", "mine", *options])])
    most = re.search(message, str(error.value))[1]
    prepare("mine", *options, "--vocab_size", most)
    with pytest.raises(InputError, match="Vocabulary size is smaller than required_chars"):
        prepare("other", *options, "--vocab_size", 10)


# --- Downloads: without the network


def hub_rows(count: int, start: int = 0) -> list[dict]:
    return [{"en": en, "de": de} for de, en in expected_pairs(count, start)]


def test_download(prepare, folder, hub, capsys):
    train = [*hub_rows(60), {"en": None, "de": "nichts"}]
    hub.splits = {"train": train, "validation": hub_rows(20, 60), "test": hub_rows(1)}
    pairs = prepare("multi30k", "--download")
    assert pairs == {"train": expected_pairs(60), "val": expected_pairs(20, 60)}
    assert hub.asked == [("bentrevett/multi30k", "newest")]
    assert about(folder, "multi30k")["revision"] == "newest"
    printed = capsys.readouterr().err
    assert "downloaded at --revision newest" in printed
    assert "train has 60 pairs, the complete public distribution 29,000" in printed
    prepare("multi30k", "--download", "--revision", "0123", "--overwrite")
    assert hub.asked[1] == ("bentrevett/multi30k", "0123")
    assert about(folder, "multi30k")["notes"] == []


def test_download_of_a_named_repository(prepare, folder, hub):
    hub.splits = {"train": [{"id": "1", "translation": row} for row in hub_rows(60)]}
    options = ["--download", "--repository", "some/news", "--configuration", "de-en"]
    options += ["--src_lang", "de", "--trg_lang", "en", "--val_size", 10]
    pairs = prepare("news", *options)
    assert hub.asked == [("some/news", "de-en", "newest")]
    assert sorted(pairs["train"] + pairs["val"]) == sorted(expected_pairs(60))
    assert about(folder, "news")["repository"] == "some/news"
    hub.splits["validation"] = [{"translation": row} for row in hub_rows(20, 60)]
    assert prepare("news", *options, "--overwrite")["val"] == expected_pairs(20, 60)
    assert (
        "--val_size is not used: some/news has a split validation"
        in (about(folder, "news")["notes"])
    )


def test_download_from_changed_repository(prepare, hub):
    hub.splits = {"train": [{"en": "x", "fr": "y"}]}
    with pytest.raises(InputError, match="multi30k train has no column de; it has en, fr"):
        prepare("multi30k", "--download")
    hub.splits = {"train": [{"translation": {"en": "x"}}]}
    with pytest.raises(InputError, match="multi30k train translation has no column de; it has en"):
        prepare("multi30k", "--download")
    hub.splits = {"test": [{"en": "x", "de": "y"}]}
    with pytest.raises(InputError, match="bentrevett/multi30k has no split train; it has test"):
        prepare("multi30k", "--download")


# --- Errors

GOOD = lines(text("de", 3))
NEWS = "news_commentary_v14_en_nl"


@pytest.mark.parametrize(
    ("dataset", "files", "message"),
    [
        (
            "multi30k",
            {"train.de": GOOD, "train.en": GOOD, "val.de": GOOD},
            "does not look like multi30k: expected train.de, train.en, val.de and val.en.* holds",
        ),
        (
            "multi30k",
            {"train.de": GOOD, "train.en": GOOD + "x\n", "val.de": GOOD, "val.en": GOOD},
            "source:train.de has 3 sentences, but .*source:train.en has 4: they must be aligned",
        ),
        (
            "multi30k",
            {"a/train.de": GOOD, "b/train.de": GOOD, "b/train.en": GOOD},
            r"more than one such file \(a/train.de, b/train.de\); give the directory of one",
        ),
        (
            "multi30k",
            {"train.de": b"gut\nsch\xf6n\n", "train.en": GOOD, "val.de": GOOD, "val.en": GOOD},
            "source:train.de is not UTF-8 text: line 2, byte 7",
        ),
        (
            "multi30k",
            {"train.de": GOOD, "train.en": GOOD, "val.de": "\n\n", "val.en": "a\nb\n"},
            "multi30k has no val pair with text on both sides",
        ),
        (
            "iwslt14",
            {"train.tags.de-en.de": "<url>x</url>\na\n", "train.tags.de-en.en": "a\nb\n"},
            "train.tags.de-en.de has 1 sentences, but .*train.tags.de-en.en has 2",
        ),
        (
            "iwslt14",
            {"train.tags.de-en.de": GOOD, "train.tags.de-en.en": GOOD},
            "iwslt14 has no val pair with text on both sides",
        ),
        ("iwslt14", {"train.de": GOOD, "train.en": GOOD}, "lacks the training text of iwslt14"),
        (NEWS, {"a.tsv": "a\tb\nc\td\te\n"}, "source:a.tsv line 2 has 3 columns, but a line is"),
        (NEWS, {"a.tsv": "a b\nc d\n"}, "source:a.tsv holds no line SENTENCE<TAB>SENTENCE"),
        (NEWS, {"v14.en-pt.tsv": "a\tb\n"}, "is named en-pt, but news_commentary_v14_en_nl has en"),
        (
            NEWS,
            {"a/v14.en-nl.tsv": "a\tb\n", "b/v14.nl-en.tsv": "a\tb\n"},
            "more than one table",
        ),
        (
            NEWS,
            {"a.en": GOOD, "b.txt": GOOD},
            r"does not look like .* expected news-comm.*v14.en-nl",
        ),
        (NEWS, {"a.en": GOOD, "b.en": GOOD, "a.nl": GOOD}, "does not look like news_commentary"),
        (NEWS, {"a.en": GOOD, "a.nl": "x\n"}, "a.en has 3 sentences, but .*a.nl has 1"),
    ],
)
def test_source_errors(prepare, folder, dataset, files, message):
    for name, content in files.items():
        write(folder / "source" / name, content)
    with pytest.raises(InputError, match=message):
        prepare(dataset, "--source", folder / "source")
    assert not (folder / "data").exists()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.de": GOOD}, r"source .*a.en does not exist"),
        ({"a.de": GOOD, "a.en": "x\n"}, r"a.de has 3 sentences, but .*a.en has 1: they must be al"),
        ({"a.de/x": GOOD, "a.de/y": GOOD, "a.en": GOOD}, "--train must be one file, but .* x, y"),
        ({"a.de": "", "a.en": ""}, "mine has no train pair with text on both sides"),
    ],
)
def test_own_file_errors(prepare, folder, files, message):
    for name, content in files.items():
        write(folder / name, content)
    options = ["--src_lang", "de", "--trg_lang", "en", "--val_size", 1]
    with pytest.raises(InputError, match=message):
        prepare("mine", *options, "--train", folder / "a.de", folder / "a.en")
    assert not (folder / "data").exists()


@pytest.mark.parametrize(
    ("trg", "message"),
    [
        (segments(["a", "b"], first=2), r"not aligned: segment 1 is 1 of document '69' here, 2 of"),
        (segments(["a", "b"], doc="70"), r"segment 1 is 1 of document '69' here, 1 of '70' there"),
        (segments(["a", "b"]).replace(" </seg>", "", 1), r'en.xml line 5 is not <seg id="...">'),
        ("<mteval>\n</mteval>\n", 'en.xml holds no line <seg id="..."> text </seg>'),
        (segments(["a"]), r"de.xml has 2 sentences, but .*en.xml has 1"),
    ],
)
def test_segment_errors(prepare, folder, trg, message):
    src = write(folder / "dev.de.xml", segments(["a", "b"]))
    trg = write(folder / "dev.en.xml", trg)
    with pytest.raises(InputError, match=message):
        prepare("iwslt14", "--train", src, trg)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dataset", "Foo"], "unknown --dataset Foo: known are multi30k, iwslt14, news_comment"),
        (["--dataset", "multi30k"], "--dataset multi30k needs --source PATH"),
        (
            ["--dataset", "multi30k", "--source", "a", "--download"],
            "--source and --download exclude each other",
        ),
        (["--dataset", "mine", "--val", "a", "b"], "--val goes with --train"),
        (["--dataset", "mine", "--train", "a", "b"], "a new name, mine, needs --src_lang and --tr"),
        (
            ["--dataset", "mine", "--train", "a", "b", "--src_lang", "x", "--trg_lang", "x"],
            "--src_lang and --trg_lang are the same",
        ),
        (
            ["--dataset", "multi30k", "--source", "a", "--src_lang", "de"],
            "--src_lang and --trg_lang name the sides of a new dataset, not of multi30k",
        ),
        (["--source", "a"], "--dataset toy is generated and takes no --source"),
        (["--dataset", "iwslt14", "--download"], "no repository of iwslt14 is known"),
        (["--dataset", "multi30k", "--source", "a", "--revision", "x"], "--revision goes with --d"),
        (["--repository", "x"], "--repository goes with --download"),
        (["--val_size", "5"], "--val_size is of a validation split that is drawn"),
        (
            ["--dataset", "multi30k", "--source", "a", "--val_size", "5"],
            "--val_size is of a validation split that is drawn",
        ),
        (["--vocab_size", "0"], "must be at least 1"),
        (["--seed", "-1"], "must be from 0 to"),
    ],
)
def test_option_conflicts(translation, folder, capsys, options, message):
    with pytest.raises(SystemExit) as ended:
        translation.prepare_data.main(options)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not (folder / "data").exists()


@pytest.mark.parametrize(
    ("name", "languages", "message"),
    [
        ("../x", ("de", "en"), "dataset '../x' must have a plain name"),
        ("mine", ("de", "../en"), "'../en' must have a plain name"),
        (
            "news-commentary-v14-en-nl",
            ("en", "nl"),
            "is the folder of --dataset news_commentary_v14_en_nl: use that name",
        ),
    ],
)
def test_dataset_and_language_names(prepare, folder, name, languages, message):
    train = write_sides(folder, "a", 5)
    options = ["--src_lang", languages[0], "--trg_lang", languages[1], "--train", *train]
    with pytest.raises(InputError, match=message):
        prepare(name, *options)
    assert not (folder / "data").exists()


# --- The toy languages


@pytest.fixture(scope="module")
def toys(translation):
    """The toy languages of two seeds."""
    return [translation.preparation.toy.make_toy(seed) for seed in (0, 1)]


def test_toy_files(folder, translation, toys):
    translation.prepare_data.main([])
    toy, prepared = toys[0], pairs_of(translation, "toy")
    for split, pairs in toy.pairs.items():
        assert [tuple(side.split() for side in pair) for pair in prepared[split]] == pairs
    truth = json.loads((folder / "data/toy/truth.json").read_text())
    assert truth["links"]["val"] == [[list(link) for link in links] for links in toy.links["val"]]
    assert truth["words"]["val"] == [[len(src), len(trg)] for src, trg in toy.pairs["val"]]
    before = {path.name: path.read_bytes() for path in (folder / "data/toy").iterdir()}
    translation.prepare_data.main(["--overwrite"])
    after = {path.name: path.read_bytes() for path in (folder / "data/toy").iterdir()}
    before.pop("about.json"), after.pop("about.json")  # it holds the command
    assert after == before
    # Nearly all words are one piece: 0.932 to 0.935 of the tokens with the seeds 0 to 5.
    pieces = translation.data.load_dataset("toy").pieces
    words = [word for pair in toy.pairs["val"] for side in pair for word in side]
    assert np.mean([len(pieces.encode(word)) == 1 for word in words]) == pytest.approx(
        0.934, abs=0.01
    )


def test_toy_pairs_are_translations_and_links_are_true(toys):
    for toy in toys:
        for split, size in (("train", 3000), ("val", 300)):
            assert len(toy.pairs[split]) == len(toy.links[split]) == size
            for (src, trg), links in zip(toy.pairs[split], toy.links[split], strict=True):
                assert min(len(src), len(trg)) >= 4
                assert max(len(src), len(trg)) <= 14
                assert [place for _, place in links] == [*range(len(trg))]
                for place, word in enumerate(src):
                    linked = [trg[t] for s, t in links if s == place]
                    assert linked == toy.dictionary[word]
        sentences = [tuple(src) for pairs in toy.pairs.values() for src, _ in pairs]
        assert len(set(sentences)) == 3300


def test_toy_statistics(toys, translation):
    """Words move, some become two, some none; languages share no word; a seed is a language."""
    toy = toys[0]
    lengths = {word: len(words) for word, words in toy.dictionary.items()}
    counts = np.bincount([*lengths.values()])
    # 3 auxiliaries; a quarter of 60 verbs and a tenth of 150 nouns.
    assert counts.tolist() == [3, 262, 30]
    assert not {*toy.dictionary} & {w for words in toy.dictionary.values() for w in words}
    moved = np.mean([s != t for links in toy.links["train"] for s, t in links])
    # AnalysisInputs: 0.80 to 0.82 with the seeds 0 to 5.
    assert moved == pytest.approx(0.81, abs=0.02)
    assert toys[0].dictionary != toys[1].dictionary
    unseen = {w for src, _ in toy.pairs["val"] for w in src} - {
        w for src, _ in toy.pairs["train"] for w in src
    }
    assert not unseen


# --- Alignment error rate


class Pieces:
    """A vocabulary of few pieces: the part of sentencepiece's interface that is asked for."""

    LIST = ("<pad>", "<s>", "</s>", "<unk>", "▁a", "b", "▁c", "▁", "▁X", "▁Y", "z")

    def vocab_size(self):
        return len(self.LIST)

    def id_to_piece(self, piece):
        return self.LIST[piece]


def small_logs(alpha, beta) -> Logs:
    """One pair, "ab c" - "X Yz", in the logs; scores are (4 targets, 5 source pieces)."""
    arrays = {
        ("normal_A", 0, "alpha"): np.ravel(alpha).astype(np.float32),
        ("normal_A", 0, "beta"): np.zeros(20, np.float32),
    }
    if beta is not None:
        arrays["uniform", 0, "alpha"] = np.zeros(20, np.float32)
        arrays["uniform", 0, "beta"] = np.ravel(beta).astype(np.float32)
    src = Ragged.from_rows([[1, 4, 5, 6, 2]])
    trg = Ragged.from_rows([[1, 8, 9, 10, 2]])
    splits, index = {"val": 1, "train": 0}, np.array([1])
    return Logs("mine", src, trg, splits, index, arrays=arrays)


# <s> and </s> hold most of the mass, and do not count.
ALPHA = [
    [0.6, 0.10, 0.15, 0.20, 0.0],  # X: "ab" has 0.25 in two pieces, "c" 0.2: ab
    [0.1, 0.10, 0.10, 0.60, 0.1],  # Y: c by 0.4
    [0.1, 0.40, 0.30, 0.10, 0.1],  # z: ab by 0.6; with Y, ab by 0.1
    [0.0, 0.00, 0.00, 1.00, 0.0],  # </s>
]
BETA = [
    [0, -9, -2, -3, 0],  # X: the best piece of "ab" has -2, "c" -3: ab
    [0, -5, -6, -1, 0],  # Y: ab -5, c -1
    [0, -9, -2, -4, 0],  # z: ab -2, c -4; mean with Y: ab -3.5, c -2.5: c
    [0, 0, 0, -9, 0],
]


def write_truth(folder: Path, links, words=(2, 2), name: str = "mine") -> None:
    # The logs' only pair is the second of the file.
    content = {"words": {"val": [[9, 9], [*words]]}, "links": {"val": [[], links]}}
    write_json(folder / "data" / name / "truth.json", content)


def test_alignment_error_rate_by_hand(folder, translation):
    """A of α is {X-ab, Yz-ab}, A of β {X-ab, Yz-c}."""
    rows = translation.alignment.alignment_rows
    logs = small_logs(ALPHA, BETA)
    assert rows("mine", logs, Pieces()) == []
    write_truth(folder, [[0, 0], [1, 1]])
    # α: 1 - 2 * 1 / (2 + 2); chance finds 1/2 + 1/2 of the two.
    expected = {"iteration": 0, "α of normal_A": 0.5, "β of uniform": 0.0, "chance": 0.5}
    assert rows("mine", logs, Pieces()) == [expected]
    # Yz has two true links, X none: α finds one, β one, chance 2/2: 1 - 2 * 1 / (2 + 2).
    write_truth(folder, [[0, 1], [1, 1]])
    assert rows("mine", logs, Pieces()) == [dict.fromkeys(expected, 0.5) | {"iteration": 0}]
    # One link: α finds it, 1 - 2 * 1 / (2 + 1); β does not; chance half the time.
    write_truth(folder, [[0, 1]])
    [row] = rows("mine", logs, Pieces())
    assert [*row.values()] == pytest.approx([0, 1 / 3, 1, 2 / 3])


def test_alignment_without_uniform_run_or_with_nan(folder, translation):
    write_truth(folder, [[0, 0]])
    rows = translation.alignment.alignment_rows("mine", small_logs(ALPHA, None), Pieces())
    assert rows[0]["β of uniform"] is None
    diverged = np.full((4, 5), np.nan)
    rows = translation.alignment.alignment_rows("mine", small_logs(diverged, BETA), Pieces())
    assert rows[0]["α of normal_A"] is None
    assert rows[0]["β of uniform"] is not None


def test_words_of_pieces(translation):
    """A lone "▁" begins a word, and so does the first piece after <s> whatever it is."""
    ids = Ragged.from_rows([[1, 7, 3, 5, 4, 2, 0, 0], [1, 5, 6, 2]])
    places, words = translation.alignment.word_places(ids, Pieces())
    assert places.tolist() == [-1, 0, 0, 0, 1, -1, -1, -1, -1, 0, 1, -1]
    assert words.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ([[2, 0]], (2, 2)),
        ([[0, -1]], (2, 2)),
        ([[0, "1"]], (2, 2)),
        ([[0, 1, 1]], (2, 2)),
        ([[0, 0]], (3, 2)),
        (None, (2, 2)),
    ],
)
def test_truth_that_does_not_fit_the_logs(folder, translation, links, words):
    write_truth(folder, links, words)
    with pytest.raises(InputError, match=r"data/mine/truth.json does not fit the logs of mine"):
        translation.alignment.alignment_rows("mine", small_logs(ALPHA, BETA), Pieces())


def test_truth_that_is_malformed(folder, translation):
    for content in ("{}", "[]", '{"links": {"val": []}, "words": {"val": []}}'):
        write(folder / "data/mine/truth.json", content)
        with pytest.raises(InputError, match="does not fit the logs of mine"):
            translation.alignment.alignment_rows("mine", small_logs(ALPHA, BETA), Pieces())


def test_alignment_with_a_vocabulary_smaller_than_the_logs(folder, translation):
    write_truth(folder, [[0, 0]])
    logs = small_logs(ALPHA, BETA)
    logs.src.values[1] = 11
    with pytest.raises(InputError, match="the logs hold piece 11, but the vocabulary has 11"):
        translation.alignment.alignment_rows("mine", logs, Pieces())


def test_truth_of_a_dataset_with_another_folder(folder, translation):
    write_truth(folder, [[0, 0], [1, 1]], name="news-commentary-v14-en-nl")
    rows = translation.alignment.alignment_rows(NEWS, small_logs(ALPHA, BETA), Pieces())
    assert rows[0]["β of uniform"] == 0


@pytest.mark.parametrize("right", [True, False])
def test_toy_truth_scored_against_itself(folder, translation, right):
    """Attention on the true words has AER 0, on the others 1; chance as drawn at random."""
    translation.prepare_data.main([])
    dataset = translation.data.load_dataset("toy")
    truth = json.loads((folder / "data/toy/truth.json").read_text())["links"]["val"]
    # In reverse order, so that the place in the file is not the place in the logs.
    index = np.arange(len(dataset.val))[::-1].copy()
    val = dataset.val.take(index)
    logs = Logs("toy", val.src, val.trg, {"val": 300, "train": 0}, index)
    places = translation.alignment.word_places
    (src_word, _), (trg_word, _) = places(val.src, dataset.pieces), places(val.trg, dataset.pieces)
    src_word, trg_word = Ragged(src_word, val.src.offsets), Ragged(trg_word, val.trg.offsets)
    alpha, drawn = [], []
    random = np.random.default_rng(0)
    for number, links in enumerate(truth[place] for place in index):
        true_src = {t: s for s, t in links}
        for word in trg_word[number][1:]:
            # A true word shares its 1 among its pieces, so that they must be summed.
            true = src_word[number] == true_src.get(word, -2)
            scores = (true == right) / max(1, true.sum())
            scores[src_word[number] < 0] = 5
            alpha.append(scores)
            drawn.append(random.random(len(scores)))
    logs.arrays["normal_A", 0, "alpha"] = np.concatenate(alpha)
    logs.arrays["normal_A", 5, "alpha"] = np.concatenate(drawn)
    rows = translation.alignment.alignment_rows("toy", logs, dataset.pieces)
    assert rows[0]["α of normal_A"] == pytest.approx(0 if right else 1, abs=1e-12)
    # 2,500 target words: a standard error of 0.006.
    assert rows[1]["chance"] == pytest.approx(rows[1]["α of normal_A"], abs=0.02)


def test_true_cells_mark_the_pieces_of_linked_words(folder, translation):
    logs = small_logs(ALPHA, BETA)
    assert translation.alignment.true_cells("mine", logs, Pieces()) is None
    write_truth(folder, [[0, 0], [1, 1]])  # "ab" - "X", "c" - "Yz"
    cells = translation.alignment.true_cells("mine", logs, Pieces()).reshape(4, 5)
    expected = [[0, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]
    assert cells.astype(int).tolist() == expected


def test_order_of_the_sides_does_not_change_the_pieces(translation, tmp_path):
    """Departure 22: the published code reads the sentences in another order."""
    pairs, pieces = expected_pairs(60), []
    for sides in (pairs, [(trg, src) for src, trg in pairs]):
        model = translation.data.make_pieces(tmp_path, sides, 40)
        loaded = SentencePieceProcessor(model_proto=model)
        pieces.append([loaded.id_to_piece(number) for number in range(len(loaded))])
    assert pieces[0] == pieces[1]
