"""Public distributions in the form they are published in: a file, a directory or an archive.

Archives are read as streams and never unpacked, so that the names of their members are only
compared. Own code because neither zipfile nor tarfile bounds what is decompressed, and each has its
own errors for corrupt archives.
"""

import contextlib
import functools
import gzip
import io
import lzma
import os
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from attention_dynamics.cli import InputError

# Limit of the uncompressed bytes of one source. The largest public distribution read here (Amazon
# review polarity) has 1.7 GB.
MOST_BYTES = 4 << 30

_TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
# What the libraries raise for corrupt archives, and RuntimeError for encrypted ones.
_CORRUPT = (
    EOFError, OSError, RuntimeError, ValueError, OverflowError, lzma.LZMAError, struct.error,
    tarfile.TarError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
# What operating systems leave in directories and archives: .DS_Store, __MACOSX/
_HIDDEN = re.compile(r"(^|/)(\.|__MACOSX/)")


class Source:
    """The files of one distribution, by their names with ``/`` and without a final ``.gz``.

    Attributes:
        path: where the distribution is.
        names: sorted names of its files, without hidden ones; a single file is its only member.
    """

    def __init__(self, path: str | os.PathLike, most_bytes: int | None = None):
        """List the files in ``path``; at most ``most_bytes`` (``MOST_BYTES``) are read from it.

        Raises InputError if ``path`` does not exist, is a corrupt archive, or contains no file or
        one file twice.
        """
        self.path = Path(path)
        if not self.path.exists():
            raise InputError(f"source {path} does not exist")
        self._most = self._left = MOST_BYTES if most_bytes is None else most_bytes
        with self._naming_corruption(self.path):
            self.names = sorted(_without_gz(name) for name, _ in self._members())
        if not self.names:
            raise InputError(f"source {path} holds no file")
        if twice := [name for name, times in Counter(self.names).items() if times > 1]:
            raise InputError(
                f"source {path} holds {twice[0]} more than once (with and without .gz count as one "
                "file); remove all copies but one"
            )

    def described(self, most: int = 8) -> str:
        """The contents, for an error message: the first names and the number of files."""
        more = f", ... ({len(self.names)} files)" if len(self.names) > most else ""
        return f"{self.path} holds {', '.join(self.names[:most])}{more}"

    def not_recognized(self, dataset: str, expected: str) -> InputError:
        """The error of a source that does not contain the files ``expected`` of ``dataset``."""
        what = f"source {self.path} does not look like {dataset}: expected {expected}"
        return InputError(f"{what}; {self.described()}")

    def only_file(self, option: str) -> str:
        """The name of the only file; InputError, which names the ``option``, if it has several."""
        if len(self.names) > 1:
            raise InputError(f"{option} must be one file, but {self.described()}")
        return self.names[0]

    def open_all(self, names: Iterable[str]) -> Iterator[tuple[str, BinaryIO]]:
        """(name, binary stream) of some members, in the order in which the archive stores them.

        Each stream must be read before the next one is requested. Reading raises InputError if the
        data is corrupt or truncated, or when the limit of this source is exceeded.
        """
        wanted = set(names)
        with self._naming_corruption(self.path):
            for stored, open_member in self._members():
                name = _without_gz(stored)
                if name in wanted:
                    with open_member() as stream:
                        if name != stored:
                            stream = gzip.GzipFile(fileobj=stream)
                        yield name, io.BufferedReader(_Limited(self, stream, stored), 1 << 18)

    def place(self, name: str) -> str:
        """A member's name in error messages: the source's path, and the name inside of it."""
        own_names = (self.path.name, _without_gz(self.path.name))
        return str(self.path) if name in own_names else f"{self.path}:{name}"

    def _members(self) -> Iterator[tuple[str, Callable[[], BinaryIO]]]:
        """(stored name, function that opens it) of each file that is not hidden, link or device."""
        for stored, open_member in self._stored():
            name = "/".join(PurePosixPath(stored.replace("\\", "/")).parts)
            if name == self.path.name or not _HIDDEN.search(name):
                yield name, open_member

    def _stored(self) -> Iterator[tuple[str, Callable[[], BinaryIO]]]:
        suffix = self.path.name.lower()
        if self.path.is_dir():
            for path in sorted(self.path.rglob("*")):
                if path.is_file():
                    name = path.relative_to(self.path).as_posix()
                    yield name, functools.partial(open, path, "rb")
        elif suffix.endswith(_TAR):
            with tarfile.open(self.path) as archive:
                for member in archive:
                    if member.isfile():
                        yield member.name, functools.partial(archive.extractfile, member)
        elif suffix.endswith(".zip"):
            with zipfile.ZipFile(self.path) as archive:
                for member in archive.infolist():
                    if not member.is_dir() and not stat.S_ISLNK(member.external_attr >> 16):
                        yield member.filename, functools.partial(archive.open, member)
        else:
            yield self.path.name, functools.partial(open, self.path, "rb")

    @contextlib.contextmanager
    def _naming_corruption(self, where: str | Path) -> Iterator[None]:
        """Raise InputError, which names ``where``, for corrupt data."""
        try:
            yield
        except PermissionError:
            raise
        except _CORRUPT as error:
            detail = next(iter(str(error).splitlines()), type(error).__name__).rstrip(":")
            raise InputError(
                f"{where} is corrupt or truncated ({detail}); download it again"
            ) from None


class _Limited(io.RawIOBase):
    """A stream that counts what is read from its source, and names the source of corrupt data."""

    def __init__(self, source: Source, stream: BinaryIO, name: str):
        self._source, self._stream, self._name = source, stream, name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        source = self._source
        with source._naming_corruption(source.place(self._name)):
            block = self._stream.read(len(buffer))
        source._left -= len(block)
        if source._left < 0:
            raise InputError(
                f"{source.path} holds more than {source._most:,} bytes of data (reached in "
                f"{self._name}); split it into smaller files"
            )
        buffer[: len(block)] = block
        return len(block)


def _without_gz(name: str) -> str:
    return name[:-3] if name.lower().endswith(".gz") else name
