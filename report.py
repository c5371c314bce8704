"""Show all results on one page, and write the generated blocks of the Markdown pages.

    python report.py                            write report/index.html
    python report.py --out_file /path/to/page.html
    python report.py --markdown                 write the generated blocks of the Markdown pages
    python report.py --check                    check that the blocks are up to date

Run it in the root of the repository. The page shows all that exists for the four experiments:
results of the collect scripts, figures, pages with a slider, records of runs, and the results that
come with the repository (results/). It is one HTML file that needs no network. Files that are
corrupt are left out and named, on the page too; the exit code is then 1.

Generated blocks stand in README.md, docs/ and results/ between <!-- generated: NAME --> and
<!-- end --> (attention_dynamics/reporting/blocks.py). --check exits with 1 if a block differs.
"""

import argparse
import sys
from pathlib import Path

try:
    from attention_dynamics.cli import RunError, run_script, script_parser
    from attention_dynamics.reporting.blocks import pages, update_blocks
    from attention_dynamics.reporting.report import write_report_text
    from attention_dynamics.reporting.results import check_root
    from attention_dynamics.storage.files import check_writable, write_text
except ModuleNotFoundError as error:
    sys.exit(
        f"report.py: error: {error.name} is not installed; activate the environment with: "
        "source .venv/bin/activate (bash run.sh and bash test.sh create it)"
    )


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--out_file", default="report/index.html", help="HTML file to write (default: %(default)s)"
    )
    task = parser.add_mutually_exclusive_group()
    task.add_argument("--markdown", action="store_true", help="write the Markdown pages instead")
    task.add_argument("--check", action="store_true", help="check the Markdown pages instead")
    args = parser.parse_args(argv)
    check_writable(args.out_file, beside=Path("results"))
    return args


def update_pages(only_check: bool) -> None:
    """Write the generated blocks of all pages; with ``only_check``, RunError if one differs."""
    texts = {page: update_blocks(page) for page in pages() if page.exists()}
    changed = [page for page, text in texts.items() if text != page.read_text(encoding="utf-8")]
    if changed and only_check:
        raise RunError(
            f"{', '.join(map(str, changed))}: generated blocks do not match the result files; see "
            "the differences with: python report.py --markdown && git diff"
        )
    for page in changed:
        write_text(page, texts[page])
    print(f"{len(texts)} pages, {len(changed)} changed")


def main(argv=None) -> None:
    args = parse_args(argv)
    check_root()
    if args.markdown or args.check:
        update_pages(args.check)
        return
    text, problems = write_report_text()
    write_text(args.out_file, text)
    print(args.out_file)
    for problem in problems:
        print(f"note: {problem}", file=sys.stderr)
    if problems:
        raise RunError(f"{len(problems)} file(s) left out; see the notes above")


if __name__ == "__main__":
    run_script(main)
