"""What schemes cost and what they keep of an array: `compare`, its table and its picture."""
