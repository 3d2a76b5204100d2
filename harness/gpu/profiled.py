"""The process that Nsight Compute watches: launches each entry of a file once, in order."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from harness.gpu.server import DeviceServer


def main(path: str) -> None:
    """Read entries and GPU facts, and launch."""
    entries, facts = pickle.loads(Path(path).read_bytes())
    server = DeviceServer(lambda seconds: None, facts, 0.0)
    for entry in entries:
        server.prepare(entry)
        server.launch(entry.id)


if __name__ == "__main__":
    main(sys.argv[1])
