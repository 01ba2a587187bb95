"""State to storage and back: saves, commits, restores, retention, ownership."""
