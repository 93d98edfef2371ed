"""What the CPU kernels and other libraries take for the same work, on inputs of which the right answer is known."""
