"""What the cores of a kernel share while it is built: parameters, tensors, guards, results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from isa.affine import Symbol
from isa.affine import symbols_of as symbols_of_form
from isa.enums import Memory
from isa.errors import NeuronError
from isa.target import Target
from nki.ir.builder.guards import Guards
from nki.ir.builder.results import Results
from nki.ir.nodes import Node, Tensor, TracedKernel
from nki.ir.views.tensor import NkiTensor


@dataclass(slots=True, eq=False)
class Declarations:
    """The declarations of a kernel for `cores` cores of a target, as far as they are made."""

    name: str
    target: Target
    cores: int
    parameters: list[Tensor] = field(default_factory=list)
    parameter_names: list[str] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    guards: Guards = field(default_factory=Guards)
    symbols: list[Symbol] = field(default_factory=list)
    results: Results = field(default_factory=lambda: Results(()))
    inlined: dict[str, int] = field(default_factory=dict)
    returned: list[NkiTensor] = field(default_factory=list)

    def parameter(
        self,
        shape: tuple[Any, ...],
        dtype: str,
        name: str,
        location: Any = None,
        within: Tensor | None = None,
        offset: Any = 0,
    ) -> Tensor:
        """The next parameter: a tensor in HBM, shared where there are several cores, or bytes of
        another one from byte `offset` of it on. A name that is taken gets a number. Raises
        value-not-allowed for two launch symbols of one name."""
        taken = {tensor.label for tensor in self.parameters}
        label, count = name, 0
        while label in taken:
            count += 1
            label = f"{name}.{count}"
        memory, core = parameter_memory(self.cores)
        if within is not None:
            memory, core = within.memory, within.core
        tensor = Tensor(
            len(self.tensors),
            label,
            memory,
            dtype,
            shape,
            "input",
            None,
            core,
            location,
            within=within,
            offset=offset,
        )
        self.symbols = symbols_in([self.symbols, shape])
        self.parameters.append(tensor)
        self.parameter_names.append(label)
        self.tensors.append(tensor)
        return tensor

    def kernel(self, bodies: list[list[Node]]) -> TracedKernel:
        """The kernel with these bodies, one a core."""
        for tensor in self.results:
            if tensor.role == "local":
                tensor.role = "output"
            elif tensor.role == "input":
                tensor.role = "inout"
        return TracedKernel(
            self.name,
            self.target.name,
            self.parameters,
            self.parameter_names,
            self.results,
            bodies,
            self.tensors,
            list(self.symbols),
            self.guards.conditions,
        )


def parameter_memory(cores: int) -> tuple[Memory, int | None]:
    """Where the parameters of a kernel are, and whose they are."""
    return (Memory.private_hbm, 0) if cores == 1 else (Memory.shared_hbm, None)


def symbols_in(shapes: Iterable[Sequence[Any]]) -> list[Symbol]:
    """Launch symbols of the shapes, by name. Raises value-not-allowed for two of one name."""
    found: dict[str, Symbol] = {}
    for shape in shapes:
        for size in shape:
            for item in sorted(_symbols(size), key=lambda s: s.key):
                if found.setdefault(item.name, item) != item:
                    raise NeuronError(
                        "value-not-allowed",
                        what=f"two launch symbols are called {item.name}: "
                        f"{found[item.name].condition}; and {item.condition}",
                        why="A symbol is its name.",
                        hint="Make the symbol once and use it in every shape, or rename one.",
                    )
    return [found[name] for name in sorted(found)]


def _symbols(size: Any) -> Iterable[Symbol]:
    return (size,) if isinstance(size, Symbol) else symbols_of_form(size)
