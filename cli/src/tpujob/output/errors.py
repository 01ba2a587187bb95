"""The error of the command line, with an exit code of the contract."""

from tpujob_contract import ExitCode
from tpujob_contract.storage_address import redacted


class CommandError(Exception):
    """Ends the command with one line for every problem and the exit code of the contract."""

    def __init__(self, *problems: str, exit_code: int = ExitCode.CONFIGURATION) -> None:
        self.problems = tuple(redacted(problem) for problem in problems)
        super().__init__("\n".join(self.problems))
        self.exit_code = int(exit_code)
