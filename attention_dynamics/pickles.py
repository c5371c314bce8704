"""Pickles as data: an unpickler that admits plain containers, numbers, strings and numpy arrays."""

import os
import pickle
import struct

import numpy as np

from attention_dynamics.errors import InputError

# Both spellings of numpy's module: pickles of numpy 1 name `numpy.core`, those of numpy 2
# `numpy._core`.
_NUMPY_MODULES = {"numpy.core.multiarray", "numpy._core.multiarray"}
_NUMPY_FUNCTIONS = {"_reconstruct", "scalar"}
_NUMERIC_MODULES = {"numpy.core.numeric", "numpy._core.numeric"}
_PLAIN = {
    ("collections", "OrderedDict"),
    ("_codecs", "encode"),  # how protocols 0 to 2 spell bytes
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}
_BUILTINS = {"set", "frozenset", "complex", "bytearray", "range", "slice", "bytes"}


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str):
        allowed = (
            (module, name) in _PLAIN
            or (module in _NUMPY_MODULES and name in _NUMPY_FUNCTIONS)
            or (module in _NUMERIC_MODULES and name == "_frombuffer")
            or (module == "builtins" and name in _BUILTINS)
            or (module == "__builtin__" and name in _BUILTINS)
            or (module in {"numpy.dtypes"} and isinstance(getattr(np.dtypes, name, None), type))
        )
        if not allowed:
            raise _Refused(f"{module}.{name}")
        return super().find_class(module, name)


class _Refused(Exception):
    pass


def load_pickle(path: str | os.PathLike, what: str = "pickle") -> object:
    """The data in a pickle; InputError if it is missing, damaged or asks for code to run."""
    try:
        with open(path, "rb") as stream:
            return _DataUnpickler(stream).load()
    except FileNotFoundError:
        raise InputError(f"{what} {path} does not exist") from None
    except IsADirectoryError:
        raise InputError(f"{what} {path} is a folder, not a pickle") from None
    except _Refused as refused:
        raise InputError(
            f"{what} {path} asks for {refused}, which is not plain data: refused (nothing was run)"
        ) from None
    except OSError:
        raise
    except (
        pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError,
        KeyError, ImportError, OverflowError, MemoryError, RecursionError, struct.error,
    ) as error:  # fmt: skip
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{what} {path} is damaged or not a pickle: {detail}") from None
