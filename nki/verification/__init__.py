"""What is proven of a program when it is compiled or loaded.

`race_proof` proves that it orders every two conflicting accesses, at sizes that stand for all;
`proofs` keeps what was proven; `hbm_capacity` adds up what its tensors take of HBM.
"""

from nki.verification.race_proof import (
    SIZES,
    CoreOrderWarning,
    refuse_unordered,
    representative_sizes,
    verify_program,
)

__all__ = [
    "CoreOrderWarning",
    "SIZES",
    "refuse_unordered",
    "representative_sizes",
    "verify_program",
]
