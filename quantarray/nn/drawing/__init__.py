"""Pictures of networks: boxes and edges, their places, and the SVG file."""
