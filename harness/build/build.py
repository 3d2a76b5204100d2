"""Case -> Build: render, compile, inspect, check the contract, and keep the residency of full.

The one place where the stages of a build meet. `build_all` does it for many cases and architectures; errors
are values there: one case that fails is one row, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from harness.build.artifact import Request, save_source
from harness.build.batch import Made, Progress, attempt, make_all
from harness.build.cache import Cache
from harness.build.contract import broken_rules, counted_prefix, notes
from harness.build.nvrtc import BASE_OPTIONS
from harness.build.residency import Limits, check_dynamic, ctas_per_sm, padded_shared
from harness.build.toolkit import nvrtc_module, require_nvdisasm, toolkit
from harness.cases import full_case
from harness.errors import AblationError, NotSupportedError
from harness.model import Build, Case, Launch, Source, Study
from harness.render import TEMPLATES, render

LimitsOf = Callable[[str], Limits | None]
Result = Build | AblationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One case to build for one architecture. `templates` is the folder of its template and headers."""

    study: Study
    case: Case
    arch: str
    perturbation: int = 0
    options: tuple[str, ...] = ()
    templates: Path = TEMPLATES

    @property
    def text_identity(self) -> Hashable:
        """Equal for jobs that render the same text."""
        case = self.case
        return case.study, case.levels, case.configuration, case.problem, self.perturbation, self.templates

    @property
    def identity(self) -> Hashable:
        """Equal for jobs whose builds are the same."""
        return self.text_identity, self.arch, self.options

    @property
    def full(self) -> Job:
        """The job of the case that this one is compared with."""
        return replace(self, case=full_case(self.study, self.case))

    def __str__(self) -> str:
        return f"{self.case} for {self.arch}"


def build(
    study: Study,
    case: Case,
    arch: str,
    cache: Cache,
    *,
    perturbation: int = 0,
    options: tuple[str, ...] = (),
    limits: Limits | None = None,
) -> Build:
    """What the compiler makes of a case, inspected and checked; raises the AblationError of one that fails.

    A broken contract is no error here but `Build.broken`. With `limits` the residency is worked out, and the
    case is padded to that of full (which is built, too).
    """
    job = Job(study=study, case=case, arch=arch, perturbation=perturbation, options=options)
    result = build_all([job], cache, workers=1, limits_of=lambda _: limits)[0]
    if isinstance(result, AblationError):
        raise result
    return result


def build_all(
    jobs: Sequence[Job],
    cache: Cache,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    limits_of: LimitsOf | None = None,
) -> list[Result]:
    """Build every job; results in the order of the jobs, each a Build or the error of that case.

    Args:
        jobs: what to build; the full case of each is built with it. Equal work is done once.
        cache: where cubins, logs, sources and inspections are kept.
        workers: threads; by default one per core.
        progress: called as (done, total, what was just done), in the caller's thread.
        limits_of: architecture -> its limits, for the residency; None leaves it unknown.

    Raises:
        ToolError: the compiler or the disassembler is missing, so that nothing can be built at all.
    """
    toolkit()
    nvrtc_module()  # cuda.core does not bear being imported by several threads at once
    require_nvdisasm()
    wanted = _with_full(jobs)
    texts = _render_all(wanted.values(), cache)
    requests = {identity: _request(job, texts[job.text_identity]) for identity, job in wanted.items()}
    valid = [request for request in requests.values() if isinstance(request, Request)]
    made = make_all(valid, cache, workers=workers, progress=progress)
    built: dict[Hashable, Result] = {}
    for identity, job in wanted.items():
        request = requests[identity]
        parts = made[request.key] if isinstance(request, Request) else request
        limits = limits_of(job.arch) if limits_of else None
        built[identity] = (
            parts if isinstance(parts, AblationError) else attempt(partial(_assemble, job, parts, limits))
        )
    return [_compare(job, built, limits_of(job.arch) if limits_of else None) for job in jobs]


def _with_full(jobs: Iterable[Job]) -> dict[Hashable, Job]:
    """The jobs by identity, and behind them the full cases that they are compared with."""
    jobs = list(jobs)
    wanted = {job.identity: job for job in jobs}
    for job in jobs:
        if job.case.skip is None:
            full = job.full
            wanted.setdefault(full.identity, full)
    return wanted


def _render_all(jobs: Iterable[Job], cache: Cache) -> dict[Hashable, tuple[Source, Path] | AblationError]:
    """Rendered and saved texts: one for all architectures of a case."""
    texts: dict[Hashable, tuple[Source, Path] | AblationError] = {}
    for job in jobs:
        if job.text_identity not in texts:
            texts[job.text_identity] = attempt(partial(_render_one, job, cache))
    return texts


def _render_one(job: Job, cache: Cache) -> tuple[Source, Path]:
    if job.case.skip is not None:
        raise NotSupportedError(f"{job.case} does not exist: {job.case.skip}")
    source = render(job.study, job.case, job.perturbation, folder=job.templates)
    return source, save_source(source, cache)


def _request(job: Job, text: tuple[Source, Path] | AblationError) -> Request | AblationError:
    if isinstance(text, AblationError):
        return text
    return Request(
        source=text[0],
        source_path=text[1],
        arch=job.arch,
        options=job.options,
        include_dir=job.templates / "device",
        counted=counted_prefix(job.study.contract(job.case)),
    )


def _assemble(job: Job, made: Made, limits: Limits | None) -> Build:
    """A build on its own, not yet compared with full. NotSupportedError when no CTA of it fits."""
    artifact, inspection = made
    launch = _launch(job)
    natural = None
    if limits:
        try:
            check_dynamic(launch.shared_bytes)
            shared_bytes = inspection.shared_bytes + launch.shared_bytes
            natural = ctas_per_sm(
                limits, threads=launch.block, registers=inspection.registers, shared_bytes=shared_bytes
            )
        except NotSupportedError as error:
            raise NotSupportedError(f"{job}: {error.message}") from error
    return Build(
        case=job.case,
        arch=job.arch,
        source_digest=artifact.request.source.digest,
        source_path=str(artifact.request.source_path),
        cubin_path=str(artifact.path),
        cubin_sha256=artifact.sha256,
        toolkit=toolkit().version,
        options=(*BASE_OPTIONS, *job.options),
        log=artifact.log,
        cached=artifact.cached,
        inspection=inspection,
        broken=broken_rules(job.study.contract(job.case), inspection),
        dynamic_bytes=launch.shared_bytes,
        natural_ctas=natural.ctas if natural else None,
        ctas_per_sm=natural.ctas if natural else None,
        compile_seconds=artifact.seconds,
    )


def _launch(job: Job) -> Launch:
    """The launch at the small check size: block and shared memory do not depend on the problem's size."""
    return job.study.launch(job.case, job.study.check_sizes(job.case)["small"])


def _compare(job: Job, built: Mapping[Hashable, Result], limits: Limits | None) -> Result:
    """A build at the residency that its study asks for, else that of full, with notes on what else changed.

    A case at another configuration than full's is not held to it: it stands for its own best.
    """
    build = built[job.identity]
    if isinstance(build, AblationError):
        return build
    build = replace(build, case=job.case)
    asked = job.study.residency(job.case)
    if asked is not None and limits is not None:
        build = _hold_asked(job, build, asked, limits)
    full_job = job.full
    if full_job.identity == job.identity or full_job.case.configuration != job.case.configuration:
        return build
    full = built[full_job.identity]
    if isinstance(full, AblationError):
        text = f"not compared with full, which failed: {full.message}"
        return replace(build, notes=(*build.notes, text))
    kept = job.study.contract(job.case).present
    build = replace(build, notes=(*build.notes, *notes(build.inspection, full.inspection, kept)))
    if asked is not None or limits is None or build.natural_ctas is None or full.natural_ctas is None:
        return build
    if _launch(job).block != _launch(full_job).block:
        return build  # another number of warps is the axis itself: CTAs per SM cannot be compared
    return _hold(job, build, full.natural_ctas, limits)


def _hold_asked(job: Job, build: Build, want: int, limits: Limits) -> Build:
    """The build padded to the `want` CTAs per SM that its study asks for; a note where fewer fit."""
    natural = build.natural_ctas or 0
    if natural < want:
        text = f"{want} CTAs per SM are asked for, only {natural} fit"
        return replace(build, notes=(*build.notes, text))
    return _padded(job, build, want, limits, "the")


def _hold(job: Job, build: Build, want: int, limits: Limits) -> Build:
    """The build padded to full's `want` CTAs per SM where a part is stripped; a note where it has fewer."""
    natural = build.natural_ctas or 0
    stripped = any(job.case.levels[switch.name] in switch.strips for switch in job.study.switches)
    if natural < want:
        text = f"fewer CTAs per SM than full: full has {want}, this case {natural}"
        return replace(build, notes=(*build.notes, text))
    return _padded(job, build, want, limits, "full's") if stripped else build


def _padded(job: Job, build: Build, want: int, limits: Limits, whose: str) -> Build:
    """The build with as much dynamic shared memory as keeps it at `want` CTAs per SM, and a note of it."""
    if build.natural_ctas == want:
        return build
    padded = padded_shared(
        limits,
        threads=_launch(job).block,
        registers=build.inspection.registers,
        static_bytes=build.inspection.shared_bytes,
        dynamic_bytes=build.dynamic_bytes,
        want=want,
    )
    fits = f"({build.natural_ctas} would fit)"
    text = f"padded to {whose} {want} CTAs per SM {fits}: {padded} bytes of dynamic shared memory"
    return replace(build, dynamic_bytes=padded, ctas_per_sm=want, notes=(*build.notes, text))
