"""Named arrays in a safetensors file with checksums. Reading maps them into memory; writing is complete or has no effect."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from langgraph_convcoa.errors import RetrievalError, first_line
from langgraph_convcoa.files import replacing

_TYPES = {"U8": np.uint8, "I32": np.int32, "I64": np.int64, "F32": np.float32}


def read_arrays(path: Path, *, kind: str, version: int) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return the arrays of a file as read-only memory maps, and the JSON values that were written with them.

    The file is read once to compare checksums. RetrievalError if it is missing or damaged, or of another kind or version.
    """
    if not path.is_file():
        raise RetrievalError(f"There is no file {path}; build the index again.")
    try:
        # safetensors checks the header and that the arrays lie within the file.
        with safe_open(path, framework="np") as opened:
            metadata = opened.metadata() or {}
        if metadata.get("kind") != kind:
            raise RetrievalError(f"{path} is no {kind} file; name another one.")
        if metadata.get("version") != str(version):
            raise RetrievalError(f"{path} is of version {metadata.get('version')}, not {version}; build the index again.")
        settings: dict[str, Any] = json.loads(metadata["settings"])
        sums: dict[str, int] = json.loads(metadata["crc32"])
        if sums.pop("") != zlib.crc32(metadata["settings"].encode()):
            raise ValueError("its settings fail their checksum")
        arrays = mapped_tensors(path)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise RetrievalError(f"{path} is damaged or cut off ({first_line(error)}); build the index again.") from None
    if arrays.keys() != sums.keys():
        raise RetrievalError(f"{path} is damaged: its checksums do not name its arrays; build the index again.")
    for name, values in arrays.items():
        if checksum(values) != sums[name]:
            raise RetrievalError(f"{path} is damaged: {name} fails its checksum; build the index again.")
    return arrays, settings


def write_arrays(
    path: Path, arrays: Mapping[str, npt.NDArray[Any]], *, kind: str, version: int, settings: Mapping[str, Any] | None = None
) -> None:
    """Write named arrays (uint8, int32, int64 or float32) and JSON values to a file."""
    kept = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    words = json.dumps(dict(settings or {}))
    sums = {name: checksum(values) for name, values in kept.items()} | {"": zlib.crc32(words.encode())}
    metadata = {"kind": kind, "version": str(version), "settings": words, "crc32": json.dumps(sums)}
    try:
        with replacing(path) as temporary:
            save_file(kept, temporary, metadata=metadata)
    except (OSError, SafetensorError) as error:
        raise RetrievalError(f"{path} cannot be written: {first_line(error)}.") from None


def mapped_tensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of a safetensors file as read-only memory maps. The caller has checked the file."""
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(size))
    content = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] in _TYPES:
            first, last = (8 + size + offset for offset in entry["data_offsets"])
            # In older files, a tensor may begin at any byte; such a tensor is copied.
            values = np.require(content[first:last].view(_TYPES[entry["dtype"]]), requirements="A")
            arrays[name] = values.reshape(entry["shape"])
    return arrays


def checksum(values: npt.NDArray[Any], before: int = 0) -> int:
    """CRC-32 of the bytes of an array; `before` is the checksum of the bytes that precede them."""
    return zlib.crc32(values.reshape(-1).view(np.uint8).data, before)
