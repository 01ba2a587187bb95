"""One file for each purpose that assembles parts, and the parts it assembles."""
