"""The command line of a script: parser, option types, errors, exit codes.

Exit codes: 0 success, 1 a failure at run time, 2 a usage or input error, 130 interrupted, 143
terminated.
"""

import argparse
import io
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn


class InputError(Exception):
    """A wrong input: the message says what is wrong, where, and what to do about it."""


class RunError(Exception):
    """A failure at run time, not of the input: the message says what went wrong."""


class Terminated(BaseException):
    """Raised on SIGTERM; an exception, so that unfinished files are removed."""


def run_script(main: Callable[[], object]) -> None:
    """Run a script's ``main``; errors that a user can cause end in one line on stderr."""
    name = os.path.basename(sys.argv[0])
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for terminals without Greek letters
    try:
        signal.signal(signal.SIGTERM, terminate)
        check_library()
        main()
    except InputError as error:
        _end(f"{name}: error: {error}", 2)
    except RunError as error:
        _end(f"{name}: failed: {error}", 1)
    except BrokenPipeError:
        sys.stdout = None  # the reader (head, less) has closed the pipe
        sys.exit(1)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _end(f"{name}: failed: {error.strerror or error}{where}", 1)
    except (MemoryError, RuntimeError) as error:
        text = str(error)
        if isinstance(error, RuntimeError) and not re.search("allocat|out of memory", text, re.I):
            raise  # a bug of ours: show the traceback
        _end(f"{name}: failed: out of memory ({text[:160]})", 1)
    except KeyboardInterrupt:
        _end(f"{name}: interrupted", 130)
    except Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end(f"{name}: terminated", 143)


def check_library() -> None:
    """Raise InputError if the script and the imported library are of different checkouts.

    This happens if a repository is copied together with its .venv.
    """
    imported = Path(__file__).resolve().parent
    beside = Path(sys.argv[0]).resolve().parent.parent / "attention_dynamics"
    if beside.is_dir() and beside != imported and (imported.parent / "environment.sh").exists():
        raise InputError(
            f"{beside.parent}: runs the library of another copy (expected {beside}, got "
            f"{imported}); run bash test.sh to correct .venv, or python -m pip install -e ."
        )


def note(text: str) -> None:
    """Print a note on stderr, where it is not mistaken for output."""
    print(f"note: {text}", file=sys.stderr)


def terminate(*_) -> None:
    """The handler of SIGTERM: raise Terminated; a second SIGTERM (SLURM sends two) is ignored."""
    if not isinstance(sys.exc_info()[1], Terminated):
        raise Terminated


def one_line(text: str) -> str:
    """``text`` with line breaks and control characters escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _end(line: str, code: int) -> None:
    print(one_line(line), file=sys.stderr)
    sys.exit(code)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, one_line(f"{self.prog}: error: {message} (see --help)") + "\n")


def script_parser(description: str) -> argparse.ArgumentParser:
    """A parser whose help starts with the docstring of the script, unchanged."""
    return _Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_options(parser, **options: tuple) -> None:
    """Add options with a value: name -> (type, default, help without the default)."""
    for name, (kind, default, text) in options.items():
        text += " (default: none)" if default is None else " (default: %(default)s)"
        parser.add_argument(f"--{name}", type=kind, default=default, help=text)


def _integer(text: str, least: int, most: int) -> int:
    if not text.isdecimal() or len(text) > 10 or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"must be an integer from {least} to {most}, not {text!r}")
    return int(text)


def count(text: str) -> int:
    """The argparse type of a count: an integer from 1 to 1e9."""
    return _integer(text, 1, 10**9)


def step_list(text: str) -> list[int]:
    """The argparse type of ``--custom_saves``: steps such as 0,10,50."""
    return [_integer(step, 0, 10**9) for step in text.split(",")]


LARGEST_SEED = 2**32 - 1


def seed(text: str) -> int:
    """The argparse type of ``--seed``: an integer that every generator accepts."""
    return _integer(text, 0, LARGEST_SEED)
