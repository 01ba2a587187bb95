"""The resource as people write it: fields, rules, messages, status and conditions.

- `conditions`: Everything that a TpuTrainingJob's status can say: condition types, reasons and their sentences, in
  one list.
- `container_rules`: Rules for what runs in a pod: image, arguments, environment, storage, amounts. Each yields
  sentences.
- `error_messages`: What the model layer found wrong, as sentences with the field as the user wrote it.
- `fields`: The shape that all parts of a resource share, and the kinds of value that occur more than once.
- `job`: A TpuTrainingJob as typed values, each field well-formed; `load.load_job` checks it as a whole.
- `limits`: How large a job may be: what the API server stores, and what the administrator allows.
- `load`: The custom resource: the only place where a manifest becomes a job.
- `scheduling`: Fields of `spec` that choose machines: how they are paid for, where they lie, which taints are
  tolerated.
- `spec`: `spec` of a TpuTrainingJob: what a person may ask for. The docstrings below are what `kubectl explain`
  shows.
- `status`: `status` of a TpuTrainingJob: what the operator saw, in the words of `kubectl get`. Written by the
  operator only.
- `trainer_rules`: Rules between fields of the `trainer` block, and between it and the accelerator. Each yields
  sentences.
- `trainer_schema`: The `trainer` block against the schema that the trainer publishes of its own configuration.
- `volume_rules`: Rules for volumes, and for a checkpoint directory that lies on one. Each yields sentences.
- `volumes`: Volumes of `spec`: what is mounted into every pod's main container, and where.
- `validation`: What a model of single fields cannot say: rules between fields, and arithmetic. Each rule yields
  sentences.
"""
