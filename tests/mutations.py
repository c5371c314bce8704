"""Hypothesis strategies that corrupt files: their bytes, and values nested inside them."""

import contextlib
import copy
import math

import numpy as np
from hypothesis import strategies as st

# What breaks parsers when it stands where something else did.
TOKENS = (
    b"", b"\0", b"\n", b"\r\n", b"\r", b'"', b"'", b",", b"\t", b"[", b"]", b"{", b"}", b"(", b")",
    b"NaN", b"-Infinity", b"1e999", b"null", b"true", b"-1", b"99999999999999999999", b"0.5",
    b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3\x28", b"\xed\xa0\x80", b"\\ud800", b"\x1a",
    b"\xe2\x80\xa8", b"<seg", b"</seg>", b"<review>", b"\x80\x05",
    b".", b"R", b"b", b"2", b"0" * 5000, b"[" * 3000,
)  # fmt: skip


@st.composite
def corrupt_bytes(draw, content: bytes) -> bytes:
    """``content`` with one to three of: a byte changed, cut off, a part lost, doubled, inserted."""
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(content)))
        length = draw(st.sampled_from((1, 1, 2, 3, 8, 50)))
        head, part, tail = content[:place], content[place : place + length], content[place:]
        match draw(st.sampled_from(("flip", "flip", "set", "cut", "lose", "double", "insert"))):
            case "flip" if tail:
                content = head + bytes([tail[0] ^ (1 << draw(st.integers(0, 7)))]) + tail[1:]
            case "set" if tail:
                content = head + bytes([draw(st.integers(0, 255))]) + tail[1:]
            case "cut":
                content = head
            case "lose":
                content = head + tail[length:]
            case "double":
                content = head + part + tail
            case _:
                content = head + draw(st.sampled_from(TOKENS)) + tail
    return content


JSON_VALUES = (
    None, True, False, 0, 1, 2, -1, 3.5, 10**30, 2**63, -(2**63), 2**31, math.nan, math.inf,
    -math.inf, 1e300, "", "x", "0", "\ud800", "a\nb\0", "é" * 300, [], [[]], [None], {}, {"": 0},
    [0, 1], [[[0], 1]], "../x", "</script>",
)  # fmt: skip
PICKLE_VALUES = (
    *JSON_VALUES, b"x", (), (1, 2), {3}, complex(1, 2), np.float64(math.nan), np.int8(-1),
    np.bool_(True), np.str_("x"),
    np.array([]), np.array(3.0), np.zeros((2, 2), np.float32), np.array([math.nan], np.float32),
    np.array([1, 2, -3]), np.array([1.0, 2.0], np.float16), np.array(["a"]), np.array([None]),
    np.array([2**63], np.uint64), np.array([1j]), 10**5000,
)  # fmt: skip


@st.composite
def corrupt_value(draw, value, others: tuple):
    """A copy of ``value`` in which one or two things, however deep, are others, gone, or doubled.

    ``others`` are what takes the place of a number, a string, an array or a container.
    """
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 2))):
        holder = [value]  # so that the outermost value has a place as well
        _corrupt(draw, holder, draw(st.integers(0, 6)), others)
        value = holder[0]
    return value


def _corrupt(draw, holder, depth: int, others: tuple) -> None:
    keys = list(holder) if isinstance(holder, dict) else range(len(holder))
    key = keys[draw(st.integers(0, len(keys) - 1))]
    inner = holder[key]
    if depth and isinstance(inner, (dict, list)) and len(inner):
        return _corrupt(draw, inner, depth - 1, others)
    if depth and isinstance(inner, tuple) and len(inner):
        changed = list(inner)
        _corrupt(draw, changed, depth - 1, others)
        holder[key] = tuple(changed)
        return None
    if isinstance(inner, np.ndarray) and inner.ndim and inner.size and draw(st.booleans()):
        holder[key] = _corrupt_array(draw, inner)
        return None
    action = draw(st.sampled_from(("replace", "replace", "lose", "double", "rename")))
    if action == "lose" and len(holder) > 1 and not isinstance(holder, tuple):
        del holder[key]
    elif action == "double" and isinstance(holder, list):
        holder.insert(key, inner)
    elif action == "rename" and isinstance(holder, dict):
        names = [other for other in others if other.__hash__ and not isinstance(other, np.ndarray)]
        del holder[key]
        holder[draw(st.sampled_from(names))] = inner
    else:
        holder[key] = copy.deepcopy(draw(st.sampled_from(others)))
    return None


def _corrupt_array(draw, array: np.ndarray) -> np.ndarray:
    kind = draw(st.sampled_from(("element", "element", "shorter", "longer", "type", "shape")))
    if kind == "element":
        array = array.copy()
        numbers = (0, 1, -1, 2**31 - 1, math.nan, math.inf, 1e30)
        number = draw(st.sampled_from(numbers if array.dtype.kind == "f" else numbers[:4]))
        place = draw(st.integers(0, array.size - 1))
        with contextlib.suppress(OverflowError, ValueError, TypeError):  # a type without it
            array.reshape(-1)[place] = number
        return array
    if kind == "shorter":
        return array[:-1]
    if kind == "longer":
        return np.concatenate([array, array[-1:]])
    if kind == "type":
        types = ("f2", ">f4", "f8", "i1", "u8", ">i8", "?", "O", "U3", "c16")
        with contextlib.suppress(OverflowError, ValueError, TypeError):
            return array.astype(draw(st.sampled_from(types)))
        return array
    return draw(st.sampled_from((array[None], array.T, array.reshape(-1), np.flip(array))))
