"""The steps of a scheduled program: calls, jumps, host steps; and the program that holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.schedule.views import Buffer, View, row_major

if TYPE_CHECKING:
    import numpy as np

    from graph_compiler.execute.driver import HostKernel
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.schedule.nodes import Node


class Place(NamedTuple):
    """A byte of a buffer."""

    buffer: Buffer
    offset: int = 0


class KernelCall:
    """A native call. `words` are numbers and places. `aligned`: buffers that are read element by
    element in the order in which `writes[0]` is written, whole and of the same size, so that both
    may be one. `moves`: nothing but a copy of such a buffer. `divided`: the words of each part,
    which are run in any order or at once; none of a call that stays whole. `work`: about how many
    operations they take together."""

    __slots__ = ("aligned", "divided", "kernel", "moves", "reads", "words", "work", "writes")

    def __init__(
        self,
        kernel: HostKernel,
        words: list[int | Place],
        reads: list[Buffer],
        writes: list[Buffer],
        aligned: list[Buffer] | None = None,
        moves: bool = False,
        divided: list[list[int | Place]] | None = None,
        work: int = 0,
    ) -> None:
        self.kernel = kernel
        self.divided = divided or []
        self.work = work if divided else 0
        self.words = words
        self.reads = reads
        self.writes = writes
        self.aligned = aligned or []
        self.moves = moves


class Host:
    """An instruction that the reference of the operator table computes, on views."""

    __slots__ = ("instruction", "operands", "reads", "results", "writes")

    def __init__(self, instruction: Instruction, operands: list[View], results: list[View]) -> None:
        self.instruction = instruction
        self.operands = operands
        self.results = results
        self.reads = [view.buffer for view in operands]
        self.writes = [view.buffer for view in results]


class Label:
    """A place to go to; `loop` is 1 where a loop begins, -1 behind its end."""

    __slots__ = ("loop",)

    def __init__(self, loop: int = 0) -> None:
        self.loop = loop


class Jump(NamedTuple):
    """Go on at a label."""

    label: Label


class JumpUnless(NamedTuple):
    """Go on at a label where a pred is false."""

    label: Label
    flag: Place


ScheduleStep = KernelCall | Host | Label | Jump | JumpUnless


def item_size(type: str) -> int:
    """Bytes of an element in memory."""
    return PRIMITIVE_TYPES[type].numpy.itemsize


def place_of(view: View) -> Place:
    return Place(view.buffer, view.offset * item_size(view.type))


class Products(NamedTuple):
    """How a machine multiplies matrices (`contractions`).

    `takes`: whether it multiplies these types (left, right, result), summing so many products.
    `operands`: both operands as it takes them, and whether in pairs along the depth, of which
    there is an even number. `multiply`: a product, of operands that fit, as steps of a program.
    `ascending`: whether elements of operands have to go up in memory.
    """

    takes: Callable[[tuple[str, str, str], int], bool]
    operands: Callable[[Any, Any, bool], tuple[Any, Any, bool]]
    multiply: Callable[..., None]
    ascending: bool = False


class Machine(NamedTuple):
    """What blocks are scheduled for (`schedule`): the host's CPU, or a device.

    `attribute`: of a node, given what number an operand is, the attribute of its element-wise step;
    UNSUPPORTED where the machine has none. `operands`: those that the step takes. `handlers`: how
    to schedule other opcodes; None where a variant is not among them. `otherwise`: what becomes of
    the rest. `repeats`: whether several users each compute a value (`fusion.ElementExpression`) for
    themselves. `widens`: whether they read a value of the first type as the second one for
    nothing.
    """

    attribute: Callable[[Node, Callable[[Node], Any]], Any]
    operands: Callable[[Node], list[Node]]
    handlers: dict[str, Callable[[Any, Node], Any]]
    otherwise: Callable[[Any, Node], Any]
    products: Products
    repeats: Callable[[Any], bool]
    widens: Callable[[str, str], bool] = lambda source, type: False


class GraphProgram:
    """Steps for a machine, and the constants that they read. Large calls are divided for so many
    `threads`."""

    def __init__(self, machine: Machine, threads: int = 1) -> None:
        self.machine = machine
        self.threads = threads
        self.steps: list[ScheduleStep] = []
        self.constants: list[np.ndarray[Any, Any]] = []
        self._known: dict[Any, Buffer] = {}

    def keeps(self, node: Node) -> bool:
        """Whether a value is put into memory though only one user needs it."""
        return False

    def product_result(self, node: Node) -> View:
        """New memory for a product. Its rows are at one distance, its columns as well, and one of
        both is adjacent."""
        return self.buffer(node.type, node.dims)

    def made_for(self, node: Node, steps: list[Any]) -> None:
        """These steps compute a node; those that compute another one were said to before."""

    def buffer(self, type: str, dims: tuple[int, ...]) -> View:
        """New memory, row-major."""
        count = 1
        for size in dims:
            count *= size
        return View(Buffer(count * item_size(type)), type, dims, row_major(dims))

    def constant(self, array: np.ndarray[Any, Any]) -> Buffer:
        """Memory that holds a contiguous array."""
        key = (array.dtype.str, array.shape, array.tobytes()) if array.nbytes <= 4096 else id(array)
        buffer = self._known.get(key)
        if buffer is None:
            buffer = Buffer(array.nbytes, "constant", len(self.constants))
            self._known[key] = buffer
            self.constants.append(array)
        return buffer
