"""Errors a user can cause, and how a script ends on them.

Exit codes: 0 done, 1 a failure while working, 2 a usage or input error, 130 interrupted, 143
terminated.
"""

import io
import os
import signal
import sys
from collections.abc import Callable

# A list of all missing checkpoints of a log config and their commands is shorter.
_LONGEST = 32_000


class InputError(Exception):
    """A wrong input: the message says what is wrong, where, and what to do about it."""


class WorkError(Exception):
    """A failure while working, not of the input: the message says what went wrong."""


class Terminated(BaseException):
    """SIGTERM came; as an exception, so that files half written are removed."""


def run_script(main: Callable[[], object]) -> None:
    """Run a script's ``main``; what a user can cause ends in one line on stderr."""
    name = os.path.basename(sys.argv[0])
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for a terminal without Greek
    try:
        signal.signal(signal.SIGTERM, _terminate)
        main()
    except InputError as error:
        _end(f"{name}: error: {error}", 2)
    except WorkError as error:
        _end(f"{name}: failed: {error}", 1)
    except BrokenPipeError:
        sys.stdout = None  # the reader (head, less) left: nothing more can be written to it
        sys.exit(1)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _end(f"{name}: failed: {error.strerror or error}{where}", 1)
    except MemoryError:
        _end(f"{name}: failed: out of memory", 1)
    except RuntimeError as error:
        if "allocat" not in str(error) and "out of memory" not in str(error).lower():
            raise  # a mistake of ours, to be seen in full
        _end(f"{name}: failed: out of memory ({str(error).splitlines()[0][:160]})", 1)
    except KeyboardInterrupt:
        _end(f"{name}: interrupted", 130)
    except Terminated:
        _end(f"{name}: terminated", 143)


def _terminate(*_) -> None:
    raise Terminated


def one_line(text: str) -> str:
    """``text`` with line breaks and control characters (a file may hold them) escaped.

    Of more than ``_LONGEST`` characters (a file may hold these too) the middle is left out.
    """
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} [...] {text[-_LONGEST // 2 :]}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _end(line: str, code: int) -> None:
    print(one_line(line), file=sys.stderr)
    sys.exit(code)
