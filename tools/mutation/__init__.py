"""Measures how many small mistakes in pure code the tests detect: `make mutation`.

- `__main__`: Runs a random sample of mutants, then the named mistakes, and reports the share that was detected.
- `mutants`: Small changes of a module's syntax tree, one at a time.
- `named`: Typical human mistakes, each with the tests that detect it.
- `reach`: Which tests call which functions, so that a mutant runs only those tests.
- `targets`: The mutated modules, the tests that judge each, and the equivalent mutants.
- `trial`: Runs one mutant in a forked process, which imports the changed module and runs tests.
"""
