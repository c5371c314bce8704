"""report.py: what is on the page, corrupt files, its layout in a browser; generated blocks."""

import fnmatch
import html.parser
import importlib.util
import json
import pickle
import re
import shutil
from pathlib import Path

import pytest
from conftest import GOLDEN, ROOT, assert_refused, run_script
from pages import dom_of

from attention_dynamics.cli import InputError
from attention_dynamics.reporting.blocks import pages, update_blocks
from attention_dynamics.reporting.report import write_report_text
from attention_dynamics.reporting.results import (
    EXPERIMENTS,
    authors_curve,
    authors_value,
    read_papers,
    read_results,
)
from attention_dynamics.reporting.sections import mean_drops
from attention_dynamics.storage.files import read_json, write_json, write_text
from attention_dynamics.storage.pickles import load_pickle

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 5"><title>toy, val</title></svg>'


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """A root with some results of all four experiments, as the scripts leave them."""
    for folder in ("classification", "translation", "SequenceCopying", "papa"):
        (tmp_path / folder).mkdir()
    shutil.copytree(ROOT / "results", tmp_path / "results")
    published = tmp_path / "classification" / "results" / "published.pkl"
    published.parent.mkdir()
    shutil.copy(GOLDEN / "classification" / "stats.pkl", published)
    write_text(tmp_path / "classification/figures/toy_val_top5.svg", SVG)
    write_text(tmp_path / "classification/figures/toy_val_top5.csv", "statistic\n")
    write_text(tmp_path / "classification/figures/toy_tokens.html", "<p>\"slider\" & 'quotes'</p>")
    for name, learned in (
        ("vocab40seq_length40bsize128no_rep", 1),
        ("vocab60seq_length40bsize128no_rep", 9),
    ):
        write_copying(tmp_path, name, learned)
    row = {"heads": 72, "share": 1.0, "seeds": 2, "score": 0.5, "score_std": 0.01}
    rows = [{**row, "epoch": e, "drop": 0.0625, "drop_std": 0.002} for e in ("last", "best")]
    described = {"model": "minilm", "task": "cola", "max_seq_length": 64, "num_heads": 72}
    one = {**described, "metric": "matthews_correlation", "rows": rows, "scores": {}}
    write_json(tmp_path / "papa/results/toy.json", {"minilm_cola": one})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_copying(root: Path, name: str, learned: int) -> None:
    row = {"setting": name, "reach 0.95": learned, "of": 10, "share": learned / 10}
    row |= {"low": 0.1, "high": 0.9, "mean acc at the end": 0.875}
    record = {
        "settings": {"seeds": [0, 1]}, "sha256": "0" * 64, "results": row, "commit": "c" * 40,
        "command": "seq2seq.py <script>alert(1)</script>", "versions": {"torch": "2.13.0"},
        "machine": "x86_64",
    }  # fmt: skip
    write_json(root / f"SequenceCopying/logs/{name}.json", record)


class Reader(html.parser.HTMLParser):
    """The page's cells by row, and what a careful reader looks for."""

    def __init__(self, text: str):
        super().__init__()
        self.rows, self.images, self.addresses, self.ids, self.headings = [], [], [], [], []
        self.titles, self.items = [], []  # texts of h3 and li
        self.row, self.in_cell, self.scripts, self.texts = None, False, 0, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.addresses += [attrs[name] for name in ("src", "href") if name in attrs]
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.scripts += tag == "script"
        if tag in ("h3", "li"):
            self.texts = self.titles if tag == "h3" else self.items
            self.texts.append("")
        if tag == "img":
            self.images.append(attrs)
        elif re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        elif tag == "tr":
            self.row = []
        elif tag in ("td", "th") and self.row is not None:
            self.row.append("")
            self.in_cell = True

    def handle_endtag(self, tag):
        if tag == "tr":
            self.rows.append(self.row)
            self.row = None
        elif tag in ("td", "th"):
            self.in_cell = False
        elif tag in ("h3", "li"):
            self.texts = None

    def handle_data(self, data):
        if self.in_cell:
            self.row[-1] += data
        elif self.texts is not None:
            self.texts[-1] += data

    def cells(self, begin: str) -> list[list[str]]:
        """The other cells of the rows whose first one begins with a word."""
        return [[*map(str.strip, row[1:])] for row in self.rows if row[0].split()[:1] == [begin]]


def page_text() -> str:
    """The page; nothing may be left out."""
    text, problems = write_report_text("python report.py")
    assert problems == []
    return text


def test_report_shows_the_results_next_to_the_authors(root):
    text = page_text()
    page = Reader(text)
    val = load_pickle("results/translation.pkl")["multi30k", "top 5% match", "val", "val_acc"]
    low, high = val["agr_unif_interval"]
    ours = f"{val['agr_unif']:.3f} [{low:.3f}, {high:.3f}]"
    assert [ours, "0.310"] in [cells[:2] for cells in page.cells("agr_unif")]
    assert [f"{val['best_perf']:.1f}", "66.3"] in [c[:2] for c in page.cells("best")]
    # Checkpoints that only one side has are rows too.
    assert ["-", "0.753"] in [cells[:2] for cells in page.cells("8000")]
    assert "paper" not in {cell for row in page.rows for cell in row[1:]}
    # The best performance next to xi is that of the runs that xi is read from, not the gold run's.
    assert f"their best is {max(val['alpha_perfs']):.1f}." in text
    assert f"{max(val['alpha_perfs']):.1f}" != f"{val['best_perf']:.1f}"
    assert read_json("results/classification.json")["note"] in text


def test_report_shows_results_of_the_published_code(root):
    page = Reader(page_text())
    golden = load_pickle("classification/results/published.pkl")
    golden = golden["Furd", "top 5% match", "val", "test_acc"]
    assert f"{golden['agr_unif']:.3f}" in [cells[0] for cells in page.cells("agr_unif")]


def test_report_counts_the_runs_that_learn_to_copy(root):
    text = page_text()
    rows = [[cell.strip() for cell in row] for row in Reader(text).rows]
    assert ["40 of 60", "9 of 10", "0.90 [0.10, 0.90]"] in [row[:3] for row in rows]
    assert "<li>40 of 60: 9 of 10 seeds learn to copy (accuracy at least 0.95 at any" in text
    assert ["40 of 40, 40 of 60", "0.0011"] in rows  # of [[1, 9], [9, 1]]


def test_report_tells_results_of_the_repository_from_those_made_here(root):
    titles = Reader(page_text()).titles
    for name in ("Furd", "Seeds that learn to copy"):
        assert titles.count(name) == 1
        assert titles.count(f"{name} (results that come with the repository)") == 1


def test_mean_drops_averages_the_tasks_of_each_model():
    def entry(model: str, task: str, drops: dict) -> dict:
        rows = [{"heads": h, "epoch": "last", "drop": drop} for h, drop in drops.items()]
        return {"model": model, "task": task, "num_heads": 72, "rows": rows}

    content = {
        "a": entry("minilm", "cola", {0: 0.0, 36: None, 72: 0.0625}),
        "b": entry("minilm", "rte", {0: 0.0, 36: 0.5, 72: -0.0004}),
        "c": entry("minilm", "ner", {0: 0.0, 36: 0.5, 72: 0.0425}),
        "d": entry("other", "cola", {0: 0.0, 36: 0.25}),
        "e": entry("twice", "cola", {36: 0.25}),
        "f": entry("twice", "cola", {36: 0.75}),
    }
    assert [
        (row["model"], row["heads"], row["tasks"], row["drop"]) for row in mean_drops(content)
    ] == [
        ("minilm", 72, 3, pytest.approx((0.0625 - 0.0004 + 0.0425) / 3)),
        ("other", 36, 1, 0.25),
    ]


def test_report_writes_no_minus_before_zero(root):
    content = read_json("papa/results/toy.json")
    for task, drop in (("rte", -0.0004), ("wnut17_ner", 0.0425)):
        one = content["minilm_cola"]
        rows = [{**row, "drop": drop} for row in one["rows"]]
        content[f"minilm_{task}"] = {**one, "task": task, "rows": rows}
    write_json("papa/results/toy.json", content)
    text = page_text()
    # (6.25 - 0.04 + 4.25) / 3 = 3.487
    assert "relative drop of the score 3.5% (mean of 3 tasks, 0.0% to 6.2%)" in text
    assert "-0.0%" not in text and "-0.0 ±" not in text


def test_report_is_self_contained_and_well_formed(root):
    text = page_text()
    page = Reader(text)
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    assert not re.search(r"url\(|@import|https?://", re.sub(r"srcdoc=\"[^\"]*\"", "", text))
    assert page.images and all(image["alt"].strip() for image in page.images)
    assert len(page.ids) == len(set(page.ids))
    assert all(f'id="{a[1:]}"' in text for a in page.addresses if a[:1] == "#")
    assert page.headings[0] == 1 and page.headings.count(1) == 1
    steps = [b - a for a, b in zip(page.headings, page.headings[1:], strict=False)]
    assert max(steps) <= 1  # no level is skipped
    assert '<html lang="en">' in text and re.search("<title>[^<]{10,}</title>", text)
    assert page.scripts == 1  # the command of a record is text, whatever it contains
    assert "seq2seq.py &lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert 'srcdoc="&lt;p&gt;&#34;slider&#34; &amp; &#39;quotes&#39;&lt;/p&gt;"' in text
    assert page_text() == text  # the same bytes


def test_report_of_a_fresh_clone_shows_the_results_of_the_repository(root):
    for folder in EXPERIMENTS:
        shutil.rmtree(root / folder)
        (root / folder).mkdir()
    page = Reader(page_text())
    shipped = {path.name for path in Path("results").glob("*.svg")} - {"own_model_val_top5.svg"}
    assert len(page.images) == len(shipped)
    shutil.rmtree(root / "results")
    assert page_text().count("No results yet.") == len(EXPERIMENTS)


CORRUPT = {
    "results/copying.json": b'{"settings": [{}]}',
    "results/multihead.json": b'{"results": {"shares": [{}]}}',
    "classification/results/published.pkl": b"\x80\x05broken",
    "translation/results/odd.pkl": pickle.dumps({"a": 1}),
    "classification/figures/toy_val_top5.svg": b"<svg><g></svg>",
    "SequenceCopying/logs/vocab40seq_length40bsize128no_rep.json": b"{",
    "SequenceCopying/logs/other.json": b'{"results": {}, "command": "x"}',
    "papa/results/toy.json": b'{"minilm_cola": {"rows": [{}]}}',
}


@pytest.mark.parametrize("corrupt", CORRUPT)
def test_report_leaves_out_a_corrupt_file_only(root, corrupt):
    intact = Reader(page_text()).titles
    (root / corrupt).parent.mkdir(exist_ok=True)
    (root / corrupt).write_bytes(CORRUPT[corrupt])
    text, (problem,) = write_report_text("python report.py")
    assert corrupt in problem
    assert text.count("<b>Left out:</b>") == 1
    assert len(set(intact) - set(Reader(text).titles)) <= 1


def test_report_script_writes_the_page_and_names_what_it_leaves_out(root):
    process = run_script("report.py", cwd=root)
    assert process.returncode == 0, process.stderr
    assert process.stdout == "report/index.html\n"
    assert (root / "report/index.html").read_text() == page_text()
    (root / "papa/results/toy.json").write_text("{")
    process = run_script("report.py", "--out_file", "page.html", cwd=root)
    assert process.returncode == 1
    assert process.stderr.splitlines()[0].startswith("note: results papa/results/toy.json is malf")
    assert process.stderr.splitlines()[1].startswith("report.py: failed: 1 file(s)")
    (root / "empty").mkdir()
    assert_refused(run_script("report.py", cwd=root / "empty"), "go to the root of the repository")


def test_report_does_not_scroll_sideways_at_two_widths(root, tmp_path):
    # The page itself reports, from inside frames of both widths, by how much it is wider.
    report = (
        "<script>const root = document.documentElement;"
        "parent.postMessage([innerWidth, root.scrollWidth - root.clientWidth], '*')"
    )
    write_text(tmp_path / "page.html", page_text().replace("</body>", f"{report}</script></body>"))
    frames = "".join(f'<iframe src="page.html" width="{w}"></iframe>' for w in (1280, 390))
    listener = "onmessage = (e) => { document.title += ` ${e.data[0]}:${e.data[1]}`; }"
    style = "<style>iframe { border: 0 }</style>"
    write_text(
        tmp_path / "frames.html", f"<title>w</title>{style}<script>{listener}</script>{frames}"
    )
    dom = dom_of((tmp_path / "frames.html").as_uri(), tmp_path / "profile")
    widths = re.search("<title>w([^<]*)", dom)[1].split()
    assert sorted(widths) == ["1280:0", "390:0"]


def test_papers_gives_a_source_for_each_number():
    papers = read_papers()
    for entry in (*papers["runs"], papers["papa"], *papers["findings"].values()):
        assert len(entry["source"]) > 20
        assert "results/" not in entry["source"]
    assert set(papers["findings"]) == set(EXPERIMENTS)


def test_authors_value_depends_on_the_performance_only_for_performances():
    key = ("multi30k", "top 5% match", "val")
    assert authors_value((*key, "val_acc"), "xi_unif") == 43.4
    assert authors_value((*key, "val_bleu"), "xi_unif") == 11.4
    assert authors_value((*key, "val_bleu"), "agr_unif") == 0.31
    assert authors_value(("multi30k", "kendall tau", "val", "val_acc"), "agr_unif") is None
    assert authors_curve((*key, "val_acc"))[8000] == 0.753


def test_read_results_rejects_other_pickles(tmp_path):
    for content in ({}, [1], {"a": 1}, {("Furd", "tau", "val", "acc"): {"agr_unif": 1}}):
        (tmp_path / "stats.pkl").write_bytes(pickle.dumps(content))
        with pytest.raises(InputError, match="not written by a collect script"):
            read_results(tmp_path / "stats.pkl")


# --- generated blocks ---

GLANCE = "<!-- generated: results-at-a-glance -->"


def block(call: str) -> str:
    return f"<!-- generated: {call} -->\n<!-- end -->"


@pytest.mark.parametrize("page", [ROOT / page for page in pages()], ids=lambda page: page.name)
def test_pages_match_the_result_files(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert update_blocks(page) == page.read_text()


@pytest.fixture
def page(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(ROOT)
    return tmp_path / "page.md"


def test_update_blocks_writes_the_numbers_of_the_files(page):
    page.write_text(f"Before\n\n{GLANCE}\noutdated\n<!-- end -->\n\nAfter\n")
    text = update_blocks(page)
    assert text.startswith(f"Before\n\n{GLANCE}\n\n| experiment")
    assert text.endswith("|\n\n<!-- end -->\n\nAfter\n") and "outdated" not in text
    val = load_pickle("results/translation.pkl")["multi30k", "top 5% match", "val", "val_acc"]
    (row,) = (
        [cell.strip() for cell in line.split("|")[3:5]]
        for line in text.splitlines()
        if "multi30k | agreement" in line
    )
    low, high = val["agr_unif_interval"]
    assert row == [f"{val['agr_unif']:.3f} [{low:.3f}, {high:.3f}]", "0.310"]
    page.write_text(text)
    assert update_blocks(page) == text


def test_update_blocks_accepts_results_of_the_published_code(page):
    file = "tests/golden/classification/stats.pkl"
    golden = load_pickle(file)["Furd", "top 5% match", "val", "test_acc"]
    page.write_text(f"{block(f'levels {file} acc')}\n{block(f'curves {file} acc')}\n")
    lines = [[c.strip() for c in line.split("|")] for line in update_blocks(page).splitlines()]
    rows = [cells[1:3] for cells in lines if len(cells) > 2]
    assert ["agr_unif", f"{golden['agr_unif']:.3f}"] in rows
    assert ["baseline (exact)", "-"] in rows
    first = golden["iterations"][0]
    assert [str(first), f"{golden['alpha_corrs'][0]:.3f}"] in rows


@pytest.mark.parametrize(
    "text, message",
    [
        (f"{GLANCE}\n", "a generated block is malformed"),
        (f"{GLANCE} and more\n<!-- end -->", "a generated block is malformed"),
        (block("odd"), "unknown generated block odd"),
        (block("levels"), "wrong arguments"),
        (block("levels results/none.pkl acc"), "results results/none.pkl does not exist"),
        (block("levels results/classification.pkl bleu"), "has no results with bleu"),
        (block("levels results/translation.pkl acc odd"), "has no results with acc and odd"),
        (block("copying results/papa.json"), "not what the scripts of SequenceCopying write"),
    ],
)
def test_update_blocks_names_the_page_and_the_block(page, text, message):
    page.write_text(text)
    with pytest.raises(InputError, match=f"{re.escape(str(page))}: .*{re.escape(message)}"):
        update_blocks(page)


def test_report_checks_and_writes_the_pages(root):
    (root / "README.md").write_text(f"{block('results-at-a-glance')}\n")
    process = run_script("report.py", "--check", cwd=root)
    assert process.returncode == 1
    assert "README.md: generated blocks do not match the result files" in process.stderr
    process = run_script("report.py", "--markdown", cwd=root)
    assert process.stdout == f"{1 + len([*Path('results').glob('*.md')])} pages, 1 changed\n"
    assert run_script("report.py", "--check", cwd=root).returncode == 0


def test_departures_name_tests_that_exist():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    names = set(re.findall(r"def (test_\w+)", tests))
    departures = read_json(ROOT / "results/departures.json")["departures"]
    assert [departure["number"] for departure in departures] == [*range(1, len(departures) + 1)]
    for departure in departures:
        for pattern in departure["test"].split(", "):
            assert fnmatch.filter(names, pattern), (departure["number"], pattern)


@pytest.mark.parametrize(
    "page", sorted((ROOT / "benchmarks/results").glob("*.md")), ids=lambda page: page.stem
)
def test_benchmark_pages_match_the_json_next_to_them(page):
    spec = importlib.util.spec_from_file_location("measure", ROOT / "benchmarks" / "measure.py")
    measure = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(measure)
    results = json.loads(page.with_suffix(".json").read_text())
    assert page.read_text() == measure._markdown(results)
