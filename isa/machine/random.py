"""Machine instructions that draw random numbers, and the generators that they draw from.

Each compute lane of an engine has a generator of its own, whose state lasts until the program ends.
Lane p serves partition p. The elements of a partition are drawn in row-major order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from isa.enums import Engine
from isa.fields import ON_CHIP, SBUF, EngineState, Read, Write
from isa.machine import costs
from isa.spec import ISA, MachineInstruction

RANDOM = "random"
"""Name of the engine state: the generators of an engine's lanes."""


class Algorithm(Enum):
    """How a generator makes 32 bits from its state.

    `xorwow`: Marsaglia, "Xorshift RNGs" (2003), section 3.1: a word is drawn from the state
    (x, y, z, w, v, d). `lfsr`: 32 steps of the Galois register of x^32 + x^22 + x^2 + x + 1; the
    documents name the kind of generator and no polynomial, so this one, of full period, is assumed.
    """

    lfsr = "lfsr"
    xorwow = "xorwow"


@dataclass(frozen=True, slots=True)
class Generator:
    """The generator of a lane: element i of a partition is drawn from state i modulo `states`."""

    algorithm: Algorithm
    states: int
    words: int
    source: str

    @property
    def state_words(self) -> int:
        """Words of all states together, those of the first state first."""
        return self.states * self.words


_STUB = ISA + "rand_set_state"
_XORWOW = Generator(Algorithm.xorwow, 1, 6, _STUB)
_LFSR = Generator(Algorithm.lfsr, 1, 1, "ARCH4 (XORWOW-based PRNG)")

GENERATORS: dict[tuple[Engine, int], Generator] = {
    (Engine.vector, 2): _LFSR,
    (Engine.vector, 3): _LFSR,
    (Engine.vector, 4): Generator(Algorithm.xorwow, 4, 6, "ARCH4 (XORWOW-based PRNG)"),
    (Engine.gpsimd, 3): _XORWOW,
    (Engine.gpsimd, 4): _XORWOW,
}
"""By engine and generation (SDK nki.isa.rng, nki.isa.rand_set_state, "Constraints")."""


class RandomBits(MachineInstruction):
    """dst = the low bits of a new 32-bit number for every element."""

    opcode = 0x80
    engines = (Engine.vector, Engine.gpsimd)
    cost = costs.RANDOM
    state = (EngineState(RANDOM),)
    document = ISA + "rng"
    dst = Write(ON_CHIP)


class RandomUniform(MachineInstruction):
    """dst = low + u * (high - low) in fp32, where u is the upper 24 bits of a new number / 2^24."""

    opcode = 0x81
    engines = (Engine.vector,)
    cost = costs.RANDOM
    state = (EngineState(RANDOM),)
    document = ISA + "rand2"
    dst = Write(ON_CHIP)
    low = Read(ON_CHIP, immediate=True, column=True)
    high = Read(ON_CHIP, immediate=True, column=True)


class Dropout(MachineInstruction):
    """dst = 0 where u < probability, else data, bit for bit; u as in RandomUniform."""

    opcode = 0x82
    engines = (Engine.vector,)
    cost = costs.DROPOUT
    state = (EngineState(RANDOM),)
    document = ISA + "dropout"
    dst = Write(ON_CHIP)
    data = Read(ON_CHIP)
    probability = Read(ON_CHIP, immediate=True, column=True)


class SeedRandom(MachineInstruction):
    """Every lane's state = words derived from the one seed and the lane's number."""

    opcode = 0x83
    engines = (Engine.vector,)
    cost = costs.RANDOM_STATE
    state = (EngineState(RANDOM, reads=False),)
    document = ISA + "set_rng_seed"
    seed = Read(ON_CHIP)


class SetRandomState(MachineInstruction):
    """The state of the lane of each partition = the words in that partition."""

    opcode = 0x84
    engines = (Engine.vector, Engine.gpsimd)
    cost = costs.RANDOM_STATE
    state = (EngineState(RANDOM),)
    document = ISA + "rand_set_state"
    words = Read(SBUF)


class GetRandomState(MachineInstruction):
    """Each partition of dst = the words of the state of its lane."""

    opcode = 0x85
    engines = (Engine.vector, Engine.gpsimd)
    cost = costs.RANDOM_STATE
    state = (EngineState(RANDOM, writes=False),)
    document = ISA + "rand_get_state"
    dst = Write(ON_CHIP)
