"""translation/prepare_data.py and alignment.py: every form, the toy languages, AER, errors."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import write
from sentencepiece import SentencePieceProcessor

from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import read_json, write_json

NEWS = "news_commentary_v14_en_nl"
FOLDER = NEWS.replace("_", "-")
DE_EN = "--src_lang de --trg_lang en"
LANGUAGES = DE_EN.split()


@pytest.fixture
def prepare(folder, translation):
    """Run prepare_data in ``folder``; returns its {"train": [(src, trg), ...], "val": ...}."""

    def run(dataset: str, *options: object) -> dict[str, list[tuple[str, str]]]:
        args = ["--dataset", dataset, "--vocab_size", 40, *options]
        translation.prepare_data.main([*map(str, args)])
        return pairs_of(translation, dataset)

    return run


def pairs_of(translation, dataset: str) -> dict[str, list[tuple[str, str]]]:
    """The prepared pairs as the other scripts read them; nothing is left for these to drop."""
    layout = translation.data.layout_of(dataset)
    read = {split: translation.data.read_pairs(layout, split) for split in ("train", "val")}
    assert [dropped for _, dropped in read.values()] == [0, 0]
    return {split: pairs for split, (pairs, _) in read.items()}


def about(folder: Path, name: str) -> dict:
    return read_json(folder / "data" / name / "about.json")


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


EXPECTED = {"train": expected_pairs(60), "val": expected_pairs(20, 60)}


def write_sides(place: Path, stem: str, count: int, start: int = 0, suffix: str = "") -> list[Path]:
    return [
        write(place / f"{stem}.{language}{suffix}", lines(text(language, count, start)))
        for language in ("de", "en")
    ]


def write_splits(place: Path, val: str = "val", suffix: str = "") -> list[Path]:
    """train.{de,en} and {val}.{de,en} in ``place``: the pairs of ``EXPECTED``."""
    train = write_sides(place, "train", 60, 0, suffix)
    return train + write_sides(place, val, 20, 60, suffix)


# --- Public distributions


@pytest.mark.parametrize("form", ["folder", "gz", "archive"])
def test_prepare_multi30k(prepare, folder, form):
    place = folder / "task1" / "raw"
    write_splits(place, suffix=".gz" if form == "gz" else "")
    if form == "archive":
        place = shutil.make_archive(str(place), "gztar", folder, "task1")
    assert prepare("multi30k", "--source", place) == EXPECTED
    assert (folder / "data/multi30k/val.de").read_text() == lines(text("de", 20, 60))
    assert sorted(path.name for path in (folder / "data/multi30k").iterdir()) == [
        "about.json", "multi30k.model", "train.de", "train.en", "val.de", "val.en",
    ]  # fmt: skip
    warnings = about(folder, "multi30k")["warnings"]
    for split, counts in (("train", "60 pairs,"), ("val", "20 pairs,")):
        assert any(f"{split} has {counts} the complete public" in line for line in warnings)


def test_sides_are_stripped_and_pairs_with_an_empty_side_dropped(prepare, folder, capsys):
    # A lone carriage return ends a line for torchtext; \u2028 does not.
    odd = ["  ein\rHund \r", "", "\t ", "zwei\u2028Hunde", "drei\xa0Hunde", "\u200b\ufeff"]
    other = ["one dog", "nothing", "nothing", "", "three dogs", "nothing"]
    write_splits(folder / "raw")
    write(folder / "raw/train.de", lines(text("de", 60) + odd))
    write(folder / "raw/train.en", lines(text("en", 60) + other))
    tail = [("ein Hund", "one dog"), ("drei\xa0Hunde", "three dogs")]
    assert prepare("multi30k", "--source", folder / "raw")["train"] == EXPECTED["train"] + tail
    facts = about(folder, "multi30k")
    assert facts["train pairs dropped, a side empty"] == 4
    assert "train pairs left out because a side is empty: 4" in facts["warnings"]
    assert "MISREAD: 4 of 66 train pairs (6%) have no text" in str(facts["warnings"])
    assert "train pairs left out because a side is empty: 4" in capsys.readouterr().err


def test_prepare_iwslt14_tokenized(prepare, folder):
    place = folder / "iwslt14.tokenized.de-en"
    write_splits(place / "tmp", "valid", ".gz")
    for path in write_splits(place, "valid"):  # with BPE
        path.write_text(path.read_text().replace("Hund", "Hu@@ nd").replace("the", "t@@ h@@ e"))
    assert prepare("iwslt14", "--source", place) == EXPECTED
    assert (folder / "data/iwslt14/valid.en").read_text() == lines(text("en", 20, 60))
    assert "train has 60 pairs, the complete" in about(folder, "iwslt14")["warnings"][0]
    (place / "tmp").rename(folder / "tmp")
    assert prepare("iwslt14", "--source", place, "--overwrite") == EXPECTED


def test_prepare_iwslt14_original(prepare, folder):
    for language in ("de", "en"):
        sentences = text(language, 70)
        sentences[3] = "" if language == "en" else sentences[3]
        tagged = "<doc docid='1'>\n<url>http://x</url>\n<title>T</title>\n"
        tagged += "<translator>Only here</translator>\n" if language == "de" else ""
        tagged += lines(sentences[:30]) + "</doc>\n <description>D</description>\n"
        tagged += lines(["<3 is a heart", *sentences[30:]])
        write(folder / f"de-en/train.tags.de-en.{language}", tagged)
    pairs = prepare("iwslt14", "--source", folder / "de-en")
    whole = expected_pairs(70)
    whole[30:30] = [("<3 is a heart", "<3 is a heart")]
    del whole[3]
    # Each 23rd of the pairs that are left: numbers 23, 46 and 69, counted from 1.
    assert pairs["val"] == [whole[22], whole[45], whole[68]]
    assert pairs["train"] == [pair for pair in whole if pair not in pairs["val"]]
    assert "every 23rd training pair is validation" in about(folder, "iwslt14")["notes"][0]


def segments(sentences: list[str]) -> str:
    inner = lines([f'<seg id="{n}"> {sentence} </seg>' for n, sentence in enumerate(sentences, 1)])
    return f'<mteval>\n<doc docid="69">\n<title>A title</title>\n{inner}</doc>\n</mteval>\n'


def test_prepare_iwslt14_from_given_files(prepare, folder):
    train = write_sides(folder, "valid", 60, suffix=".gz")
    val = []
    for language, suffix in (("de", ".gz"), ("en", "")):
        sentences = [s.replace("7", "&lt;7 &amp; 8") for s in text(language, 20, 60)]
        val.append(write(folder / f"dev.de-en.{language}.xml{suffix}", segments(sentences)))
    pairs = prepare("iwslt14", "--train", *train, "--val", *val)
    assert pairs["train"] == EXPECTED["train"]
    assert pairs["val"] == [
        tuple(s.replace("7", "<7 & 8") for s in pair) for pair in EXPECTED["val"]
    ]
    facts = about(folder, "iwslt14")
    assert [entry["name"] for entry in facts["val"]] == ["dev.de-en.de.xml.gz", "dev.de-en.en.xml"]
    assert "train has 60 pairs, the complete public distribution 160,239" in facts["warnings"][0]


@pytest.mark.parametrize("columns", ["en-nl", "nl-en"])
def test_prepare_news_commentary_table(prepare, folder, columns):
    whole = [(src, trg) for trg, src in EXPECTED["train"]]
    table = ["\t".join(pair if columns == "en-nl" else reversed(pair)) for pair in whole]
    content = "\t\n" + lines(table) + "one side\n\none\t \n"
    source = write(folder / f"news-commentary-v14.{columns}.tsv.gz", content)
    options = ["--source", source, "--val_size", 15, "--overwrite"]
    pairs = prepare(NEWS, *options)
    assert [len(pairs["train"]), len(pairs["val"])] == [45, 15]
    # Drawn by seed, but in the order of the file.
    assert pairs["val"] == [pair for pair in whole if pair in pairs["val"]]
    assert pairs["train"] == [pair for pair in whole if pair not in pairs["val"]]
    assert pairs["val"] != whole[:15]
    place = folder / "data" / FOLDER
    for split in ("train", "val"):
        for side, ending in enumerate(("src", "trg")):
            sentences = [pair[side] for pair in pairs[split]]
            assert json.loads((place / f"{split}.{ending}").read_text()) == sentences
            assert (place / f"{split}.{ending}_raw").read_text() == lines(sentences)
    facts = about(folder, place.name)
    assert facts["train pairs dropped, a side empty"] == 4
    assert facts["languages"] == ["en", "nl"]
    assert "15 pairs, drawn with seed 0, are used" in facts["notes"][-1]
    assert prepare(NEWS, *options) == pairs
    assert prepare(NEWS, *options, "--seed", 1) != pairs


def test_prepare_news_commentary_pair_of_files_among_others(prepare, folder):
    for language, own in (("de", "it"), ("en", "pt")):
        sentences = lines(text(language, 60))
        write(folder / f"news/news-commentary-v14.it-pt.{own}.gz", sentences)
        write(folder / f"news/news-commentary-v14.en-pt.{own}", "other\n")
        write(folder / f"news/.news-commentary-v14.it-pt.{own}", "hidden\n")
    pairs = prepare("news_commentary_v14_it_pt", "--source", folder / "news", "--val_size", 10)
    assert sorted(pairs["train"] + pairs["val"]) == sorted(EXPECTED["train"])


# --- A pair of files under a new name


@pytest.fixture
def own(folder) -> list[object]:
    """Options of own files."""
    paths = write_splits(folder)
    return [*LANGUAGES, "--train", *paths[:2], "--val", *paths[2:]]


def test_prepare_own_files(prepare, own, folder, translation, capsys):
    assert prepare("mine", *own) == EXPECTED
    facts = about(folder, "mine")
    assert facts["languages"] == ["de", "en"]
    assert facts["train"][0]["name"] == "train.de"
    assert facts["command"].startswith("python prepare_data.py --dataset mine --vocab_size 40")

    dataset = translation.data.load_dataset("mine")
    assert dataset.vocab == 40 == facts["vocab_size"] == facts["pieces in the vocabulary"]
    lengths = dataset.val.trg.lengths - 2
    row = next(r for r in facts["splits"] if (r["split"], r["side"]) == ("val", "en"))
    assert row == {
        "split": "val", "side": "en", "pairs": 20, "min pieces": lengths.min(),
        "mean": round(lengths.mean(), 3), "median": np.median(lengths), "max": lengths.max(),
    }  # fmt: skip
    assert re.search(r"pieces in the vocabulary +40\n", capsys.readouterr().out)


def test_prepare_own_files_without_validation(prepare, own):
    options = own[: own.index("--val")]
    assert [*map(len, prepare("mine", *options, "--val_size", 5).values())] == [55, 5]
    with pytest.raises(InputError, match="--val_size 2,000 leaves no training pair: there are 60"):
        prepare("other", *options)


def test_prepare_counts_duplicates_and_drops_them_on_request(prepare, own, folder):
    for language in ("de", "en"):
        again = text(language, 60) + text(language, 2) + text(language, 3, 60)
        write(folder / f"train.{language}", lines(again))
    assert len(prepare("mine", *own)["train"]) == 65
    facts = about(folder, "mine")
    assert facts["training pairs that repeat an earlier one"] == 2
    assert facts["training pairs that are in validation"] == 3
    assert "training pairs that are also validation pairs: 3, kept" in facts["warnings"][0]
    pairs = prepare("mine", *own, "--drop_duplicates", "--overwrite")
    assert pairs["train"] == EXPECTED["train"] + expected_pairs(2)
    with pytest.raises(InputError, match="without those that are in validation, no training pair"):
        prepare("mine", *own[:-2], *own[5:7], "--drop_duplicates", "--overwrite")


def test_prepare_replaces_existing_files_only_with_overwrite(prepare, own, folder, translation):
    prepare("mine", *own)
    before = {path.name: path.read_bytes() for path in (folder / "data/mine").iterdir()}
    with pytest.raises(InputError, match=r"mine/about.json already exists; use --overwrite"):
        prepare("mine", *own)
    # What fails while the new files are made leaves the old ones alone.
    with pytest.raises(InputError, match="does not fit the training text"):
        prepare("mine", *own, "--overwrite", "--vocab_size", 9999)
    assert {path.name: path.read_bytes() for path in (folder / "data/mine").iterdir()} == before
    write(folder / "train.de", lines(text("en", 60)))
    prepare("mine", *own, "--overwrite", "--vocab_size", 42)
    assert (folder / "data/mine/mine.model").read_bytes() != before["mine.model"]
    assert translation.data.load_dataset("mine").vocab == 42


def test_prepare_names_a_vocabulary_size_that_fits(prepare, own):
    for size in (2, 10**9, 8000):
        message = rf"--vocab_size {size} does not fit .* data/mine: .*(too few|<= (\d+))"
        with pytest.raises(InputError, match=message) as error:
            prepare("mine", *own, "--vocab_size", size)
    prepare("mine", *own, "--vocab_size", re.search(message, str(error.value))[2])


def test_order_of_the_sides_does_not_change_the_pieces(translation, tmp_path):
    """Departure 22: the published code reads the sentences in another order."""
    pieces = []
    for sides in (EXPECTED["train"], [(trg, src) for src, trg in EXPECTED["train"]]):
        model = translation.data.make_pieces(tmp_path, sides, 40)
        loaded = SentencePieceProcessor(model_proto=model)
        pieces.append([loaded.id_to_piece(number) for number in range(len(loaded))])
    assert pieces[0] == pieces[1]


# --- Downloads: without the network


def hub_rows(count: int, start: int = 0) -> list[dict]:
    return [{"en": en, "de": de} for de, en in expected_pairs(count, start)]


def test_prepare_downloads_multi30k(prepare, folder, hub, capsys):
    train = [*hub_rows(60), {"en": None, "de": "nichts"}]
    hub.splits = {"train": train, "validation": hub_rows(20, 60), "test": hub_rows(1)}
    assert prepare("multi30k", "--download") == EXPECTED
    assert hub.asked == [("bentrevett/multi30k", "newest")]
    assert about(folder, "multi30k")["revision"] == "newest"
    printed = capsys.readouterr().err
    assert "downloaded at --revision newest" in printed
    assert "train has 60 pairs, the complete public distribution 29,000" in printed


def test_prepare_downloads_a_named_repository(prepare, folder, hub):
    hub.splits = {"train": [{"id": "1", "translation": row} for row in hub_rows(60)]}
    options = ["--download", "--repository", "some/news", "--configuration", "de-en"]
    options += [*LANGUAGES, "--val_size", 10]
    pairs = prepare("news", *options)
    assert hub.asked == [("some/news", "de-en", "newest")]
    assert sorted(pairs["train"] + pairs["val"]) == sorted(EXPECTED["train"])
    assert about(folder, "news")["repository"] == "some/news"


def test_prepare_rejects_a_repository_of_another_form(prepare, hub):
    for splits, message in (
        ({"train": [{"translation": {"en": "x"}}]}, "train has no column de; it has en"),
        ({"test": [{"en": "x", "de": "y"}]}, "has no split train; it has test"),
    ):
        hub.splits = splits
        with pytest.raises(InputError, match=f"bentrevett/multi30k {message}"):
            prepare("multi30k", "--download")


# --- Errors

GOOD = lines(text("de", 3))
FOUR = dict.fromkeys(("train.de", "train.en", "val.de", "val.en"), GOOD)


@pytest.mark.parametrize(
    ("dataset", "files", "message"),
    [
        ("iwslt14", {"train.de": GOOD}, "not look like iwslt14: expected train.{de,en} beside"),
        ("multi30k", {**FOUR, "val.en": GOOD + "x"}, "val.de has 3 sentences, but .*val.en has 4"),
        (NEWS, {"en-nl.tsv": "a\tb\nc\td\te\n"}, "en-nl.tsv line 2 has 3 columns, but a line is"),
        (NEWS, {"a.en": GOOD, "b.en": GOOD, "a.nl": GOOD}, r"more than one such file \(a.en, b.en"),
    ],
)
def test_prepare_names_the_mistake_of_a_source(prepare, folder, dataset, files, message):
    for name, content in files.items():
        write(folder / "source" / name, content)
    with pytest.raises(InputError, match=message):
        prepare(dataset, "--source", folder / "source")
    assert not (folder / "data").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--dataset Foo", "unknown --dataset Foo: known are multi30k, iwslt14, news_comment"),
        ("--dataset multi30k", "--dataset multi30k needs --source, --download, or --train"),
        ("--dataset multi30k --source a --download", "--source and --download exclude each other"),
        ("--dataset mine --val a b", "--val goes with --train"),
        ("--dataset multi30k --source a --src_lang de", "are of a new dataset, not multi30k"),
        ("--dataset mine --train a b", "mine needs two different --src_lang and --trg_lang"),
        ("--source a", "--dataset toy is generated and takes no --source"),
        ("--dataset iwslt14 --download", "no repository of iwslt14 is known"),
        ("--repository x", "--repository and --configuration go with --download"),
        ("--val_size 5", "--val_size: the validation split of toy is not drawn"),
        (f"--dataset ../x --train a b {DE_EN}", "dataset '../x' must have a plain name"),
        (f"--dataset mine --train a b {DE_EN}/..", "language 'en/..' must have a plain name"),
        (f"--dataset {FOLDER} --train a b {DE_EN}", f"is the folder of --dataset {NEWS}: use that"),
    ],
)
def test_prepare_rejects_options_that_conflict_or_are_unsafe(
    translation, folder, capsys, options, message
):
    with pytest.raises((SystemExit, InputError)) as error:
        translation.prepare_data.main(options.split())
    assert message in f"{capsys.readouterr().err}{error.value}"
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
    truth = read_json("data/toy/truth.json")
    assert truth["links"]["val"] == [[list(link) for link in links] for links in toy.links["val"]]
    assert truth["words"]["val"] == [[len(src), len(trg)] for src, trg in toy.pairs["val"]]
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
                assert min(len(src), len(trg)) >= 4 and max(len(src), len(trg)) <= 14
                assert [place for _, place in links] == [*range(len(trg))]
                for place, word in enumerate(src):
                    assert [trg[t] for s, t in links if s == place] == toy.dictionary[word]
        sentences = [tuple(src) for pairs in toy.pairs.values() for src, _ in pairs]
        assert len(set(sentences)) == 3300
        # Some words become two, auxiliaries none: 3 of them; 1/4 of 60 verbs, 1/10 of 150 nouns.
        assert np.bincount([*map(len, toy.dictionary.values())]).tolist() == [3, 262, 30]
        assert not {*toy.dictionary} & {w for words in toy.dictionary.values() for w in words}
        # 0.80 to 0.82 with the seeds 0 to 5.
        moved = np.mean([s != t for links in toy.links["train"] for s, t in links])
        assert moved == pytest.approx(0.81, abs=0.02)
    assert toys[0].dictionary != toys[1].dictionary


# --- Alignment error rate


class Pieces:
    """A vocabulary of few pieces: the part of sentencepiece's interface that is asked for."""

    LIST = ("<pad>", "<s>", "</s>", "<unk>", "▁a", "b", "▁c", "▁", "▁X", "▁Y", "z")

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


def write_truth(folder: Path, links, words=(2, 2)) -> None:
    # The logs' only pair is the second of the file.
    content = {"words": {"val": [[9, 9], [*words]]}, "links": {"val": [[], links]}}
    write_json(folder / "data/mine/truth.json", content)


def test_alignment_error_rate_by_hand(folder, translation):
    """A of α is {X-ab, Yz-ab}, A of β {X-ab, Yz-c}."""
    rows = translation.alignment.alignment_rows
    logs = small_logs(ALPHA, BETA)
    assert rows("mine", logs, Pieces()) == []
    write_truth(folder, [[0, 0], [1, 1]])
    # α: 1 - 2 * 1 / (2 + 2); chance finds 1/2 + 1/2 of the two.
    expected = {"iteration": 0, "α of normal_A": 0.5, "β of uniform": 0.0, "chance": 0.5}
    assert rows("mine", logs, Pieces()) == [expected]
    cells = translation.alignment.true_cells("mine", logs, Pieces()).reshape(4, 5).astype(int)
    assert cells.tolist() == [[0, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 0], [0] * 5]
    # One link: α finds it, 1 - 2 * 1 / (2 + 1); β does not; chance half the time.
    write_truth(folder, [[0, 1]])
    [row] = rows("mine", logs, Pieces())
    assert [*row.values()] == pytest.approx([0, 1 / 3, 1, 2 / 3])
    [row] = rows("mine", small_logs(np.full((4, 5), np.nan), None), Pieces())
    assert row["α of normal_A"] is None and row["β of uniform"] is None


def test_words_of_pieces(translation):
    """A lone "▁" begins a word, and so does the first piece after <s> whatever it is."""
    for ids, words in (
        ([1, 7, 3, 5, 4, 2, 0, 0], [-1, 0, 0, 0, 1, -1, -1, -1]),
        ([1, 5, 6, 2], [-1, 0, 1, -1]),
    ):
        assert translation.alignment.words_of(np.array(ids), Pieces()).tolist() == words


@pytest.mark.parametrize(
    ("links", "words"),
    [([[2, 0]], (2, 2)), ([[0, -1]], (2, 2)), ([[0, 0]], (3, 2)), (None, (2, 2))],
)
def test_alignment_rejects_a_truth_that_does_not_fit_the_logs(folder, translation, links, words):
    write_truth(folder, links, words)
    with pytest.raises(InputError, match=r"data/mine/truth.json does not fit the logs of mine"):
        translation.alignment.alignment_rows("mine", small_logs(ALPHA, BETA), Pieces())
