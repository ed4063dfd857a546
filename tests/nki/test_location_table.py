"""Lines of source in a program."""

from isa.program import SourceLocation
from nki.passes.emit.location_table import LocationTable


def test_source_lines_are_numbered_once():
    table, code = LocationTable(), compile("0", "made up", "eval")
    place = SourceLocation("file", 3, 0, 0, "", "")
    found = [table.index(one) for one in (None, (code, 2), (code, 4), (code, 2), place, place)]
    assert found == [0, 1, 2, 1, 3, 3]
    assert table.locations == [None, (code, 2), (code, 4), place]
