"""The command line of a script: its docstring is its help, its errors are one line."""

import argparse
import sys
from typing import NoReturn

from attention_dynamics.errors import InputError, one_line

# More files than a folder, or a list in memory, should hold.
MOST_CHECKPOINTS = 10**5


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, one_line(f"{self.prog}: error: {message} (see --help)") + "\n")


def script_parser(description: str) -> argparse.ArgumentParser:
    """A parser whose help begins with the script's docstring, kept as it is written."""
    return _Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def count(text: str) -> int:
    """The type of an option that counts things: a whole number from 1 to 1e9."""
    if not text.isdecimal() or len(text) > 10 or not 1 <= int(text) <= 10**9:
        raise argparse.ArgumentTypeError(f"must be at least 1 (and at most 1e9), not {text}")
    return int(text)


def step_list(text: str) -> list[int]:
    """The type of ``--custom_saves``: steps written as 0,10,50."""
    try:
        steps = [int(step) for step in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"steps look like 0,10,50, not {text!r}") from None
    if min(steps) < 0:
        raise argparse.ArgumentTypeError(f"a step cannot be negative: {min(steps)}")
    return steps


def steps_to_save(steps: int, save_every: int, custom_saves: list[int] | None) -> list[int]:
    """The steps below ``steps`` that keep a checkpoint, rising; the last one always does.

    Custom ones beyond the last step are left out, with a note on stderr. Raises InputError for more
    than ``MOST_CHECKPOINTS``.
    """
    if steps // save_every > MOST_CHECKPOINTS:
        raise InputError(
            f"{steps:,} steps with --save_every {save_every} keep more than {MOST_CHECKPOINTS:,} "
            "checkpoints: give a larger --save_every, or train for less"
        )
    beyond = [step for step in custom_saves or [] if step >= steps]
    if beyond:
        print(
            f"note: --custom_saves {','.join(map(str, beyond))} lie beyond the last step, "
            f"{steps - 1}",
            file=sys.stderr,
        )
    return sorted({*range(0, steps, save_every), steps - 1, *(custom_saves or [])} - {*beyond})
