"""Assembler text: exact inverses, the documented syntax, and errors with line and column."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_strategies import SYMBOLS, programs

from isa.access import AccessPattern
from isa.affine import polynomial
from isa.alu import ALU
from isa.enums import DgeMode, Engine, Memory, OobMode
from isa.errors import NeuronError
from isa.files.text import assemble, disassemble, print_instruction
from isa.machine.control import LoopBegin
from isa.machine.dma import DmaCopy
from isa.machine.elementwise import TensorScalar
from isa.machine.gpsimd import Iota
from isa.program import RegisterReference
from isa.spec import Instruction

SIZE = polynomial(SYMBOLS["M"])


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(programs())
def test_assemble_inverts_disassemble(program):
    text = disassemble(program)
    again = assemble(text)
    assert again == program
    assert disassemble(again) == text


def _sbuf(dtype: str = "float32", **options: object) -> AccessPattern:
    return AccessPattern(Memory.sbuf, dtype, 0x5600, ((512, 4), (1, 512)), 0, 128, **options)


ROWS = AccessPattern(
    Memory.shared_hbm,
    "bfloat16",
    2 * SIZE,
    ((SIZE, 64), (1, 512)),
    tensor=2,
    registers=((3, 1024),),
    vector_offset=AccessPattern(Memory.sbuf, "int32", 0, ((1, 1),), 32, 64),
    vector_stride=512,
    vector_bound=SIZE,
)

PRINTED = [
    (
        Instruction(
            TensorScalar,
            Engine.vector,
            (_sbuf(), _sbuf("bfloat16"), ALU["multiply"], 0.5, False, None, None, True),
            waits=((45, 16), (3, 1)),
            updates=((8, 1),),
            location=3,
        ),
        "TensorScalar $S[45]-=16 $S[3]-=1 dst=float32@sbuf[p0+128]+0x5600[1,512][512,4] "
        "data=bfloat16@sbuf[p0+128]+0x5600[1,512][512,4] op0=multiply operand0=0.5 "
        "reverse0=false op1=absent operand1=absent reverse1=true $S[8]+=1@complete #3",
    ),
    (
        Instruction(DmaCopy, Engine.sync, (_sbuf(), ROWS, 1, DgeMode.none, OobMode.skip)),
        "DmaCopy dst=float32@sbuf[p0+128]+0x5600[1,512][512,4] "
        "src=bfloat16@shared_hbm[t2]+(2*M)+R3*1024[1,(M)][512,64]"
        "{rows=int32@sbuf[p32+64]+0x0[1][1] stride=512 bound=(M)} "
        "queue=1 dge_mode=none oob_mode=skip #0",
    ),
    (
        Instruction(LoopBegin, Engine.gpsimd, (RegisterReference(7), 0, SIZE // 128, 1, 12)),
        "LoopBegin register=R7 lower=0 upper=(M//128) step=1 exit=@12 #0",
    ),
    (
        Instruction(
            Iota, Engine.gpsimd, (_sbuf("int32"), ((-512, 4), (1, 512)), RegisterReference(2), -1)
        ),
        "Iota dst=int32@sbuf[p0+128]+0x5600[1,512][512,4] pattern=[1,-512][512,4] offset=R2 "
        "channel_multiplier=-1 #0",
    ),
]


@pytest.mark.parametrize(("instruction", "text"), PRINTED, ids=lambda x: str(x)[:12])
def test_documented_syntax(instruction, text):
    assert print_instruction(instruction) == text


HEAD = """\
.program "k" target=trn2
.symbol M minimum=128 maximum=8192 multiple_of=128
.tensor t0 "a" float32[(M),512] input
.parameters "a"=t0
.results
.core
.queue 0 "qSyncIO0" engine=sync
.stream sync
"""


def test_index_location_and_comments_may_be_left_out():
    program = assemble(
        HEAD
        + "; waits for nothing\n\n"
        + "  DrainQueue   queue=0   $S[3]+=1@complete ; the only queue\n"
        + "1: Halt #5\n"
    )
    drain, halt = program.cores[0].streams[Engine.sync]
    assert (drain.values, drain.waits, drain.updates, drain.location) == ((0,), (), ((3, 1),), 0)
    assert halt.location == 5
    assert program.tensors[0].shape == (SIZE, 512)


@pytest.mark.parametrize(
    ("line", "column", "words"),
    [
        ("  0: Bogus", 6, "`Bogus` is not an instruction"),
        ("  0: TensorTensor", 6, "TensorTensor does not run on sync"),
        ("  1: Halt", 3, "expected instruction 0"),
        ("  Halt queue=1", 8, "the end of the line"),
        ("  DrainQueue", 13, "`queue=`"),
        ("  DrainQueue queue=R1", 20, "an integer"),
        ("  DrainQueue queue=(M + K)", 20, "unknown name 'K'"),
        ("  DrainQueue queue=(M", 20, "not closed"),
        ("  DrainQueue queue=1 $S[2]-=1", 27, "`+=`"),
        ("  DrainQueue queue=0x", 20, "an integer"),
        ("  DrainQueue queue=007", 20, "an integer"),
        ("  DrainQueue queue=absent", 20, "an integer"),
        ("  RegisterLoad dst=R1 src=float33@sbuf[p0+1]+0x0[1][1]", 27, "`float33` is not a dtype"),
        ("  RegisterLoad dst=R1 src=float32@hbm[t0]+0x0[1][1]", 35, "`hbm` is not a memory"),
        ("  RegisterLoad dst=R1 src=1.5", 27, "a dtype"),
        ("  RegisterLoad dst=R1 src=float32@sbuf[p0+1]+0x0[1,2][1]", 57, "2 strides, 1 counts"),
        ('.tensor t2 "b" float32[1] input', 10, "expected tensor 1"),
        ('.tensor t1 "b" float32[1] constant data="?"', 44, "base64"),
        (".results t9", 12, "no tensor t9"),
        ('.tensor t1 "b" float33[1] input', 16, "`float33` is not a dtype"),
        ('.tensor t1 "b" float32[1] inputs', 27, "`inputs` is not a role"),
        ('.storage "x" hbm float32[1] p0+1 offset=0 bytes=4 location=0', 14, "on chip"),
        (".symbol N minimum=1 maximum=0 multiple_of=1", 44, "no value"),
        (".symbol M minimum=1 maximum=2 multiple_of=1", 10, "a second symbol M"),
        (".stream dma2", 9, "`dma2` is not an engine"),
        (".bogus", 2, "`bogus` is not a directive"),
        ('.program "x" target=trn2', 10, "a second"),
        (".guard (M) M >= 1", 12, "double quotes"),
        ('.location 0 "bad\\q" line=1 columns=1:2 "f" "t"', 13, "JSON"),
        ("  DrainQueue queue=" + "9" * 5000, None, "4300"),
    ],
)
def test_errors_name_line_and_column(line, column, words):
    with pytest.raises(NeuronError) as caught:
        assemble(HEAD + line + "\n")
    error = caught.value
    assert error.code == "assembler-syntax"
    assert words in error.what
    assert error.what.startswith("line 9, column")
    if column is not None:
        assert error.what.startswith(f"line 9, column {column}:")
        assert error.notes == (line, " " * (column - 1) + "^")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('.tensor t1 "b" float32[1] input location=9', "t1 is of location 9"),
        ('.tensor t1 "b" float32[1] input within=t7+0', "t1 lies within t7"),
        ('.guard (M) "M >= 1" #9', "a guard is of location 9"),
    ],
)
def test_numbers_of_lines_and_tensors_that_there_are_none_of(line, words):
    with pytest.raises(NeuronError, match=words) as caught:
        assemble(HEAD + line + "\n")
    assert caught.value.code == "assembler-syntax"


@pytest.mark.parametrize("text", ["", "; nothing\n", ".core\n", "  0: Halt\n"])
def test_text_without_a_program_is_refused(text):
    with pytest.raises(NeuronError, match=r"program|stream"):
        assemble(text)


SAMPLE = HEAD + "\n".join(
    f"  {i}: {text}" for i, (instruction, text) in enumerate(PRINTED) if "Dma" in text
).replace("  1:", "  0:")


@settings(deadline=None, max_examples=300)
@given(
    st.integers(0, len(SAMPLE) - 1),
    st.integers(0, 3),
    st.text(alphabet='0R$[]{}(),.:+-*/@#;"\\ \nabstp=²é', max_size=3),
)
def test_damaged_text_never_crashes(position, removed, inserted):
    assemble(SAMPLE)
    try:
        assemble(SAMPLE[:position] + inserted + SAMPLE[position + removed :])
    except NeuronError as error:
        assert error.code == "assembler-syntax"
