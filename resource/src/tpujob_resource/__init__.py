"""The resource `TpuTrainingJob`: models, rules, messages, accelerators, JobSet and CRD. No client, no clock."""
