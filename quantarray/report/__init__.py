"""Reports: what schemes cost and how well they fit an array: `compare`, its table and its picture."""
