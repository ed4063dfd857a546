"""A module ready to run on this host: made from its steps, kept on disk, and called.

Plan and code are kept under digests of the graph's structure, of this package's code, and of the
CPU. Python runs only for steps that the host computes.
"""

from __future__ import annotations

import ctypes
import hashlib
import marshal
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.evaluate import LOOP_LIMIT, Evaluator, endless, memory
from graph_compiler.execute.driver import BRANCH, END, HOST, JUMP, STATE, ProgramCode
from graph_compiler.execute.memory_plan import MemoryPlan
from graph_compiler.execute.teams import taken
from graph_compiler.hlo.operators import operator
from graph_compiler.hlo.operators.row import subject
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.schedule.fusion import is_whole, store
from graph_compiler.schedule.parts import worth_sharing
from graph_compiler.schedule.schedule import HOST_MACHINE, Scheduler
from graph_compiler.schedule.simplify import Simplifier, forms, leaves, packed
from graph_compiler.schedule.steps import (
    GraphProgram,
    Host,
    Jump,
    JumpUnless,
    KernelCall,
    Label,
    item_size,
)
from graph_compiler.schedule.structure import structure_digest
from graph_compiler.schedule.views import Buffer, View
from isa.errors import NeuronError
from isa.object_cache import Cache
from simulator.native.codegen.library import Library, library

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction, Module

LARGE = 1 << 16
"""Bytes from which a literal stays where it is, in the graph."""

_NEXT, _LEFT, _TEAM = (STATE.indices[name] for name in ("next", "iterations", "team"))

Array = np.ndarray[Any, Any]
PlanEntries = dict[str, Any]
"""A program as plain data:

`records`, `words`: as `driver` has them, as bytes. `relocations`: of pointers among the words, each
word, slot, offset. `slots`: numbers of inputs, outputs and constants; slots count these in this
order; then come the arena, and the words themselves. `constants`: bytes of each, of a large literal
of the graph its instruction (computation and place there). `hosts`: for each record that wants the
host the instruction, operands and results, each (slot, byte offset, type, dimensions, strides in
elements). `arena`: bytes. `kernels`: their digest. `inputs`, `outputs`: type and dimensions of
each. `shared`: whether threads help.
"""


def planned(module: Module, threads: int = 1) -> tuple[PlanEntries, tuple[Any, ...]]:
    """The plan of a module for a number of threads, and its kernels."""
    program = GraphProgram(HOST_MACHINE, threads)
    simplifier = Simplifier(module)
    block = simplifier.block(module.entry)
    arguments = []
    for number, parameter in enumerate(block.parameters):
        view = program.buffer(parameter.type, parameter.dims)
        view.buffer.kind, view.buffer.number = "input", number
        arguments.append(view)
    results = Scheduler(program, simplifier, block, arguments).run()
    for number, value in enumerate(results):
        if isinstance(value, View) and value.buffer.kind == "arena" and is_whole(value):
            value.buffer.kind, value.buffer.number = "output", number
            continue
        target = program.buffer(value.type, value.dims)
        target.buffer.kind, target.buffer.number = "output", number
        store(program, value, target)
    return _Assembler(module, program, len(arguments), len(results)).plan(
        [(node.type, node.dims) for node in block.parameters],
        [(value.type, value.dims) for value in results],
    )


class _Assembler:
    """Steps as records, words and relocations."""

    def __init__(self, module: Module, program: GraphProgram, inputs: int, outputs: int) -> None:
        self.program = program
        self.layout = MemoryPlan(program.steps)
        self.places: dict[Any, tuple[int, int]] = {
            id(item): (number, position)
            for number, computation in enumerate(module.computations)
            for position, item in enumerate(computation.instructions)
        }
        self.literals = [
            (literal, (number, position))
            for number, computation in enumerate(module.computations)
            for position, item in enumerate(computation.instructions)
            if isinstance(literal := item.attributes.get("literal"), np.ndarray)
            and literal.nbytes >= LARGE
        ]
        constants = len(program.constants)
        self.first = {"input": 0, "output": inputs, "constant": inputs + outputs}
        self.arena = inputs + outputs + constants
        self.words: list[int] = []
        self.relocations: list[tuple[int, int, int]] = []

    def _constant(self, array: Array) -> Any:
        """A constant as the plan keeps it."""
        if array.nbytes >= LARGE:
            for item, place in self.literals:
                if item.flags.c_contiguous and item.nbytes == array.nbytes:
                    if _address(item) == _address(array):
                        return place
        return array.tobytes()

    def _slot(self, buffer: Buffer) -> tuple[int, int]:
        memory = self.layout.memory_of(buffer)
        if memory.kind == "arena":
            return self.arena, self.layout.offsets[memory]
        return self.first[memory.kind] + memory.number, 0

    def _arguments(self, words: Sequence[Any]) -> int:
        """Appends argument words; their byte offset."""
        start = 8 * len(self.words)
        for word in words:
            if isinstance(word, int):
                self.words.append(word)
            else:
                slot, base = self._slot(word.buffer)
                self.relocations.append((len(self.words), slot, base + word.offset))
                self.words.append(0)
        return start

    def _call(self, step: KernelCall) -> tuple[int, int]:
        """Byte offset of a call's words, or of the addresses of its parts' words, and how many
        parts there are (0: it stays whole)."""
        if not step.divided:
            return self._arguments(step.words), 0
        parts = [self._arguments(words) for words in step.divided]
        start = 8 * len(self.words)
        self.relocations += [
            (len(self.words) + number, self.arena + 1, part) for number, part in enumerate(parts)
        ]
        self.words += [0] * len(parts)
        return start, len(parts)

    def _view(self, view: View) -> tuple[Any, ...]:
        slot, base = self._slot(view.buffer)
        offset = base + view.offset * item_size(view.type)
        return slot, offset, view.type, view.dims, view.strides

    def plan(self, inputs: list[Any], outputs: list[Any]) -> tuple[PlanEntries, tuple[Any, ...]]:
        steps, dropped = self.program.steps, self.layout.dropped
        numbers: dict[Any, int] = {}
        count = 0
        for position, step in enumerate(steps):
            if isinstance(step, Label):
                numbers[step] = count
            elif position not in dropped:
                count += 1
        kernels: dict[str, tuple[int, Any]] = {}
        records: list[tuple[int, int, int]] = []
        hosts: dict[int, Any] = {}
        for position, step in enumerate(steps):
            if isinstance(step, Label) or position in dropped:
                continue
            if isinstance(step, KernelCall):
                known = kernels.setdefault(repr(step.kernel), (len(kernels), step.kernel))
                records.append((known[0], *self._call(step)))
            elif isinstance(step, Host):
                hosts[len(records)] = (
                    self.places[id(step.instruction)],
                    [self._view(view) for view in step.operands],
                    [self._view(view) for view in step.results],
                )
                records.append((HOST, 0, 0))
            elif isinstance(step, Jump):
                records.append((JUMP, numbers[step.label], step.label.loop))
            else:
                assert isinstance(step, JumpUnless)
                records.append((BRANCH, self._arguments([step.flag]), numbers[step.label]))
        records.append((END, 0, 0))
        plan = {
            "records": np.array(records, np.int64).tobytes(),
            "words": np.array(self.words, np.int64).tobytes(),
            "relocations": np.array(self.relocations, np.int64).tobytes(),
            "slots": (len(inputs), len(outputs), len(self.program.constants)),
            "constants": [self._constant(array) for array in self.program.constants],
            "hosts": hosts,
            "arena": self.layout.size,
            "kernels": _digest("\n".join(kernels)),
            "inputs": inputs,
            "outputs": outputs,
            "shared": worth_sharing(self.program),
        }
        return plan, tuple(kernel for _, kernel in kernels.values())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def _generator() -> str:
    """Digest of everything but the graph that a plan depends on."""
    digest = hashlib.sha256()
    here = Path(__file__).resolve().parent
    files = [*here.parent.glob("*.py")]
    for part in ("hlo", "host_kernels", "schedule", "execute"):
        files += (here.parent / part).rglob("*.py")
    simulator = here.parents[1] / "simulator"
    files += [*(simulator / "native").rglob("*.py"), *(simulator / "numerics").glob("*.py")]
    for path in sorted(files):
        digest.update(path.read_bytes())
    import llvmlite.binding as llvm

    digest.update(f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}".encode())
    digest.update(f"{np.__version__} {marshal.version}".encode())
    return digest.hexdigest()[:24]


class Executable:
    """A module ready to run. `from_disk`: whether its plan was there already; `arena_bytes`: memory
    beyond inputs, outputs and constants.

    `plans` and `functions` are where plans are kept and kernels compiled, by default those of this
    user and process. Large calls are divided for so many `threads`, unless the machine is busy.
    """

    def __init__(
        self,
        module: Module,
        plans: Cache | None = None,
        functions: Library | None = None,
        threads: int = 1,
    ) -> None:
        self._module = module
        self._threads = threads
        cache_ = plans or Cache("graph-" + _generator())
        name = structure_digest(module) + (f"-{threads}" if threads > 1 else "")
        stored = cache_.read(name)
        self.from_disk = stored is not None
        kernels = None
        if stored is not None:
            plan = marshal.loads(stored)
        else:
            try:
                plan, kernels = planned(module, threads)
            except MemoryError as error:
                raise NeuronError(
                    "hlo-too-large", f"Module `{module.name}`: no memory for its plan."
                ) from error
            cache_.write(name, marshal.dumps(plan))
        functions = functions or library()
        assert functions is not None, "without LLVM the evaluator runs graphs"
        code = ProgramCode(f"{_generator()} {plan['kernels']}", kernels)
        try:
            self._run = functions.function(code)
        except LookupError:
            # The kernels of a plan that is on disk are gone: made again.
            _, kernels = planned(module, threads)
            self._run = functions.function(ProgramCode(code.key, kernels))
        self._prepare(plan)

    def _prepare(self, plan: PlanEntries) -> None:
        """Raises NeuronError hlo-too-large."""
        self._inputs = [(PRIMITIVE_TYPES[type].numpy, tuple(dims)) for type, dims in plan["inputs"]]
        self._outputs = [
            (PRIMITIVE_TYPES[type].numpy, tuple(dims)) for type, dims in plan["outputs"]
        ]
        inputs, outputs, _ = plan["slots"]
        self._records = np.frombuffer(plan["records"], np.int64)
        self._words = np.frombuffer(plan["words"], np.int64).copy()
        self._constants = [
            np.frombuffer(data, np.uint8)
            if isinstance(data, bytes)
            else self._instruction(data).attributes["literal"].reshape(-1).view(np.uint8)
            for data in plan["constants"]
        ]
        self._hosts = plan["hosts"]
        self.arena_bytes = plan["arena"]
        self._arena = memory(self._module, (plan["arena"] + 64,), np.dtype(np.uint8))
        rows = np.frombuffer(plan["relocations"], np.int64).reshape(-1, 3)
        moving = rows[:, 1] < inputs + outputs
        self._moving = [np.ascontiguousarray(column) for column in rows[moving].T]
        fixed = [array.ctypes.data for array in self._constants]
        fixed.append(-(-self._arena.ctypes.data // 64) * 64)
        self._fixed = fixed
        self._shared = plan["shared"]
        word, slot, offset = rows[~moving].T
        bases = np.array([0] * (inputs + outputs) + [*fixed, _address(self._words)], np.int64)
        self._words[word] = bases[slot] + offset
        self._first_fixed = inputs + outputs
        state = STATE.words(records=_address(self._records), words=_address(self._words))
        self._state = (ctypes.c_int64 * len(state))(*state)
        self._views: dict[Any, Array] = {}
        self._lock = threading.Lock()

    def __call__(
        self,
        inputs: Sequence[Array],
        seed: int = 0,
        custom_calls: dict[str, Callable[..., Any]] | None = None,
        loop_limit: int = LOOP_LIMIT,
    ) -> list[Array]:
        """The outputs for arrays of the parameters' types and dimensions, tuples taken apart."""
        evaluator = None
        if self._hosts:
            evaluator = Evaluator(
                self._module, seed=seed, custom_calls=custom_calls, loop_limit=loop_limit
            )
        arrays = [array if array.flags.c_contiguous else array.copy() for array in inputs]
        outputs = [memory(self._module, dims, dtype) for dtype, dims in self._outputs]
        arrays += outputs
        with self._lock:
            bases = np.array([_address(array) for array in arrays], np.int64)
            word, slot, offset = self._moving
            if len(word):
                self._words[word] = bases[slot] + offset
            self._state[_NEXT], self._state[_LEFT] = 0, loop_limit
            if not self._shared:
                self._go(arrays, evaluator, loop_limit)
                return outputs
            with taken(self._threads) as team:
                self._state[_TEAM] = team
                self._go(arrays, evaluator, loop_limit)
            return outputs

    def _go(self, arrays: list[Array], evaluator: Evaluator | None, loop_limit: int) -> None:
        """From the first record to the last. `evaluator` does what the host has to do."""
        self._run(self._state)
        self._check(loop_limit)
        if evaluator is None:
            return
        with np.errstate(all="ignore"):
            while (host := self._hosts.get(self._state[_NEXT] - 1)) is not None:
                evaluator.iterations = loop_limit - self._state[_LEFT]
                self._on_host(host, arrays, evaluator)
                self._state[_LEFT] = loop_limit - evaluator.iterations
                self._run(self._state)
                self._check(loop_limit)

    @property
    def host_instructions(self) -> list[str]:
        """Names of the instructions that have no native form and run through the operator table."""
        return [self._instruction(host[0]).name for host in self._hosts.values()]

    def _instruction(self, place: tuple[int, int]) -> Instruction:
        computation, position = place
        return self._module.computations[computation].instructions[position]

    def _check(self, loop_limit: int) -> None:
        if self._state[_LEFT] < 0:
            raise endless(loop_limit)

    def _on_host(self, host: Any, arrays: list[Array], evaluator: Evaluator) -> None:
        place, operand_views, result_views = host
        instruction = self._instruction(place)
        values = [self._view(view, arrays) for view in operand_views]
        operands, taken = [], 0
        for operand in instruction.operands:
            count = len(forms(operand.shape))
            operands.append(packed(operand.shape, values[taken : taken + count]))
            taken += count
        try:
            result = operator(instruction.opcode).evaluate(instruction, operands, evaluator)
        except MemoryError as error:
            raise NeuronError(
                "hlo-too-large", f"{subject(instruction)}: no memory for {instruction.shape}."
            ) from error
        for view, part in zip(result_views, leaves(result)):
            self._view(view, arrays)[...] = part

    def _view(self, view: tuple[Any, ...], arrays: list[Array]) -> Array:
        slot, offset, type, dims, strides = view
        fixed = slot >= self._first_fixed
        known = self._views.get(view) if fixed else None
        if known is not None:
            return known
        dtype = PRIMITIVE_TYPES[type].numpy
        if slot == self._first_fixed + len(self._constants):
            memory = self._arena
            offset += self._fixed[-1] - self._arena.ctypes.data
        elif fixed:
            memory = self._constants[slot - self._first_fixed]
        else:
            memory = arrays[slot].reshape(-1).view(np.uint8)
        steps = tuple(stride * dtype.itemsize for stride in strides)
        array: Array = np.ndarray(tuple(dims), dtype, memory.data, offset, steps)
        if fixed:
            self._views[view] = array
        return array


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
