"""evoforge: evolve kernels that compute what a PyTorch reference computes, faster."""

__all__ = ["__version__"]

__version__ = "0.1.0"
