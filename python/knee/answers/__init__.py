"""The answers of the commands as typed records: what `--json` prints, and its JSON Schema.

A module for each command makes its record of the findings of an analysis; `form` prints records. Fields are only added,
because programs read them. Sentences are those of the printed answer.
"""
