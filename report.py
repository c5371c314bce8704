"""Gather what has been found into one page, report/index.html.

    python report.py
    python report.py --out_file /path/to/page.html
    python report.py --markdown            rewrite the numbers in README.md and results/*.md
    python report.py --check               only say whether they are as the result files have them

Run it in the root of the repository. Reads, of the four experiments, whatever exists: results of
the collect scripts, figures and pages with a slider, and the records of runs; and the results that
come with the repository (results/). Writes one html file that needs no network and nothing beside
it: tables beside the papers' numbers, figures, where each number comes from, and for what is
missing the command that makes it. A file that is damaged is named, on the page too, and the rest is
shown; the exit code is then 1.

Tables and numbers in Markdown pages are marked by comments
(attention_dynamics/reporting/quotes.py),
which say the result file and the statistic they come from. --check ends with exit code 1 when one
differs.
"""

import argparse
import sys
from pathlib import Path

from attention_dynamics.cli import RunError, run_script, script_parser
from attention_dynamics.reporting.inventory import check_root
from attention_dynamics.reporting.quotes import rewritten
from attention_dynamics.reporting.report import write_report_text
from attention_dynamics.storage.files import check_writable, write_text


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--out_file", default="report/index.html", help="page to write (default: %(default)s)"
    )
    task = parser.add_mutually_exclusive_group()
    task.add_argument("--markdown", action="store_true", help="rewrite the Markdown pages instead")
    task.add_argument("--check", action="store_true", help="compare the Markdown pages instead")
    args = parser.parse_args(argv)
    check_writable(args.out_file, beside=Path("results"))
    return args


def rewrite_pages(only_check: bool) -> None:
    """Bring README.md and results/*.md up to date; with ``only_check``, RunError if not so."""
    check_root()
    pages = [Path("README.md"), *sorted(Path("results").glob("*.md"))]
    texts = {page: rewritten(page) for page in pages}
    changed = [page for page, text in texts.items() if text != page.read_text(encoding="utf-8")]
    if changed and only_check:
        raise RunError(
            f"{', '.join(map(str, changed))}: not as the result files say; see what changes with: "
            "python report.py --markdown && git diff"
        )
    for page in changed:
        write_text(page, texts[page])
    print(f"{len(pages)} pages, {len(changed)} changed")


def main(argv=None) -> None:
    args = parse_args(argv)
    if args.markdown or args.check:
        rewrite_pages(args.check)
        return
    text, problems = write_report_text("python report.py")
    write_text(args.out_file, text)
    print(args.out_file)
    for problem in problems:
        print(f"note: {problem}", file=sys.stderr)
    if problems:
        raise RunError(f"{len(problems)} file(s) could not be shown, see the notes above")


if __name__ == "__main__":
    run_script(main)
