"""What a trainer process can do: each task assembles the parts for one purpose."""
