"""The commands of `tpujob` as Python functions, which `import tpujob` provides."""
