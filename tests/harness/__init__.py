"""Programs that tests start for real: trainers, launchers and operators; pods and jobs of a control plane."""
