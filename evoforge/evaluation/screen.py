"""What a kernel's text and object may not contain: milliseconds, and deadly to most attacks.

The screen is the first of several walls and the cheapest one. It reads the source as text and the
object as ELF; only a suspicious byte pair in the code is confirmed by a disassembler.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from evoforge.paths import include_dir

__all__ = ["ElfObject", "ElfSection", "ElfSymbol", "screen_library", "screen_object", "screen_source", "unmarked"]

_MAX_SOURCE_BYTES = 1 << 20
# What is opened and not closed goes on, as compilers read it: looked for anew from every place, it would take hours.
_COMMENT = re.compile(r"(?P<comment>//[^\n]*|/\*.*?\*/)|/\*.*", re.S)
# Comments, and what only looks as if one began in it: headers, numbers with separators, names, literals.
_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|/\*.*|(?:u8|[uUL])?R"(?P<end>[^()\\\s]{0,16})\(.*?(?:\)(?P=end)"|\Z)
    |(?:include|__has_include(?:_next)?)[ \t]*\(?[ \t]*<[^>\n]*>?|\.?\d(?:'?\w|\.)*
    |[A-Za-z_]\w*|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?""",
    re.S | re.X,
)
_LINE = re.compile(r"""(?:line[ \t]*)?\d+(?:[ \t]+"[\w.+-]+"[\d \t]*)?[ \t]*""")
_DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(\w+)[ \t]*(.*)$", re.M)
_HEADER = re.compile(r"""^(?:<([\w./+-]+)>|"([\w./+-]+)")\s*$""")
_SYSTEM_CALLS = (b"\x0f\x05", b"\x0f\x34", b"\xcd\x80")
_SYSTEM_CALL_TEXT = re.compile(r"\t(syscall|sysenter|int\s+\$0x80)")
_LISTING_S = 30.0  # an object that takes longer to print is made to
_LOAD_TIME = re.compile(r"^\.(preinit_array|init_array|fini_array|ctors|dtors|init|fini)(\.|$)")
# What compilers write, and where. A linker obeys other sections (.dynamic, .gnu.lto_…), or joins them to others.
_CODE = re.compile(r"\.text(\..*)?")
_DATA = re.compile(
    r"\.l?(rodata|data|bss)(\..*)?|\.t(data|bss)(\..*)?|\.eh_frame|\.gcc_except_table(\..*)?|\.note\.gnu\.property"
)
_UNLOADED = re.compile(r"|\.(comment|note\.GNU-stack|symtab|symtab_shndx|strtab|shstrtab|group|llvm_addrsig|debug_\w+)")
# What the compiler's start-up files call where it is defined.
_START_UP = re.compile(r"__gmon_start__|_ITM_\w+|__cxa_finalize")
# What an instrumented build calls: defined by a kernel, it would be blind to it.
_HOOK = re.compile(r"__\w*san_\w+|evo_trace_(read|write|stream|prefetch|gather)")
_IFUNC = 10
_UNDEFINED = 0
_SYMBOLS, _RELOCATIONS = 2, 4

# What a kernel may call although it can remember something: memory, threads that are joined, exceptions, printing. All
# else of the C library reaches files, processes, clocks or the environment, or has no use here.
_USEFUL = re.compile(
    r"""malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|memalign|free|malloc_usable_size
    |__cxa_(allocate_exception|free_exception|throw|rethrow|get_exception_ptr|init_primary_exception|guard_\w+|bad_\w+
    |throw_\w+|vec_\w+|atexit|thread_atexit|deleted_virtual|(current|uncaught)_exceptions?\w*)|__dynamic_cast|__dso_handle|__once_proxy
    |__tls_get_addr|__pthread_key_create|_Unwind_(Resume_or_Rethrow|DeleteException)|__gcc_personality_v0|__cpu_(model|indicator_init|features2)
    |pthread_(create|join|self|equal|once|getspecific|setspecific|key_(create|delete)|(mutex|cond|barrier|rwlock|spin)(attr)?_
    (init|destroy|lock|trylock|unlock|wait|signal|broadcast|rdlock|wrlock|tryrdlock|trywrlock|settype)
    |attr_(init|destroy|[gs]etstacksize))|sem_(init|destroy|wait|trywait|post)|sched_yield
    |omp_(get_(?!wt)\w+|set_(num_threads|dynamic|nested|schedule|max_active_levels)|in_final|(init|destroy|set|unset|test)_
    (nest_)?lock(_with_hint)?|alloc|aligned_alloc|calloc|free)|GOMP_critical_name\w*|GOMP_alloc
    |_?setjmp|__sigsetjmp|_?(sig)?longjmp|__longjmp_chk|fe(clear|get|raise|set|test|hold|update|enable|disable)[a-z]+|__errno_location|__libc_single_threaded
    |l?l?abs|l?l?div|qsort|bsearch|s?rand|rand_r|s?random|[dejlmn]rand48|srand48|atoi|atol|atof|strto\w+|__isoc23_strto\w+
    |(st[pr]n?(cpy|cat)|str(r?chr|str|n?casecmp|c?spn|pbrk|nlen|tok|tok_r))|mem(rchr|ccpy|mem|pcpy)|__st[pr]\w+_chk|rawmemchr
    |v?(f|s|sn)?printf|__v?(f|s|sn)?printf_chk|puts|putc|putchar|fput[cs]|fwrite|fflush|std(out|err)
    |is(?!atty|astream|fdtype)[a-z]+|to(upper|lower)|__ctype_\w+_loc|lgammaf?_r|c(abs|arg|exp|log|log10|pow|sqrt|a?sinh?|a?cosh?|a?tanh?|real|imag|proj)[fl]?
    |conj[fl]?|signgam""",
    re.X,
)
# Of the C++ library, what reaches files, clocks or devices, waits for the clock, or leaves a thread behind.
_OUTSIDE = re.compile(
    r"_fstream|_ifstream|_ofstream|_filebuf|basic_file|stdio_|10filesystem|^_ZNK?St6chrono|11this_thread|13random_device|6thread6detach"
    r"|_exit|at_thread_exit|6locale(?![CD][12]Ev$)|7codecvt|8messages|17__gnu_cxx_ldbl|__freeres|tzdb|10stacktrace"
)

# Of OpenMP's runtime, what compilers make of pragmas. Left out is what starts a team and returns before it ends
# (GOMP_parallel_start and its kin), devices and their asynchronous queues.
_OPENMP = re.compile(
    r"""GOMP_(parallel|parallel_(loop_\w+(?<!_start)|sections|reductions)|barrier\w*|cancel\w*|(loop|sections2?|scope|single
    |ordered|critical|atomic|doacross|task|taskgroup|taskloop|taskwait|taskyield|workshare)(_\w+)?|alloc|free|teams\w*)""",
    re.X,
)

# What a kernel can call that surely remembers nothing: arithmetic, memory it was given, OpenMP, failing.
_FORGETFUL = re.compile(
    r"""mem(cpy|set|move|cmp|chr)|__mem\w+_chk|str(len|cmp|ncmp)|bcmp|abort|__assert_fail|__stack_chk_fail
    |omp_get_(num_threads|thread_num|max_threads|num_procs|level|active_level|team_size|ancestor_thread_num)
    |omp_in_parallel|GOMP_(?!critical_name|alloc)\w+|_GLOBAL_OFFSET_TABLE_|_Unwind_Resume|__gxx_personality_v0
    |_Z(St)?9terminatev|_ZSt\d+__throw_\w+|__cxa_(begin_catch|end_catch|pure_virtual|call_terminate)
    |__(add|sub|mul|div|neg|fix|float|ext|trunc|cmp|udiv|umod|mod|pow)\w*[sdxth][fi]\w*|__(mul|div)[sdxth]c3
    |__(popcount|parity|clz|ctz|ffs|bswap)\w+|__(finite|isnan|isinf|signbit|fpclassify)[fl]?
    |(a?(sin|cos|tan)h?|atan2|sincos|exp|exp2|exp10|expm1|log|log2|log10|log1p|logb|ilogb|pow|sqrt|cbrt|hypot|erfc?
    |[tl]gamma|j[01n]|y[01n]|floor|ceil|trunc|round|rint|nearbyint|ll?rint|ll?round|roundeven|fmod|remainder|remquo
    |fma|fmax|fmin|fdim|fabs|copysign|nextafter|nexttoward|frexp|ldexp|scalbl?n|modf|nan|significand|drem)[fl]?
    |__\w+_finite|_ZGV[bcde][NM]\w+""",
    re.X,
)
_WRITABLE, _ALLOCATED, _EXECUTABLE = 1, 2, 4
_COMMON = (0xFFF2, 0xFF02)  # and large common
_RELRO = re.compile(r"^\.data\.rel\.ro(\.|$)|^\.eh_frame$")


def screen_source(source: str) -> str | None:
    """Why the text must not reach the compiler, or None.

    Conservative: headers come from the include path by plain name; computed includes, and the
    directives that read other files, are refused.
    """
    if len(source.encode(errors="replace")) > _MAX_SOURCE_BYTES:
        return f"the source is longer than {_MAX_SOURCE_BYTES} bytes"
    if "\0" in source:
        return "the source contains a zero byte"
    source = _as_compilers_read(source)
    # A string can hide a comment's end or beginning, so the text is read in both ways.
    for text in (_COMMENT.sub(_blank, _joined(source)), _without_comments(source)):
        refused = _reads_files(text) or _asks_whether_traced(text)
        if refused:
            return refused
    return None


def unmarked(source: str) -> str:
    """The text without comments and without what says that a line is of another file (``#line``)."""
    return _DIRECTIVE.sub(lambda at: "" if at[1] == "line" or at[1].isdigit() else at[0], _without_comments(source))


def _as_compilers_read(source: str) -> str:
    """Lines end at a carriage return, too; a form feed or vertical tab is a space."""
    return re.sub(r"[\f\v]", " ", re.sub(r"\r\n?", "\n", source))


def _joined(source: str) -> str:
    return re.sub(r"\\[ \t]*\r?\n", "", source)


def _without_comments(source: str) -> str:
    return _TOKEN.sub(_blank, _joined(source))


def _blank(found: re.Match[str]) -> str:
    return " " if found["comment"] else found[0]


def _reads_files(text: str) -> str | None:
    for word in (".incbin", "#embed", "__has_embed"):
        if word in text:
            return f"the source uses {word}"
    if "_Pragma" in text and re.search(r"\bdependency\b", text):
        return "the source uses _Pragma and the word dependency"
    for directive, rest in _DIRECTIVE.findall(text):
        if directive in ("include_next", "import", "embed"):
            return f"the source uses #{directive}"
        if directive == "pragma" and re.match(r"GCC\s+dependency", rest):
            return "the source uses #pragma GCC dependency"
        if (directive == "line" or directive.isdigit()) and not _LINE.fullmatch(f"{directive} {rest}"):
            return f"expected #line with a number and at most a plain file name, got {rest.strip()[:60]!r}"
        if directive == "include":
            header = _HEADER.match(rest)
            name = (header.group(1) or header.group(2)) if header else ""
            if not name or name.startswith("/") or ".." in name:
                return f"expected #include of a plain header name, got {rest.strip()[:60]!r}"
    return None


@lru_cache(maxsize=1)
def _traced_names() -> str:
    """The macros that only an instrumented build has (evoforge_trace.h, `facts.trace`), as a pattern."""
    header = (include_dir() / "evoforge_trace.h").read_text(encoding="utf-8")
    names = "|".join(re.findall(r"^#define (\w+)", header, re.M))
    return rf"(?<!\w)(?P<name>{names}|(?:__)?no_(?:sanitize(?:_address)?|address_safety_analysis)(?:__)?)(?!\w)"


def _asks_whether_traced(text: str) -> str | None:
    """Conditions on such macros, and what takes them away. What compilers have is no secret (``__has_builtin``)."""
    name = _traced_names()
    for directive, rest in _DIRECTIVE.findall(text):
        asked: re.Match[str] | None = None
        if directive in ("if", "elif"):
            asked = re.search(name, re.sub(r"(?<!\w)__has_\w+\s*\([^()]*\)", "", rest))
        elif directive in ("ifdef", "ifndef", "elifdef", "elifndef", "undef", "define"):
            asked = re.match(name, rest) or re.search(rf"\bdefined[\s(]*{name}", rest)
        if asked:
            return f"#{directive} with {asked['name']}: a text may not ask for, take away or make what traces it"
    return None


def screen_object(path: Path, *, hooked: bool = False) -> str | None:
    """Why an object must not be linked and loaded, or None.

    Args:
        hooked: it is instrumented and may call what watches it.

    Raises:
        ValueError: the file is not an x86-64 ELF object.
    """
    elf = ElfObject(path.read_bytes())
    for section in elf.sections:
        if _LOAD_TIME.match(section.name) and section.size:
            return (
                f"code that runs when the library is loaded or unloaded (section {section.name}): "
                "no constructors, no static objects that need one (<iostream> and <bits/stdc++.h> bring one; "
                "a constant vector belongs into a function)"
            )
        if section.flags & _WRITABLE and section.flags & _EXECUTABLE:
            return f"code that can be written to (section {section.name})"
        if _misplaced(section, elf.sections):
            return f"section {section.name or '(without a name)'}: expected the compiler's own for code and for data"
    for symbol in elf.symbols:
        if symbol.kind == _IFUNC:
            return f"an indirect function ({symbol.name}) is resolved at load time"
        hook = _HOOK.fullmatch(symbol.name)
        if symbol.section == _UNDEFINED and symbol.name and not (hooked and hook) and _forbidden(symbol.name):
            return f"calls {symbol.name}, which a kernel may not"
        if symbol.section != _UNDEFINED and hook:
            return f"defines {symbol.name}, which instrumented builds call"
        if symbol.section != _UNDEFINED and _START_UP.fullmatch(symbol.name):
            return f"defines {symbol.name}, which runs when the library is loaded or unloaded"
    if _has_system_call(path, elf):
        return "contains a system call instruction"
    return None


def screen_library(path: Path) -> str | None:
    """Why a linked library must not be loaded, or None: some bytes, as those of distances, only the linker writes."""
    try:
        elf = ElfObject(path.read_bytes())
    except ValueError as error:
        return str(error)
    return "contains a system call instruction" if _has_system_call(path, elf) else None


def _forbidden(name: str) -> bool:
    bare = name.partition("@")[0]
    if bare.startswith("_Z") and not bare.startswith("_ZGV"):
        return _OUTSIDE.search(bare) is not None
    if bare.startswith("GOMP_"):
        return _OPENMP.fullmatch(bare) is None
    return not (_FORGETFUL.fullmatch(bare) or _USEFUL.fullmatch(bare))


def _misplaced(section: ElfSection, sections: Sequence[ElfSection]) -> bool:
    """Whether a linker may make of this section what its flags do not say.

    What is named like relocations and is none of another section's, it joins to those that the loader obeys.
    """
    if not section.flags & _ALLOCATED:
        known = _UNLOADED.fullmatch(section.name) or _relocates(section, sections)
        return section.flags & (_WRITABLE | _EXECUTABLE) != 0 or not known
    if section.flags & _EXECUTABLE:
        return _CODE.fullmatch(section.name) is None
    return _DATA.fullmatch(section.name) is None


def _relocates(section: ElfSection, sections: Sequence[ElfSection]) -> bool:
    """Whether a linker reads relocations of another section from this one."""
    if section.kind != _RELOCATIONS or not 0 < section.info < len(sections) or section.link >= len(sections):
        return False
    return sections[section.link].kind == _SYMBOLS and sections[section.info].kind != _RELOCATIONS


def _has_system_call(path: Path, elf: ElfObject) -> bool:
    if not any(pattern in code for code in elf.code() for pattern in _SYSTEM_CALLS):
        return False
    objdump = shutil.which("objdump") or shutil.which("llvm-objdump")
    if objdump is None:
        return True  # two bytes that may belong to a longer instruction; nobody here can tell
    command = [objdump, "-d", "--no-show-raw-insn", str(path)]
    # Line by line: all of it may be gigabytes.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
    ) as listing:
        late = threading.Timer(_LISTING_S, listing.kill)
        late.start()
        try:
            found = any(_SYSTEM_CALL_TEXT.search(line) for line in listing.stdout or ())
            if found:
                listing.kill()
        finally:
            late.cancel()
    return found or listing.returncode != 0


@dataclass(frozen=True)
class ElfSection:
    """One section header; `offset` and `size` in bytes of the file, `link` and `info` as its kind has them."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    entry_size: int


@dataclass(frozen=True)
class ElfSymbol:
    """One symbol; `section` is 0 when it is undefined, `kind` the STT code."""

    name: str
    kind: int
    binding: int
    section: int


class ElfObject:
    """A reader of the few things of an ELF64 little-endian file that judging needs.

    Raises:
        ValueError: not such a file, or its tables point outside of it.
    """

    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
            raise ValueError("expected a 64-bit little-endian ELF file")
        self._data = data
        try:
            self.sections = self._read_sections()
            self.symbols = tuple(self._read_symbols())
        except (struct.error, IndexError, ValueError, OverflowError) as error:
            raise ValueError(f"expected a whole ELF file, got a broken one: {error}") from None

    def bytes_of(self, section: ElfSection) -> bytes:
        return b"" if section.kind == 8 else self._data[section.offset : section.offset + section.size]

    def code(self) -> list[bytes]:
        """The contents of the executable sections, in file order."""
        return [self.bytes_of(section) for section in self.sections if section.flags & _EXECUTABLE]

    def memory(self) -> str:
        """Why calls of this code may remember earlier ones: what it can write to that outlives a call.

        Empty if nothing: no writable static data, and no library but libm, mem* and OpenMP. Work done
        with such code cannot depend on how often, when or on what it was called before, unless it
        forges a pointer.
        """
        for section in self.sections:
            writable = section.flags & _WRITABLE and section.flags & _ALLOCATED
            if writable and section.size and not _RELRO.match(section.name):
                return f"writable static data (section {section.name})"
        for symbol in self.symbols:
            if symbol.section in _COMMON:
                return f"writable static data ({symbol.name})"
            if symbol.section == _UNDEFINED and symbol.name and not _FORGETFUL.fullmatch(symbol.name):
                return f"calls {symbol.name}"
        return ""

    def text_hash(self) -> str:
        """sha256 over the executable sections and read-only data: equal for sources that compile alike.

        Relocations are included, since two kernels may differ only in what they call.
        """
        digest = hashlib.sha256()
        for section in self.sections:
            name = section.name
            relocates = name.startswith((".rela.text", ".rela.rodata"))
            if section.flags & _EXECUTABLE or name.startswith(".rodata") or relocates:
                digest.update(f"{name}\0{section.size}\0".encode())
                digest.update(self.bytes_of(section))
        return digest.hexdigest()

    def _read_sections(self) -> tuple[ElfSection, ...]:
        (offset,) = struct.unpack_from("<Q", self._data, 0x28)
        size, count, names = struct.unpack_from("<HHH", self._data, 0x3A)
        if offset and not count:
            raise ValueError("more sections than its header can count")
        rows = [struct.unpack_from("<IIQQQQIIQQ", self._data, offset + i * size) for i in range(count)]
        if not rows:
            return ()
        strings = self._data[rows[names][4] : rows[names][4] + rows[names][5]]
        return tuple(
            ElfSection(_string(strings, row[0]), row[1], row[2], row[4], row[5], row[6], row[7], row[9]) for row in rows
        )

    def _read_symbols(self) -> Iterator[ElfSymbol]:
        for section in self.sections:
            if section.kind not in (_SYMBOLS, 11):  # SHT_DYNSYM
                continue
            strings = self.bytes_of(self.sections[section.link])
            body = self.bytes_of(section)
            for at in range(0, len(body) - 23, 24):
                name, info, _, index = struct.unpack_from("<IBBH", body, at)
                yield ElfSymbol(_string(strings, name), info & 15, info >> 4, index)


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode(errors="replace")
