"""Pickles as data: an unpickler that admits plain containers, numbers, strings and numpy arrays.

A pickle is a program. What it may call here are the functions below and nothing else: not numpy's
own, since those can be made to give arrays of memory that is not theirs.
"""

import os
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import bounded_memory, opened


class _Dtype:
    """Stands for a numpy dtype in a pickle, which could turn a real one into anything."""

    __slots__ = ("real",)

    def __init__(self, name: str, align: bool = False, copy: bool = False):
        if not re.fullmatch(r"[biufcOSU][1-9][0-9]{0,8}", name):
            raise pickle.UnpicklingError(f"an array of {name[:60]!r}, not of numbers or strings")
        self.real = np.dtype(name)

    def __setstate__(self, state: tuple) -> None:
        _, order, *structure = state[:5]
        if order not in ("<", ">", "|", "=") or structure != [None] * 3:
            raise pickle.UnpicklingError("an array of records, not of numbers or strings")
        self.real = self.real.newbyteorder(order)


class _Array(np.ndarray):
    """An array of pickle protocols 0 to 4, whose content comes after it has been made."""

    __slots__ = ()

    def __setstate__(self, state: tuple) -> None:
        if self.size:
            raise pickle.UnpicklingError("an array whose content changes")  # others may share it
        version, shape, dtype, *rest = state
        super().__setstate__((version, shape, dtype.real, *rest))

    def __reduce_ex__(self, protocol: int):
        return self.view(np.ndarray).__reduce_ex__(protocol)


def _new_array(kind: object, shape: tuple, code: object) -> _Array:
    if shape != (0,):
        raise pickle.UnpicklingError("an array without content")
    return _Array((0,), np.int8)


def _array(content: bytes | bytearray, dtype: _Dtype, shape: tuple, order: str) -> np.ndarray:
    if not isinstance(content, bytes | bytearray):
        raise pickle.UnpicklingError("an array in another one")
    return np.frombuffer(content, dtype.real).reshape(shape, order=order)


def _scalar(dtype: _Dtype, content: bytes) -> np.generic:
    return np.frombuffer(content, dtype.real, 1)[0]


def _ndarray(*_) -> None:
    """Only named in pickles, never called in honest ones."""
    raise pickle.UnpicklingError("an array without content")


def _bytes(text: str = "", encoding: str = "latin1") -> bytes:
    """How protocols 0 to 2 spell bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"text in the encoding {encoding!r}")
    return text.encode(encoding)


def _bytearray(content: bytes | str = b"", encoding: str = "latin-1") -> bytearray:
    if isinstance(content, str):
        content = _bytes(content, encoding)
    return bytearray(memoryview(content))  # of a number, it would be so many zeros


class _Maker:
    """A function that a pickle may call, but not change."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable):
        self._function = function

    def __call__(self, *args):
        return self._function(*args)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("a function that is changed")


_NUMPY = {"_reconstruct": _new_array, "scalar": _scalar, "_frombuffer": _array}
_MAKERS = {
    ("_codecs", "encode"): _bytes,
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _Dtype,
    # numpy 1 names its core `numpy.core`, numpy 2 `numpy._core`.
    **{
        (f"numpy.{core}.{module}", name): _NUMPY[name]
        for core in ("core", "_core")
        for module, name in (
            ("multiarray", "_reconstruct"),
            ("multiarray", "scalar"),
            ("numeric", "_frombuffer"),
        )
    },
}
_BUILTINS = {"bytes": _bytes, "bytearray": _bytearray}
# Types that cannot be changed, and make no more than they are given.
_TYPES = {"set": set, "frozenset": frozenset, "complex": complex}


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str):
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module in ("builtins", "__builtin__"):
            if name in _TYPES:
                return _TYPES[name]
            function = _BUILTINS.get(name)
        else:
            function = _MAKERS.get((module, name))
        if function is None:
            raise _Refused(f"{module}.{name}")
        return _Maker(function)


class _Refused(Exception):
    pass


def load_pickle(path: str | os.PathLike, what: str = "pickle") -> object:
    """The data in a pickle; InputError if it is missing, damaged or asks for code to run."""
    with opened(path, what) as stream, bounded_memory(path, what):
        try:
            value = _DataUnpickler(stream).load()
        except _Refused as refused:
            raise InputError(
                f"{what} {path} asks for {refused}, which is not plain data: refused (nothing was "
                "run)"
            ) from None
        except (MemoryError, OSError):
            raise
        except Exception as error:  # of as many types as there are ways to damage a pickle
            detail = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"{what} {path} is damaged or not a pickle: {detail[:200]}") from None
    return value.view(np.ndarray) if isinstance(value, _Array) else value
