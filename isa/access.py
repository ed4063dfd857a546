"""Physical access patterns: which bytes an instruction operand touches.

An operand is a start partition and a number of partitions, a start offset, and up to four
[stride, count] dimensions (SDK nki/guides/architecture/trainium_inferentia2_arch.rst, "Accessing
SBUF/PSUM"; SDK nki/deep-dives/nki-aps.rst). Offsets are bytes, strides are elements.
"""

from __future__ import annotations

from typing import Any

from isa.enums import Memory


class AccessPattern:
    """An operand of a compiled instruction.

    On chip: partitions `start_partition .. start_partition + partitions`, each reading `dims`
    (stride in elements, count) from byte `offset` of the partition; `tensor` is -1. In HBM:
    `tensor` indexes the program's tensors, `start_partition` is 0, `partitions` is 1, and all
    dimensions are in `dims`, outermost first. `registers` are (register number, bytes) pairs:
    register value times bytes is added to `offset` when the instruction issues.
    `offset`, `partitions` and `dims` entries may be polynomials until the program is bound.

    `vector_offset`: an SBUF access pattern of one index a partition; row i of the outermost
    dimension then starts at `offset + index[i] * vector_stride` elements instead of i * stride.
    `vector_bound` is the number of rows that may be indexed.
    """

    __slots__ = (
        "dims",
        "dtype",
        "memory",
        "offset",
        "partitions",
        "registers",
        "start_partition",
        "tensor",
        "vector_bound",
        "vector_offset",
        "vector_stride",
    )

    def __init__(
        self,
        memory: Memory,
        dtype: str,
        offset: Any,
        dims: tuple[tuple[Any, Any], ...],
        start_partition: int = 0,
        partitions: Any = 1,
        tensor: int = -1,
        registers: tuple[tuple[int, Any], ...] = (),
        vector_offset: AccessPattern | None = None,
        vector_stride: Any = 0,
        vector_bound: Any = 0,
    ) -> None:
        self.memory = memory
        self.dtype = dtype
        self.offset = offset
        self.dims = dims
        self.start_partition = start_partition
        self.partitions = partitions
        self.tensor = tensor
        self.registers = registers
        self.vector_offset = vector_offset
        self.vector_stride = vector_stride
        self.vector_bound = vector_bound

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccessPattern) and all(
            getattr(self, slot) == getattr(other, slot) for slot in self.__slots__
        )

    def __hash__(self) -> int:
        return hash((self.memory, self.tensor, self.start_partition, self.dtype))
