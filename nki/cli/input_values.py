"""The arrays that --input describes: made, read from files, or computed from other inputs."""

from __future__ import annotations

import ast
import operator
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from isa.dtypes import DTYPES, normalise
from isa.errors import NeuronError
from isa.wording import did_you_mean

if TYPE_CHECKING:
    from nki.cli.input_specs import InputSpec


@dataclass(frozen=True, slots=True)
class ValueMaker:
    """A way to make values: `make(random, shape, **options)`. `options` have their defaults; None
    is one that must be given. `only`: "floats" for float dtypes, "integers" int32 by default.
    `pair`: the options that two numbers alone are."""

    make: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    only: str = ""
    pair: tuple[str, ...] = ()


def _normal(random: Any, shape: Any, mean: float, scale: float) -> Any:
    values = random.standard_normal(shape, dtype="float32")
    return values if (mean, scale) == (0, 1) else values * scale + mean


def _uniform(random: Any, shape: Any, low: float, high: float) -> Any:
    values = random.random(shape, dtype="float32")
    return values if (low, high) == (0, 1) else low + values * (high - low)


def _permutation(random: Any, shape: Any) -> Any:
    import numpy as np

    return random.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1)


def _onehot(random: Any, shape: Any) -> Any:
    import numpy as np

    return np.eye(shape[-1], dtype=np.int8)[random.integers(shape[-1], size=shape[:-1])]


def _arange(random: Any, shape: Any) -> Any:
    import numpy as np

    return np.arange(int(np.prod(shape))).reshape(shape)


def _full(value: int) -> Callable[..., Any]:
    def make(random: Any, shape: Any) -> Any:
        import numpy as np

        return np.full(shape, value, np.int8)

    return make


KINDS: dict[str, ValueMaker] = {
    "normal": ValueMaker(_normal, {"scale": 1, "mean": 0}, "floats"),
    "uniform": ValueMaker(_uniform, {"low": 0, "high": 1}, "floats"),
    "randint": ValueMaker(
        lambda random, shape, low, high: random.integers(low, high, shape),
        {"low": 0, "high": None},
        "integers",
        ("low", "high"),
    ),
    "choice": ValueMaker(lambda random, shape, of: random.choice(of, shape), {"of": None}),
    "permutation": ValueMaker(_permutation, {}, "integers"),
    "onehot": ValueMaker(_onehot),
    "zeros": ValueMaker(_full(0)),
    "ones": ValueMaker(_full(1)),
    "arange": ValueMaker(_arange),
}

_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
FUNCTIONS = ("abs", "exp", "sqrt", "round", "minimum", "maximum", "where", "transpose")
"""Those of NumPy that expressions may call."""


class Inputs:
    """The arrays of all --input of a command. Random values depend on the seed and the parameter's
    name only. Raises bad-input-spec, file-not-found, missing-extra."""

    def __init__(self, specs: Mapping[str, InputSpec], seed: int) -> None:
        self._specs = specs
        self._seed = seed
        self._made: dict[str, Any] = {}
        self._making: list[str] = []

    def array(self, name: str) -> Any:
        """The array of one of them."""
        if name not in self._made:
            if name in self._making:
                _refuse(self._specs[name], f"is computed from itself ({', '.join(self._making)})")
            self._making.append(name)
            self._made[name] = self._make(self._specs[name])
            self._making.pop()
        return self._made[name]

    def _make(self, spec: InputSpec) -> Any:
        if spec.kind == "file":
            return _load(spec)
        if spec.kind == "values":
            return _from_values(spec)
        if spec.kind == "shape":
            suited = kind_of(spec.dtype or "float32")
            _refuse(
                spec,
                "has a shape and no values",
                f"Say which values: {spec.text.replace('=', f'={suited}', 1)}.",
            )
        import numpy as np

        random = np.random.default_rng([self._seed, zlib.crc32(spec.name.encode())])
        try:
            if spec.kind == "expression":
                return self._computed(spec, random)
            made = KINDS[spec.kind].make(random, spec.shape or self._no_sizes(spec), **spec.source)
            return DTYPES[spec.dtype or default_dtype(spec.kind)].array(made)
        except (ArithmeticError, IndexError, MemoryError, TypeError, ValueError) as error:
            _refuse(spec, f"no array can be made of it here: {error}", cause=error)

    def _computed(self, spec: InputSpec, random: Any) -> Any:
        import numpy as np

        with np.errstate(all="ignore"):
            found = np.asarray(self._value(spec, spec.source, random))
        if found.ndim == 0:
            _refuse(
                spec,
                f"a tensor is wanted, and this is one number, {found}",
                f"For a value: --arg {spec.name}={found}. "
                f"For a tensor: --input '{spec.name}=[{found}]'.",
            )
        default = {"f": "float32", "b": "uint8"}.get(found.dtype.kind, "int32")
        return DTYPES[spec.dtype or default].array(found)

    def _value(self, spec: InputSpec, node: ast.expr, random: Any) -> Any:
        """The value of a part of an expression that `check_expression` has passed."""
        import numpy as np

        def of(part: ast.expr) -> Any:
            return self._value(spec, part, random)

        match node:
            case ast.Name(name):
                array = self.array(name) if name in self._specs else self._unknown(spec, name)
                exact = array.dtype.kind in "biu" or array.dtype in (np.float32, np.float64)
                return array if exact else array.astype(np.float32)
            case ast.Call(ast.Name(name), args, keywords):
                options = {str(keyword.arg): of(keyword.value) for keyword in keywords}
                if name not in KINDS:
                    return getattr(np, name)(*map(of, args), **options)
                kind = KINDS[name]
                sizes = tuple(map(of, args))
                if sizes and isinstance(sizes[0], tuple):  # options stand behind it
                    sizes, *given = sizes
                    options |= dict(zip(kind.options, given, strict=False))
                elif kind.pair and len(sizes) == 2 and not options.keys() & set(kind.pair):
                    options |= dict(zip(kind.pair, sizes))
                    sizes = ()
                like = options.pop("like", None)
                shape = sizes or (self._shape_beside(spec) if like is None else like.shape)
                return kind.make(random, shape, **{**kind.options, **options})
            case ast.BinOp(left, kind, right) | ast.Compare(left, [kind], [right]):
                return _OPERATORS[type(kind)](of(left), of(right))
            case ast.UnaryOp(kind, operand):
                return _OPERATORS[type(kind)](of(operand))
            case ast.Attribute(operand):
                return of(operand).T
            case ast.Subscript(operand, index):
                return of(operand)[_index(index)]
        return ast.literal_eval(node)

    def _shape_beside(self, spec: InputSpec) -> tuple[int, ...]:
        """The shape that the inputs which an expression names have together."""
        import numpy as np

        names = {node.id for node in ast.walk(spec.source) if isinstance(node, ast.Name)}
        shapes = [self.array(name).shape for name in names if name in self._specs]
        return np.broadcast_shapes(*shapes) if shapes else self._no_sizes(spec)

    def _no_sizes(self, spec: InputSpec) -> Any:
        form = spec.text.partition("(")[2]
        pair = f"((128,512),{form}" if form[:1] != ")" else f"(128,512{form}"
        first = next((name for name in self._specs if name != spec.name), "")
        like = f", or take those of {first}: like={first}" if first else ""
        _refuse(
            spec,
            "no sizes are given, and none follow from other inputs or a container",
            f"Give sizes: --input '{spec.text.partition('(')[0]}{pair}'{like}.",
        )

    def _unknown(self, spec: InputSpec, name: str) -> Any:
        _refuse(
            spec,
            f"there is no --input {name}; inputs are {', '.join(self._specs)}",
            did_you_mean(name, self._specs),
        )


def check_expression(tree: ast.expr) -> tuple[ast.AST, str] | None:
    """The first part of an expression that inputs may not have, and why; None without any."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name(name)):
                if name not in KINDS and name not in FUNCTIONS:
                    return node, f"{name} is none of {', '.join((*KINDS, *FUNCTIONS))}"
            case ast.Attribute(attr=name):
                if name != "T":
                    return node, f"arrays have .T here, not .{name}"
            case ast.Constant(value):
                if type(value) not in (int, float, type(None)):
                    return node, "expected a number"
            case ast.BinOp() | ast.UnaryOp() | ast.Subscript() | ast.Name() | ast.keyword():
                pass
            case ast.Compare(ops=ops):
                if len(ops) > 1:
                    return node, "expected one comparison"
            case ast.Slice() | ast.Tuple() | ast.List() | ast.Load():
                pass
            case ast.operator() | ast.unaryop() | ast.cmpop():
                if type(node) not in _OPERATORS:
                    return tree, f"there is no operator {type(node).__name__} here"
            case _:
                return node, f"expected names of inputs, numbers, + - * / // % ** @, {FUNCTIONS}"
    return None


def _index(node: ast.expr) -> Any:
    """An index of numbers and slices."""
    if isinstance(node, ast.Tuple):
        return tuple(map(_index, node.elts))
    if isinstance(node, ast.Slice):
        parts = (node.lower, node.upper, node.step)
        return slice(*(None if part is None else ast.literal_eval(part) for part in parts))
    return ast.literal_eval(node)


def default_dtype(kind: str) -> str:
    """The dtype of a kind of values, or of a shape alone, where none is stated."""
    return "int32" if kind in KINDS and KINDS[kind].only == "integers" else "float32"


def kind_of(dtype: str) -> str:
    """The kind of values that suits a data type: random floats; zeros, which are indices too."""
    row = DTYPES[dtype]
    return "normal" if row.is_float and not row.is_packed else "zeros"


def _refuse(spec: InputSpec, what: str, hint: str = "", cause: Exception | None = None) -> Any:
    raise NeuronError("bad-input-spec", f"--input {spec.text}: {what}", hint=hint) from cause


def _load(spec: InputSpec) -> Any:
    from nki.cli.array_files import array_of

    path, entry = spec.source
    if not os.path.isfile(path):
        raise NeuronError("file-not-found", f"--input {spec.text}: there is no file {path}")
    array = array_of(spec, path, entry)
    if spec.dtype is None:
        return array
    wanted = DTYPES[spec.dtype]
    # NumPy files hold bfloat16 and the like as raw bytes.
    raw = array.dtype.kind == "V" and array.dtype.itemsize == wanted.size
    return array.view(wanted.numpy) if raw else wanted.array(array)


def _from_values(spec: InputSpec) -> Any:
    import numpy as np

    try:
        array = np.array(spec.source)
    except ValueError:
        array = np.array(None)
    if array.dtype.kind not in "bif" or array.size == 0:
        _refuse(
            spec,
            "the values are not a full array of numbers",
            "Give all rows the same length: [[1,2],[3,4]].",
        )
    default = "float32" if array.dtype.kind == "f" else "int32"
    return DTYPES[spec.dtype or default].array(array)


def make_tensor_specs(specs: Mapping[str, InputSpec]) -> dict[str, Any]:
    """The `nki.TensorSpec` of every spec: its shape and dtype, whatever its values."""
    from nki import TensorSpec

    inputs, found = Inputs(specs, 0), {}
    for name, spec in specs.items():
        if spec.shape is None:
            array = inputs.array(name)
            found[name] = TensorSpec(array.shape, normalise(array.dtype))
        else:
            found[name] = TensorSpec(spec.shape, spec.dtype or "float32")
    return found
