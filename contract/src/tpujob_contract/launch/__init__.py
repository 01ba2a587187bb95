"""Entry point with which images and JobSets start the launcher: `python -m tpujob_contract.launch`."""
