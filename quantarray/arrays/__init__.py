"""The packed array, its constants, layouts and thresholds, and checks of arguments."""
