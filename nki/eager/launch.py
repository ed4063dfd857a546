"""One eager run of a kernel: what its cores share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from isa.enums import Memory
from isa.errors import NeuronError
from isa.spec import MachineInstruction
from isa.target import Target
from nki.eager.numbers import EagerNumbers
from nki.eager.storage import EagerTensor
from nki.frameworks.arrays import as_numpy
from nki.ir.builder.declarations import Declarations, parameter_memory
from nki.ir.locations import resolve
from nki.ir.nodes import Op, Tensor
from nki.ir.open_loops import Iteration
from nki.trace.call import TensorSpec, spec_of
from nki.trace.shared import SharedTensors
from nki.verification.hbm_capacity import HbmInUse
from simulator.checks.initialised import Shadow
from simulator.prepare import Barriers
from simulator.races.replicated import InStep
from simulator.races.unordered import Unordered
from simulator.watchdog import Watchdog

Array = np.ndarray[Any, Any]


class Follower(Protocol):
    """Sees what cores execute, in the order in which they do."""

    def __call__(
        self, core: int, op: Op, row: type[MachineInstruction], values: Sequence[Any]
    ) -> None:
        """An instruction of an operation has computed or moved data."""


class EagerLaunch:
    """What the cores of a run share: tensors and how they are watched. `name` is the kernel's; the
    other arguments are those of `nki.eager.eager.run_eager`.

    The `shadow` finds reads of data that was never written. `in_step`, `unordered` and `numbers`
    are there where several cores run: what they write alike, what they access in shared HBM, and
    how they made what they hold.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        cores: int,
        check: bool,
        native: bool,
        watch: Follower | None,
    ) -> None:
        self.native = native
        self.watch = watch
        self.target = target
        self.cores = cores
        self.shadow = Shadow() if check else None
        self.declarations = Declarations(name, target, cores)
        self.shared = SharedTensors()
        self.barriers = Barriers()
        self.in_step = InStep() if cores > 1 else None
        self.unordered = Unordered(cores) if cores > 1 and check else None
        self.numbers = EagerNumbers() if cores > 1 and check else None
        self.hbm = HbmInUse(name, target)
        self.number = object()
        """Stands for this run in the tensors that it makes."""
        self.watchdog = Watchdog()
        self.tensors = 0
        self.rows: set[str] = set()
        """The names of the rows of all operations that ran."""
        self.arrays: list[Array] = []
        self.parameters: list[EagerTensor] = []

    def tensor(
        self,
        name: str,
        memory: Memory,
        dtype: str,
        shape: tuple[int, ...],
        address: tuple[int, int] | None,
        core: int | None,
        location: Any,
        data: Any = None,
        role: str = "local",
        iteration: Iteration | None = None,
    ) -> EagerTensor:
        """A new tensor; it holds `data`, or nothing."""
        number = self.tensors
        description = Tensor(
            number, name, memory, dtype, shape, role, address, core, location, data
        )
        if not memory.on_chip:
            self.hbm.add(description, iteration)
        tensor = EagerTensor(description, self.shadow, self.number, iteration)
        self.tensors += 1
        if data is not None:
            tensor.contents.assign(data)
        return tensor

    def parameter(self, value: Any, name: str) -> Any:
        """Make the tensor of an array argument, which is returned. Raises not-a-tensor."""
        if isinstance(value, TensorSpec):
            raise NeuronError(
                "not-a-tensor",
                what=f"{name} is a TensorSpec, which has no data",
                why="Eager mode computes with values.",
                hint="Pass an array.",
            )
        array = as_numpy(value, name)
        spec = spec_of(array, name)
        memory, core = parameter_memory(self.cores)
        tensor = self.tensor(name, memory, spec.dtype, spec.shape, None, core, None, role="input")
        tensor.contents.assign(array)
        self.arrays.append(array)
        self.parameters.append(tensor)
        return value

    def refuse_unordered(self, core: int, meetings: int | None) -> None:
        """A core has come to a meeting, its number `meetings`, or ended. Raises race."""
        if self.unordered is not None:
            from nki.verification import refuse_unordered

            refuse_unordered(self.unordered.races(core, meetings, resolve))
