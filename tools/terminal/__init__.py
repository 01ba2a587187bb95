"""Terminal recordings as animated pictures: `make terminal-recording` runs the README's demo and draws it.

- `recording`: the timed output of a command on a terminal, written as an asciicast.
- `replay`: the lines on the screen after each part of a recording.
- `picture`: frames as an animated SVG, without scripts or links.
"""
