"""From a kernel's text to a screened, linked library, cached by content.

The compiler reads untrusted text: it runs under limits, without network, sees its own installation
and an empty folder of its own and nothing else, has a scrubbed environment, and nothing of the text
ever reaches a shell. Messages name places but quote no lines, so none can quote a file.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from evoforge.core import Signature, Status, Target
from evoforge.errors import MissingToolError, WorkerError
from evoforge.evaluation.built import Built, find, keep, prune
from evoforge.evaluation.busy import BusyClock
from evoforge.evaluation.native import cache_folder, cpu_digest, digest, first_error, native_program
from evoforge.evaluation.sandbox import require
from evoforge.evaluation.screen import ElfObject, screen_library, screen_object, screen_source, unmarked
from evoforge.evaluation.spawn import kill_group, spawn
from evoforge.evaluation.targets import compiler_version, find_compiler
from evoforge.paths import cache_dir, include_dir

__all__ = ["BUILD_TIMEOUT_S", "Builder"]

BUILD_TIMEOUT_S = 30.0
_MEMORY_BYTES = 4 << 30
_FILE_BYTES = 64 << 20
_MIN_FREE_BYTES = 1 << 20
_LOG_BYTES = 4096
_REASON_SIGNS = 300  # a symbol's name may be megabytes
_COMPILE = (
    "-std=gnu++17", "-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros",
    "-fassociative-math", "-fPIC", "-fvisibility=hidden", "-Werror=return-type", "-Wno-psabi",
    "-fdiagnostics-color=never", "-fmax-errors=10", "-fno-diagnostics-show-caret",
)  # fmt: skip
# Linking is a step of its own with these flags only: what a kernel's text asks for by pragma, or a
# caller by extra flags, never makes gcc add the start-up file that turns on FTZ/DAZ in the loader.
# Nor does a loader write to code: what it made of it, nobody has screened.
_LINK = ("-shared", "-fopenmp", "-Wl,-z,relro,-z,now,-z,noexecstack,-z,text")
_TOOLCHAIN = tuple(
    map(Path, ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/ld.so.preload", "/dev/urandom"))
)
_PROTOCOL = "7"
_PRUNE_EVERY = 500  # builds
Screen = Callable[[Path], str | None]


class Builder:
    """Builds kernels for one target; safe from parallel threads and processes.

    Args:
        sandbox: strict, basic or none. Compilers are confined as far as the machine allows unless it is none.

    Raises:
        MissingToolError: no C++ compiler, or clang.
        UsageError: strict is out of reach on this machine.
    """

    def __init__(self, target: Target, *, sandbox: str = "basic", busy: BusyClock | None = None) -> None:
        self.target = target
        self.sandbox = sandbox
        self._compiler = find_compiler()
        self._version = compiler_version(self._compiler)
        if "clang" in self._version.lower():  # the headers use gcc's vectors, the screen knows its OpenMP
            raise MissingToolError(
                f"expected gcc, which kernels are written for and judged with, got {self._version} "
                f"({self._compiler}); install g++, and unset CXX or set it to that"
            )
        self._busy = busy or BusyClock()
        self._objects = cache_folder("objects")
        self._header_lock = threading.Lock()
        self._launch = native_program("launch.c")
        if sandbox == "strict":
            require(sandbox)
        self._made = 0
        prune(self._objects)

    def build(
        self,
        source: str,
        params: Mapping[str, int],
        signature: Signature | None,
        *,
        extra_flags: Sequence[str] = (),
        hooked: bool = False,
        baked: bool = True,
        timeout_s: float = BUILD_TIMEOUT_S,
    ) -> Built:
        """One library for one text, parameter values and sizes.

        Args:
            signature: every tensor's sizes and strides become macros; None: none does.
            extra_flags: instrumentation of a trusted caller; the object is then not screened again, unless it is …
            hooked: … one that only calls out of the object, and adds nothing to it that runs when it is loaded.
            baked: sizes as literals; otherwise as fields of the call.

        Returns:
            CORRECT, SCREENED, BUILD_ERROR, BUILD_TIMEOUT, or HARNESS_ERROR when the machine, not
            the kernel, is at fault.
        """
        began = time.perf_counter()
        refused = screen_source(source)
        if refused:
            return Built(Status.SCREENED, refused, seconds=time.perf_counter() - began)
        flags = [*self.flags, *extra_flags]
        defines = [f"-D{name}={int(value)}" for name, value in sorted(params.items())]
        defines += _size_defines(signature, baked) if signature else []
        key = digest(
            _PROTOCOL,
            self.sandbox,
            self._version,
            self._machine(),
            _headers_digest(flags),
            *flags,
            "--",
            *defines,
            "--",
            source,
        )
        home = self._objects / key[:2] / key
        known = find(home)
        if known is None:
            self._made += 1
            if self._made % _PRUNE_EVERY == 0:
                prune(self._objects)
            with self._busy.working():
                screen = partial(screen_object, hooked=hooked) if hooked or not extra_flags else None
                known = self._make(home, source, flags, defines, screen, timeout_s)
        return replace(known, seconds=time.perf_counter() - began)

    def preprocess(self, source: str, defines: Sequence[str], *, timeout_s: float = 10.0) -> str | None:
        """The text with macros and conditionals resolved as a build resolves them, headers left out; None if it fails.

        Args:
            defines: -D flags instead of those of parameters and sizes.
        """
        if screen_source(source):
            return None
        work = Path(tempfile.mkdtemp(prefix="tmp-", dir=self._objects))
        try:
            headers = self._precompiled(self.flags, timeout_s)
            (work / "kernel.cpp").write_text(unmarked(source), encoding="utf-8", errors="replace")
            command = [*self.flags, f"-I{headers.parent}", f"-I{include_dir()}", *defines, "-E", "-fpch-preprocess"]
            if self._run([*command, "kernel.cpp", "-o", "kernel.ii"], work, time.monotonic() + timeout_s):
                return None
            return _own_lines((work / "kernel.ii").read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return None
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def prepare(self) -> None:
        """Compiles the header that every kernel includes, unless the cache has it.

        Raises:
            WorkerError: the compiler refused it.
        """
        with self._busy.working():
            self._precompiled(self.flags, BUILD_TIMEOUT_S)

    @property
    def flags(self) -> list[str]:
        """The compiler's flags before any kernel's own."""
        wide = ["-mprefer-vector-width=512"] if self.target.vector_bytes >= 64 else []
        return [*_COMPILE, f"-march={self.target.isa}", *wide]

    def _machine(self) -> str:
        return cpu_digest() if self.target.isa == "native" else ""

    def _make(
        self, home: Path, source: str, flags: list[str], defines: list[str], screen: Screen | None, timeout_s: float
    ) -> Built:
        work: Path | None = None
        try:
            home.parent.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix="tmp-", dir=self._objects))
            built = self._compile(work, source, flags, defines, screen, timeout_s)
            if built.status not in (Status.BUILD_TIMEOUT, Status.HARNESS_ERROR):
                built = keep(built, work, home)
            return built
        except OSError as error:
            return Built(
                Status.HARNESS_ERROR,
                f"expected to build below {cache_dir()}, got: {error.strerror}; make room there, or set EVOFORGE_CACHE",
            )
        finally:
            if work is not None:
                shutil.rmtree(work, ignore_errors=True)

    def _compile(
        self, work: Path, source: str, flags: list[str], defines: list[str], screen: Screen | None, timeout_s: float
    ) -> Built:
        (work / "kernel.cpp").write_text(source, encoding="utf-8", errors="replace")
        headers = self._precompiled(flags, timeout_s)
        deadline = time.monotonic() + timeout_s
        flags = [headers.name if at and flags[at - 1] == "-include" else flag for at, flag in enumerate(flags)]
        command = [*flags, f"-I{headers.parent}", f"-I{include_dir()}", *defines, "-c", "kernel.cpp", "-o", "kernel.o"]
        failed = self._run(command, work, deadline)
        if failed:
            return failed
        try:
            compiled = (work / "kernel.o").read_bytes()
            if sealed := _sealed(compiled):
                (work / "kernel.o").write_bytes(sealed)
            elf = ElfObject(sealed or compiled)
            text_hash, stateful = elf.text_hash(), elf.memory()
            refused = screen(work / "kernel.o") if screen else None
        except (OSError, ValueError) as error:
            return Built(Status.BUILD_ERROR, f"the compiler's object cannot be read: {error}")
        if refused:
            return Built(Status.SCREENED, refused[:_REASON_SIGNS], text_hash=text_hash)
        failed = self._run([*_LINK, "-o", "kernel.so", "kernel.o", "-lm"], work, deadline)
        if not failed and screen and (refused := screen_library(work / "kernel.so")):
            return Built(Status.SCREENED, refused, text_hash=text_hash)
        return failed or Built(
            Status.CORRECT,
            object_path=work / "kernel.o",
            library_path=work / "kernel.so",
            text_hash=text_hash,
            stateful=stateful[:_REASON_SIGNS],
        )

    def _run(self, arguments: list[str], work: Path, deadline: float) -> Built | None:
        """Runs the compiler in `work`; None when it succeeded."""
        limits = ["-t", str(int(2 * BUILD_TIMEOUT_S)), "-m", str(_MEMORY_BYTES), "-f", str(_FILE_BYTES)]
        own = str(work)
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "HOME": own, "TMPDIR": own}
        with (work / "log").open("w+b") as log:
            process = spawn(
                [self._launch, *limits, *self._walls(work, arguments), "--", self._compiler, *arguments],
                cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
            try:
                code = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return Built(Status.BUILD_TIMEOUT, "the compiler did not finish in time")
            finally:
                kill_group(process)
            log.seek(0)
            text = _clean(log.read(1 << 20).decode(errors="replace"), work)
        if code == 0:
            return None
        if code == -signal.SIGXCPU:
            return Built(Status.BUILD_TIMEOUT, "the compiler used up its processor time", log=text)
        (work / "room").write_bytes(bytes(_MIN_FREE_BYTES))  # raises where the disk, or the user's share of it, is full
        if code in (125, 126):
            return Built(Status.HARNESS_ERROR, f"the compiler could not work: {first_error(text)}", log=text)
        return Built(Status.BUILD_ERROR, first_error(text) or f"the compiler ended with status {code}", log=text)

    def _walls(self, work: Path, arguments: Sequence[str]) -> list[str]:
        """The compiler reads its own installation, evoforge's headers and its folder, where it writes."""
        if self.sandbox == "none":
            return []
        compiler = Path(self._compiler)
        home = compiler.resolve().parent.parent
        headers = {Path(given).parent for given in arguments if given.startswith("/")}
        reads = {*_TOOLCHAIN, compiler, home, include_dir(), cache_dir() / "headers", *headers} - {Path("/")}
        allowed = [text for path in sorted(reads) for text in ("-r", str(path))]
        return ["-s", *allowed, "-w", "/dev/null", "-w", str(work)]

    def _precompiled(self, flags: list[str], timeout_s: float) -> Path:
        """The header to include first (``-include``'s, else evoforge.h), beside which its .gch lies."""
        given = [Path(flags[at + 1]) for at, flag in enumerate(flags[:-1]) if flag == "-include"]
        header = given[0] if given else include_dir() / "evoforge.h"
        others = [flag for flag in flags if flag not in ("-include", *map(str, given))]
        key = digest(_PROTOCOL, self._version, self._machine(), _headers_digest(flags), str(header), *others)
        home = cache_dir() / "headers" / key
        compiled = home / f"{header.name}.gch"
        with self._header_lock:
            if compiled.exists():
                return home / header.name
            work = Path(tempfile.mkdtemp(prefix="tmp-", dir=cache_folder("headers")))
            try:
                command = [*others, f"-I{include_dir()}", "-x", "c++-header", str(header), "-o", compiled.name]
                failed = self._run(command, work, time.monotonic() + timeout_s)
                if failed:
                    raise WorkerError(
                        f"expected {header.name} to compile with {self._version}, got: {failed.reason}; "
                        "is the compiler older than gcc 9, or the installation broken? try: evoforge doctor"
                    )
                # -include does not look for NAME.gch unless NAME could be there too.
                shutil.copyfile(header, work / header.name)
                (work / "log").unlink()
                with contextlib.suppress(OSError):  # another process was first
                    work.rename(home)
            finally:
                shutil.rmtree(work, ignore_errors=True)
        return home / header.name


_MARKER = re.compile(r'# \d+ "(.*)"[ \d]*')


def _own_lines(preprocessed: str) -> str:
    """What the preprocessor says comes from the kernel's own file, pragmas left out."""
    lines, own = [], False
    for line in preprocessed.split("\n"):
        if marker := _MARKER.fullmatch(line):
            own = marker[1] == "kernel.cpp"
        elif own and not line.lstrip().startswith("#"):
            lines.append(line)
    return "\n".join(lines)


def _sealed(compiled: bytes) -> bytes | None:
    """The object with the pointer to the exceptions' personality among what is read-only once it is loaded.

    The compiler leaves that pointer writable in every kernel with something to clean up: eight bytes in
    which a kernel could keep state. None where there is no such pointer.
    """
    sealed = compiled.replace(b".data.rel.local.DW.ref.", b".data.rel.ro.ro.DW.ref.")  # as long: the tables still fit
    return sealed if sealed != compiled else None


def _size_defines(signature: Signature, baked: bool) -> list[str]:
    defines = []
    groups = (("in", "in", signature.inputs), ("cst", "cst", signature.constants), ("out", "out", signature.outputs))
    for name, field, specs in groups:
        for index, spec in enumerate(specs):
            for dim in range(len(spec.shape)):
                for macro, member, value in (("SIZE", "size", spec.shape[dim]), ("STRIDE", "stride", spec.stride[dim])):
                    text = str(value) if baked else f"(call->{field}[{index}].{member}[{dim}])"
                    defines.append(f"-DEVO_{macro}_{name}{index}_{dim}={text}")
    return defines


def _headers_digest(flags: Sequence[str]) -> str:
    """Over every header that a kernel can see, those of ``-include`` too."""
    extra = [Path(flags[at + 1]) for at, flag in enumerate(flags[:-1]) if flag == "-include"]
    files = [*sorted(include_dir().glob("*.h")), *extra]
    return digest(*(_text_of(path, path.stat().st_mtime_ns) for path in files))


@lru_cache(maxsize=64)
def _text_of(path: Path, modified_ns: int) -> str:
    return path.read_text(encoding="utf-8")


def _clean(text: str, work: Path) -> str:
    text = "".join(line for line in text.splitlines(keepends=True) if ": warning: " not in line)
    text = text.replace(f"{work}/", "").replace(str(include_dir()), "evoforge").replace(str(cache_dir()), "cache")
    return text if len(text) <= _LOG_BYTES else text[:_LOG_BYTES] + "\n… (cut)"
