"""Ring attention: devices of `context` pass keys and values on, so that none holds those of a whole row."""
