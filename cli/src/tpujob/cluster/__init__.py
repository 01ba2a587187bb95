"""Jobs on a cluster: reading, changing and describing them."""
