"""What exists.

    python -m attention_dynamics status     which data, runs, dumps, baselines and results exist

Run it in the root of the repository. It prints, for each dataset of each experiment, which steps
are done, missing, incomplete, stale (older than what they were made from, or made from other data)
or damaged, and what to run next.
"""

import argparse

from attention_dynamics.cli import run_script, script_parser
from attention_dynamics.reporting.inventory import (
    DAMAGED,
    DONE,
    INCOMPLETE,
    MISSING,
    STALE,
    Step,
    inventory,
    next_steps,
)
from attention_dynamics.reporting.tables import format_table

_MARKS = {DONE: "done", MISSING: "-", INCOMPLETE: "part", STALE: "STALE", DAMAGED: "DAMAGED"}


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.prog = "python -m attention_dynamics"
    parser.add_argument("command", choices=("status",), help="what to do")
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


def main(argv=None) -> None:
    parse_args(argv)
    print(status_text(inventory()))


if __name__ == "__main__":
    run_script(main)
