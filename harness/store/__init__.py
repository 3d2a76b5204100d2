"""Record files: JSON Lines that survive a kill at any byte, and the keys that say whether two records agree.

A file is a header line, one line per record, and a footer line when the run ended by itself. Every line is
on the disk before the next case starts; each run writes a file of its own, so two runs never share one.
"""

from harness.store.keys import DONE, Row, identity, key, latest, repeats_note, resume
from harness.store.plain import encode, plain
from harness.store.read import SCHEMA, RecordFile, read
from harness.store.validate import SCHEMA_PATH, broken_rules, read_valid, validate
from harness.store.write import Writer, create, new_run, record_path

__all__ = [
    "DONE",
    "SCHEMA",
    "SCHEMA_PATH",
    "RecordFile",
    "Row",
    "Writer",
    "broken_rules",
    "create",
    "encode",
    "identity",
    "key",
    "latest",
    "new_run",
    "plain",
    "read",
    "read_valid",
    "record_path",
    "repeats_note",
    "resume",
    "validate",
]
