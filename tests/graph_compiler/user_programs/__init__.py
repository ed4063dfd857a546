"""Programs as engineers of models write them with jax, by theme, each of sizes that a seed draws.

`drawing` says how one is stated; `run_user_programs` compiles and runs them."""

from user_programs import (
    algorithms,
    attention,
    control,
    decoding,
    experts,
    images,
    indexing,
    integers,
    kernels,
    linear_algebra,
    methods,
    models,
    normalisation,
    numbers_and_products,
    ordering,
    quantised,
    recurrent,
    sequences,
    single_functions,
    training,
)
from user_programs.drawing import PROGRAMS, Draw

__all__ = [
    "PROGRAMS",
    "Draw",
    "algorithms",
    "attention",
    "control",
    "decoding",
    "experts",
    "images",
    "indexing",
    "integers",
    "kernels",
    "linear_algebra",
    "methods",
    "models",
    "normalisation",
    "numbers_and_products",
    "ordering",
    "quantised",
    "recurrent",
    "sequences",
    "single_functions",
    "training",
]
