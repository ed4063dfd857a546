"""Operations that take elements one by one: arithmetic, comparisons, conversions, functions."""
