"""PyTorch modules as graphs on packed integers."""
