"""How many small mistakes in pure code the tests notice: `make mutation`.

- `__main__`: Tries mutants of the listed modules for a bounded time, and reports the share that was noticed.
- `mutants`: Small changes of a module's syntax tree, one at a time.
- `targets`: Which modules are mutated, by which tests they are judged, and which mutants mean the same.
- `trial`: One mutant in a forked process: the module is imported in its changed form, and its tests run.
"""
