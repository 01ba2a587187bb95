"""How many small mistakes in pure code the tests notice: `make mutation`.

- `__main__`: Plays the named mistakes, then a random sample of mutants, and reports the share that was noticed.
- `mutants`: Small changes of a module's syntax tree, one at a time.
- `named`: Mistakes that people make, each with the tests that notice it.
- `reach`: Which tests enter which functions, so that a mutant costs those tests and no others.
- `targets`: Which modules are mutated, by which tests they are judged, and which mutants mean the same.
- `trial`: One mutant in a forked process: the module is imported in its changed form, and tests run.
"""
