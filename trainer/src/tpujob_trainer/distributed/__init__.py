"""How processes find, know and lose each other."""
