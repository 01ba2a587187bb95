"""Frames as an animated SVG: a row of screens that CSS moves behind a window.

- It needs no script, so it is animated in an <img>, and it contains no links.
- Without CSS animations, and for users who prefer reduced motion, it shows the last screen.
- Each distinct line is drawn once; the frames refer to it.
"""

from collections.abc import Iterator, Sequence
from html import escape

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME

from tools.terminal.recording import WIDTH, Recording
from tools.terminal.replay import screens

PLAY_SECONDS = 25.0
"""Duration of the run in the picture, whatever its real duration."""
PROMPT_SECONDS, END_SECONDS = 1.5, 6.0
"""How long the first and the last screen are shown."""
_CELL, _LINE, _MARGIN, _BAR = 8, 19, 14, 30
_FRAME_WIDTH = WIDTH * _CELL + 2 * _MARGIN
_THEME = SVG_EXPORT_THEME
_STYLE = """
text {{ font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre }}
.film {{ transform: translateX({last}px); animation: film {seconds:.1f}s steps(1, end) infinite }}
@media (prefers-reduced-motion: reduce) {{ .film {{ animation: none }} }}
@keyframes film {{ {keyframes} }}
"""


def picture(recording: Recording) -> str:
    """The SVG of a recording."""
    frames = [(PROMPT_SECONDS, [""]), *timed(recording)]
    shown = [[f"\x1b[1m$ {recording.command}\x1b[0m", *lines] for _, lines in frames]
    rows = list(dict.fromkeys(line for lines in shown for line in lines if line))
    height = max(map(len, shown)) * _LINE + _BAR + _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_FRAME_WIDTH} {height}" role="img">',
            f"<title>{escape(recording.command)}</title>",
            f"<style>{_css([seconds for seconds, _ in frames])}</style>",
            "<defs>",
            *(f'<g id="r{number}">{"".join(_runs(row))}</g>' for number, row in enumerate(rows)),
            "</defs>",
            f'<rect width="{_FRAME_WIDTH}" height="{height}" rx="8" fill="{_THEME.background_color.hex}"/>',
            *(
                f'<circle cx="{_MARGIN + 6 + 20 * number}" cy="15" r="6" fill="{colour}"/>'
                for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
            ),
            '<g class="film">',
            *(_frame(number, lines, rows) for number, lines in enumerate(shown)),
            "</g>",
            "</svg>\n",
        ]
    )


def timed(recording: Recording) -> Iterator[tuple[float, list[str]]]:
    """The successive distinct screens, each with the seconds for which it is shown."""
    before, began = None, 0.0
    pace = PLAY_SECONDS / recording.parts[-1].seconds
    for part, lines in zip(recording.parts, screens(recording), strict=True):
        if before is not None and lines != before:
            yield (part.seconds - began) * pace, before
            began = part.seconds
        before = lines
    if before is not None:
        yield END_SECONDS, before


def _css(seconds: Sequence[float]) -> str:
    whole = sum(seconds)
    starts = [sum(seconds[:number]) / whole for number in range(len(seconds))]
    keyframes = " ".join(
        f"{100 * start:.2f}% {{ transform: translateX({-number * _FRAME_WIDTH}px) }}"
        for number, start in enumerate(starts)
    )
    return _STYLE.format(last=-(len(seconds) - 1) * _FRAME_WIDTH, seconds=whole, keyframes=keyframes)


def _frame(number: int, lines: Sequence[str], rows: Sequence[str]) -> str:
    left = number * _FRAME_WIDTH + _MARGIN
    used = (
        f'<use href="#r{rows.index(line)}" x="{left}" y="{_BAR + (place + 1) * _LINE - 5}"/>'
        for place, line in enumerate(lines)
        if line
    )
    return "".join(used)


def _runs(line: str) -> Iterator[str]:
    """The text elements of a line: one for each run of text with the same style, at its column."""
    console = Console(width=10 * WIDTH, color_system="truecolor")
    (decoded,) = AnsiDecoder().decode(line)
    column = 0
    for segment in Segment.simplify(decoded.render(console)):
        text = segment.text.rstrip("\n")
        if text.strip():
            width = segment.cell_length * _CELL
            bold = ' font-weight="bold"' if segment.style and segment.style.bold else ""
            place = f'x="{column * _CELL}" textLength="{width}" fill="{_colour(segment.style)}"'
            yield f"<text {place}{bold}>{escape(text)}</text>"
        column += segment.cell_length


def _colour(style: Style | None) -> str:
    if style is None or style.color is None:
        return _THEME.foreground_color.hex
    return style.color.get_truecolor(_THEME).hex
