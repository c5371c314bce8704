"""report.py: what is on the page, damaged files, looks in a browser; numbers in Markdown pages."""

import html.parser
import importlib.util
import json
import pickle
import re
import shutil
import warnings
from pathlib import Path

import pytest
from conftest import GOLDEN, ROOT, assert_refused, run_script
from test_figures import browser, dom_of

from attention_dynamics.cli import InputError
from attention_dynamics.reporting import quotes
from attention_dynamics.reporting import report as reports
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
    write_text(tmp_path / "classification/figures/toy_val_top5.csv", "quantity\n")
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


def test_our_numbers_stand_beside_the_papers(root):
    text, problems = reports.write_report_text("python report.py")
    assert problems == []
    page = Reader(text)
    results = load_pickle("results/translation.pkl")
    val = results["multi30k", "top 5% match", "val", "val_acc"]
    train = results["multi30k", "top 5% match", "train", "train_acc"]
    low, high = val["agr_unif_interval"]
    ours = f"{val['agr_unif']:.3f} [{low:.3f}, {high:.3f}]"
    row = next(cells for cells in page.cells("agr_unif") if ours in cells)
    assert row[1] == "0.310"
    assert row[2].startswith(f"{train['agr_unif']:.3f} [")
    best = next(cells for cells in page.cells("best_perf") if "66.3" in cells)
    assert best == [f"{val['best_perf']:.1f}", "66.3", f"{train['best_perf']:.1f}"]
    # Steps that only one of the two has stand there too.
    assert [cells for cells in page.cells("8000") if "0.753" in cells]
    assert [cells for cells in page.cells("7251") if f"{val['alpha_corrs'][-1]:.3f}" in cells]
    # Results of the published code have no intervals.
    golden = load_pickle("classification/results/published.pkl")
    golden = golden["Furd", "top 5% match", "val", "test_acc"]
    assert [c for c in page.cells("agr_unif") if c[0] == f"{golden['agr_unif']:.3f}"]
    # What a record remarks on its results is not kept back.
    assert read_json("results/classification.json")["note"] in text
    # Sequence copying and PAPA.
    assert ["40 of 60", "9 of 10"] in [row[:2] for row in page.rows]
    assert "<li>40 of 60: 9 of 10 seeds learn to copy.</li>" in text
    assert "Fisher&#39;s exact test gives p = 0.0011" in text  # of [[1, 9], [9, 1]]
    assert ["1", "6.2%", "–", "about 8%"] in page.cells("minilm")
    # A random order is that of the papers, which is drawn.
    assert f"{val['baseline']:.3f}" != f"{val['baseline_exact']:.3f}"
    assert f"(top 5% match; random order: {val['baseline']:.3f})" in text


def test_what_comes_with_the_repository_is_told_from_what_was_made_here(root):
    page = Reader(reports.write_report_text("python report.py")[0])
    comes = " (comes with the repository)"
    for name in ("Furd", "Learning to copy"):
        assert page.titles.count(name) == page.titles.count(name + comes) == 1
    assert "Good and bad heads" + comes in page.titles
    assert "minilm_cola" in page.titles
    assert ", ".join(read_json("results/papa.json")) + comes in page.titles
    begins = [re.split(":| loses", line)[0] for line in page.items]
    for name in ("Furd", "40 of 40", "40 of 60", "40 of 40 against 40 of 60", "minilm"):
        assert begins.count(name) == begins.count(name + comes) == 1
    assert "8 bad heads" + comes in begins


def test_drops_have_their_range_and_zero_no_sign(root):
    content = read_json("papa/results/toy.json")
    for task, drop in (("rte", -0.0004), ("wnut17_ner", 0.0425)):
        one = content["minilm_cola"]
        rows = [{**row, "drop": drop} for row in one["rows"]]
        content[f"minilm_{task}"] = {**one, "task": task, "rows": rows}
    write_json("papa/results/toy.json", content)
    text, _ = reports.write_report_text("python report.py")
    # (6.25 - 0.04 + 4.25) / 3 = 3.487
    assert "minilm loses 3.5% of its score (mean over 3 tasks, from 0.0% to 6.2%) when" in text
    page = Reader(text)
    assert ["3", "3.5%", "0.0% to 6.2%", "about 8%"] in page.cells("minilm")
    assert any("0.0 ± 0.2%" in cells for cells in page.cells("72"))
    assert "-0.0%" not in text and "-0.0 ±" not in text


def test_a_narrow_screen_is_told_that_figures_scroll(root):
    text, _ = reports.write_report_text("python report.py")
    (rule,) = re.findall(r"@media screen and \(max-width: 599px\) \{(.*?)\n\}", text, re.S)
    hint = '" (wider than the screen: scroll it sideways)"'
    assert rule.strip() == f"figcaption::after {{ content: {hint}; }}"


def test_the_page_needs_nothing_else_and_is_well_formed(root):
    text, _ = reports.write_report_text("python report.py")
    page = Reader(text)
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    assert not re.search(r"url\(|@import|https?://", re.sub(r"srcdoc=\"[^\"]*\"", "", text))
    assert page.images and all(image["alt"].strip() for image in page.images)
    assert len(page.ids) == len(set(page.ids))
    assert all(f'id="{a[1:]}"' in text for a in page.addresses if a[:1] == "#")
    assert page.headings[0] == 1 and page.headings.count(1) == 1
    steps = [b - a for a, b in zip(page.headings, page.headings[1:], strict=False)]
    assert max(steps) <= 1  # no level is jumped over
    assert '<html lang="en">' in text and re.search("<title>[^<]{10,}</title>", text)
    assert page.scripts == 1  # the command of a record is text, whatever it holds
    assert "seq2seq.py &lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert 'srcdoc="&lt;p&gt;&#34;slider&#34; &amp; &#39;quotes&#39;&lt;/p&gt;"' in text
    assert reports.write_report_text("python report.py")[0] == text  # the same bytes


def test_what_is_missing_stands_there_with_its_command(root):
    entry = {"name": "normal_A", "iteration": 0, "seed": 20, "uniform": False}
    write_json(root / "classification/configs/mine_log.json", [entry])
    write_json(root / "classification/data/mine_train.json", {})
    write_json(root / "classification/data/mine_test.json", {})
    write_json(root / "classification/configs/other_log.json", [entry])
    text, _ = reports.write_report_text("python report.py")
    commands = [row[3] for row in Reader(text).rows if row[0] == "mine"]
    assert "cd classification && python logistic_beta.py --dataset mine" in commands
    assert "cd classification && DATASETS=mine bash dump_logs.sh" in commands
    assert "Not run in this copy: other." in text
    # A setting of copying stands there once, though its figure is missing too.
    shutil.rmtree(root / "SequenceCopying/logs")
    text, _ = reports.write_report_text("python report.py")
    assert "Not run in this copy: 40 of 40, 40 of 60, re_8headcomb, toy classifier." in text


def test_what_comes_with_the_repository_is_on_the_page(root):
    """A fresh clone: nothing has been run, and the page shows results/ all the same."""
    for folder in ("classification", "translation", "SequenceCopying", "papa"):
        shutil.rmtree(root / folder)
        (root / folder).mkdir()
    text, problems = reports.write_report_text("python report.py")
    page = Reader(text)
    assert problems == []
    assert len(page.images) == len([*Path("results").glob("*.svg")])
    settings = read_json(Path("results/copying.json"), "results")["settings"]
    for row in settings:
        name = {"vocab40": "40 of 40", "vocab60": "40 of 60"}[row["setting"][:7]]
        count = f"{row['reach 0.95']} of {row['of']}"
        assert [cells[1] for cells in page.rows if cells[0] == name] == [count]
    shares = read_json(Path("results/multihead.json"), "record")["results"]["shares"]
    of_heads = [row for row in page.rows if row[0].strip() in {s["setting"] for s in shares}]
    assert [row[1].strip() for row in of_heads] == [
        f"{row['exceed 0.95']} of {row['of']}" for row in shares
    ]


DAMAGE = {
    "results/copying.json": b'{"settings": [{}]}',
    "results/multihead.json": b'{"results": {"shares": [{}]}}',
    "classification/results/published.pkl": b"\x80\x05broken",
    "translation/results/odd.pkl": pickle.dumps({"a": 1}),
    "classification/figures/toy_val_top5.svg": b"<svg><g></svg>",
    "SequenceCopying/logs/vocab40seq_length40bsize128no_rep.json": b"{",
    "SequenceCopying/logs/other.json": b'{"results": {}, "command": "x"}',
    "papa/results/toy.json": b'{"minilm_cola": {"rows": [{}]}}',
}


@pytest.mark.parametrize("damaged", DAMAGE)
def test_a_damaged_file_costs_its_own_part_only(root, damaged):
    (root / damaged).parent.mkdir(exist_ok=True)
    (root / damaged).write_bytes(DAMAGE[damaged])
    text, problems = reports.write_report_text("python report.py")
    assert problems and all(damaged in problem for problem in problems)
    assert text.count("<b>Left out:</b>") == len(problems)
    assert "0.301 [0.293, 0.308]" in text  # the rest is there


def test_the_script(root):
    process = run_script("report.py", cwd=root)
    assert process.returncode == 0, process.stderr
    assert process.stdout == "report/index.html\n"
    assert (root / "report/index.html").read_text() == reports.write_report_text(
        "python report.py"
    )[0]
    (root / "papa/results/toy.json").write_text("{")
    process = run_script("report.py", "--out_file", "page.html", cwd=root)
    assert process.returncode == 1
    assert process.stderr.splitlines()[0].startswith("note: results papa/results/toy.json is malf")
    assert process.stderr.splitlines()[1].startswith("report.py: failed: 1 file(s)")
    assert "9 of 10" in (root / "page.html").read_text()
    (root / "empty").mkdir()
    assert_refused(run_script("report.py", cwd=root / "empty"), "go to the root of the repository")


def test_no_horizontal_scroll_at_two_widths(root, tmp_path):
    if browser() is None:
        warnings.warn("no Chromium here: the page was NOT opened in a browser", stacklevel=1)
        return
    text, _ = reports.write_report_text("python report.py")
    # The page itself reports, from inside frames of both widths, by how much it is wider.
    report = (
        "<script>const root = document.documentElement;"
        "parent.postMessage([innerWidth, root.scrollWidth - root.clientWidth], '*')"
    )
    write_text(tmp_path / "page.html", text.replace("</body>", f"{report}</script></body>"))
    frames = "".join(f'<iframe src="page.html" width="{w}"></iframe>' for w in (1280, 390))
    listener = "onmessage = (e) => { document.title += ` ${e.data[0]}:${e.data[1]}`; }"
    style = "<style>iframe { border: 0 }</style>"
    write_text(
        tmp_path / "frames.html", f"<title>w</title>{style}<script>{listener}</script>{frames}"
    )
    dom = dom_of((tmp_path / "frames.html").as_uri(), tmp_path / "profile")
    widths = re.search("<title>w([^<]*)", dom)[1].split()
    assert sorted(widths) == ["1280:0", "390:0"]


def test_each_number_of_the_papers_has_a_source():
    papers = reports.read_papers()
    for number in papers["numbers"] + papers["findings"]:
        assert len(number["source"]) > 20
        assert number["experiment"] in reports.TITLES


# Numbers in Markdown pages.

PAGES = [ROOT / "README.md", *sorted((ROOT / "results").glob("*.md"))]
COMMENT = (
    "<!-- = results/translation.pkl multi30k / top 5% match / val / val_acc / agr_unif .3f -->"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_say_what_the_result_files_say(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = page.read_text()
    assert "<!-- = " in text or "<!-- tables: " in text
    assert quotes.rewritten(page) == text


def test_a_number_that_differs_is_mended(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = tmp_path / "page.md"
    percent = COMMENT.replace("agr_unif .3f", "agr_unif .1%")
    page.write_text(f"It is 0.999{COMMENT}, or 5{percent}%.\n")
    assert quotes.rewritten(page) == f"It is 0.301{COMMENT}, or 30.1{percent}%.\n"
    (tmp_path / "file.json").write_text(
        '{"rows": [{"a b": 1}, {"a b": 2.25, "c": "3", "d": true}]}'
    )
    of_file = f"<!-- = {tmp_path}/file.json rows / 1 / a b .1f -->"
    page.write_text(f"It is 9{of_file}.")
    assert quotes.rewritten(page) == f"It is 2.2{of_file}."
    table = f"<!-- tables: {tmp_path}/file.json | rows | rows -->"
    page.write_text(f"{table}\n<!-- end -->")
    lines = quotes.rewritten(page).splitlines()
    assert [line.replace(" ", "") for line in lines[2:5]] == ["|ab|", "|-------|", "|1|"]
    page.write_text(f"{table.replace('rows -->', 'none -->')}\n<!-- end -->")
    with pytest.raises(InputError, match="has no list of rows none"):
        quotes.rewritten(page)
    for missing in ("rows / 1 / c", "rows / 1 / d", "rows / 2 / c", "rows / x", "rows", "none / 1"):
        page.write_text(f"It is 9{of_file.replace('rows / 1 / a b', missing)}.")
        with pytest.raises(InputError, match=f"has no number {missing}"):
            quotes.rewritten(page)


@pytest.mark.parametrize(
    "text, message",
    [
        (f"1{COMMENT.replace('.3f', '')}", "is not of the form"),
        (f"one{COMMENT}", "is not of the form"),
        (
            f"1{COMMENT.replace('agr_unif', 'agr_none')}",
            "has no number multi30k / top 5% match / val / val_acc / agr_none",
        ),
        (f"1{COMMENT.replace('results/', '')}", "results translation.pkl does not exist"),
        ("<!-- tables: results/translation.pkl | acc | top 5% match -->\n", "is not of the form"),
        ("<!-- tables: results/translation.pkl | acc | odd -->\n<!-- end -->", "nothing of acc"),
        (
            "<!-- tables: results/classification.pkl | bleu | top 5% match -->\n<!-- end -->",
            "of bleu",
        ),
    ],
)
def test_comments_that_cannot_be_followed(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(ROOT)
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(InputError, match=re.escape(message)):
        quotes.rewritten(page)


def test_check_and_markdown(root):
    (root / "README.md").write_text(f"0.3{COMMENT}\n")
    process = run_script("report.py", "--check", cwd=root)
    assert process.returncode == 1
    assert "README.md: not as the result files say" in process.stderr
    process = run_script("report.py", "--markdown", cwd=root)
    pages = 1 + len([*(ROOT / "results").glob("*.md")])
    assert process.stdout == f"{pages} pages, 1 changed\n"
    assert (root / "README.md").read_text() == f"0.301{COMMENT}\n"


@pytest.mark.parametrize(
    "page", sorted((ROOT / "benchmarks/results").glob("*.md")), ids=lambda page: page.stem
)
def test_benchmark_pages_say_what_the_json_beside_them_says(page):
    spec = importlib.util.spec_from_file_location("measure", ROOT / "benchmarks" / "measure.py")
    measure = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(measure)
    results = json.loads(page.with_suffix(".json").read_text())
    assert page.read_text() == measure._markdown(results)
