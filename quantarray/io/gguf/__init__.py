"""GGUF files: a header of metadata and tensors, and tensors of many types, read exactly and when they are asked for."""
