"""Integer products on tensor cores: bmma and wgmma of bits, imma of bytes."""
