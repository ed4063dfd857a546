"""The operators that `op=` arguments name: `nl.add`, `nl.exp`, ...

Each is a function whose `alu` is the row of the ALU operator table it stands for, and whose
`activation` that of the activation table; None where it is not in that table.
"""

from __future__ import annotations

from typing import Any, NoReturn

from isa.alu import ACTIVATIONS, ALU, Activation, AluOperator
from isa.errors import NeuronError


class Operator:
    """An element-wise operator by its public name.

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def clipped_exp(a):
    ...     tile = nl.load(a)
    ...     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.minimum, operand0=0.0)
    ...     nisa.activation(dst=tile, op=nl.exp, data=tile)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, tile)
    ...     return out
    >>> print(clipped_exp(np.array([[-1, 0, 1]], np.float32)).round(3))
    [[0.368 1.    1.   ]]
    """

    __module__ = "nki.language"

    def __init__(self, name: str, alu: AluOperator | None, activation: Activation | None) -> None:
        self.__name__ = name
        self.__qualname__ = name
        self.alu = alu
        self.activation = activation
        tables = [
            f"{table} ({argument})"
            for row, table, argument in (
                (alu, "ALU operator", "`op` of nisa.tensor_tensor and its kin"),
                (activation, "activation function", "`op` of nisa.activation"),
            )
            if row is not None
        ]
        self.__doc__ = f"{name}: {' and '.join(tables)}."

    def __call__(self, x: Any, y: Any = None, dtype: Any = None) -> NoReturn:
        if self.alu is not None and self.alu.arity == 2:
            hint = f"Write nisa.tensor_tensor(dst, x, y, op=nl.{self.__name__})"
        elif self.activation is not None:
            hint = f"Write nisa.activation(dst, op=nl.{self.__name__}, data=x)"
        else:
            hint = f"Write nisa.tensor_scalar(dst, x, op0=nl.{self.__name__}, operand0=...)"
        raise NeuronError(
            "not-supported",
            what=f"nl.{self.__name__} was called as a function",
            why="nki.language operators are names for op= arguments.",
            hint=hint + " into a tile of your own.",
        )

    def __repr__(self) -> str:
        return f"nl.{self.__name__}"

    def __reduce__(self) -> str:
        return self.__name__


OPERATORS: dict[str, Operator] = {
    name: Operator(name, ALU.get(name), ACTIVATIONS.get(name))
    for name in sorted({*ALU, *ACTIVATIONS})
}
"""Every operator by its name in `nki.language`."""
