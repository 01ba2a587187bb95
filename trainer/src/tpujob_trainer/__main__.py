"""`python -m tpujob_trainer`."""

from tpujob_trainer.main import main

main()
