"""What running programs print, as files: `<folder>/<message>/core_<number>/<iteration>/`.

The layout is that of the runtime's debug stream (SDK nki/api/nki/language/__init__.py,
device_print). What lies in the innermost folder no document says: here `tensor.npy`, the elements
(those of dtypes that NumPy's format does not know as unsigned words), and `tensor.json` with dtype
and shape. Iterations count what a core printed with one message in one run, from 0.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from isa.errors import NeuronError


class PrintedFiles:
    """The folder of one run, and how often every core has printed every message."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._counts: Counter[tuple[str, int]] = Counter()

    def write(self, message: str, core: int, tensor: np.ndarray[Any, Any]) -> None:
        """Write one tensor. Raises not-writable."""
        iteration = self._counts[message, core]
        self._counts[message, core] += 1
        place = os.path.join(self.folder, _name(message), f"core_{core}", str(iteration))
        described = {"dtype": tensor.dtype.name, "shape": list(tensor.shape)}
        elements = np.ascontiguousarray(tensor).reshape(tensor.shape)
        if elements.dtype.kind == "V" or elements.dtype.num >= _EXTENSIONS:
            elements = elements.view(f"u{elements.dtype.itemsize}")
        try:
            os.makedirs(place, exist_ok=True)
            np.save(os.path.join(place, "tensor.npy"), elements)
            with open(os.path.join(place, "tensor.json"), "w", encoding="utf-8") as file:
                json.dump(described, file)
        except OSError as error:
            raise NeuronError(
                "not-writable",
                f"what the kernel prints cannot be written to {place}: {error.strerror}",
                hint="Set NEURON_RT_DEBUG_OUTPUT_DIR to a folder that can be written, or unset it.",
            ) from error


_EXTENSIONS = 256
"""NumPy's numbers of dtypes that libraries register begin here."""

FILES: ContextVar[PrintedFiles | None] = ContextVar("printed_files", default=None)
"""Where the program that runs now writes what it prints; None: nowhere."""


def _name(message: str) -> str:
    """A message as the name of a folder."""
    name = message.replace(os.sep, "_").replace("\0", "_")
    return name if name.strip(".") else f"_{name}"


@contextmanager
def printed_to(folder: str | None) -> Iterator[None]:
    """What programs print inside goes to files of a folder as well; None: it does not."""
    token = FILES.set(PrintedFiles(folder) if folder else None)
    try:
        yield
    finally:
        FILES.reset(token)
