"""Random numbers of the operator table."""

from __future__ import annotations

import numpy as np
from operator_values import module_text, run


def test_uniform_and_normal_numbers_have_their_moments_and_seed() -> None:
    count = 20_000
    text = module_text("rng", f"f32[{count}]", ["f32[]", "f32[]"], "distribution=rng_uniform")
    (uniform,) = run(text, np.float32(-2), np.float32(4))
    assert uniform.min() >= -2 and uniform.max() < 4
    assert abs(uniform.mean() - 1) < 0.05 and abs(uniform.std() - 6 / 12**0.5) < 0.05
    (again,) = run(text, np.float32(-2), np.float32(4))
    assert np.array_equal(uniform, again)
    (normal,) = run(text.replace("rng_uniform", "rng_normal"), np.float32(3), np.float32(2))
    assert abs(normal.mean() - 3) < 0.06 and abs(normal.std() - 2) < 0.05
