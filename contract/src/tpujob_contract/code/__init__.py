"""The name of the program that installs a job's code: `python -m tpujob_contract.code.install`."""
