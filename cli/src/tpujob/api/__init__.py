"""The verbs of the command line as Python functions, which `import tpujob` has."""
