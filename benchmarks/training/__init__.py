"""Training on compressed activations: time, memory, and the error of gradients."""
