"""Why an attempt ended, and what that counts as."""
