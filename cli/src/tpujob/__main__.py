"""The command: `tpujob`, `kubectl tpujob`, `python -m tpujob`."""

# The built-in module under `signal`: Ctrl-C could interrupt the imports of `signal` itself.
import _signal  # type: ignore[import-not-found]


def _end(number: int, frame: object) -> None:
    """Ends the command with a word, and with it the program that it waits for."""
    import os

    os.write(2, f"tpujob: ended by signal {number}\n".encode())
    raise SystemExit(128 + number)


def main() -> None:
    """Runs the command line; Ctrl-C ends it silently until the commands, which handle it themselves, are imported."""
    # Under nohup, and in the background of a script, SIGINT is ignored and stays so.
    before = _signal.getsignal(_signal.SIGINT)
    if before is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    for number in (_signal.SIGTERM, _signal.SIGHUP):
        if _signal.getsignal(number) == _signal.SIG_DFL:
            _signal.signal(number, _end)
    import sys

    from tpujob.commands.streams import stream

    is_run = sys.argv[1:2] == ["run"]
    sys.stdout, sys.stderr = stream(1, goes_on=is_run), stream(2, goes_on=is_run)
    from typer.main import get_command

    from tpujob.main import app

    verbs = get_command(app)
    _signal.signal(_signal.SIGINT, before)
    try:
        verbs()
    except OSError as error:
        if error.filename is None:  # not about a file that somebody named
            raise
        import errno
        import os

        sys.stderr.write(f"{os.fsdecode(error.filename)}: {error.strerror}\n")
        # 77: what is named is not there, or may not be read. A full disk may be another one later.
        raise SystemExit(1 if error.errno in (errno.ENOSPC, errno.EDQUOT) else 77) from None


if __name__ == "__main__":
    main()
