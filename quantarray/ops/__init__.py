"""Public functions: each checks, allocates, calls the kernel of its operands' device, and wraps the result."""
