"""What every refusal must be: an error of the catalogue that tells the user all, and no debris."""

import sys
import traceback
from contextlib import contextmanager

import pytest

from nki import NeuronError
from nki.errors import CATALOGUE, explain
from nki.ir.locations import is_own_file, resolve

HERE = "# here"
"""Marks the line of a kernel that an error must point at."""


@contextmanager
def refused(code, *values, kernel=None):
    """The block must raise the error `code`, whose `what` contains all of `values`.

    `kernel`: the name of the function whose line with `HERE` the error must show; None where no
    line of a kernel is to blame: then it shows where the kernel begins, or who calls it. Yields
    pytest's exception information.
    """
    frame = sys._getframe(2)
    with pytest.raises(NeuronError) as caught:
        yield caught
    error = caught.value
    assert error.code == code, error
    for value in values:
        assert str(value) in error.what, f"{value!r} is not in {error.what!r}"
    place = resolve(error.location)
    if kernel is None:
        assert place is None or HERE not in place.text
    else:
        assert place is not None, error
        assert HERE in place.text, f"line {place.line}: {place.text}"
        assert place.function == kernel
    assert_explained(error)
    assert_traceback_is_short(error, frame.f_code.co_filename)


def assert_explained(error):
    """Code, what, the kernel's line with carets, why and try, in that order."""
    lines = explain(error).splitlines()
    entry = CATALOGUE[error.code]
    assert lines[0] == f"error[NKI{entry.number:04d}] {error.code}: {entry.title}"
    assert lines[1] == f"   what: {error.what}"
    labels = [line[:7].strip() for line in lines if line[7:8] == ":" and line[:7].strip()]
    place = resolve(error.location)
    shown = place is not None and place.line > 0
    expected = ["what", "where", "why", "try"] if shown else ["what", "why", "try"]
    assert [label for label in labels if label in expected] == expected
    assert error.why in explain(error) and error.hint in explain(error)
    if shown:
        where = next(i for i, line in enumerate(lines) if line.startswith("  where:"))
        assert f"{place.file}:{place.line} in {place.function}" in lines[where]
        source, carets = lines[where + 1], lines[where + 2]
        assert source.strip() == f"|  {place.text.strip()}"
        marked = source[carets.index("^") : carets.rindex("^") + 1]
        assert marked == place.text[place.column : max(place.end_column, place.column + 1)]


def assert_traceback_is_short(error, file):
    """Nothing but the user's frames, the last one in `file`; and the explanation below."""
    frames = traceback.extract_tb(error.__traceback__)
    assert [f.filename for f in frames if is_own_file(f.filename)] == []
    assert frames[-1].filename == file
    printed = "".join(traceback.format_exception(error))
    for part in (error.what, f"    why: {error.why}", f"  try: {error.hint}"):
        assert part in printed
    assert "During handling" not in printed and "direct cause" not in printed
