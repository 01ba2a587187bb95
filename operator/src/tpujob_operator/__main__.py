"""`python -m tpujob_operator` is the command `tpujob-operator`."""

from tpujob_operator.main import main

main()
