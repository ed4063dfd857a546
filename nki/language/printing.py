"""device_print: what a kernel says while it runs."""

from __future__ import annotations

from isa.errors import NeuronError
from isa.operations.control import DevicePrint
from nki.ir.context import caller
from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.emitter import Emitter


def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Print a message and what a tensor in SBUF or HBM holds, when the kernel comes there.

    Python's `print` runs while tracing, before there are values. In every mode the simulator
    writes to the standard output, with the number of a core that is not the first; in a loop, once
    an iteration. With NEURON_RT_DEBUG_OUTPUT_DIR the tensor also goes to a file there,
    `<print_prefix>/core_<number>/<iteration>/tensor.npy`. Raises not-a-tensor, wrong-memory (PSUM),
    value-not-allowed (no string), not-writable.
    Source: SDK nki/api/nki/language/__init__.py (device_print)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     nl.device_print("doubled:", nl.add(nl.load(a), nl.load(a)))
    >>> kernel(np.array([[1, 2, 3]], np.float32))
    doubled:
    [[2. 4. 6.]]
    """
    e = Emitter("device_print", caller())
    if not isinstance(print_prefix, str):
        raise NeuronError(
            "value-not-allowed",
            what=f"print_prefix is {print_prefix!r}",
            why="The message is a string that is known while tracing.",
            hint='Write nl.device_print("name of the tensor", tensor).',
        )
    if not isinstance(tensor, NkiTensor):
        raise NeuronError(
            "not-a-tensor",
            what=f"tensor of nl.device_print is {tensor!r}, not a tensor",
            hint="Use Python's print for what is known while tracing.",
        )
    e(DevicePrint, tensor=tensor, prefix=tuple(map(ord, print_prefix)))
