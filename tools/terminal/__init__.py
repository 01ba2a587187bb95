"""A recorded terminal as a picture that moves: `make terminal-recording` runs the README's demo and draws it.

- `recording`: what a command prints on a terminal, and when; written as an asciicast.
- `replay`: the lines on the screen after each part of a recording.
- `picture`: frames as an animated SVG, without a script and without an address.
"""
