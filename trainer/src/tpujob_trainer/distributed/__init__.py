"""How processes find each other, exchange values and notice losses."""
