"""The error catalogue's rows of programs: running (4xx), containers, assembler and launch (5xx),
command line, files and intermediate representation (6xx).
"""

from __future__ import annotations

from isa.errors.entry import CatalogueEntry

_API = "nki/api/nki.isa.rst"
_GUIDE = "nki/get-started/nki-language-guide.rst"
_LOOPS = "nki/deep-dives/nki-dynamic-loops.rst"
_PATTERNS = "nki/deep-dives/nki-aps.rst"
_entry = CatalogueEntry

PROGRAM_ERRORS: dict[str, CatalogueEntry] = {
    "uninitialised-output": _entry(
        401,
        "Output holds data that was never written",
        "A result may only depend on elements that an instruction has written before; what "
        "memory holds at the start is undefined on hardware.",
        "Write the whole tensor first (nisa.memset, in PSUM a matmul with accumulate=False), or "
        "restrict the operation to the part that was written; what another core writes is there "
        "after a nisa.core_barrier.",
        _GUIDE,
    ),
    "output-not-written": _entry(
        402,
        "Output never written",
        "Every element of a result must be written by the kernel.",
        "Copy the result into it with nisa.dma_copy before returning it.",
        _GUIDE,
    ),
    "dynamic-out-of-bounds": _entry(
        403,
        "Run-time access outside the tensor",
        "Offsets from registers and row indices must stay inside the tensor that they select "
        "from, unless oob_mode=skip asks to drop the rows.",
        "Check the loop bounds and the index data, or pass oob_mode=oob_mode.skip for "
        "indirect rows.",
        _PATTERNS,
    ),
    "deadlock": _entry(
        404,
        "Program cannot go on",
        "Every engine waits for a semaphore that no one will update.",
        "This is a defect of the compiled or hand-written program: look at the listed waits.",
    ),
    "integer-division": _entry(
        405,
        "Integer division by zero",
        "Division and remainder need a divisor other than zero.",
        "Clamp the divisor, or mask the lanes that divide by zero.",
        _API,
    ),
    "loop-limit": _entry(
        406,
        "Loop does not end",
        "One engine executed more instructions in loops than NKI_LOOP_LIMIT states, 20,000,000 "
        "without it; in eager mode a loop had more than 1,000,000 iterations.",
        "Check the bounds of the loop, or that its body brings the register that it tests to 0; "
        "NKI_LOOP_LIMIT allows more.",
        _LOOPS,
    ),
    "indices-not-unique": _entry(
        407,
        "Two rows added to one",
        "Transfers read, add and write rows independently: where an index comes twice, one of the "
        "sums may be lost (SDK nki.isa.dma_compute, unique_indices).",
        "Make the indices of a scatter differ, or drop rows with an index outside the tensor and "
        "oob_mode.skip.",
        _API,
    ),
    "uninitialised-control": _entry(
        408,
        "Data that was never written decides what runs",
        "Indices of rows, and what registers load for trip counts, branches and offsets, must have "
        "been written before.",
        "Write the whole tile first, with nisa.dma_copy, nisa.iota or nisa.memset, or use the part "
        "of it that is written.",
        _GUIDE,
    ),
    "time-limit": _entry(
        409,
        "Run takes too long",
        "A run ends after the wall time that NKI_RUN_SECONDS states, ten minutes without it.",
        "Look at where the engines stand; set NKI_RUN_SECONDS for a run that needs longer.",
        _LOOPS,
    ),
    "memory-limit": _entry(
        410,
        "Run takes too much memory",
        "A run ends when the process holds more memory than NKI_MEMORY_LIMIT states, three "
        "quarters of the machine's without it.",
        "Look for what a loop of Python keeps in each iteration; profile fewer iterations, as a "
        "profile keeps what each of them decided; or set NKI_MEMORY_LIMIT.",
        _LOOPS,
    ),
    "simulated-time-limit": _entry(
        411,
        "Kernel takes too long on the device",
        "A profile ends when the modelled time of an engine passes NKI_SIMULATED_SECONDS, ten "
        "without it.",
        "Profile smaller sizes or fewer iterations; set NKI_SIMULATED_SECONDS for a kernel that is "
        "to take longer on the device.",
        _LOOPS,
    ),
    "container-truncated": _entry(
        501,
        "Container is incomplete",
        "A container is a header and the archive whose length the header states.",
        "Compile again, or copy the file again: bytes are missing at its end.",
    ),
    "container-corrupt": _entry(
        502,
        "Container is damaged",
        "The contents of a container must match the checksums in it.",
        "Compile again, or copy the file again.",
    ),
    "container-version": _entry(
        503,
        "Container of another version",
        "A container runs with the format version that it was written in.",
        "Compile the kernel again with this installation.",
    ),
    "container-vendor": _entry(
        504,
        "Container of the vendor's compiler",
        "The vendor's instruction encoding is not public: containers of its compiler run on "
        "hardware only, and ours run here only.",
        "Compile the kernel with `nki compile` to run it here.",
    ),
    "assembler-syntax": _entry(
        505,
        "Assembler text cannot be read",
        "Assembler text has the form that the disassembler prints.",
        "Compare the line with the output of `nki disasm`.",
    ),
    "input-mismatch": _entry(
        506,
        "Inputs differ from what the program declares",
        "The inputs of a launch must have the number, data types and shapes that the program "
        "was compiled for.",
        "Pass arrays of the listed data types and shapes.",
    ),
    "unknown-kernel": _entry(
        601,
        "Kernel not found",
        "FILE:KERNEL names a function decorated with @nki.jit at the top level of the file.",
        "Use one of the kernel names in the message.",
    ),
    "unknown-input": _entry(
        602,
        "Input that is missing, or that the kernel does not have",
        "Every --input names a parameter of the kernel, once; every parameter without a default "
        "takes an --input (tensor) or an --arg (value).",
        "Name the parameters of the message: --input 'a=normal(128,512):float32', --arg scale=2.",
    ),
    "bad-input-spec": _entry(
        603,
        "Description of an input, symbol or argument cannot be read",
        "An input is NAME=KIND(SIZE,...):DTYPE, NAME=[VALUES], NAME=@FILE or an expression. Kinds "
        "are normal, uniform, randint, choice, permutation, onehot, zeros, ones and arange.",
        "For example: --input a=normal(1024,1024):bfloat16.",
    ),
    "file-not-found": _entry(
        604,
        "File not found",
        "The file must exist and be readable.",
        "Check the path.",
    ),
    "not-writable": _entry(
        605,
        "File cannot be written",
        "The folder of an output file must exist and be writable.",
        "Choose another path, or create the folder.",
    ),
    "unknown-target": _entry(
        606,
        "Unknown target",
        "A target is trn1 (also inf2, gen2), trn2 (gen3) or trn3 (gen4).",
        "Pass one of these names, or unset NEURON_PLATFORM_TARGET_OVERRIDE.",
    ),
    "unknown-mode": _entry(
        607,
        "Unknown mode",
        'A kernel runs in mode "device", "reference" or "eager".',
        "Pass one of these modes.",
    ),
    "unknown-stage": _entry(
        608,
        "Unknown stage of the compiler",
        "A kernel can be looked at as traced, after each pass, and as a program.",
        "Pass one of the stages that the message names.",
    ),
    "unknown-function": _entry(
        609,
        "Function not found",
        "--expect names a function at the top level of the kernel's file, or FILE:FUNCTION.",
        "Use one of the function names in the message.",
    ),
    "ir-syntax": _entry(
        610,
        "Tile IR text cannot be read",
        "Tile IR text has the form that the printer writes.",
        "Compare the line with the output of `nki ir`.",
    ),
    "ir-invalid": _entry(
        611,
        "Tile IR breaks an invariant",
        "The verifier checks every kernel before and after each pass.",
        "This is a defect of the pass named in the message, or of IR text written by hand.",
    ),
    "not-supported": _entry(
        699,
        "Not supported",
        "This project does not implement this feature.",
        "Use the alternative that the message names.",
    ),
    "not-encodable": _entry(
        507,
        "Value that an instruction cannot hold",
        "Every field of an instruction has a type and a width in the encoding.",
        "This is a defect of the compiler, or of a program written by hand: look at the field "
        "named in the message.",
    ),
    "program-malformed": _entry(
        508,
        "Program that cannot be executed",
        "The operands of instructions, and what a program declares, fit together in programs that "
        "this compiler makes.",
        "Compile the kernel again. If this compiler made the program, it is a defect: please "
        "report it with the file.",
    ),
    "missing-extra": _entry(
        612,
        "Optional library missing",
        "Pictures, files of other systems and their programs need libraries that are optional.",
        "Install the extra that the message names.",
    ),
    "output-disagrees": _entry(
        614,
        "Results that differ from the reference",
        "A kernel is tuned only among settings whose results agree with its reference.",
        "Run the kernel with the setting that the message names and compare, or give the "
        "tolerance that the kernel's data types need.",
    ),
    "front-end": _entry(
        613,
        "Program that its own front-end refuses",
        "A program must be valid in its own system before it can become a graph.",
        "Correct the program at the place that the message names.",
    ),
}
