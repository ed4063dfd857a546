"""The container: a compiled program in one file, with the public header of NEFF files.

    1024 bytes   header, the layout of the vendor's documentation (neuron-runtime/explore/
                 work-with-neff-files.rst), so that tools which print it can
    the rest     a plain tar archive (`archive`): `tail -c +1025 k.neff | tar x` unpacks it

Instructions are in our own encoding, which devices do not have. Our feature bit makes the vendor's
runtime refuse the file, and we refuse theirs. `hash` is the SHA-256 of the archive, as documented;
the area that the vendor leaves as padding begins with the SHA-256 of the header itself. Both are
checked on every read, so every changed bit is refused. Nothing in a container is executed on
loading it. The same program gives the same bytes everywhere.
"""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import Any

from isa.errors import NeuronError
from isa.errors.calls import named_arguments
from isa.files.archive import Contents, pack_archive, program_files, read_files, unpack_archive
from isa.files.complete import complete
from isa.files.encoding import MALFORMED, table_digest
from isa.gc_pause import collection_paused
from isa.program import Program

FORMAT = 4
"""Version of the file layout. The instruction tables have a digest of their own beside it."""

OPEN_ENCODING = 1 << 63
"""Feature bit: instructions are in the open encoding of `isa.files.encoding`."""

HEADER_SIZE = 1024
_MARK = b"opennki "
_PACKAGE_VERSION = 1  # of the documented versions the one whose hash is SHA-256
_VERSION = (2, 0)
_HEADER = Struct("<5Q128sI32s16s256sI64sQI32s436x")
_HEADER_HASH = slice(556, 588)
_START = Struct("<2Q").pack(_PACKAGE_VERSION, HEADER_SIZE)


@dataclass(frozen=True, slots=True)
class Header:
    """The header's fields under their documented names; text is decoded."""

    pkg_version: int
    header_size: int
    data_size: int
    neff_version_major: int
    neff_version_minor: int
    neff_build_version: str
    num_tpb: int
    hash: bytes
    uuid: bytes
    name: str
    requested_tpb_count: int
    tpb_per_node: bytes
    feature_bits: int
    lnc_size: int


@named_arguments
def write(program: Program, metadata: Mapping[str, Any] | None = None) -> bytes:
    """The container of a program. `metadata` is any JSON that the writer wants to keep with it.

    Raises NeuronError not-encodable.
    """
    with collection_paused():
        data = pack_archive(program_files(program, metadata or {}))
    digest = sha256(data).digest()
    cores = len(program.cores)
    fields = (
        _PACKAGE_VERSION,
        HEADER_SIZE,
        len(data),
        *_VERSION,
        _build_version(),
        cores,
        digest,
        sha256(b"uuid" + digest).digest()[:16],
        program.name.encode()[:255],
        cores,
        bytes([min(cores, 255)]),
        OPEN_ENCODING,
        cores,
    )
    header = _HEADER.pack(*fields, bytes(32))
    return _HEADER.pack(*fields, sha256(header).digest()) + data


@named_arguments
def read(data: bytes) -> Program:
    """The program in a container.

    Raises NeuronError container-truncated, container-corrupt, container-version (written with
    other instruction tables), or container-vendor.
    """
    return read_contents(data).program


@named_arguments
def read_contents(data: bytes) -> Contents:
    """The program and the metadata in a container. Raises as `read`."""
    header = read_header(data)
    archive = data[HEADER_SIZE:]
    if len(archive) < header.data_size:
        raise NeuronError(
            "container-truncated",
            f"{len(archive)} bytes follow the header, which announces {header.data_size}",
        )
    if len(archive) > header.data_size:
        raise NeuronError(
            "container-corrupt",
            f"{len(archive)} bytes follow the header, which announces {header.data_size}",
        )
    if sha256(archive).digest() != header.hash:
        raise NeuronError("container-corrupt", "the SHA-256 of the archive is not the header's")
    try:
        with collection_paused():
            return replace(read_files(unpack_archive(archive)), digest=header.hash)
    except (*MALFORMED, tarfile.TarError) as error:
        if isinstance(error, NeuronError) and error.code == "container-corrupt":
            raise
        detail = error.what if isinstance(error, NeuronError) else str(error)
        raise NeuronError(
            "container-corrupt", f"its files cannot be read: {detail or type(error).__name__}"
        ) from error


@named_arguments
def read_header(data: bytes) -> Header:
    """The checked header of a container of this format. Raises as `read`, looks at nothing else."""
    if len(data) < HEADER_SIZE:
        if data[: len(_START)] != _START[: len(data)]:
            raise NeuronError("container-corrupt", "this is no container: it begins otherwise")
        raise NeuronError(
            "container-truncated", f"{len(data)} bytes; the header alone has {HEADER_SIZE}"
        )
    fields = _HEADER.unpack_from(data)
    build, features = fields[5], fields[12]
    if not build.startswith(_MARK):
        if fields[1] == HEADER_SIZE and not features & OPEN_ENCODING:
            raise NeuronError(
                "container-vendor",
                f"NEFF of version {fields[3]}.{fields[4]}, built by {_decoded(build)!r}, feature "
                f"bits {features:#x}; ours have {OPEN_ENCODING:#x}",
            )
        raise NeuronError("container-corrupt", "this is no container: its header is not ours")
    expected = bytearray(data[:HEADER_SIZE])
    expected[_HEADER_HASH] = bytes(32)
    if sha256(expected).digest() != fields[14]:
        raise NeuronError("container-corrupt", "the SHA-256 of the header is not the one in it")
    if build.rstrip(b"\0") != _build_version() or features != OPEN_ENCODING:
        raise NeuronError(
            "container-version",
            f"written by `{_decoded(build)}` with feature bits {features:#x}; this is "
            f"`{_build_version().decode()}` with {OPEN_ENCODING:#x}",
        )
    values = [*fields[:14]]
    values[5], values[9] = _decoded(build), _decoded(fields[9])
    return Header(*values)


@named_arguments
def save(program: Program, path: Any, metadata: Mapping[str, Any] | None = None) -> None:
    r"""Write a container to `path`: the whole file, or nothing.

    Raises NeuronError not-writable, not-encodable.

    >>> import pathlib, tempfile
    >>> from isa.files.text import assemble
    >>> program = assemble('.program "idle" target=trn2\n.core\n.stream vector\nHalt')
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "idle.neff")
    ...     save(program, path, {"kernel": "idle"})
    ...     contents = load_contents(path)
    >>> contents.program == program, contents.metadata
    (True, {'kernel': 'idle'})
    """
    destination = _path(path)
    data = write(program, metadata)
    if destination.exists() and not destination.is_file():
        try:
            destination.write_bytes(data)  # a device or a pipe; a folder refuses
        except OSError as error:
            raise NeuronError("not-writable", f"{path}: {error.strerror or error}") from error
        return
    with complete(destination) as part:
        part.write_bytes(data)


@named_arguments
def load(path: Any) -> Program:
    r"""The program in the container at `path`. Raises as `read`, and file-not-found.

    >>> import pathlib, tempfile
    >>> from isa.files.text import assemble
    >>> program = assemble('.program "idle" target=trn2\n.core\n.stream vector\nHalt')
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "idle.neff")
    ...     save(program, path)
    ...     _ = path.write_bytes(path.read_bytes()[:-1])  # the end is lost
    ...     try:
    ...         load(path)
    ...     except NeuronError as error:
    ...         print(error.code)
    container-truncated
    """
    return load_contents(path).program


@named_arguments
def load_contents(path: Any) -> Contents:
    """The program and the metadata in the container at `path`. Raises as `load`."""
    place = _path(path)
    try:
        data = place.read_bytes()
    except OSError as error:
        raise NeuronError("file-not-found", f"{path}: {error.strerror or error}") from error
    return read_contents(data)


def _path(value: Any) -> Path:
    """Raises NeuronError argument-kind for what is no path."""
    try:
        return Path(value)
    except TypeError:
        raise NeuronError(
            "argument-kind",
            f"a container is at a path, and {type(value).__name__} {value!r:.60} is none",
            hint="Pass a str or a pathlib.Path. isa.files.container.read takes the bytes.",
        ) from None


def _build_version() -> bytes:
    return _MARK + f"format {FORMAT} isa {table_digest()}".encode()


def _decoded(text: bytes) -> str:
    return text.rstrip(b"\0").decode(errors="replace")
