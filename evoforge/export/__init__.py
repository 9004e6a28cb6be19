"""Elites → a Python package of kernels that needs torch and a compiler, and not evoforge."""

from evoforge.export.library import ExportedKernel, Library, required_cpu_flags, write_library

__all__ = ["ExportedKernel", "Library", "required_cpu_flags", "write_library"]
