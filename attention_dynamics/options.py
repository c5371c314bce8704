"""The command line of a script: its docstring is its help, its errors are one line."""

import argparse
from typing import NoReturn


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see --help)\n")


def script_parser(description: str) -> argparse.ArgumentParser:
    """A parser whose help begins with the script's docstring, kept as it is written."""
    return _Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
