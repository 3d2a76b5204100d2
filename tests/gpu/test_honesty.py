"""Is the word right? Pairs that are the same, and pairs of which one does 1 % more, by the suite's engine."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ablations import load
from harness import chips, engine, stats
from harness.build.build import Job, build_all
from harness.build.cache import Cache
from harness.cases import CEILING, default_cases
from harness.gpu.commands import Entry, Run, StudyInputs, make_entry
from harness.gpu.device import GpuDevice
from harness.gpu.facts import find_gpu
from harness.model import Build, Case, Study, Values, Where
from harness.stats import Pair

FOUND = find_gpu()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(isinstance(FOUND, str), reason=str(FOUND))]
PAIRS, RESAMPLED = 40, 200


def entry(study: Study, case: Case, made: Build, sizes: Values, entry_id: str) -> Entry:
    provider = StudyInputs(study=study.name, case=case, sizes=sizes, fill=study.fill(case, "normal"), seed=0)
    run = Run(launch=study.launch(case, sizes), inputs=provider, outputs=dict(study.outputs(case, sizes)))
    return make_entry(entry_id, made, study.name, run, study.work(case, sizes))


def longer(study: Study, case: Case, made: Build, sizes: Values, entry_id: str) -> Entry:
    """The same entry with a main loop that is 1 % longer and nothing else changed."""
    if "trips" in sizes:
        return entry(study, case, made, sizes.replace(trips=round(sizes.number("trips") * 1.01)), entry_id)
    more = sizes.replace(seqlen=sizes.number("seqlen") + case.configuration.number("block_n"))
    grown = entry(study, case, made, more, entry_id)
    same_grid = replace(grown.run.launch, grid=study.launch(case, sizes).grid)
    return replace(grown, run=replace(grown.run, launch=same_grid))


def test_same_is_called_same_and_one_percent_is_found(tmp_path_factory: pytest.TempPathFactory) -> None:
    studies, arch = load(), chips.arch_of(FOUND.cc)  # type: ignore[union-attr]
    chosen = [
        (study, case)
        for study in studies.values()
        for case in default_cases(study)
        if case.set_name != CEILING and not case.skip
    ][: PAIRS + 20]
    jobs = [Job(study=study, case=case, arch=arch) for study, case in chosen]
    builds = build_all(jobs, Cache(tmp_path_factory.mktemp("cache")), limits_of=chips.limits)
    entries: list[Entry] = []
    slowed: list[str] = []
    for (study, case), made in zip(chosen, builds, strict=True):
        assert isinstance(made, Build), made
        where = Where(sms=FOUND.sms, ctas_per_sm=made.ctas_per_sm or 1)  # type: ignore[union-attr]
        sizes = study.sizes(case, where)
        if "seqlen" in sizes:  # a hundred tiles, so that one more is 1 %
            sizes = sizes.replace(seqlen=100 * case.configuration.number("block_n"), heads=8)
        entries += [entry(study, case, made, sizes, f"{case}#{which}") for which in "ab"]
        spill_free = not made.inspection.spill_stores + made.inspection.spill_loads
        if spill_free and ("trips" in sizes or case.levels.get("head_dim") == 64):
            entries.append(longer(study, case, made, sizes, f"{case}#longer"))
            slowed.append(str(case))
    with GpuDevice(FOUND) as device, device.reserved():  # type: ignore[arg-type]
        for item in entries:
            device.prepare(item)
        plan = engine.Plan(rounds=20)
        session = engine.measure(device, [engine.Entry(id=item.id) for item in entries], plan)
    found = {name: stats.series(engine.columns(m) or {}) for name, m in session.results.items() if m.samples}
    pairs = [
        Pair(name=str(c), case={0: found[f"{c}#b"]}, full={0: found[f"{c}#a"]}, same_source=True)
        for _, c in chosen
        if f"{c}#a" in found and f"{c}#b" in found
    ]
    words = Counter(effect.word for effect in stats.effects(pairs))
    print(f"A/A on the GPU, {len(pairs)} pairs: {dict(words)}")
    injected = [
        Pair(name=c, case={0: found[f"{c}#longer"]}, full={0: found[f"{c}#a"]}, same_source=True)
        for c in slowed
        if f"{c}#a" in found and f"{c}#longer" in found
    ]
    hits = stats.effects(injected)
    caught = Counter(effect.word for effect in hits)
    print(f"1 % longer, {len(injected)} pairs: {dict(caught)}")
    print("\n".join(f"  {e.name}: {e.word} {e.ratio:.5f} {e.note}" for e in hits if e.word != "slower"))
    generator = np.random.default_rng(0)
    names = [name for name in found if name.endswith("#a")]
    again = [resampled(found[names[i % len(names)]], generator, str(i)) for i in range(RESAMPLED)]
    redrawn = Counter(effect.word for effect in stats.effects(again))
    print(f"A/A re-sampled, {RESAMPLED} pairs: {dict(redrawn)}")
    assert len(pairs) >= PAIRS
    for counted in (words, redrawn):
        assert counted["same"] >= 0.80 * counted.total()
        assert counted["faster"] + counted["slower"] <= 0.05 * counted.total()
    assert caught["slower"] >= 0.90 * len(injected)


def resampled(series: stats.Series, generator: np.random.Generator, name: str) -> Pair:
    """Two halves of one entry's rounds, at random, as if they were two entries of the same rounds."""
    order = generator.permutation(len(series.rounds))
    half = len(order) // 2
    first, second = (
        stats.Series(
            rounds=tuple(range(half)),
            cycles=tuple(series.cycles[i] for i in part),
            seconds=tuple(series.seconds[i] for i in part),
        )
        for part in (order[:half], order[half : 2 * half])
    )
    return Pair(name=name, case={0: first}, full={0: second}, same_source=True)
