"""The line of every key, against texts that say their own line numbers."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from knee.spec.positions import positions

TEXT = '''# a comment with [brackets] and = signs
[experiment]                      # 2
name = "a # no comment"           # 3
question = """
over
three lines""""
after.dotted . "quoted key" = 1   # 7

[system]                          # 9
load = { hosts = 3, link = { mbit = 2 } }   # 10
store = {
  hosts = 1 }                     # 12
[factors]                         # 13
"load.clients" = [ 6,             # 14
  12, # a comment with ] in it      15
  24 ]                            # 16
'literal\\' = [[1], ["]"]]         # 17
[[many]]                          # 18
a = 1979-05-27T07:32:00Z
[[many]]                          # 20
a = 2                             # 21
'''


def test_every_place_of_a_text_with_all_of_the_syntax() -> None:
    lines = positions(
        TEXT.replace("store = {\n", "store = {  ").replace("  hosts = 1 }                     # 12", "hosts = 1 }\n")
    )
    assert lines[("experiment",)] == 2
    assert lines[("experiment", "name")] == 3
    assert lines[("experiment", "question")] == 4
    assert lines[("experiment", "after", "dotted", "quoted key")] == 7
    assert lines[("system", "load", "link", "mbit")] == 10
    assert lines[("system", "store", "hosts")] == 11
    assert lines[("factors",)] == 13
    assert [lines[("factors", "load.clients", index)] for index in range(3)] == [14, 15, 16]
    assert lines[("factors", "literal\\", 1, 0)] == 17
    assert lines[("many", 1, "a")] == 21


_KEYS = st.text("abc-_1", min_size=1, max_size=4)
_VALUES = st.recursive(
    st.integers() | st.booleans() | st.text("ab\"'#[]{}=,. \\", max_size=6), lambda inner: st.lists(inner, max_size=3)
)


@given(st.lists(st.tuples(_KEYS, _VALUES, st.integers(0, 2)), unique_by=lambda pair: pair[0], max_size=8))
def test_each_key_is_found_on_the_line_it_was_written_on(pairs: list[tuple[str, object, int]]) -> None:
    text, expected = "", {}
    for key, value, blank_lines in pairs:
        text += "\n" * blank_lines + "# comment\n" * (blank_lines % 2)
        expected[(key,)] = text.count("\n") + 1
        text += f"{key} = {_toml(value)}  # [x]\n"
    tomllib.loads(text)
    found = {path: line for path, line in positions(text).items() if len(path) == 1}
    assert found == expected


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "[" + ",\n".join(_toml(item) for item in value) + "]"
    return str(value)
