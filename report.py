"""Gather what has been found into one page, report/index.html.

    python report.py
    python report.py --out_file /path/to/page.html

Run it in the root of the repository. Reads, of the four experiments, whatever exists: results of
the collect scripts, figures and pages with a slider, and the records of runs; and the results that
come with the repository (results/). Writes one html file that needs no network and nothing beside
it: tables beside the papers' numbers, figures, where each number comes from, and for what is
missing the command that makes it. A file that is damaged is named, on the page too, and the rest is
shown; the exit code is then 1.
"""

import argparse
import sys
from pathlib import Path

from attention_dynamics.errors import WorkError, run_script
from attention_dynamics.files import check_writable, write_text
from attention_dynamics.options import script_parser
from attention_dynamics.reports import write_report_text


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--out_file", default="report/index.html", help="page to write (default: %(default)s)"
    )
    args = parser.parse_args(argv)
    check_writable(args.out_file, beside=Path("results"))
    return args


def main(argv=None) -> None:
    args = parse_args(argv)
    text, problems = write_report_text("python report.py")
    write_text(args.out_file, text)
    print(args.out_file)
    for problem in problems:
        print(f"note: {problem}", file=sys.stderr)
    if problems:
        raise WorkError(f"{len(problems)} file(s) could not be shown, see the notes above")


if __name__ == "__main__":
    run_script(main)
