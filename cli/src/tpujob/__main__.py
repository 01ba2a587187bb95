"""The command: `tpujob`, `kubectl tpujob`, `python -m tpujob`."""

# The built-in module below `signal`, whose own imports an interrupt would meet.
import _signal  # type: ignore[import-not-found]


def main() -> None:
    """Runs the command line. Ctrl-C ends it without a word until the verbs are there, which answer it themselves."""
    # Under nohup, and in the background of a script, SIGINT is ignored and stays so.
    before = _signal.getsignal(_signal.SIGINT)
    if before is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from typer.main import get_command

    from tpujob.main import app

    verbs = get_command(app)
    _signal.signal(_signal.SIGINT, before)
    verbs()


if __name__ == "__main__":
    main()
