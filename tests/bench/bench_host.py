"""What the host does around a measurement: rendering every case, publishing many records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ablations
from harness import publish
from harness.cases import default_cases
from harness.render import render

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import record_files as made


def test_render_every_default_case(benchmark: Any) -> None:
    pairs = [(s, c) for s in ablations.load().values() for c in default_cases(s) if not c.skip]
    texts = benchmark(lambda: [render(study, case).text for study, case in pairs])
    assert all("__global__" in text for text in texts)


def test_publish_ten_thousand_records_of_twenty_gpus(benchmark: Any, tmp_path: Path) -> None:
    for g in range(20):
        card = {**made.H200, "name": f"GPU {g}", "uuid": f"GPU-{g}"}
        rows = [made.record(f"c={i}@m128", [2000.0 + i] * 12, gpu=card["name"]) for i in range(500)]
        made.write(tmp_path / f"records/demo/{g}/x.jsonl", made.header(card, run=f"{g:032d}"), rows)
    published = benchmark.pedantic(lambda: publish.publish(tmp_path), rounds=2)
    assert published.problems == ()
