"""Run a network from one compiled call: its launches are recorded once, in memory planned ahead."""
