"""A `TpuTrainingJob` as a value: models, rules, messages, accelerators, JobSet and CRD. No client, no clock."""
