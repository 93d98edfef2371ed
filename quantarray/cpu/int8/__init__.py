"""Integer products by dot products of bytes: AVX2, AVX-512 (VNNI), AMX, and Winograd."""
