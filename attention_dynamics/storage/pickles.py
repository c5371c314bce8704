"""Pickles as data: an unpickler that admits plain containers, numbers, strings and numpy arrays.

Own code because a pickle is a program: it may call nothing but the names listed here.
"""

import os
import pickle

from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import opened

_ADMITTED = {
    ("collections", "OrderedDict"),
    ("_codecs", "encode"),  # how protocols 0 to 2 write bytes
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    *(("builtins", name) for name in ("set", "frozenset", "complex", "bytes", "bytearray")),
}


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str):
        # Python 2 and numpy 1 had other names for these modules.
        current = module.replace("__builtin__", "builtins").replace("numpy.core.", "numpy._core.")
        if (current, name) not in _ADMITTED:
            raise InputError(f"asks for {module}.{name}, which is not plain data (nothing was run)")
        return super().find_class(current, name)


def load_pickle(path: str | os.PathLike, what: str = "pickle") -> object:
    """The data in a pickle; InputError if it is missing, corrupt or asks for code to run."""
    with opened(path, what) as stream:
        try:
            return _DataUnpickler(stream).load()
        except InputError as refused:
            raise InputError(f"{what} {path} {refused}") from None
        except OSError:
            raise
        except Exception as error:  # as many types as there are ways to corrupt a pickle
            detail = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"{what} {path} is corrupt or not a pickle ({detail[:200]}); make it again"
            ) from None
