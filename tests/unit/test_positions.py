"""The lines of tables and keys, in a text that says its own line numbers."""

from __future__ import annotations

from knee.spec.positions import positions

TEXT = """\
# a comment with [brackets] and = signs
[experiment]                      # 2
name = "a # no comment"           # 3
after.dotted . "quoted key" = 1   # 4

[system]                          # 6
load = { hosts = 3, link = { mbit = 2 } }   # 7
[factors]                         # 8
"load.clients" = [ 6,             # 9
  12 ]
'literal' = [[1], ["]"]]          # 11
[system.store]                    # 12
    hosts=1                       # 13
"""


def test_tables_and_keys_have_their_lines() -> None:
    assert positions(TEXT) == {
        ("experiment",): 2,
        ("experiment", "name"): 3,
        ("experiment", "after"): 4,
        ("experiment", "after", "dotted"): 4,
        ("experiment", "after", "dotted", "quoted key"): 4,
        ("system",): 6,
        ("system", "load"): 7,
        ("factors",): 8,
        ("factors", "load.clients"): 9,
        ("factors", "literal"): 11,
        ("system", "store"): 12,
        ("system", "store", "hosts"): 13,
    }


def test_a_header_may_have_spaces_within_its_brackets() -> None:
    assert positions("[ measure ]\nseconds = 1\n") == {("measure",): 1, ("measure", "seconds"): 2}


def test_a_text_of_several_lines_that_looks_like_keys_is_passed_over() -> None:
    text = 'question = """\nλ = 1000 saturate it?\n"""\nwindows = \'\'\'\n"C:\\dir" = 1\n\'\'\'\n'
    assert positions(text) == {("question",): 1, ("windows",): 4}
