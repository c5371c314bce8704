"""What is there, and whether it is sound.

    python -m attention_dynamics status     which data, runs, dumps, baselines and results exist
    python -m attention_dynamics verify     is the installation, and what was made, sound?

Both run in the root of the repository. status prints, for each data set of each experiment, which
steps are done, missing, incomplete, stale (older than what they were made from, or made from other
data) or damaged, and what to run next. verify compares the packages with requirements.txt, computes
the checksums in records anew, and recomputes the golden values of the published code in
tests/golden (less than a minute). Exit code 0: sound; 1: something is not, each thing named on a
line of its own.
"""

import argparse
import sys

from attention_dynamics.errors import WorkError, run_script
from attention_dynamics.inventory import (
    DAMAGED,
    DONE,
    INCOMPLETE,
    MISSING,
    STALE,
    Step,
    inventory,
    next_steps,
)  # fmt: skip
from attention_dynamics.options import script_parser
from attention_dynamics.soundness import environment_problems, file_problems, golden_problems
from attention_dynamics.tables import format_table

_MARKS = {DONE: "done", MISSING: "-", INCOMPLETE: "part", STALE: "STALE", DAMAGED: "DAMAGED"}


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.prog = "python -m attention_dynamics"
    parser.add_argument("command", choices=("status", "verify"), help="what to do")
    return parser.parse_args(argv)


def status_text(steps: list[Step]) -> str:
    """A table per experiment, what is not in order in words, and what to run next."""
    blocks = []
    for folder in dict.fromkeys(step.folder for step in steps):
        own = [step for step in steps if step.folder == folder]
        names = list(dict.fromkeys(step.what for step in own))
        rows = {}
        for step in own:
            row = rows.setdefault(step.dataset, {folder: step.dataset, **dict.fromkeys(names)})
            row[step.what] = _MARKS[step.state]
        blocks.append(format_table([*rows.values()]))
    notes = [
        f"  {step.folder}, {step.dataset}, {step.what}: {step.state}, {step.detail}"
        for step in steps
        if step.state not in (DONE, MISSING)
    ]
    if notes:
        blocks.append("\n".join(["Not in order:", *notes]))
    following = [f"  {step.dataset}: {step.command}" for step in next_steps(steps)]
    if following:
        blocks.append("\n".join(["Next:", *following]))
    elif all(step.state == MISSING for step in steps):
        blocks.append("Nothing has been run yet. Next:\n  bash run.sh")
    return "\n\n".join(blocks)


def verify() -> None:
    """Print what was checked; WorkError when anything is not sound."""
    found = 0
    for what, check in (
        ("environment", environment_problems),
        ("checksums", file_problems),
        ("golden values", golden_problems),
    ):
        problems, checked = check()
        print(f"{what}: {checked}, {'all as they should be' if not problems else 'NOT sound:'}")
        for problem in problems:
            print(f"  {problem}")
        sys.stdout.flush()
        found += len(problems)
    if found:
        raise WorkError(f"{found} thing(s) not as they should be, see above")
    print("sound")


def main(argv=None) -> None:
    args = parse_args(argv)
    if args.command == "status":
        print(status_text(inventory()))
    else:
        verify()


if __name__ == "__main__":
    run_script(main)
