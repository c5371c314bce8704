"""Public distributions as they come: a file, a folder, or an archive, read in memory, never
unpacked.

Archives are untrusted: a member whose name points outside of the archive is refused, links and
devices are passed over, and no more than ``MOST_BYTES`` are read from one source, so that an
archive made to fill the memory ends in an error.
"""

import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from attention_dynamics.cli import InputError

# The largest public distribution read here (Amazon review polarity) is 1.7 GB unpacked.
MOST_BYTES = 4 << 30

_TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
# What the libraries raise for damage: OSError for a place before the start of the file,
# NotImplementedError for a compression that there is not, ValueError for what is no number or name.
_DAMAGE = (
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


class Source:
    """The files of one distribution, under names with ``/`` and without a closing ``.gz``.

    Attributes:
        path: where the distribution is.
        names: sorted names of the files in it; a single file is its own only member.
    """

    def __init__(self, path: str | os.PathLike, most_bytes: int | None = None):
        """List the files in ``path``; at most ``most_bytes`` (``MOST_BYTES``) will be read from it.

        Raises InputError when it is not there, is a damaged archive, or holds no file.
        """
        self.path = Path(path)
        if not self.path.exists():
            raise InputError(f"source {path} does not exist")
        self._most = self._left = MOST_BYTES if most_bytes is None else most_bytes
        self.names = sorted(_without_gz(name) for name in self._list())
        if not self.names:
            raise InputError(f"source {path} holds no file")

    def described(self, most: int = 8) -> str:
        """What is in it, for an error: the first names and how many more."""
        more = f", ... ({len(self.names)} files)" if len(self.names) > most else ""
        return f"{self.path} holds {', '.join(self.names[:most])}{more}"

    def open_all(self, names: Iterable[str]) -> Iterator[tuple[str, BinaryIO]]:
        """(name, binary stream) of some members, in the order the archive has them.

        Each stream is to be read before the next one is asked for. Reading raises InputError when
        the data is damaged or cut short, or when more than the limit was read from this source.
        """
        wanted = set(names)
        for stored, stream in self._open_all(wanted):
            name = _without_gz(stored)
            if name != stored:
                # The size that counts is the unpacked one.
                stream = self._guarded(gzip.GzipFile(fileobj=stream), stored)
            yield name, stream

    def place(self, name: str) -> str:
        """How an error names a member: the source's path, and the name inside."""
        return str(self.path) if self._kind() == "file" else f"{self.path}:{name}"

    def _kind(self) -> str:
        if self.path.is_dir():
            return "folder"
        lower = self.path.name.lower()
        if lower.endswith(_TAR):
            return "tar"
        return "zip" if lower.endswith(".zip") else "file"

    def _list(self) -> list[str]:
        kind = self._kind()
        if kind == "folder":
            files = (entry for entry in self.path.rglob("*") if entry.is_file())
            return [entry.relative_to(self.path).as_posix() for entry in files]
        if kind == "file":
            return [self.path.name]
        try:
            if kind == "tar":
                with tarfile.open(self.path) as archive:
                    members = [member.name for member in archive if member.isfile()]
            else:
                with zipfile.ZipFile(self.path) as archive:
                    members = [
                        info.filename for info in archive.infolist() if _is_zipped_file(info)
                    ]
        except _DAMAGE as damage:
            raise self._damaged(damage) from None
        return [self._checked(name) for name in members]

    def _open_all(self, wanted: set[str]) -> Iterator[tuple[str, BinaryIO]]:
        kind = self._kind()
        if kind in ("folder", "file"):
            stored = self._list() if kind == "folder" else [self.path.name]
            for name in sorted(stored):
                if _without_gz(name) in wanted:
                    with open(self.path / name if kind == "folder" else self.path, "rb") as stream:
                        yield name, self._guarded(stream, name)
            return
        try:
            if kind == "tar":
                with tarfile.open(self.path) as archive:
                    for member in archive:
                        if member.isfile() and _without_gz(self._checked(member.name)) in wanted:
                            name = self._checked(member.name)
                            yield name, self._guarded(archive.extractfile(member), name)
            else:
                with zipfile.ZipFile(self.path) as archive:
                    for info in archive.infolist():
                        if _is_zipped_file(info) and _without_gz(info.filename) in wanted:
                            with archive.open(info) as stream:
                                name = self._checked(info.filename)
                                yield name, self._guarded(stream, name)
        except _DAMAGE as damage:
            raise self._damaged(damage) from None
        except RuntimeError as error:
            if "password" not in str(error):
                raise
            raise InputError(f"{self.path} is encrypted; unpack it first") from None

    def _checked(self, name: str) -> str:
        """``name`` without a leading ``./``; InputError when it points outside of the archive."""
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if ".." in parts or name.startswith(("/", "\\")) or ":" in name[:2]:
            raise InputError(
                f"{self.path} holds a member named {name!r}, which points outside of the archive: "
                "refused; get the distribution anew"
            )
        return "/".join(parts)

    def _guarded(self, stream: BinaryIO, name: str) -> BinaryIO:
        return io.BufferedReader(_Guarded(self, stream, name), 1 << 18)

    def _damaged(self, damage: Exception, name: str | None = None) -> InputError:
        where = self.place(name) if name else str(self.path)
        detail = next(iter(str(damage).splitlines()), type(damage).__name__).rstrip(":")
        return InputError(f"{where} is damaged or cut short ({detail}); get it anew")


class _Guarded(io.RawIOBase):
    """A stream that counts what is read from its source, and says what is damaged."""

    def __init__(self, source: Source, stream: BinaryIO, name: str):
        self._source, self._stream, self._name = source, stream, name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        try:
            block = self._stream.read(len(buffer))
        except _DAMAGE as damage:
            raise self._source._damaged(damage, self._name) from None
        self._source._left -= len(block)
        if self._source._left < 0:
            raise InputError(
                f"{self._source.path} holds more than {self._source._most:,} bytes of data "
                f"(reached in {self._name}): refused; cut it into smaller files"
            )
        buffer[: len(block)] = block
        return len(block)


def _without_gz(name: str) -> str:
    return name[:-3] if name.lower().endswith(".gz") else name


def _is_zipped_file(info: zipfile.ZipInfo) -> bool:
    # Unix permission bits, 0 when the archive was made elsewhere; a link has its own file type.
    mode = info.external_attr >> 16
    return not info.is_dir() and (stat.S_IFMT(mode) in (0, stat.S_IFREG))
