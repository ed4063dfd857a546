"""The error catalogue's rows of kernels: one operation (1xx), tracing (2xx), lowering (3xx)."""

from __future__ import annotations

from isa.errors.entry import CatalogueEntry

_API = "nki/api/nki.isa.rst"
_GUIDE = "nki/get-started/nki-language-guide.rst"
_ARCHITECTURE = "nki/guides/architecture/trainium_inferentia2_arch.rst"
_LOOPS = "nki/deep-dives/nki-dynamic-loops.rst"
_PATTERNS = "nki/deep-dives/nki-aps.rst"
_entry = CatalogueEntry

KERNEL_ERRORS: dict[str, CatalogueEntry] = {
    "partition-limit": _entry(
        101,
        "More partitions than the memory has",
        "The first dimension of an SBUF or PSUM tensor is the partition dimension, and "
        "on-chip memories have 128 partitions.",
        "Split the first dimension into tiles of at most nl.tile_size.pmax rows, or move part "
        "of it into a free dimension.",
        _ARCHITECTURE,
    ),
    "wrong-memory": _entry(
        102,
        "Operand in a memory that this operation cannot reach",
        "Each operand of an instruction must be in one of the memories that its engine port "
        "is wired to: compute engines reach SBUF and PSUM only, the tensor engine reads SBUF "
        "and writes PSUM, DMA reaches HBM and SBUF.",
        "Copy the tensor first: nisa.dma_copy between HBM and SBUF, nisa.tensor_copy between "
        "PSUM and SBUF.",
        _API,
    ),
    "shape-mismatch": _entry(
        103,
        "Operand shapes do not fit together",
        "The operands of one instruction must cover the same partitions and the same number "
        "of elements in each partition, unless the operation says otherwise.",
        "Slice, reshape or allocate the operands so that their shapes agree.",
        _API,
    ),
    "contraction-mismatch": _entry(
        104,
        "Contraction sizes of a matrix multiplication differ",
        "The tensor engine contracts along the partition dimension, so stationary [K, M] and "
        "moving [K, N] need the same K.",
        "Put the contraction dimension of both inputs on the partitions (nisa.nc_transpose "
        "turns a tile), and slice both to the same K.",
        _API,
    ),
    "dtype-not-allowed": _entry(
        105,
        "Data type that this operand cannot have",
        "An instruction accepts only the data types that its engine decodes for that operand.",
        "Cast the operand with nisa.tensor_copy into a tensor of an accepted data type.",
        _API,
    ),
    "operator-not-allowed": _entry(
        106,
        "Operator that this operation cannot run",
        "Each operation takes a subset of the ALU operators: arithmetic and bit-vector "
        "operators cannot be mixed, and some positions need a comparison, a binary or a "
        "reducing operator.",
        "Choose an operator of the accepted kind, or split the work into two operations.",
        _API,
    ),
    "engine-not-allowed": _entry(
        107,
        "Engine that cannot run this operation",
        "An operation runs only on engines that implement it for the given operands; the "
        "GpSimd engine, for example, has no access to PSUM.",
        "Leave `engine` out to let the compiler choose, or name one of the listed engines.",
        _API,
    ),
    "generation": _entry(
        108,
        "Not available on this NeuronCore generation",
        "Some operations and modes exist only on newer NeuronCores (trn1 and inf2 are gen2, "
        "trn2 is gen3, trn3 is gen4).",
        "Compile for a target that has it, or use the alternative that the message names.",
        _ARCHITECTURE,
    ),
    "tile-limit": _entry(
        109,
        "Tile larger than the engine takes at once",
        "An instruction handles a bounded tile: its operands fit the memories that they are in, "
        "and what the engine takes in one pass.",
        "Loop over smaller tiles (nl.tile_size holds the limits of the target).",
        _ARCHITECTURE,
    ),
    "value-not-allowed": _entry(
        110,
        "Argument value outside its range",
        "An argument takes only the values that its description lists.",
        "Pass one of the listed values.",
        _API,
    ),
    "missing-argument": _entry(
        111,
        "Required argument missing",
        "An argument without a default must be given.",
        "Add the argument to the call.",
        _API,
    ),
    "unknown-argument": _entry(
        112,
        "Argument that this operation does not have",
        "Calls may use only the parameters of the operation.",
        "Check the spelling against the signature in the message.",
        _API,
    ),
    "not-a-tensor": _entry(
        113,
        "Tensor expected",
        "This operand must be a tensor: numbers stand in for tensors only where the operation "
        "takes an immediate.",
        "Pass a tensor made by nl.ndarray or a view of one. An array of the host is an argument of "
        "the kernel, or becomes a tile with nl.load(nl.shared_constant(array)).",
        _API,
    ),
    "out-of-bounds": _entry(
        120,
        "Access outside the tensor",
        "Every element that a view or an operation may touch must lie inside its tensor, for "
        "every value of the loop variables and launch symbols.",
        "Shrink the slice or the loop range. For a last tile that is smaller write a Python slice, "
        "a[start : start + 128], which ends where the tensor ends.",
        _PATTERNS,
    ),
    "view-not-allowed": _entry(
        121,
        "View that an access pattern cannot express",
        "A view is a start offset and a few [stride, count] dimensions; on chip, dimension 0 "
        "stays the partition dimension.",
        "Use slices with constant steps, or copy into a tensor with the wanted layout.",
        _PATTERNS,
    ),
    "reshape": _entry(
        122,
        "Reshape that would need a copy",
        "A reshape keeps the number of elements and the order in memory, and never mixes the "
        "partition dimension with free dimensions on chip.",
        "Make the tensor contiguous first, or copy it into one with the new shape.",
        _PATTERNS,
    ),
    "indirect": _entry(
        123,
        "Indirect access that the hardware cannot do",
        "Row indices come from a one-column SBUF tensor of 32-bit integers and select rows of "
        "an HBM tensor; a dynamic start comes from a register.",
        "Load the indices into SBUF as int32 or uint32, one a partition, and index an HBM tensor.",
        _PATTERNS,
    ),
    "psum-overlap": _entry(
        124,
        "Matrix results overlap partly in PSUM",
        "Whether a matrix multiplication overwrites or accumulates is decided for a whole "
        "PSUM region; regions must be equal or disjoint, or the flag must be given.",
        "Use the same slice for all multiplications of one accumulation, or pass "
        "accumulate=True or False.",
        _API,
    ),
    "accumulation-undecided": _entry(
        125,
        "Accumulation that may have started in a loop",
        "The first matrix multiplication into a PSUM tile overwrites, later ones accumulate. That "
        "is decided while tracing, where nobody knows whether a loop over a register, or a "
        "`while`, runs at all.",
        "Pass accumulate=True or False, start the accumulation before the loop, or allocate the "
        "tile inside of it.",
        _API,
    ),
    "accumulation-not-started": _entry(
        126,
        "Accumulation onto what no matrix multiplication wrote",
        "Before NeuronCore-v4 (trn3) a matrix multiplication adds to what a matrix multiplication "
        "started by overwriting; onto data of another instruction the sum is undefined.",
        "Leave accumulate out, or pass it as k > 0 in a loop: the first matmul overwrites, so the "
        "tile needs no zeros. Add other data afterwards with nisa.tensor_tensor, or compile for "
        "trn3.",
        _API,
    ),
    "symbol-index": _entry(
        201,
        "Launch symbol used as a plain integer",
        "A launch symbol has no value while the kernel is traced: one compile serves every "
        "size, so a symbol never turns into a number silently.",
        "Loop with nl.affine_range, which stays rolled over a symbol, or size on-chip tensors "
        "by the symbol's maximum.",
        _GUIDE,
    ),
    "symbol-branch": _entry(
        202,
        "Branch on a launch symbol",
        "A condition on a launch symbol must hold, or fail, for every size that the symbol "
        "admits; otherwise it would select different code for different launches.",
        "Narrow the symbol (min, max, multiple_of) so that the condition is decided, or make "
        "the size a plain integer.",
        _GUIDE,
    ),
    "symbol-range": _entry(
        203,
        "range over a launch symbol",
        "Python's range unrolls while tracing and needs integers.",
        "Use nl.affine_range (or nl.sequential_range) for a loop over a launch symbol.",
        _GUIDE,
    ),
    "register-branch": _entry(
        204,
        "Branch on a value that only the device knows",
        "A loop variable of a rolled loop, or a register, has no value while the kernel is "
        "traced, so Python's `if` cannot test it.",
        "Use nl.while_loop or `while register:`, a masked operation, or a static range that "
        "Python unrolls.",
        _LOOPS,
    ),
    "register-arithmetic": _entry(
        205,
        "Arithmetic that index forms cannot express",
        "An index is a sum of loop variables and registers, each times a constant, plus a "
        "constant; products of variables and inexact divisions have no such form.",
        "Rewrite the index as a linear form, or compute the value on the device and load it "
        "with nisa.register_load.",
        _PATTERNS,
    ),
    "loop-carried-state": _entry(
        206,
        "Python state carried from one iteration to the next",
        "The body of a rolled loop is traced, not repeated: Python objects must mean the same "
        "in every iteration.",
        "Keep the state in a tensor or a register that is allocated before the loop, or use a "
        "Python range, which unrolls.",
        _LOOPS,
    ),
    "loop-break": _entry(
        207,
        "break or return inside a rolled loop",
        "A rolled loop runs its whole body for every iteration.",
        "Use `while register:` with a condition that the body computes, or a Python range.",
        _LOOPS,
    ),
    "guard-refused": _entry(
        208,
        "Size that the compiled kernel does not admit",
        "A compiled kernel serves the sizes that its launch symbols and guards admit: "
        "multiple_of, min, max, and the conditions that tracing recorded.",
        "Pad the input to an admitted size, or compile with a wider symbol.",
        _GUIDE,
    ),
    "shape-unsolved": _entry(
        209,
        "Launch symbol that the inputs do not determine",
        "Every launch symbol must follow from the shapes of the inputs.",
        "Use each symbol alone as a dimension of at least one input, or pass its value.",
        _GUIDE,
    ),
    "no-tracer": _entry(
        210,
        "Kernel operation outside a kernel",
        "nki.isa and nki.language operations act on the kernel that is being traced or simulated.",
        "Call them from a function decorated with @nki.jit.",
        _GUIDE,
    ),
    "output-not-hbm": _entry(
        211,
        "Kernel returns something that is not in HBM",
        "A kernel returns tensors in HBM: nothing on chip outlives it.",
        "Allocate the result with buffer=nl.shared_hbm and copy into it before returning.",
        _GUIDE,
    ),
    "unknown-name": _entry(
        212,
        "Name that this API does not have",
        "Kernels name functions of nki.language and nki.isa, and attributes of tensors, by the "
        "names of their pages.",
        "Compare the name with the pages of nki.language and nki.isa.",
        _API,
    ),
    "sbuf-overflow": _entry(
        301,
        "SBUF is full",
        "What one instruction or one rolled loop uses must fit into the bytes of each SBUF "
        "partition, beside what has an address; other tiles can wait in HBM.",
        "Use smaller or fewer tiles, load later what is used later, or reuse tiles; the "
        "notes list what is in use.",
        _ARCHITECTURE,
    ),
    "psum-overflow": _entry(
        302,
        "PSUM is full",
        "What one instruction or one rolled loop uses must fit into the PSUM banks, and no "
        "accumulator may span banks; other tiles can wait in SBUF.",
        "Copy results out of PSUM sooner, or use smaller tiles; the notes list what is in use.",
        _ARCHITECTURE,
    ),
    "register-overflow": _entry(
        303,
        "Too many registers",
        "Each engine has 64 registers for loop variables and values that the kernel loads.",
        "Nest fewer rolled loops, or let Python unroll the inner ones.",
        _API,
    ),
    "semaphore-overflow": _entry(
        304,
        "Too many semaphores",
        "The channels between engines and queues of one core share the semaphores that the "
        "hardware has.",
        "Use fewer rolled loops side by side, or split the kernel.",
        _ARCHITECTURE,
    ),
    "address-out-of-range": _entry(
        305,
        "Fixed address outside the memory",
        "A tensor with address= must lie inside the partitions and the bytes of its memory, "
        "and start at a legal partition.",
        "Choose a smaller offset or start partition.",
        _ARCHITECTURE,
    ),
    "address-overlap": _entry(
        306,
        "Tensors with fixed addresses overlap while both are live",
        "Two tensors may share bytes only one after the other: the last read of the first "
        "comes before the first write of the second.",
        "Move one of them, or order their uses so that the lifetimes do not meet.",
        _ARCHITECTURE,
    ),
    "race": _entry(
        307,
        "Unordered accesses to the same bytes",
        "Two accesses to the same bytes, one of them a write, must be ordered by the program "
        "on every path. Two cores may make one write by one line if both make its values by the "
        "same operations from the same data, so that any data give both the same.",
        "Order them: nisa.core_barrier between cores, or a dependence within one core. Where the "
        "last tile of one core reaches into the rows of the other, end its slice there.",
        _API,
    ),
    "core-mismatch": _entry(
        308,
        "Cores do not agree",
        "The cores of a logical NeuronCore run one program: they make the tensors that they share "
        "alike, return the same ones, and reach the same barriers in the same order.",
        "Keep shared tensors, results and barriers outside conditions on nl.program_id.",
        _API,
    ),
    "psum-bank": _entry(
        309,
        "A result that spans PSUM banks",
        "Before gen4 (trn3) the result of one tensor-engine instruction lies in one bank of PSUM: "
        "2 KiB of each partition, which is 512 fp32 elements.",
        "Write to slices that end where banks end; tensors larger than a bank start at one.",
        _API,
    ),
    "hbm-overflow": _entry(
        310,
        "HBM is full",
        "The tensors of a kernel lie in the stack of HBM that the physical cores share which run "
        "it.",
        "Divide the work over several cores or calls, use smaller dtypes, or keep fewer tensors; "
        "the notes list them by category.",
        _ARCHITECTURE,
    ),
}
