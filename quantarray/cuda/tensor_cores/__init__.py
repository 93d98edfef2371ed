"""Integer products on binary tensor cores: bmma and wgmma."""
