"""PyTorch graph → loop nests → schedule (genome) → rendered source."""
