"""evoforge: evolve kernels that compute what a PyTorch reference computes, faster."""

__version__ = "0.1.0"
