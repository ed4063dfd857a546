"""Operations that draw random numbers.

Every engine with a generator has one state a compute lane (`isa.machine.random`); it lasts until
the program ends, and starts at values that depend on engine and lane only. So a kernel gives the
same numbers every time.
"""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.enums import Engine
from isa.fields import ON_CHIP, SBUF, Attribute, Kind, Read, Write
from isa.machine import random
from isa.spec import Operation

_INTEGERS = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32"})
_GENERATING = (Engine.vector, Engine.gpsimd)
_UINT32 = frozenset({"uint32"})


class Rng(Operation):
    """dst = new random bits: each element the low bits of a 32-bit number of its lane's generator.

    Raises dtype-not-allowed (no integers), generation and engine-not-allowed (gpsimd before gen3,
    or with dst in PSUM).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def bits():
        ...     tile = nl.ndarray((128, 64), dtype=nl.uint16, buffer=nl.sbuf)
        ...     nisa.rng(dst=tile)
        ...     out = nl.ndarray(tile.shape, dtype=nl.uint16, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> first = bits()
        >>> bool((first == bits()).all()), bool(abs(first.mean() / 65535 - 0.5) < 0.02)
        (True, True)
    """

    name = "rng"
    machine = random.RandomBits
    engines = _GENERATING
    dst = Write(ON_CHIP, dtypes=_INTEGERS)
    engine = Attribute(kind=Kind.engine, choices=_GENERATING, default=Engine.vector)
    rules = (rules.random.random_engine(),)


class Rand2(Operation):
    """dst = random numbers, uniform between min and max, in fp32 before the cast to dst's dtype.

    min and max are numbers or fp32 columns [P, 1]. gen4. Raises generation, dtype-not-allowed,
    shape-mismatch, value-not-allowed (min not below max).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit(platform_target="trn3")
        ... def noise():
        ...     tile = nl.ndarray((128, 100), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.rand2(dst=tile, min=-1.0, max=1.0)
        ...     out = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> sample = noise()
        >>> bool(-1 <= sample.min() < -0.99), bool(0.99 < sample.max() <= 1)
        (True, True)
    """

    name = "rand2"
    machine = random.RandomUniform
    engines = (Engine.vector,)
    generations = (4,)
    dst = Write(
        ON_CHIP,
        dtypes=_INTEGERS
        | {"float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32"},
    )
    min = Read(ON_CHIP, immediate=True, column=True)
    max = Read(ON_CHIP, immediate=True, column=True)
    rules = (
        *rules.operands.column_operands("dst", "min", "max"),
        rules.operands.float32_columns(None, "min", "max"),
        rules.random.rand_limits,
    )

    @classmethod
    def signature_decides(cls, values: tuple[Any, ...]) -> bool:
        """Two numbers are a range or not."""
        return any(rules.is_tensor(values[cls.places[limit]]) for limit in ("min", "max"))


class Dropout(Operation):
    """dst = data, with each element replaced by zero with probability prob.

    prob is a number from 0 (keep all) to 1 (drop all), or a column [P, 1] with one a partition.
    What is kept is kept bit for bit, not scaled. Raises shape-mismatch, dtype-not-allowed,
    value-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def drop(a):
        ...     tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.dropout(dst=tile, data=nl.load(a), prob=0.25)
        ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> kept = drop(np.ones((128, 100), np.float32))
        >>> print(np.unique(kept), bool(abs(kept.mean() - 0.75) < 0.02))
        [0. 1.] True
    """

    name = "dropout"
    machine = random.Dropout
    engines = (Engine.vector,)
    dst = Write(ON_CHIP)
    data = Read(ON_CHIP)
    prob = Read(ON_CHIP, immediate=True, column=True)
    rules = (
        rules.operands.same_elements("dst", "data"),
        rules.operands.same_dtype("dst", "data"),
        rules.operands.column_operand("data", "prob"),
        rules.random.dropout_probability,
    )

    @classmethod
    def signature_decides(cls, values: tuple[Any, ...]) -> bool:
        """A number is a probability or not."""
        return rules.is_tensor(values[cls.places["prob"]])


class SetRngSeed(Operation):
    """Seed the generators of the vector engine from one 32-bit value, src_seeds [1, 1].

    The same seed gives the same numbers again. Raises shape-mismatch, dtype-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def twice(seed):
        ...     value = nl.load(seed)
        ...     both = nl.ndarray((4, 2), dtype=nl.uint32, buffer=nl.sbuf)
        ...     for column in range(2):
        ...         nisa.set_rng_seed(value)
        ...         nisa.rng(both[:, column : column + 1])
        ...     out = nl.ndarray(both.shape, dtype=nl.uint32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=both)
        ...     return out
        >>> numbers = twice(np.array([[42]], np.int32))
        >>> bool((numbers[:, 0] == numbers[:, 1]).all()), len(np.unique(numbers[:, 0]))
        (True, 4)
    """

    name = "set_rng_seed"
    machine = random.SeedRandom
    engines = (Engine.vector,)
    src_seeds = Read(ON_CHIP)
    rules = (rules.operands.one_element("src_seeds"), rules.random.seed_bits)


class RandSetState(Operation):
    """The states of an engine's generators = src_seeds, each partition's words for its lane.

    6 words a lane on gpsimd (x, y, z, w, v, d of XORWOW), four times 6 on vector (gen4). Raises
    generation, shape-mismatch, dtype-not-allowed (not uint32), wrong-memory (PSUM).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit(platform_target="trn2")
        ... def numbers(state):
        ...     nisa.rand_set_state(nl.load(state))
        ...     tile = nl.ndarray((state.shape[0], 3), dtype=nl.uint32, buffer=nl.sbuf)
        ...     nisa.rng(tile, engine=nisa.engine.gpsimd)
        ...     out = nl.ndarray(tile.shape, dtype=nl.uint32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> state = [[123456789, 362436069, 521288629, 88675123, 5783321, 6615241]]
        >>> print(numbers(np.array(state, np.uint32)))  # as in Marsaglia's paper
        [[ 246875399 3690007200 1264581005]]
    """

    name = "rand_set_state"
    machine = random.SetRandomState
    engines = _GENERATING
    generations = (3, 4)
    src_seeds = Read(SBUF, dtypes=_UINT32)
    engine = Attribute(kind=Kind.engine, choices=_GENERATING, default=Engine.gpsimd)
    rules = (
        rules.random.random_engine(states=True),
        rules.random.state_words("src_seeds"),
    )


class RandGetState(Operation):
    """dst = the states of an engine's generators, each lane's words in its partition.

    The words are those of `rand_set_state`. Raises generation, shape-mismatch, dtype-not-allowed
    (not uint32), engine-not-allowed and wrong-memory (PSUM with gpsimd, or before gen4).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit(platform_target="trn2")
        ... def state_after_three(state):
        ...     nisa.rand_set_state(nl.load(state))
        ...     tile = nl.ndarray((1, 3), dtype=nl.uint32, buffer=nl.sbuf)
        ...     nisa.rng(tile, engine=nisa.engine.gpsimd)
        ...     after = nl.ndarray(state.shape, dtype=nl.uint32, buffer=nl.sbuf)
        ...     nisa.rand_get_state(after)
        ...     out = nl.ndarray(state.shape, dtype=nl.uint32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=after)
        ...     return out
        >>> print(state_after_three(np.array([[1, 2, 3, 4, 5, 6]], np.uint32)))  # d + 3 * 362437
        [[      4       5      86    1328   22069 1087317]]
    """

    name = "rand_get_state"
    machine = random.GetRandomState
    engines = _GENERATING
    generations = (3, 4)
    dst = Write(ON_CHIP, dtypes=_UINT32)
    engine = Attribute(kind=Kind.engine, choices=_GENERATING, default=Engine.gpsimd)
    rules = (
        rules.random.random_engine(states=True),
        rules.random.state_words("dst"),
    )
