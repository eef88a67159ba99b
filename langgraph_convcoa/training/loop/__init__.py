"""The training loop: steps, checkpoints, gradient caching, interruption."""
