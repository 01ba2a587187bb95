"""The command: `tpujob`, `kubectl tpujob`, `python -m tpujob`."""

# The built-in module under `signal`: Ctrl-C could interrupt the imports of `signal` itself.
import _signal  # type: ignore[import-not-found]


def main() -> None:
    """Runs the command line; Ctrl-C ends it silently until the commands, which handle it themselves, are imported."""
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
