"""Running and finished extractions: `tpujob extract`."""
