"""Nights that nobody wrote: random jobs, random blows, a real control plane, and what must hold throughout."""
