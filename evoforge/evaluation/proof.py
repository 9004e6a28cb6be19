"""Whether one kernel builds and is right: on known inputs, on inputs it has never seen, under the sanitizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from evoforge.core import Candidate, Params, Status
from evoforge.evaluation.built import Built
from evoforge.evaluation.material import Known, Material
from evoforge.evaluation.runner import KernelFault, Runner
from evoforge.evaluation.sandbox import weakest
from evoforge.evaluation.sanitize import sanitize
from evoforge.evaluation.stand import Stand, build_all
from evoforge.evaluation.verify import verify, verify_later

__all__ = ["Proof"]


class Proof:
    """Builds a kernel for every workload, verifies it, and keeps what was found on the way.

    `built` holds the builds, `max_error` the largest error of all calls so far (None
    before the first), `level` the weakest sandbox that one of its processes reached, `flags` what else is to
    be told.
    """

    def __init__(self, stand: Stand, candidate: Candidate) -> None:
        self.built: dict[str, Built] = {}
        self.max_error: float | None = None
        self.level = stand.sandbox
        self.flags: set[str] = set()
        self._stand = stand
        self._candidate = candidate
        self._params: Params = {}

    def build(self, params: Params) -> Built | None:
        """The first build that failed, None where all are there."""
        self._params = params
        self.built = build_all(self._stand, self._candidate, params)
        return next((one for one in self.built.values() if one.status is not Status.CORRECT), None)

    def verify(self, enough_s: Mapping[str, float], *, unseen: bool) -> tuple[str, float] | None:
        """Checks every output of every call.

        Args:
            enough_s: per workload, the seconds of a right call beyond which nothing else needs to be known.
            unseen: on a secret set that no trial meets, three times over, and on extremes.

        Returns:
            The workload and the seconds of the call that cut it short, if one did.

        Raises:
            WrongOutput: with what is wrong.
            KernelFault: it crashed, hung or wrote where it must not.
        """
        for name, built in self.built.items():
            material = self._stand.materials[name]
            groups: list[tuple[Sequence[Known], int]] = [(material.pool, 2)]
            if unseen:
                rest = (*material.pool, *self._stand.extremes(name))
                left = [one for one in rest if one.serial not in self._passed]
                groups = [([self._stand.unseen(name)], 3), (left, 1)]
            for known, repeats in groups:
                if known and (seconds := self._verify_on(built, material, known, repeats, enough_s[name], unseen)):
                    return name, seconds
        return None

    def sanitize(self) -> None:
        """One call per workload under the sanitizers; ``unsanitized`` flags that one of them could tell nothing.

        Raises:
            KernelFault: they found something.
        """
        stand = self._stand
        for name in self.built:
            material = stand.materials[name]
            given = [material.pool[0].inputs, *([material.constants] if material.constants else [])]
            with stand.busy.working():
                found = sanitize(
                    self._candidate.source, self._params, material.signature, given, stand.builder,
                    threads=stand.threads,
                )  # fmt: skip
            if found.status is not None:
                raise KernelFault(found.status, f"workload {name}: {found.reason}")
            if found.reason:
                self.flags.add("unsanitized")

    def met(self, error: float) -> None:
        """One more error, in units of the output."""
        self.max_error = max(self.max_error or 0.0, error)

    @property
    def _passed(self) -> set[int]:
        return self._stand.passed[self._candidate.id, tuple(sorted(self._params.items()))]

    def _verify_on(
        self, built: Built, material: Material, known: Sequence[Known], repeats: int, enough_s: float, unseen: bool
    ) -> float:
        """`verify` on sets that go with the same weights; seconds of the call that cut it short, else 0."""
        stand = self._stand
        with stand.runner(built, material, [item.inputs for item in known], known[0].constants) as runner:
            self.level = weakest(runner.sandbox_level)
            found = verify(
                runner, known, material.outputs, stand.task.tolerance,
                limit_s=stand.limit_s(material), repeats=repeats, enough_s=enough_s,
            )  # fmt: skip
            if not found.cut_short_s:
                if built.stateful:
                    self._verify_later(runner, material, known)
                if unseen and (built.stateful or runner.info.workspace_bytes):
                    self._verify_weights(runner, material, known[0])
        if not found.cut_short_s:
            self._passed.update(item.serial for item in known)
        self.met(found.max_error)
        if not found.deterministic:
            self.flags.add("nondeterministic")
        return found.cut_short_s

    def _verify_later(self, runner: Runner, material: Material, known: Sequence[Known]) -> None:
        """Of the same weights: other data."""
        first, *others = known
        if not others and first.constants is None and first.serial != material.pool[0].serial:
            others = [material.pool[0]]
        if others:
            self._exchanged(runner, material, first, others[0])

    def _verify_weights(self, runner: Runner, material: Material, first: Known) -> None:
        """Other weights, all or some of them: the workload's own where those are others."""
        if material.constants is None:
            return
        own = replace(material.pool[0], constants=material.constants)
        if first.constants is not None:
            self._exchanged(runner, material, first, own)
        elif touched := self._stand.touched(material.name):
            self._exchanged(runner, material, replace(first, constants=material.constants), touched)

    def _exchanged(self, runner: Runner, material: Material, first: Known, other: Known) -> None:
        verify_later(
            runner, first, other, material.outputs, self._stand.task.tolerance, self._stand.rng,
            limit_s=self._stand.limit_s(material),
        )  # fmt: skip
