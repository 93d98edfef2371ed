"""Last step of a product: sums become values, or bits by thresholds."""
